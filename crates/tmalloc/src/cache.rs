//! Caches of threads: free blocks by class, which their thread takes and leaves without a lock.
//!
//! The watcher takes what is in them when memory is recalled. So that this costs the owner two plain stores and a load, and no
//! atomic operation, the order between `busy` and `revoked` is made by the watcher alone, with membarrier(2): after it, an
//! owner either is seen busy or sees that it is revoked. A kernel without it (before 4.14) keeps what caches hold.
//!
//! A cache lies in a block of its arena, and is given back at its thread's end by a destructor of a pthread key: the
//! destructors of Rust's own thread locals are registered by an allocation.

use crate::{
    arena::{self, ARENAS, Node},
    class::{self, CLASSES},
    client::Patience,
    heap,
    lock::Lock,
    region, watch,
};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence},
};

/// What one visit to the arena brings at most, in bytes and blocks.
const BATCH_BYTES: usize = 16 << 10;
const BATCH_BLOCKS: usize = 64;
/// What a class may hold: bytes and blocks, and blocks whatever their size.
const BIN_BYTES_MAX: usize = 512 << 10;
const BIN_BLOCKS_MAX: usize = 1024;
const BIN_BLOCKS_MIN: usize = 4;
/// An owner is busy for some instructions; one that a signal caught there may be for long.
const BUSY_YIELDS_MAX: u32 = 1000;

#[derive(Debug)]
struct Bin {
    first: *mut Node,
    count: usize,
}

