//! The watch connection and its thread: gives idle memory back when it is recalled, and tells of the soft limit.
//!
//! The thread starts when the process holds enough that some of it may lie idle, or the program wants to hear of the limit: a
//! program that is soon over has none. It has a stack of its own and every signal blocked, and sleeps in the kernel unless
//! there is something to tell. When the coordinator goes it sleeps until somebody has connected again.

use crate::{
    arena, cache, client, large,
    lock::{self, Lock},
    message::{HELLO_WATCHES, Message, RECALL, RECALLED, SOFT},
    pages, process,
    socket::{self, Missing, Own, Received},
};
use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// Callbacks of the program run on it.
const STACK_BYTES: usize = 256 << 10;
/// Who holds less by grants than this has nothing worth asking back.
const WATCHED_BYTES: usize = 1 << 20;
/// For how long after a refusal leases are as small as can be.
const TIGHT_AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Nobody who connected meanwhile is worth a look more often.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
const RETRIES: u32 = 20;
/// After so many, a daemon that is away is looked for no more often than this.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The watcher, and the first thread, which the kernel counts until the process ends.
const THREADS_ALONE: u32 = 2;

/// What the program wants to be called with: whether the soft limit was reached, and its own pointer.
pub(crate) type Callback = unsafe extern "C" fn(reached: c_int, argument: *mut c_void);

#[derive(Debug, Clone, Copy)]
struct Listener {
    callback: Option<Callback>,
    argument: *mut c_void,
}

const NOBODY: Listener = Listener { callback: None, argument: ptr::null_mut() };

/// The program hears of the soft limit.
static IS_HEARD: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Raised with each new request connection.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// What the watcher reads, for a forked child to close.
static SOCKET: Lock<Option<Own>> = Lock::new(None);
static SOFT_REACHED: AtomicBool = AtomicBool::new(false);
/// What programs poll.
static SOFT_FD: Lock<Option<Own>> = Lock::new(None);
static LISTENER: Lock<Listener> = Lock::new(NOBODY);
/// The program's first thread has ended, by pthread_exit(3): the process is to end with the last one that is the program's.
static FIRST_ENDED: AtomicBool = AtomicBool::new(false);
static GIVEN: AtomicU32 = AtomicU32::new(0);
/// Milliseconds of the monotonic clock at the last refusal, plus one.
static REFUSED_AT_MS: AtomicU64 = AtomicU64::new(0);

/// Somebody has connected: the watcher connects too. Where there is none, [`start_wanted`] starts it.
pub(crate) fn want() {
    WANTED.fetch_add(1, Ordering::Release);
    if RUNNING.load(Ordering::Acquire) {
        lock::wake(&WANTED, 1);
    }
}

/// Starts the watcher that is wanted, once there is something for it to do. To be called with nothing held that others need
/// for memory.
pub(crate) fn start_wanted() {
    let is_wanted = WANTED.load(Ordering::Acquire) > 0 && !RUNNING.load(Ordering::Acquire);
    let has_work = arena::held_bytes() >= WATCHED_BYTES || IS_HEARD.load(Ordering::Relaxed);
    if is_wanted && has_work && !RUNNING.swap(true, Ordering::AcqRel) && !spawn() {
        // Not tried again before the next connection.
        WANTED.store(0, Ordering::Release);
        RUNNING.store(false, Ordering::Release);
    }
}

/// Has [`thread_ends`] called for the calling thread, also where it never allocates.
pub(crate) fn await_end() {
    unsafe extern "C" fn ends(_mark: *mut c_void) {
        thread_ends();
    }
    let mut key = 0;
    // SAFETY: the key is written by the first call; its value is only a mark.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(ends)) == 0 {
            libc::pthread_setspecific(key, ptr::from_ref(&RUNNING).cast());
        }
    }
}

