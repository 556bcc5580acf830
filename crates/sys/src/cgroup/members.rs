//! The cgroups below one, and the processes in all of them.

use super::{Cgroup, CgroupError, CgroupId, root::open_below};
use crate::process::for_each_line;
use plimsoll_policy::units::Pid;
use plimsoll_wire::text::parse_cgroup_process;
use rustix::{
    fs::{FileType, Mode, OFlags, RawDir, fstat, openat},
    io::Errno,
};
use std::{
    mem::MaybeUninit,
    ops::ControlFlow,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

/// Cgroups that are looked through below one. A desktop has some hundred, a large host of containers some ten
/// thousand.
pub(super) const CGROUPS_MAX: usize = 16_384;

/// Room for the names of one folder, on the stack: about 100 at a time.
const NAMES_BYTES: usize = 4096;

/// What of `cgroup.procs` is read at once: as much as the kernel gives.
const LIST_BYTES: usize = 4096;

/// What a look through a cgroup met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// Everything was seen.
    pub(super) complete: bool,
    /// Processes without a number in this PID namespace.
    pub(super) foreign: u64,
}

/// Shows every process of a cgroup and of those below it. One that forks, exits or moves meanwhile may be missed or
/// shown twice: the kernel goes through a living list. Takes no lock that a page fault or an allocation holds.
pub(super) fn processes(cgroup: &Cgroup, mut visit: impl FnMut(Pid)) -> Result<Look, Errno> {
    let mut foreign = 0_u64;
    let mut failed = None;
    let complete = walk(cgroup.dir(), |dir, _path| {
        let listed = list(dir.as_fd(), |pid| match pid {
            Some(pid) => visit(pid),
            None => foreign = foreign.saturating_add(1),
        });
        match listed {
            // Threads only, listed by the domain above; or gone since.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOENT) => ControlFlow::Continue(()),
            Err(errno) => {
                failed = Some(errno);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(Look { complete, foreign }), Err)
}

impl Cgroup {
    /// Shows every process of it and of the cgroups below it. One that forks, exits or moves meanwhile may be missed or
    /// shown twice. Processes of another pid namespace are not shown.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`], otherwise by what the kernel says.
    pub fn processes(&self, visit: impl FnMut(Pid)) -> Result<(), CgroupError> {
        self.check_there()?;
        processes(self, visit).map(drop).map_err(|errno| self.failed("list the processes", errno))
    }
}

/// The path of the cgroup with this id, below `dir`.
pub(super) fn find_id(dir: BorrowedFd<'_>, id: CgroupId) -> Result<Vec<u8>, Errno> {
    let mut found = None;
    walk(dir, |dir, path| {
        if fstat(dir).is_ok_and(|stat| stat.st_ino == id.0) {
            found = Some(path.to_vec());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    found.ok_or(Errno::NOENT)
}

/// Shows `dir` and every folder below it, each before those in it. Whether it went to the end.
fn walk(
    dir: BorrowedFd<'_>,
    mut visit: impl FnMut(&OwnedFd, &[u8]) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
    let mut seen = 0_usize;
    while let Some(path) = pending.pop() {
        let folder = match open_below(dir, &path) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NODEV) => continue,
            Err(errno) => return Err(errno),
        };
        seen = seen.saturating_add(1);
        if seen > CGROUPS_MAX || visit(&folder, &path).is_break() {
            return Ok(false);
        }
        // kernfs counts two links and one for each folder in it: most have none, and some sixty files to list.
        if fstat(&folder)?.st_nlink > 2 {
            add_folders(&folder, &path, &mut pending)?;
        }
        if pending.len() > CGROUPS_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

fn add_folders(folder: &OwnedFd, path: &[u8], pending: &mut Vec<Vec<u8>>) -> Result<(), Errno> {
    let mut names = [MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(folder, &mut names);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let name = entry.file_name().to_bytes();
        if entry.file_type() == FileType::Directory && !matches!(name, b"." | b"..") {
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name);
            pending.push(below);
        }
    }
    Ok(())
}

/// Shows what `cgroup.procs` of one folder lists, as it is read: no list is too long.
fn list(dir: BorrowedFd<'_>, mut visit: impl FnMut(Option<Pid>)) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, c"cgroup.procs", flags, Mode::empty())?;
    for_each_line(&file, &mut [0; LIST_BYTES], std::convert::identity, |line| {
        visit(parse_cgroup_process(line).map_err(|_strange| Errno::BADMSG)?);
        Ok(())
    })
}
