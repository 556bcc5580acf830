//! `/proc`, opened once.

use super::{Errno, ProcessError, Subject, scan};
use plimsoll_policy::units::{Pid, Uid};
use plimsoll_wire::text::{
    Meminfo, Printable, SmapsRollup, Stat, WireError, parse_cgroup, parse_meminfo, parse_smaps_rollup,
    parse_stat, printable_cmdline,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, statat},
    io::read,
};
use std::{ffi::CStr, io::Write, os::fd::OwnedFd, path::Path};

/// Room for the longest file read whole: `cgroup` has a path of at most 4,096 bytes for each of some 13 hierarchies.
/// Only the pages that a file reaches become resident.
const TEXT_BYTES: usize = 64 * 1024;

/// Room for one `stat` line: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const STAT_BYTES: usize = 2048;

/// Room for `PID/task/TID/smaps_rollup`.
const PATH_BYTES: usize = 64;

/// A `/proc`, by descriptor: what is read stays the same tree when something is mounted over it later. Reads into
/// buffers of its own that are made once, so reading many processes allocates nothing.
#[derive(Debug)]
pub struct ProcRoot {
    pub(super) files: Files,
    pub(super) listing: scan::Listing,
}

/// Where the executable of a process comes from, for telling protected programs.
///
/// The owner alone proves nothing: whoever can mount a FUSE filesystem can show files owned by root there. Compare
/// `device` and `inode` with those of the program that is to be protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExeIdentity {
    /// The filesystem's device number.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// The file's owner.
    pub owner: Uid,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
}

impl ExeIdentity {
    /// Owned by root, and writable by no group and not by all.
    #[must_use]
    pub const fn only_root_writes(&self) -> bool {
        self.owner.0 == 0 && self.mode & 0o022 == 0
    }
}

impl ProcRoot {
    /// Opens a `/proc`: `/proc` itself, or a folder laid out like it.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unsupported`] when there is no such folder.
    pub fn open(path: &Path) -> Result<Self, ProcessError> {
        let open = |dir: &OwnedFd, name: &CStr| openat(dir, name, FOLDER, Mode::empty());
        let failed = |errno| ProcessError::of_machine("open /proc", errno);
        let dir = openat(CWD, path, FOLDER, Mode::empty()).map_err(failed)?;
        let listed = open(&dir, c".").map_err(failed)?;
        Ok(Self { files: Files { dir, text: vec![0; TEXT_BYTES] }, listing: scan::Listing::new(listed) })
    }