/// The calling thread ends. Where it is the first one, nobody but the watcher sees when the last one does: the C library
/// ends a process with its last thread, and takes the watcher for one.
pub(crate) fn thread_ends() {
    // SAFETY: both take nothing.
    let is_first = unsafe { libc::gettid() == libc::getpid() };
    if is_first {
        // A watcher that starts later looks at it, too.
        FIRST_ENDED.store(true, Ordering::Release);
        let socket = *SOCKET.lock();
        if let Some(socket) = socket {
            socket.shut_down();
        }
        lock::wake(&WANTED, 1);
    }
}

/// Ends the process where no other thread is left, with the status that the C library ends it with.
fn end_if_alone() {
    if FIRST_ENDED.load(Ordering::Acquire) && process::threads().is_some_and(|count| count <= THREADS_ALONE) {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is made empty before it is read; from here on this is an ordinary thread.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
            libc::exit(0);
        }
    }
}

/// Whether leases have to be small: the soft limit is reached, or somebody was refused lately.
pub(crate) fn is_tight() -> bool {
    if SOFT_REACHED.load(Ordering::Relaxed) {
        return true;
    }
    match REFUSED_AT_MS.load(Ordering::Relaxed) {
        0 => false,
        at => now_ms().saturating_sub(at) < u64::try_from(TIGHT_AFTER_REFUSAL.as_millis()).unwrap_or(0),
    }
}

/// A lease was refused just now.
pub(crate) fn note_refusal() {
    REFUSED_AT_MS.store(now_ms().max(1), Ordering::Relaxed);
}

/// A descriptor that is readable once the soft limit was reached; -1 when there is none to be had.
pub(crate) fn soft_fd() -> c_int {
    IS_HEARD.store(true, Ordering::Relaxed);
    let mut known = SOFT_FD.lock();
    if let Some(descriptor) = known.and_then(Own::get) {
        return descriptor;
    }
    // SAFETY: takes two numbers.
    let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    *known = Own::of(made);
    if made >= 0 && SOFT_REACHED.load(Ordering::Acquire) {
        raise(made);
    }
    made
}

/// Whom to call; `None` for nobody.
pub(crate) fn listen(callback: Option<Callback>, argument: *mut c_void) {
    IS_HEARD.store(true, Ordering::Relaxed);
    *LISTENER.lock() = Listener { callback, argument };
}

/// Forgets the watcher, in a forked child, where its thread is not.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    IS_HEARD.store(false, Ordering::Relaxed);
    RUNNING.store(false, Ordering::Relaxed);
    WANTED.store(0, Ordering::Relaxed);
    FIRST_ENDED.store(false, Ordering::Relaxed);
    SOFT_REACHED.store(false, Ordering::Relaxed);
    // SAFETY: the caller is the only thread.
    let inherited = unsafe { *SOCKET.peek() };
    if let Some(socket) = inherited {
        socket.close();
    }
    // SAFETY: as above. The eventfd is shared with the parent: each has one of its own.
    unsafe {
        SOCKET.start_over(None);
        SOFT_FD.start_over(None);
        LISTENER.start_over(NOBODY);
    }
}

/// How often idle memory was given back, by whichever thread.
pub(crate) fn given() -> u32 {
    GIVEN.load(Ordering::Acquire)
}

/// Gives idle memory back, `wanted` bytes and what comes along. How many it was.
pub(crate) fn give_idle(wanted: usize) -> usize {
    let mut given = large::trim(wanted);
    if given < wanted {
        cache::empty_all();
        given += arena::trim(wanted - given);
    }
    GIVEN.fetch_add(u32::from(given > 0), Ordering::Release);
    given
}

/// Milliseconds of the monotonic clock.
pub(crate) fn now_ms() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: there is room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    // SAFETY: all zeros, or a time.
    let now = unsafe { now.assume_init() };
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

