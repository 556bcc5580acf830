//! Ctrl-C and its kin, for commands that take their time and have something to finish.

use crate::exit::Failure;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{os::fd::AsFd as _, time::Duration};

/// From the moment it is made, the signals that end a program wait for [`Interrupt::wait`].
#[derive(Debug)]
pub(crate) struct Interrupt {
    signals: SignalFd,
}

impl Interrupt {
    /// Holds them back.
    pub(crate) fn new() -> Result<Self, Failure> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        let signals = set
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK))
            .map_err(|errno| Failure::failed(format_args!("cannot wait for signals: {errno}")))?;
        Ok(Self { signals })
    }

    /// Waits so long, to the millisecond. Whether a signal came, then or before.
    pub(crate) fn wait(&self, time: Duration) -> Result<bool, Failure> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut waited = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut waited, timeout);
        ready.map(|ready| ready > 0).map_err(|errno| Failure::failed(format_args!("cannot wait: {errno}")))
    }
}
