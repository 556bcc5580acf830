//! What a cgroup tells of itself.

use super::{Cgroup, CgroupError};
use plimsoll_policy::reading::Reading;
use plimsoll_wire::text::{CgroupType, WireError, parse_cgroup_type, parse_oom_group};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, read},
};
use std::{ffi::CStr, os::fd::BorrowedFd};

/// Room for a file of one or a few short lines.
const SMALL_BYTES: usize = 256;

impl Cgroup {
    /// Reads `memory.oom.group`.
    #[must_use]
    pub fn oom_group(&self) -> Reading<bool> {
        self.reading(c"memory.oom.group", parse_oom_group)
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

#[cfg(test)]
mod tests;
