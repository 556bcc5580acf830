//! The coordinator's socket: where it is, one connection to it, one message either way. Never allocates.

use crate::{
    lock::Lock,
    message::{FAULT, HELLO, MESSAGE_BYTES, Message, VERSION, WELCOME},
    pages,
};
use std::{
    ffi::{CStr, c_char},
    ptr,
    time::{Duration, Instant},
};

const DEFAULT_PATH: &CStr = c"/run/plimsoll/tmalloc.sock";
const PATH_VARIABLE: &CStr = c"PLIMSOLL_TMALLOC_SOCKET";
/// A coordinator that takes longer to say WELCOME is as good as none.
const WELCOME_PATIENCE: Duration = Duration::from_secs(2);

/// Descriptors begin here, or below where a process may have fewer, but never as its standard ones.
const OUT_OF_THE_WAY: [libc::c_int; 3] = [900, 200, 3];

/// What FAULT says where there was no place, or no time: EMFILE, ETIMEDOUT.
const FULL: [u64; 2] = [libc::EMFILE as u64, libc::ETIMEDOUT as u64];

/// What came of waiting for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    Message(Message),
    Nothing,
    Ended,
    /// Others need its place more than this connection does.
    Displaced,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nobody serves the socket.
    Absent,
    /// Somebody does, and has no place or no time now.
    Full,
}

/// A descriptor of ours, and what it was opened as: a program that closes all it does not know (closefrom(3)) closes this, too,
/// and may open something else by the same number. That is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Own {
    descriptor: libc::c_int,
    device: u64,
    inode: u64,
}

impl Own {
    /// `None`: it is no open descriptor.
    pub(crate) fn of(descriptor: libc::c_int) -> Option<Self> {
        // SAFETY: a plain C structure; all zeros is a valid one.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for what is told.
        let open = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
        open.then_some(Self { descriptor, device: status.st_dev, inode: status.st_ino })
    }

    /// The descriptor, if it still is what it was.
    pub(crate) fn get(self) -> Option<libc::c_int> {
        (Self::of(self.descriptor) == Some(self)).then_some(self.descriptor)
    }

    /// Closes it, or leaves alone what is not ours.
    pub(crate) fn close(self) {
        if let Some(descriptor) = self.get() {
            close(descriptor);
        }
    }

    /// Ends the connection for whoever reads it. The descriptor stays.
    pub(crate) fn shut_down(self) {
        if let Some(descriptor) = self.get() {
            // SAFETY: takes two numbers; what is not connected is none the worse for it.
            unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
        }
    }
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// A variable of the environment; setuid programs have none as far as this library cares.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a zero byte. What is found stays where it is unless the program changes its environment
    // at the same time, which is the program's own race.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    // SAFETY: not null, so a string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// As it was found first: a program may do away with its environment.
static ADDRESS: Lock<Option<libc::sockaddr_un>> = Lock::new(None);

/// Forgets nothing but who was looking, in a forked child.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    // SAFETY: the caller's to promise.
    unsafe { ADDRESS.start_over(*ADDRESS.peek()) };
}

/// The address of the socket; `None` for a path longer than an address holds.
fn address() -> Option<libc::sockaddr_un> {
    let mut known = ADDRESS.lock();
    if known.is_none() {
        *known = address_now();
    }
    *known
}

fn address_now() -> Option<libc::sockaddr_un> {
    // SAFETY: a plain C structure; all zeros is a valid one.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(1);
    let path = environment(PATH_VARIABLE).unwrap_or(DEFAULT_PATH).to_bytes_with_nul();
    if path.len() > address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    Some(address)
}

/// A socket with a number out of the way: programs count on the lowest one that is free (`close(0)`, then `open`).
fn open() -> Option<libc::c_int> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes three numbers.
    let low = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if low < 0 {
        return None;
    }
    for least in OUT_OF_THE_WAY {
        // SAFETY: takes three numbers.
        let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, least) };
        if high >= 0 {
            close(low);
            return Some(high);
        }
    }
    Some(low)
}

/// Connects, says HELLO with these flags, and waits to be welcomed.
pub(crate) fn connect(flags: u64) -> Result<Own, Missing> {
    let end = Instant::now() + WELCOME_PATIENCE;
    let own = say_hello(flags)?;
    let welcomed = await_welcome(own, end);
    if welcomed.is_err() {
        own.close();
    }
    welcomed.map(|()| own)
}

