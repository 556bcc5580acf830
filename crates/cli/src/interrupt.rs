//! Ctrl-C and its kin, for commands that take their time and have something to finish.

use crate::exit::Failure;
use nix::{
    errno::Errno,
    libc::SI_KERNEL,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{
    os::fd::{AsFd as _, BorrowedFd},
    thread,
    time::Duration,
};

/// What ends a program.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A signal that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) signal: Signal,
    /// A terminal sends it, to all of its foreground group.
    pub(crate) by_terminal: bool,
    /// Who sent it; 0 where that is in no pid namespace of ours.
    pub(crate) pid: u32,
}

/// From the moment it is made, the signals that end a program wait for [`Interrupt::wait`].
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: SignalFd,
}

impl Interrupt {
    /// Holds them back.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::and(&[])
    }

    /// Holds others back as well.
    pub(crate) fn and(others: &[Signal]) -> Result<Self, Failure> {
        let set = set(others);
        let signals = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK))
            .map_err(|errno| Failure::failed(format_args!("cannot wait for signals: {errno}")))?;
        Ok(Self { signals })
    }

    /// Lets through what [`Interrupt::and`] holds back, in a process that was started from there.
    pub(crate) fn let_through(others: &[Signal]) -> Result<(), Errno> {
        set(others).thread_unblock()
    }

    /// Can be read when one has come.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// The next that has come.
    pub(crate) fn next(&self) -> Option<Sent> {
        let told = self.signals.read_signal().ok().flatten()?;
        let signal = i32::try_from(told.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok())?;
        let by_terminal = told.ssi_code == SI_KERNEL;
        Some(Sent { signal, by_terminal, pid: told.ssi_pid })
    }

    /// Waits so long, to the millisecond. Whether a signal came, then or before.
    pub(crate) fn wait(&self, time: Duration) -> Result<bool, Failure> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        self.ready(timeout).map_err(|errno| Failure::failed(format_args!("cannot wait: {errno}")))
    }

    fn ready(&self, timeout: PollTimeout) -> Result<bool, Errno> {
        let mut waited = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        poll(&mut waited, timeout).map(|ready| ready > 0)
    }

    /// Tells of each in a thread of its own, until `tell` says that nobody listens.
    pub(crate) fn watch(self, tell: impl Fn(Signal) -> bool + Send + 'static) {
        thread::spawn(move || {
            // Who is stopped and continued in between is interrupted.
            while matches!(self.ready(PollTimeout::NONE), Ok(_) | Err(Errno::EINTR)) {
                if self.next().is_some_and(|sent| !tell(sent.signal)) {
                    return;
                }
            }
        });
    }
}

fn set(others: &[Signal]) -> SigSet {
    ENDING.iter().chain(others).copied().collect()
}