#[derive(Debug)]
struct Flags {
    /// The owner is changing bins.
    busy: AtomicBool,
    /// Somebody else does, or will: hands off.
    revoked: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Cache {
    flags: Flags,
    generation: u32,
    arena: usize,
    /// Its neighbours in the list of all, which [`ALL`] guards.
    before: *mut Cache,
    after: *mut Cache,
    bins: [Bin; CLASSES],
}

unsafe extern "C" {
    safe fn plimsoll_tmalloc_current() -> *mut c_void;
    safe fn plimsoll_tmalloc_set_current(cache: *mut c_void);
    safe fn plimsoll_tmalloc_is_alone() -> libc::c_int;
}

static ALL: Lock<*mut Cache> = Lock::new(ptr::null_mut());
static NEXT_ARENA: AtomicUsize = AtomicUsize::new(0);
/// How many arenas there are: twice as many as CPUs.
static ARENA_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The key plus one; 0 before there is one, [`NO_KEY`] where none could be had.
static KEY: AtomicU64 = AtomicU64::new(0);
const NO_KEY: u64 = u64::MAX;
/// Whether the kernel orders others' memory for us: 0 unknown, 1 it does, 2 it does not.
static BARRIER: AtomicU32 = AtomicU32::new(0);

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

/// The thread's cache; null before its first allocation.
#[inline(always)]
pub(crate) fn current() -> *mut Cache {
    plimsoll_tmalloc_current().cast()
}

/// A block of this class from the thread's own cache.
#[inline(always)]
pub(crate) fn pop(cache: *mut Cache, class: usize) -> Option<NonNull<u8>> {
    let flags = flags(cache)?;
    if !flags.enter() {
        return None;
    }
    // SAFETY: only the thread itself reaches its cache's bins while it is busy and not revoked.
    let bin = unsafe { bin(cache, class) }?;
    let node = NonNull::new(bin.first);
    if let Some(node) = node {
        // SAFETY: blocks in a bin are the cache's.
        bin.first = unsafe { (*node.as_ptr()).next };
        bin.count -= 1;
    }
    flags.leave();
    node.map(NonNull::cast)
}

/// Leaves a block in the thread's cache. `false`: it has to go elsewhere.
#[inline(always)]
pub(crate) fn push(cache: *mut Cache, class: usize, block: NonNull<u8>) -> bool {
    let Some(flags) = flags(cache) else { return false };
    if !flags.enter() {
        return false;
    }
    // SAFETY: as in `pop`.
    let Some(bin) = (unsafe { bin(cache, class) }) else { return false };
    let fits = bin.count < bin_blocks(class);
    if fits {
        let node = block.as_ptr().cast::<Node>();
        if bin.first == node {
            heap::misused();
        }
        // SAFETY: a block holds 16 bytes at least, and nobody uses it.
        unsafe { node.write(Node { next: bin.first }) };
        bin.first = node;
        bin.count += 1;
    }
    flags.leave();
    fits
}

/// A block of this class from wherever one is, filling the thread's cache on the way.
#[cold]
pub(crate) fn refill(class: usize, patience: Patience) -> Option<NonNull<u8>> {
    let cache = match current() {
        cache if cache.is_null() => create(),
        cache => cache,
    };
    if let Some(block) = pop(cache, class) {
        return Some(block);
    }
    let arena = own_arena();
    let count =
        if cache.is_null() { 1 } else { (BATCH_BYTES / class::block_bytes(class)).clamp(1, BATCH_BLOCKS) };
    let (list, taken) = arena::take(arena, class, count);
    let Some(node) = NonNull::new(list) else {
        return arena::refill(arena, class, patience).ok();
    };
    // SAFETY: the list is ours.
    let rest = unsafe { (*list).next };
    if !rest.is_null() {
        keep(cache, class, rest, taken - 1);
    }
    Some(node.cast())
}

/// A block that nobody has to be asked for, if there is one.
pub(crate) fn take_free(size: usize) -> Option<NonNull<u8>> {
    let class = class::class_of(size);
    pop(current(), class).or_else(|| NonNull::new(arena::take(own_arena(), class, 1).0.cast()))
}

/// The arena that this thread allocates from.
pub(crate) fn own_arena() -> usize {
    let cache = current();
    // SAFETY: the thread's own; the arena never changes.
    if cache.is_null() { 0 } else { unsafe { (*cache).arena } }
}

/// A block that does not fit in its bin takes half of the bin along to the arena.
#[cold]
pub(crate) fn overflow(cache: *mut Cache, class: usize, block: NonNull<u8>) {
    let node = block.as_ptr().cast::<Node>();
    let mut list = ptr::null_mut();
    if let Some(flags) = flags(cache) {
        flags.enter_patiently();
        // SAFETY: the thread's own, reached between `enter` and `leave`.
        if let Some(bin) = unsafe { bin(cache, class) } {
            for _ in 0..bin_blocks(class) / 2 {
                list = unlink(bin, list);
            }
        }
        flags.leave();
    }
    // SAFETY: nobody uses the block.
    unsafe { node.write(Node { next: list }) };
    // SAFETY: nor the others.
    unsafe { arena::put_back(node) };
}

/// What all caches hold goes back to the arenas.
pub(crate) fn empty_all() {
    register();
    let all = ALL.lock();
    let caches = || std::iter::successors(NonNull::new(*all), |cache| next_of(*cache));
    for cache in caches() {
        // SAFETY: caches in the list exist while its lock is held.
        unsafe { (*cache.as_ptr()).flags.revoked.store(true, Ordering::SeqCst) };
    }
    let ordered = order_others();
    let mut list = ptr::null_mut();
    for cache in caches() {
        let cache = cache.as_ptr();
        if ordered {
            // SAFETY: as above; the flag is atomic.
            let busy = || unsafe { (*cache).flags.busy.load(Ordering::Acquire) };
            let mut patience = BUSY_YIELDS_MAX;
            while busy() && patience > 0 {
                patience -= 1;
                std::thread::yield_now();
            }
            if !busy() {
                // SAFETY: the owner has seen that it is revoked, or will before it touches a bin.
                list = unsafe { take_all(cache, list) };
            }
        }
        // SAFETY: as above.
        unsafe { (*cache).flags.revoked.store(false, Ordering::Release) };
    }
    drop(all);
    // SAFETY: these blocks were in nobody's hands but the caches'.
    unsafe { arena::put_back(list) };
}

/// Forgets every cache, in a forked child.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    // SAFETY: the caller is the only thread.
    unsafe { ALL.start_over(ptr::null_mut()) };
    BARRIER.store(0, Ordering::Relaxed);
    plimsoll_tmalloc_set_current(ptr::null_mut());
    set_key(ptr::null_mut());
}

impl Flags {
    #[inline(always)]
    fn enter(&self) -> bool {
        self.busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.revoked.load(Ordering::Acquire) {
            self.leave();
            return false;
        }
        true
    }

