//! Large blocks: a grant and a mapping each, of just the size. What was freed last is kept a while, since each costs
//! messages; the watcher gives it back when it is wanted.

use crate::{
    arena,
    client::{self, Grant, Patience, Refusal},
    daemonless, fork, heap,
    lock::Lock,
    pages,
    region::{self, Head, REGION_BYTES},
};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicUsize, Ordering},
};

const LARGE_MAGIC: u64 = 0x746d_616c_6c6f_6332;
/// The same while the block is nobody's: who gives it back again is found out.
const KEPT_MAGIC: u64 = 0x746d_616c_6c6f_6333;
/// Where the block begins behind the header, unless it is aligned to more.
const OFFSET: usize = 64;
/// Kept: a share of what is held, between these.
const KEPT_SHARE: usize = 8;
const KEPT_BYTES_MIN: usize = 1 << 20;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// From here on the kernel may back a mapping by huge pages: they cannot reach over its end.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Larger requests are arithmetic gone wrong.
const BYTES_MAX: usize = usize::MAX >> 17;

/// The first bytes of a large block's mapping.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Large {
    head: Head,
    /// Where the block begins and its last page ends, from here.
    offset: usize,
    end: usize,
    next: *mut Large,
    /// Its mapping has more than one part to the kernel, which before Linux 6.17 moves only one.
    moved: bool,
}

const _: () = assert!(size_of::<Large>() <= OFFSET);

#[derive(Debug)]
struct Kept {
    first: *mut Large,
    bytes: usize,
}

static KEPT: Lock<Kept> = Lock::new(Kept { first: ptr::null_mut(), bytes: 0 });
/// How many bytes [`KEPT`] has, to be read without its lock.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A block with a mapping of its own, and whether it is known to be all zeros.
pub(crate) fn allocate(
    size: usize,
    alignment: usize,
    patience: Patience,
) -> Result<(NonNull<u8>, bool), Refusal> {
    if size > BYTES_MAX || alignment > BYTES_MAX {
        return Err(Refusal::Refused);
    }
    if alignment <= OFFSET
        && let Some(block) = take_kept(size)
    {
        return Ok((block, false));
    }
    fork::prepare();
    let shape = Shape::of(size, alignment).ok_or(Refusal::Refused)?;
    let _growing = arena::growing(patience);
    match client::reserve(shape.bytes(), patience) {
        Ok(grant) => {
            let block = shape.map(true);
            conclude(&grant, block.err());
            block.map(|block| (block, true)).map_err(|_dropped| Refusal::Refused)
        }
        Err(Refusal::NoDaemon) if daemonless::pass() => {
            shape.map(false).map(|block| (block, true)).map_err(|_dropped| Refusal::Refused)
        }
        Err(refusal) => Err(refusal),
    }
}

/// All of a grant is populated; or nothing came of it, and so many bytes were populated and are unmapped again.
pub(crate) fn conclude(grant: &Grant, dropped: Option<usize>) {
    if dropped.is_none() {
        arena::hold(grant.bytes);
    }
    client::settled(grant);
    client::give_back(dropped.unwrap_or(0));
}

/// Bytes that mapping a block populates.
pub(crate) fn cost(size: usize) -> Option<usize> {
    (size <= BYTES_MAX).then(|| Shape::of(size, 1).map(|shape| shape.bytes())).flatten()
}

/// A block out of a grant that covers more than it; takes its part off.
pub(crate) fn allocate_under(grant: &mut usize, size: usize) -> Option<NonNull<u8>> {
    let shape = Shape::of(size, 1)?;
    let left = grant.checked_sub(shape.bytes())?;
    match shape.map(true) {
        Ok(block) => {
            *grant = left;
            arena::hold(shape.bytes());
            Some(block)
        }
        Err(dropped) => {
            client::give_back(dropped);
            None
        }
    }
}

/// How a block lies in its mapping.
#[derive(Debug, Clone, Copy)]
struct Shape {
    offset: usize,
    end: usize,
    alignment: usize,
}

impl Shape {
    fn of(size: usize, alignment: usize) -> Option<Self> {
        let offset = if alignment <= REGION_BYTES { alignment.max(OFFSET) } else { REGION_BYTES };
        let end = pages::round_up(offset.checked_add(size.max(1))?)?;
        Some(Self { offset, end, alignment })
    }

