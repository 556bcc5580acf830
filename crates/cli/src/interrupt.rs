//! Ctrl-C and its kin, for commands that take their time and have something to finish.

use crate::exit::Failure;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{os::fd::AsFd as _, thread, time::Duration};

/// What ends a program.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

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
        let set: SigSet = ENDING.iter().chain(others).copied().collect();
        let signals = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK))
            .map_err(|errno| Failure::failed(format_args!("cannot wait for signals: {errno}")))?;
        Ok(Self { signals })
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
                let told = self.signals.read_signal().ok().flatten();
                let signal = told.and_then(|told| i32::try_from(told.ssi_signo).ok());
                let signal = signal.and_then(|number| Signal::try_from(number).ok());
                if signal.is_some_and(|signal| !tell(signal)) {
                    return;
                }
            }
        });
    }
}