    #[inline(always)]
    fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    fn enter_patiently(&self) {
        while !self.enter() {
            std::thread::yield_now();
        }
    }
}

#[inline(always)]
fn flags<'a>(cache: *mut Cache) -> Option<&'a Flags> {
    // SAFETY: a thread's cache exists as long as the thread reaches it, and others change its flags as atomics only.
    (!cache.is_null()).then(|| unsafe { &(*cache).flags })
}

/// # Safety
/// Between `enter` and `leave` of the owner.
#[inline(always)]
unsafe fn bin<'a>(cache: *mut Cache, class: usize) -> Option<&'a mut Bin> {
    // SAFETY: the caller's to promise; only the bins are borrowed, not the flags that others look at.
    let bins = unsafe { &mut (*cache).bins };
    bins.get_mut(class)
}

#[inline(always)]
fn bin_blocks(class: usize) -> usize {
    LIMITS.get(class).map_or(0, |limit| *limit as usize)
}

static LIMITS: [u32; CLASSES] = limits();

#[expect(clippy::indexing_slicing, reason = "worked out when this is built")]
const fn limits() -> [u32; CLASSES] {
    let mut limits = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let blocks = BIN_BYTES_MAX / class::block_bytes_at_build(class);
        limits[class] = if blocks > BIN_BLOCKS_MAX {
            BIN_BLOCKS_MAX as u32
        } else if blocks < BIN_BLOCKS_MIN {
            BIN_BLOCKS_MIN as u32
        } else {
            blocks as u32
        };
        class += 1;
    }
    limits
}

/// Moves the bin's first block, if it has one, before `list`.
fn unlink(bin: &mut Bin, list: *mut Node) -> *mut Node {
    let Some(node) = NonNull::new(bin.first) else { return list };
    let node = node.as_ptr();
    // SAFETY: the block is the bin's, and then the list's.
    unsafe {
        bin.first = (*node).next;
        (*node).next = list;
    }
    bin.count -= 1;
    node
}

/// Puts blocks into the thread's cache.
fn keep(cache: *mut Cache, class: usize, list: *mut Node, count: usize) {
    let mut last = list;
    // SAFETY: the list is the caller's.
    while let Some(next) = NonNull::new(unsafe { (*last).next }) {
        last = next.as_ptr();
    }
    let Some(flags) = flags(cache) else { return };
    flags.enter_patiently();
    // SAFETY: the thread's own, reached between `enter` and `leave`.
    if let Some(bin) = unsafe { bin(cache, class) } {
        // SAFETY: as above.
        unsafe { (*last).next = bin.first };
        bin.first = list;
        bin.count += count;
    }
    flags.leave();
}

fn next_of(cache: NonNull<Cache>) -> Option<NonNull<Cache>> {
    // SAFETY: caches in the list exist while its lock is held.
    NonNull::new(unsafe { (*cache.as_ptr()).after })
}

/// # Safety
/// Nobody else reaches the bins.
unsafe fn take_all(cache: *mut Cache, list: *mut Node) -> *mut Node {
    let mut list = list;
    // SAFETY: the caller's to promise; only the bins are borrowed, not the flags that the owner looks at.
    let bins = unsafe { &mut (*cache).bins };
    for bin in bins {
        while !bin.first.is_null() {
            list = unlink(bin, list);
        }
    }
    list
}

/// A cache for this thread; null when there is no memory for one.
fn create() -> *mut Cache {
    if key() == NO_KEY {
        return ptr::null_mut();
    }
    let arena = NEXT_ARENA.fetch_add(1, Ordering::Relaxed) % arena_count();
    let class = class::class_of(size_of::<Cache>());
    let block = match arena::take(arena, class, 1) {
        (node, 1) => node.cast::<u8>(),
        _ => match arena::refill(arena, class, Patience::None) {
            Ok(block) => block.as_ptr(),
            Err(_) => return ptr::null_mut(),
        },
    };
    let cache = block.cast::<Cache>();
    if !set_key(cache.cast()) {
        let node = block.cast::<Node>();
        // SAFETY: the block is ours, and goes back where it is from.
        unsafe {
            node.write(Node { next: ptr::null_mut() });
            arena::put_back(node);
        }
        return ptr::null_mut();
    }
    let mut all = ALL.lock();
    // SAFETY: the block is large enough, aligned to 16, and ours.
    unsafe {
        cache.write(Cache {
            flags: Flags { busy: AtomicBool::new(false), revoked: AtomicBool::new(false) },
            generation: region::generation(),
            arena,
            before: ptr::null_mut(),
            after: *all,
            bins: [const { Bin { first: ptr::null_mut(), count: 0 } }; CLASSES],
        });
    }
    if let Some(after) = NonNull::new(*all) {
        // SAFETY: caches in the list exist while its lock is held.
        unsafe { (*after.as_ptr()).before = cache };
    }
    *all = cache;
    drop(all);
    plimsoll_tmalloc_set_current(cache.cast());
    cache
}