/// Starts the thread. `false`: it could not be.
fn spawn() -> bool {
    cache::register_alone();
    let stack = pages::take_space(STACK_BYTES, pages::size());
    if stack.is_null() {
        return false;
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut blocked, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::uninit());
    let mut thread = MaybeUninit::uninit();
    // The lowest page stays closed: an overflow ends there.
    let usable = pages::open(stack.wrapping_add(pages::size()), STACK_BYTES - pages::size());
    // SAFETY: each is initialized by its first call before the next ones read it; the stack is mapped, and is the
    // thread's from here on.
    let created = usable
        && unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setstack(
                attributes.as_mut_ptr(),
                stack.wrapping_add(pages::size()).cast(),
                STACK_BYTES - pages::size(),
            );
            libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            libc::sigfillset(blocked.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
            let failed = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            failed == 0
        };
    if !created {
        pages::give_space(stack, STACK_BYTES);
    }
    created
}

extern "C" fn run(_nothing: *mut c_void) -> *mut c_void {
    // SAFETY: a name of less than 16 bytes for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"tmalloc".as_ptr()) };
    // Now, and not when memory is wanted.
    cache::register();
    let mut tries = 0;
    loop {
        let wanted = WANTED.load(Ordering::Acquire);
        let missing = match socket::connect(HELLO_WATCHES) {
            Ok(socket) => {
                tries = 0;
                *SOCKET.lock() = Some(socket);
                let ended = watch(socket);
                *SOCKET.lock() = None;
                socket.close();
                soft(false);
                ended
            }
            Err(missing) => missing,
        };
        end_if_alone();
        let limit = if FIRST_ENDED.load(Ordering::Acquire) || missing == Missing::Absent && tries < RETRIES {
            Some(RETRY_INTERVAL)
        } else {
            // Others had more need of the place: it is theirs until this process asks for something again. Where there is no
            // daemon, who is told of no recall by the next one would let others be refused, also while it asks for nothing.
            (missing == Missing::Absent).then_some(RETRY_INTERVAL_MAX)
        };
        tries += u32::from(tries < RETRIES);
        lock::sleep_while(&WANTED, wanted, limit);
    }
}

/// Until the connection ends, and why it did: for another's sake, or with the daemon.
fn watch(socket: Own) -> Missing {
    loop {
        let limit = FIRST_ENDED.load(Ordering::Acquire).then_some(RETRY_INTERVAL);
        end_if_alone();
        match socket::receive(socket, limit) {
            Received::Message(message) if message.kind == RECALL => {
                let wanted = usize::try_from(message.a).unwrap_or(usize::MAX);
                let given = give_idle(wanted);
                if !socket::send(socket, &Message::new(RECALLED).seq(message.seq).a(given as u64)) {
                    client::give_back(given);
                }
            }
            Received::Message(message) if message.kind == SOFT => soft(message.a != 0),
            Received::Message(_) | Received::Nothing => {}
            Received::Displaced => return Missing::Full,
            Received::Ended => return Missing::Absent,
        }
    }
}

/// The soft limit was reached, or left.
fn soft(reached: bool) {
    if SOFT_REACHED.swap(reached, Ordering::AcqRel) == reached {
        return;
    }
    if reached {
        client::give_back(give_idle(usize::MAX));
    }
    let descriptor = SOFT_FD.lock().and_then(Own::get);
    if let Some(descriptor) = descriptor {
        if reached { raise(descriptor) } else { settle(descriptor) }
    }
    let listener = *LISTENER.lock();
    if let Some(callback) = listener.callback {
        // SAFETY: what the program gave, with what it gave for it.
        unsafe { callback(c_int::from(reached), listener.argument) };
    }
}

fn raise(descriptor: c_int) {
    let one = 1_u64;
    // SAFETY: an eventfd takes eight bytes.
    unsafe { libc::write(descriptor, ptr::from_ref(&one).cast(), size_of::<u64>()) };
}

/// Takes back what nobody read.
fn settle(descriptor: c_int) {
    let mut count = 0_u64;
    // SAFETY: an eventfd gives eight bytes.
    unsafe { libc::read(descriptor, ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
}