    /// Where the pages of the block begin: at the front, or behind a gap.
    fn start(self) -> usize {
        self.offset / pages::size() * pages::size()
    }

    /// Bytes of the header's page, where that is not the block's first one.
    fn apart(self) -> usize {
        if self.start() == 0 { 0 } else { pages::size() }
    }

    fn bytes(self) -> usize {
        self.apart() + self.end - self.start()
    }

    /// `Err`: the kernel has no more; bytes that were populated in vain, and are unmapped again.
    fn map(self, asked: bool) -> Result<NonNull<u8>, usize> {
        let base = self.take_space();
        if base.is_null() {
            return Err(0);
        }
        let (start, length) = (base.wrapping_add(self.start()), self.end - self.start());
        if self.apart() > 0 || self.end < HUGE_PAGE_BYTES {
            pages::small_pages_only(base, self.end);
        }
        let open = |at, length| pages::open(at, length) && (!asked || pages::populate(at, length));
        if !(open(base, self.apart()) && open(start, length)) {
            let bytes = pages::populated_bytes(base, self.end);
            pages::give_space(base, self.end);
            return Err(bytes);
        }
        let head = Head { magic: LARGE_MAGIC, generation: region::generation(), asked };
        // SAFETY: the first page is open, and nobody else knows of it.
        unsafe {
            base.cast::<Large>().write(Large {
                head,
                offset: self.offset,
                end: self.end,
                next: ptr::null_mut(),
                moved: false,
            });
        }
        NonNull::new(base.wrapping_add(self.offset)).ok_or(0)
    }

    /// Space that begins at a multiple of [`REGION_BYTES`], with the block aligned.
    fn take_space(self) -> *mut u8 {
        if self.alignment <= REGION_BYTES {
            return pages::take_space(self.end, REGION_BYTES);
        }
        let before = self.alignment - REGION_BYTES;
        let Some(length) = self.end.checked_add(before) else { return ptr::null_mut() };
        let at = pages::take_space(length, self.alignment);
        if at.is_null() {
            return at;
        }
        pages::give_space(at, before);
        at.wrapping_add(before)
    }
}

impl Large {
    fn shape(&self) -> Shape {
        Shape { offset: self.offset, end: self.end, alignment: 1 }
    }

    /// What the block holds.
    pub(crate) fn usable_bytes(&self) -> usize {
        self.end - self.offset
    }

    pub(crate) fn is_one(head: &Head) -> bool {
        head.magic == LARGE_MAGIC
    }
}

/// A block is used no more.
///
/// # Safety
/// That is so, and nobody reaches it.
pub(crate) unsafe fn free(large: *mut Large) {
    // SAFETY: the header of a block that was used until now.
    let state = unsafe { &mut *large };
    let inherited = state.head.generation != region::generation();
    let fits = state.head.asked && state.offset == OFFSET && !inherited;
    let mut kept = KEPT.lock();
    // Another thread may have given it back since it was found.
    if !Large::is_one(&state.head) {
        heap::misused();
    }
    let limit = (arena::held_bytes() / KEPT_SHARE).clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX);
    if fits && kept.bytes + state.end <= limit {
        state.head.magic = KEPT_MAGIC;
        state.next = kept.first;
        kept.first = large;
        kept.add(state.end);
        return;
    }
    drop(kept);
    let bytes = if state.head.asked && !inherited { state.shape().bytes() } else { 0 };
    // SAFETY: nobody reaches it.
    unsafe { unmap(large) };
    arena::hold_less(bytes);
    client::give_back(bytes);
}

/// Makes a block larger or smaller where it is or where there is room, without a copy. `None`: nothing changed.
///
/// # Safety
/// Nobody else uses the block.
pub(crate) unsafe fn resize(large: *mut Large, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the header of a block in use.
    let state = unsafe { &mut *large };
    let plain = state.offset == OFFSET && state.head.asked && state.head.generation == region::generation();
    if !plain || size > BYTES_MAX {
        return None;
    }
    let end = pages::round_up(OFFSET + size)?;
    let block = large.cast::<u8>().wrapping_add(OFFSET);
    if end < state.end {
        let bytes = state.end - end;
        pages::give_space(large.cast::<u8>().wrapping_add(end), bytes);
        state.end = end;
        arena::hold_less(bytes);
        client::give_back(bytes);
    } else if end > state.end {
        return grow(large, end);
    }
    NonNull::new(block)
}