/// At its thread's end.
extern "C" fn destroy(cache: *mut c_void) {
    let cache = cache.cast::<Cache>();
    plimsoll_tmalloc_set_current(ptr::null_mut());
    watch::thread_ends();
    // SAFETY: the value of the key is the thread's cache.
    if unsafe { (*cache).generation } != region::generation() {
        return;
    }
    forget(cache);
    // SAFETY: off the list, it is this thread's alone.
    let list = unsafe { take_all(cache, ptr::null_mut()) };
    let node = cache.cast::<Node>();
    // SAFETY: the cache is used no more; its block goes with the others.
    unsafe { node.write(Node { next: list }) };
    // SAFETY: as above.
    unsafe { arena::put_back(node) };
}

/// Takes a cache off the list of all: the watcher finds it no more.
fn forget(cache: *mut Cache) {
    let mut all = ALL.lock();
    // SAFETY: caches in the list exist while its lock is held, which guards these two.
    let (before, after) = unsafe { ((*cache).before, (*cache).after) };
    match NonNull::new(before) {
        // SAFETY: as above.
        Some(before) => unsafe { (*before.as_ptr()).after = after },
        None => *all = after,
    }
    if let Some(after) = NonNull::new(after) {
        // SAFETY: as above.
        unsafe { (*after.as_ptr()).before = before };
    }
}

fn key() -> u64 {
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    let mut key = 0;
    // SAFETY: the key is written by the call, and the destructor takes what the key is set to.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(destroy)) } == 0;
    let value = if made { u64::from(key) + 1 } else { NO_KEY };
    match KEY.compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => value,
        Err(theirs) => {
            if made {
                // SAFETY: made above, and set by nobody.
                unsafe { libc::pthread_key_delete(key) };
            }
            theirs
        }
    }
}

/// See [`crate::prepare`].
pub(crate) fn prepare() {
    key();
    watch::await_end();
}

/// `false`: the thread's end would not be seen.
fn set_key(cache: *mut c_void) -> bool {
    match libc::pthread_key_t::try_from(KEY.load(Ordering::Acquire).wrapping_sub(1)) {
        // SAFETY: the key was created, and is never deleted.
        Ok(key) => unsafe { libc::pthread_setspecific(key, cache) == 0 },
        Err(_none) => false,
    }
}

fn arena_count() -> usize {
    match ARENA_COUNT.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: takes a number, returns a number.
            let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let count = usize::try_from(cpus).unwrap_or(1).saturating_mul(2).clamp(1, ARENAS);
            ARENA_COUNT.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

/// Has the kernel get ready for [`order_others`], where that takes no time: in a process of one thread. In others it takes a
/// grace period of the kernel's RCU, some 10 ms (Linux 4.16 and later).
pub(crate) fn register_alone() {
    if plimsoll_tmalloc_is_alone() != 0 {
        register();
    }
}

/// The same in any process. To be called with nothing held that others need: caches are revoked in vain until then.
pub(crate) fn register() {
    if BARRIER.load(Ordering::Relaxed) == 0 {
        let registered = membarrier(REGISTER_PRIVATE_EXPEDITED);
        BARRIER.store(if registered { 1 } else { 2 }, Ordering::Relaxed);
    }
}

/// Makes every other thread of the process see what was written before, and shows us what they wrote.
fn order_others() -> bool {
    BARRIER.load(Ordering::Relaxed) == 1 && membarrier(PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes three numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
