//! One process, held so that its number cannot come to mean another.

use super::{
    Errno, ProcRoot, ProcessError, Reap, Subject,
    mrelease::{process_mrelease, signal_nothing},
    tick_ns,
};
use plimsoll_policy::{units::Pid, victim::Signal};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{PidfdFlags, pidfd_open, pidfd_send_signal},
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// A process by pidfd. Readable once the process, all its threads included, has exited: its memory is back then,
/// unless another process shares it. It stays readable, and is also hung up once it has been waited for: take it out
/// of an event loop at its first report, or the loop spins.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: Pid,
}

impl PidFd {
    /// Holds whatever process has the number now. For a process that is known not to have been waited for, such as a
    /// child; for all others there is [`PidFd::open_verified`].
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] when no process has that number (a thread may), otherwise by what the kernel says.
    pub fn open(pid: Pid) -> Result<Self, ProcessError> {
        let failed = |errno| {
            let subject = Subject::Process(pid);
            ProcessError::Failed { operation: "open a pidfd", subject, errno }
        };
        let number = i32::try_from(pid.0)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or_else(|| failed(Errno::INVAL))?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Ok(Self { fd, pid }),
            // The number is in use by a thread that leads no process: the process that had it is gone.
            Err(Errno::INVAL) => Err(ProcessError::Vanished(pid)),
            Err(errno) => Err(ProcessError::of_process(pid, "open a pidfd", errno)),
        }
    }

    /// Holds the process that had this number and started at `start_ns` (`start_boottime`, nanoseconds since boot).
    ///
    /// First the pidfd, then the start time: if the number still shows that start time afterwards, it was the same
    /// process before. `/proc` tells the start in clock ticks (10 ms), so a process is mistaken for another only
    /// where all numbers were used up within one tick.
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] also when the number belongs to another process by now.
    pub fn open_verified(root: &ProcRoot, pid: Pid, start_ns: u64) -> Result<Self, ProcessError> {
        let pidfd = Self::open(pid)?;
        let started_ticks = root.start_ticks(pid)?;
        if started_ticks == start_ns.checked_div(tick_ns()).unwrap_or(start_ns) {
            Ok(pidfd)
        } else {
            Err(ProcessError::Vanished(pid))
        }
    }

    /// Its number, for telling; the process may be gone.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Another descriptor of the same process.
    ///
    /// # Errors
    /// [`ProcessError::Failed`] when there are no descriptors left.
    pub fn try_clone(&self) -> Result<Self, ProcessError> {
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)
            .map(|fd| Self { fd, pid: self.pid })
            .map_err(|errno| ProcessError::of_process(self.pid, "copy a pidfd", errno))
    }

    /// Sends a signal. `Ok` says that the kernel took it, not that it has had its effect.
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] when the process has been waited for (a zombie takes signals and ignores them),
    /// [`ProcessError::Denied`] when a security module or a missing capability forbids it. Nothing was sent then.
    pub fn send_signal(&self, signal: Signal) -> Result<(), ProcessError> {
        self.send(match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        })
    }

    /// Stops it (`SIGSTOP`), or has it go on (`SIGCONT`). Its parent is told by `SIGCHLD`, unless it wants to hear of ends
    /// only.
    ///
    /// # Errors
    /// As [`PidFd::send_signal`].
    pub fn set_stopped(&self, stopped: bool) -> Result<(), ProcessError> {
        self.send(if stopped { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT })
    }

    fn send(&self, signal: rustix::process::Signal) -> Result<(), ProcessError> {
        pidfd_send_signal(&self.fd, signal)
            .map_err(|errno| ProcessError::of_process(self.pid, "send a signal", errno))
    }

    /// Whether it has exited; does not wait.
    ///
    /// # Errors
    /// [`ProcessError::Failed`] when the kernel is out of memory.
    pub fn has_exited(&self) -> Result<bool, ProcessError> {
        self.wait_exit(Duration::ZERO)
    }

    /// Waits until it has exited, at most `timeout`; whether it has. A signal handled by this thread may end the
    /// wait early.
    ///
    /// # Errors
    /// [`ProcessError::Failed`] when the kernel is out of memory.
    pub fn wait_exit(&self, timeout: Duration) -> Result<bool, ProcessError> {
        // Longer than the kernel's clock can say is as good as for ever.
        let timeout = Timespec::try_from(timeout).ok();
        let mut descriptors = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(ProcessError::of_process(self.pid, "wait for the exit", errno)),
        }
    }

    /// Whether it has not been waited for: its number is still its own.
    pub(super) fn has_number(&self) -> bool {
        matches!(signal_nothing(self.fd.as_fd()), Ok(()) | Err(Errno::PERM))
    }

    /// Frees its memory from outside (`process_mrelease(2)`). Only after SIGKILL was sent: the kernel refuses before
    /// ([`Reap::NotDying`]). Works as long as freeing takes; the daemon does it through a [`super::Reaper`].
    #[must_use]
    pub fn reap(&self) -> Reap {
        process_mrelease(self.fd.as_fd())
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
