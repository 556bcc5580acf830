//! Descriptors that whoever started this process opened: those that a service manager has kept for it (sd_listen_fds(3)), and
//! those that are named on the command line.

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use std::{
    env,
    os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

/// The first one's number, after the standard ones.
const FIRST: RawFd = 3;

/// Descriptors that have been taken are not there a second time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Those that were handed to this process and to no other, each with its name. From here on no child inherits them. For the
/// first thread, before it opens or closes anything.
#[must_use]
pub fn inherited_descriptors() -> Vec<(String, OwnedFd)> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = number("LISTEN_FDS").filter(|_| number("LISTEN_PID") == Some(std::process::id()));
    let Some(count) = count.and_then(|count| RawFd::try_from(count).ok()) else { return Vec::new() };
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    (FIRST..FIRST.saturating_add(count)).zip(names).filter_map(|(fd, name)| Some((name, take(fd)?))).collect()
}

/// Another one of what has this number; from here on no child inherits either, unless it is a standard one. For the first
/// thread, before it opens or closes anything. `None`: nothing has it.
#[must_use]
#[expect(unsafe_code, reason = "the number is all that there is of a descriptor that somebody else opened")]
pub fn named_descriptor(number: u32) -> Option<OwnedFd> {
    let number = RawFd::try_from(number).ok()?;
    // SAFETY: it is asked about and not kept; the number is not -1.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    let own = fcntl_dupfd_cloexec(there, 0).ok()?;
    if number >= FIRST {
        fcntl_setfd(there, FdFlags::CLOEXEC).ok()?;
    }
    Some(own)
}

#[expect(unsafe_code, reason = "the numbers are all that there is of descriptors that somebody else opened")]
fn take(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is asked about and not kept; the number is not -1.
    let there = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_getfd(there).ok()?;
    fcntl_setfd(there, FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, was handed to this process for its own, and is taken once only (`TAKEN`).
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
