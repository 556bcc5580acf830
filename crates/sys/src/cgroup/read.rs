//! What a cgroup tells of itself.

use super::{Cgroup, CgroupError};
use plimsoll_policy::{
    reading::Reading,
    units::{Bytes, Uid},
};
use plimsoll_wire::text::{
    CgroupEvents, CgroupType, WireError, parse_cgroup_events, parse_cgroup_number, parse_cgroup_type,
    parse_oom_group,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, openat},
    io::{Errno, pread, read},
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// Room for a file of one or a few short lines.
const SMALL_BYTES: usize = 256;

/// What is asked of a cgroup before it is chosen. Each is `Absent` where this kernel, or a controller that is not
/// switched on for the cgroup, does not tell; nothing is ever 0 for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupFacts {
    /// `cgroup.events`; absent for the root.
    pub events: Reading<CgroupEvents>,
    /// `cgroup.type`; absent for the root.
    pub kind: Reading<CgroupType>,
    /// `memory.current`: all memory charged to it and those below it, page cache included.
    pub memory: Reading<Bytes>,
    /// `memory.swap.current`.
    pub swap: Reading<Bytes>,
    /// `memory.oom.group`: the kernel's OOM killer takes all of it or none.
    pub oom_group: Reading<bool>,
    /// `pids.current`: threads, not processes.
    pub threads: Reading<u64>,
    /// Who owns its folder: who may mark it and put cgroups below it.
    pub owner: Reading<Uid>,
}

impl Cgroup {
    /// Reads all of [`CgroupFacts`]: six small files, no heap memory.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`]; a single file that cannot be read is `Unreadable` there.
    pub fn facts(&self) -> Result<CgroupFacts, CgroupError> {
        self.check_there()?;
        Ok(CgroupFacts {
            events: self.reading(c"cgroup.events", parse_cgroup_events),
            kind: self.reading(c"cgroup.type", parse_cgroup_type),
            memory: self.memory_current(),
            swap: self.number(c"memory.swap.current", "memory.swap.current").map(Bytes),
            oom_group: self.oom_group(),
            threads: self.number(c"pids.current", "pids.current"),
            owner: self.stat().map_or(Reading::Unreadable, |stat| Reading::Known(Uid(stat.st_uid))),
        })
    }

    /// Reads `memory.current`.
    #[must_use]
    pub fn memory_current(&self) -> Reading<Bytes> {
        self.number(c"memory.current", "memory.current").map(Bytes)
    }

    /// Reads `memory.oom.group`.
    #[must_use]
    pub fn oom_group(&self) -> Reading<bool> {
        self.reading(c"memory.oom.group", parse_oom_group)
    }

    /// Watches for its last process to go.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`], also for the root, which has no events.
    pub fn watch(&self) -> Result<CgroupWatch, CgroupError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.dir(), c"cgroup.events", flags, Mode::empty())
            .map(|file| CgroupWatch { file, path: self.path().into() })
            .map_err(|errno| self.failed("open cgroup.events", errno))
    }

    /// Every cgroup, the root too, has `cgroup.procs` for as long as it is there.
    pub(super) fn check_there(&self) -> Result<(), CgroupError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.dir(), c"cgroup.procs", flags, Mode::empty())
            .map(drop)
            .map_err(|errno| self.failed("read the files", errno))
    }

    pub(super) fn kind(&self) -> Reading<CgroupType> {
        self.reading(c"cgroup.type", parse_cgroup_type)
    }

    fn number(&self, name: &CStr, file: &'static str) -> Reading<u64> {
        self.reading(name, |text| parse_cgroup_number(file, text))
    }

    fn reading<T>(&self, name: &CStr, parse: impl FnOnce(&[u8]) -> Result<T, WireError>) -> Reading<T> {
        let mut text = [0; SMALL_BYTES];
        sort(read_small(self.dir(), name, &mut text), parse)
    }
}

fn sort<T>(text: Result<&[u8], Errno>, parse: impl FnOnce(&[u8]) -> Result<T, WireError>) -> Reading<T> {
    match text {
        Ok(text) => parse(text).map_or(Reading::Unreadable, Reading::Known),
        Err(Errno::NOENT | Errno::OPNOTSUPP) => Reading::Absent,
        Err(_) => Reading::Unreadable,
    }
}

/// Reads a file of a cgroup. `EFBIG` when the room is full: the kernel formats each of these in one piece.
pub(super) fn read_small<'text>(
    dir: BorrowedFd<'_>,
    name: &CStr,
    text: &'text mut [u8],
) -> Result<&'text [u8], Errno> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let length = rustix::io::retry_on_intr(|| read(&file, &mut *text))?;
    if length < text.len() { Ok(text.get(..length).unwrap_or(&[])) } else { Err(Errno::FBIG) }
}

/// The events of one cgroup. Its descriptor has an exceptional condition (`POLLPRI`) after each change, until it is
/// read.
#[derive(Debug)]
pub struct CgroupWatch {
    file: OwnedFd,
    path: Box<[u8]>,
}

impl CgroupWatch {
    /// Reads how it is now.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`]: what was removed is empty, too.
    pub fn read(&self) -> Result<CgroupEvents, CgroupError> {
        const OPERATION: &str = "read cgroup.events";
        let mut text = [0; SMALL_BYTES];
        let length = rustix::io::retry_on_intr(|| pread(&self.file, &mut text, 0))
            .map_err(|errno| CgroupError::of(OPERATION, &self.path, errno))?;
        parse_cgroup_events(text.get(..length).unwrap_or(&[]))
            .map_err(|error| CgroupError::unreadable(OPERATION, &self.path, error))
    }

    /// Waits for the next change since the last [`CgroupWatch::read`], at most `timeout`; whether there was one.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Failed`] when the kernel is out of memory.
    pub fn wait(&self, timeout: Duration) -> Result<bool, CgroupError> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut descriptors = [PollFd::new(&self.file, PollFlags::PRI)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(CgroupError::of("wait for events", &self.path, errno)),
        }
    }
}

impl AsFd for CgroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