fn grow(large: *mut Large, end: usize) -> Option<NonNull<u8>> {
    // SAFETY: the header of a block in use, which the caller owns.
    let (old_end, moved) = unsafe { ((*large).end, (*large).moved) };
    if moved {
        return None;
    }
    let _growing = arena::growing(Patience::None);
    let grant = client::reserve(end - old_end, Patience::None).ok()?;
    let carried = carry(large.cast(), old_end, end);
    conclude(&grant, carried.err());
    let large = carried.ok()?.cast::<Large>();
    // SAFETY: the header moved along.
    unsafe {
        (*large).end = end;
        (*large).moved = true;
    }
    NonNull::new(large.cast::<u8>().wrapping_add(OFFSET))
}

/// Moves a mapping to where it has room, and backs the new part. `Err`: it is where it was; bytes that were populated in
/// vain, and are unmapped again.
fn carry(from: *mut u8, old_end: usize, end: usize) -> Result<*mut u8, usize> {
    let to = pages::take_space(end, REGION_BYTES);
    if to.is_null() {
        return Err(0);
    }
    if old_end < HUGE_PAGE_BYTES {
        pages::small_pages_only(to, end);
    }
    let (added, bytes) = (to.wrapping_add(old_end), end - old_end);
    let ready = pages::open(added, bytes) && pages::populate(added, bytes);
    if ready && pages::carry(from, old_end, to) {
        return Ok(to);
    }
    let populated = pages::populated_bytes(added, bytes);
    // After a move that failed the space before what was added may be another thread's mapping by now.
    if !ready {
        pages::give_space(to, old_end);
    }
    pages::give_space(added, bytes);
    Err(populated)
}

/// Unmaps what is kept until `wanted` bytes are given back. The coordinator is told by the caller.
pub(crate) fn trim(wanted: usize) -> usize {
    let mut given = 0;
    let mut kept = KEPT.lock();
    while given < wanted
        && let Some(large) = NonNull::new(kept.first)
    {
        let large = large.as_ptr();
        // SAFETY: what is kept is nobody's but the list's.
        let (next, end) = unsafe { ((*large).next, (*large).end) };
        kept.first = next;
        kept.take_off(end);
        // SAFETY: as above.
        unsafe { unmap(large) };
        given += end;
    }
    drop(kept);
    arena::hold_less(given);
    given
}

/// Forgets what is kept, in a forked child.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    // SAFETY: the caller is the only thread.
    unsafe { KEPT.start_over(Kept { first: ptr::null_mut(), bytes: 0 }) };
    KEPT_BYTES.store(0, Ordering::Relaxed);
}

impl Kept {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        KEPT_BYTES.store(self.bytes, Ordering::Relaxed);
    }

    fn take_off(&mut self, bytes: usize) {
        self.bytes -= bytes;
        KEPT_BYTES.store(self.bytes, Ordering::Relaxed);
    }
}

/// # Safety
/// Nobody reaches the block.
unsafe fn unmap(large: *mut Large) {
    // SAFETY: its header is there until it is unmapped.
    let end = unsafe { (*large).end };
    pages::give_space(large.cast(), end);
}

/// What is kept and wastes no more than a quarter.
fn take_kept(size: usize) -> Option<NonNull<u8>> {
    if KEPT_BYTES.load(Ordering::Relaxed) < size {
        return None;
    }
    let mut kept = KEPT.lock();
    let mut link = &raw mut kept.first;
    // SAFETY: links lead through what is kept, whose lock is held.
    while let Some(large) = NonNull::new(unsafe { *link }) {
        let large = large.as_ptr();
        // SAFETY: as above.
        let (usable, end, next) = unsafe { ((*large).usable_bytes(), (*large).end, (*large).next) };
        if usable >= size && usable - size <= size / 4 {
            // SAFETY: as above; it is taken off the list.
            unsafe {
                *link = next;
                (*large).head.magic = LARGE_MAGIC;
            }
            kept.take_off(end);
            return NonNull::new(large.cast::<u8>().wrapping_add(OFFSET));
        }
        // SAFETY: as above.
        link = unsafe { &raw mut (*large).next };
    }
    None
}
