//! What work is done for besides entries: descriptors, and a time.

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

/// The number of those that have none, and of the time.
const UNNAMED: u64 = 0;

/// Can be read when one of its descriptors is ready, or its time has come.
#[derive(Debug)]
pub(crate) struct Waits {
    epoll: Epoll,
    timer: TimerFd,
}

impl Waits {
    /// For nothing yet.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let waits = Self { epoll, timer };
        waits.add(&waits.timer, EpollFlags::EPOLLIN)?;
        Ok(waits)
    }

    /// For [`super::Offload::attend`].
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn readable(&self) -> io::Result<OwnedFd> {
        self.epoll.0.try_clone()
    }

    /// Waits for this one, too, until it is closed. Nothing is changed where that is so already.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn add(&self, fd: impl AsFd, flags: EpollFlags) -> nix::Result<()> {
        self.add_as(fd, flags, UNNAMED)
    }

    /// Likewise, and [`Self::ready`] tells it by this number.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn add_as(&self, fd: impl AsFd, flags: EpollFlags, number: u64) -> nix::Result<()> {
        match self.epoll.add(fd, EpollEvent::new(flags, number)) {
            Err(Errno::EEXIST) => Ok(()),
            done => done,
        }
    }

    /// Waits for something else of a descriptor that was added.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn change(&self, fd: impl AsFd, flags: EpollFlags) -> nix::Result<()> {
        self.change_as(fd, flags, UNNAMED)
    }

    /// Likewise, of one that has a number.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn change_as(&self, fd: impl AsFd, flags: EpollFlags, number: u64) -> nix::Result<()> {
        self.epoll.modify(fd, &mut EpollEvent::new(flags, number))
    }

    /// What is ready now, as far as there is room; waits for nothing.
    pub(crate) fn ready<'a>(&self, room: &'a mut [EpollEvent]) -> &'a [EpollEvent] {
        let count = self.epoll.wait(room, EpollTimeout::ZERO).unwrap_or(0);
        room.get(..count).unwrap_or_default()
    }

    /// Waits no more for a descriptor that was added, whoever else has it.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        self.epoll.delete(fd).ok();
    }

    /// Its time comes in so long, or never. A time that has come is over with that.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn set(&self, wait: Option<Duration>) -> nix::Result<()> {
        // No time at all would be never.
        let wait = wait.map(|wait| TimeSpec::from(wait.max(Duration::from_nanos(1))));
        match wait {
            Some(wait) => self.timer.set(Expiration::OneShot(wait), TimerSetTimeFlags::empty()),
            None => self.timer.unset(),
        }
    }
}