    /// Reads `/proc/meminfo`.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn read_meminfo(&mut self) -> Result<Meminfo, ProcessError> {
        let text = self
            .files
            .read_at(c"meminfo")
            .map_err(|errno| ProcessError::of_machine("read /proc/meminfo", errno))?;
        parse_meminfo(text).map_err(|error| ProcessError::Unreadable { subject: Subject::Machine, error })
    }

    /// The cgroup path of a process, as [`Printable`] text (see [`plimsoll_wire::text::Membership::path`] for which
    /// of several); `None` on a kernel without cgroups.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn cgroup(&mut self, pid: Pid) -> Result<Option<String>, ProcessError> {
        let text = self.files.read(pid, "cgroup", "read the cgroup")?;
        let membership = parse_cgroup(text).map_err(|error| unreadable(pid, error))?;
        Ok(membership.path().map(|path| Printable(path).to_string()))
    }

    /// The command line of a process as safe text (see [`printable_cmdline`]); `None` where it has none. Waits for
    /// the process's address space, which a stuck process can hold for ever: not for the kill path.
    ///
    /// # Errors
    /// By what the kernel says.
    pub fn cmdline(&mut self, pid: Pid) -> Result<Option<String>, ProcessError> {
        self.files.read_start(pid, "cmdline", "read the command line").map(printable_cmdline)
    }

    /// The exact memory of a process; `None` where it has no address space. Walks its page tables and waits for its
    /// address space: not for the kill path.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn smaps_rollup(&mut self, pid: Pid) -> Result<Option<SmapsRollup>, ProcessError> {
        let parsed = self.files.read(pid, "smaps_rollup", "read smaps_rollup").map(parse_smaps_rollup);
        match parsed {
            Ok(rollup) => rollup.map(Some).map_err(|error| unreadable(pid, error)),
            // The kernel says ESRCH for a process without an address space, too.
            Err(ProcessError::Vanished(_)) if self.files.exists(pid)? => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The executable of a process; `None` where it has none (kernel threads, zombies).
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Denied`] without `CAP_SYS_PTRACE` over it.
    pub fn exe_identity(&self, pid: Pid) -> Result<Option<ExeIdentity>, ProcessError> {
        let path = EntryPath::new(pid, "exe")?;
        match statat(&self.files.dir, path.name(), AtFlags::empty()) {
            Ok(stat) => Ok(Some(ExeIdentity {
                device: stat.st_dev,
                inode: stat.st_ino,
                owner: Uid(stat.st_uid),
                mode: stat.st_mode,
            })),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) if self.files.exists(pid)? => Ok(None),
            Err(errno) => Err(ProcessError::of_process(pid, "find the executable", errno)),
        }
    }

    /// When a process started, in clock ticks since boot. Uses no buffer of `self`.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn start_ticks(&self, pid: Pid) -> Result<u64, ProcessError> {
        let path = EntryPath::new(pid, "stat")?;
        let mut line = [0; STAT_BYTES];
        let text = read_whole(&self.files.dir, path.name(), &mut line)
            .map_err(|errno| ProcessError::of_process(pid, "read stat", errno))?;
        parse_stat(text).map(|stat| stat.start_ticks).map_err(|error| unreadable(pid, error))
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) const fn unreadable(pid: Pid, error: WireError) -> ProcessError {
    ProcessError::Unreadable { subject: Subject::Process(pid), error }
}

/// The files of a `/proc` and the buffer they are read into.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) dir: OwnedFd,
    pub(super) text: Vec<u8>,
}

impl Files {
    fn read_at(&mut self, name: &CStr) -> Result<&[u8], rustix::io::Errno> {
        read_whole(&self.dir, name, &mut self.text)
    }

    /// A file of a process, whole; one longer than the buffer is an error, never a part.
    fn read(&mut self, pid: Pid, name: &str, operation: &'static str) -> Result<&[u8], ProcessError> {
        let path = EntryPath::new(pid, name)?;
        self.read_at(path.name()).map_err(|errno| ProcessError::of_process(pid, operation, errno))
    }

    /// A file of a process, as much of it as one read gives.
    fn read_start(&mut self, pid: Pid, name: &str, operation: &'static str) -> Result<&[u8], ProcessError> {
        let path = EntryPath::new(pid, name)?;
        let failed = |errno| ProcessError::of_process(pid, operation, errno);
        let file = open_file(&self.dir, path.name()).map_err(failed)?;
        let length = rustix::io::retry_on_intr(|| read(&file, self.text.as_mut_slice())).map_err(failed)?;
        Ok(self.text.get(..length).unwrap_or(&[]))
    }

    /// Reads `/proc/PID/stat`.
    pub(super) fn stat(&mut self, pid: Pid) -> Result<Stat, ProcessError> {
        let text = self.read(pid, "stat", "read stat")?;
        parse_stat(text).map_err(|error| unreadable(pid, error))
    }

    /// Whether the number is in use.
    fn exists(&self, pid: Pid) -> Result<bool, ProcessError> {
        let path = EntryPath::new(pid, "stat")?;
        match statat(&self.dir, path.name(), AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(ProcessError::of_process(pid, "look for the folder", errno)),
        }
    }
}

/// `PID/name` below a `/proc`, on the stack.
pub(super) struct EntryPath {
    bytes: [u8; PATH_BYTES],
}

impl EntryPath {
    pub(super) fn new(pid: Pid, name: &str) -> Result<Self, ProcessError> {
        Self::format(pid, format_args!("{pid}/{name}\0"))
    }

    pub(super) fn of_thread(pid: Pid, thread: Pid, name: &str) -> Result<Self, ProcessError> {
        Self::format(pid, format_args!("{pid}/task/{thread}/{name}\0"))
    }

    fn format(pid: Pid, path: core::fmt::Arguments<'_>) -> Result<Self, ProcessError> {
        let mut bytes = [0; PATH_BYTES];
        bytes.as_mut_slice().write_fmt(path).map_err(|_full| ProcessError::Failed {
            operation: "name a file",
            subject: Subject::Process(pid),
            errno: Errno(libc::ENAMETOOLONG),
        })?;
        Ok(Self { bytes })
    }

    pub(super) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

pub(super) fn open_file(dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, rustix::io::Errno> {
    openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Reads until a read leaves room: the kernel formats each of these files in one piece, so asking again for the end
/// would only cost a system call. `EFBIG` when the buffer is full.
fn read_whole<'text>(
    dir: &OwnedFd,
    name: &CStr,
    text: &'text mut [u8],
) -> Result<&'text [u8], rustix::io::Errno> {
    let file = open_file(dir, name)?;
    let length = rustix::io::retry_on_intr(|| read(&file, &mut *text))?;
    if length < text.len() { Ok(text.get(..length).unwrap_or(&[])) } else { Err(rustix::io::Errno::FBIG) }
}

#[cfg(test)]
mod tests;