/// The same without waiting: a question may follow at once, whose answer comes behind the welcome, or a FAULT in its place.
pub(crate) fn say_hello(flags: u64) -> Result<Own, Missing> {
    let address = address().ok_or(Missing::Absent)?;
    let socket = open().ok_or(Missing::Absent)?;
    let own = Own::of(socket).ok_or(Missing::Absent)?;
    let reached = reach(socket, &address, Instant::now() + WELCOME_PATIENCE);
    match reached {
        // A FAULT may be there before anything is said.
        Ok(()) => drop(send(own, &Message::new(HELLO).a(VERSION).b(flags))),
        Err(_) => own.close(),
    }
    reached.map(|()| own)
}

/// Connects, which waits while the coordinator accepts nobody. A signal in between is none of its business.
fn reach(socket: libc::c_int, address: &libc::sockaddr_un, end: Instant) -> Result<(), Missing> {
    let limit = libc::timeval {
        tv_sec: libc::time_t::try_from(WELCOME_PATIENCE.as_secs()).unwrap_or(1),
        tv_usec: libc::suseconds_t::from(WELCOME_PATIENCE.subsec_micros().cast_signed()),
    };
    let length = libc::socklen_t::try_from(size_of_val(&limit)).unwrap_or(0);
    let option = ptr::from_ref(&limit).cast();
    // SAFETY: the time is as long as is said.
    unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, option, length) };
    let length = libc::socklen_t::try_from(size_of_val(address)).unwrap_or(0);
    loop {
        // SAFETY: the address is as long as is said.
        if unsafe { libc::connect(socket, ptr::from_ref(address).cast(), length) } == 0 {
            return Ok(());
        }
        match pages::errno() {
            libc::EINTR if Instant::now() < end => {}
            // As many wait to be taken as may.
            libc::EINTR | libc::EAGAIN => return Err(Missing::Full),
            _ => return Err(Missing::Absent),
        }
    }
}

/// A coordinator that says nothing is stopped, or has too much to do; one that ends the connection may be gone, which the next
/// try finds.
fn await_welcome(socket: Own, end: Instant) -> Result<(), Missing> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match receive(socket, Some(left)) {
            Received::Message(answer) if answer.kind == WELCOME => return Ok(()),
            // Another version's, or this process cannot be told from where it is.
            Received::Message(_) => return Err(Missing::Absent),
            Received::Nothing if left > Duration::ZERO => {}
            Received::Nothing | Received::Ended | Received::Displaced => return Err(Missing::Full),
        }
    }
}

/// Sends without waiting. `false`: nobody there, or nobody who reads.
pub(crate) fn send(socket: Own, message: &Message) -> bool {
    let Some(socket) = socket.get() else { return false };
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a message is as long as is said.
    let sent = unsafe { libc::send(socket, ptr::from_ref(message).cast(), MESSAGE_BYTES, flags) };
    usize::try_from(sent) == Ok(MESSAGE_BYTES)
}

/// Waits for a message, without a limit for ever. Behind a FAULT comes the end.
pub(crate) fn receive(socket: Own, limit: Option<Duration>) -> Received {
    let Some(socket) = socket.get() else { return Received::Ended };
    if let Some(limit) = limit {
        let mut ready = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
        };
        // SAFETY: one descriptor, and a time; both outlive the call.
        let polled = unsafe { libc::ppoll(&raw mut ready, 1, &raw const time, ptr::null()) };
        if polled <= 0 {
            return Received::Nothing;
        }
    }
    let mut message = Message::default();
    // SAFETY: there is room for as much as is said.
    let got = unsafe { libc::recv(socket, ptr::from_mut(&mut message).cast(), MESSAGE_BYTES, 0) };
    match usize::try_from(got) {
        Ok(MESSAGE_BYTES) if message.kind == FAULT && FULL.contains(&message.a) => Received::Displaced,
        Ok(MESSAGE_BYTES) => Received::Message(message),
        Err(_negative) if pages::errno() == libc::EINTR => Received::Nothing,
        _ => Received::Ended,
    }
}

/// Drops a descriptor.
pub(crate) fn close(socket: libc::c_int) {
    // SAFETY: whoever calls this owns the descriptor and forgets it.
    unsafe { libc::close(socket) };
}
