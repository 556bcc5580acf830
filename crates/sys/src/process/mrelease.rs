//! `process_mrelease(2)`: to free a dying process's memory from outside; and what else of pidfds has no wrapper.
#![expect(unsafe_code, reason = "no safe wrapper of process_mrelease(2) and of signal 0 by pidfd exists")]

use super::{Errno, checked};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What reaping did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reap {
    /// The anonymous memory was freed, by this call or by the kernel's own reaper before it.
    Reaped,
    /// Part of it is still mapped: somebody held the address space (`EAGAIN`). Worth another try.
    StillMapped,
    /// It has let go of its address space (`ESRCH`): it is freeing that itself, or has done so.
    AlreadyGone,
    /// A filter forbids the call (`ENOSYS`): the process frees its memory itself.
    Unsupported,
    /// Not every process that uses the address space is dying (`EINVAL`): no SIGKILL has arrived, or one that shares
    /// the memory lives on, or a core dump is being written.
    NotDying,
    /// The call has not come back, or was not made: the victim's address space is held, or those of other victims of its
    /// owner's are. Only a [`super::Reaper`] says this: the call itself waits.
    Held,
    /// Anything else.
    Failed(Errno),
}

/// Frees what the process behind `pidfd` has in anonymous memory. Takes the caller's time for as much work as there
/// is (at 25 GB/s when alone, far slower when memory is short), and waits for as long as somebody holds the address space
/// (`mmap_read_lock_killable`), which any user can do for ever: never on a thread that must not wait.
pub(super) fn process_mrelease(pidfd: BorrowedFd<'_>) -> Reap {
    loop {
        // SAFETY: process_mrelease(pidfd, flags) takes two integers and no pointer; the descriptor is open for as
        // long as it is borrowed. It changes nothing in this process's memory: the kernel refuses a victim that is
        // not dying, so it can never be this process.
        let result = unsafe { libc::syscall(libc::SYS_process_mrelease, pidfd.as_raw_fd(), 0_u32) };
        return match checked(result) {
            Ok(_) => Reap::Reaped,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Reap::StillMapped,
            Err(Errno::SRCH) => Reap::AlreadyGone,
            Err(Errno::NOSYS) => Reap::Unsupported,
            Err(Errno::INVAL) => Reap::NotDying,
            Err(errno) => Reap::Failed(errno),
        };
    }
}

/// Sends signal 0, which is checked and never delivered.
pub(crate) fn signal_nothing(pidfd: BorrowedFd<'_>) -> Result<(), Errno> {
    let no_details = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: pidfd_send_signal(pidfd, 0, NULL, 0) takes no details to read; the descriptor is open for as long as it is
    // borrowed. Signal 0 is a question.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, no_details, 0_u32) };
    checked(result).map(drop)
}
