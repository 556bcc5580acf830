//! `/proc`, opened once.

use super::{Errno, ProcessError, Subject, scan};
use plimsoll_policy::{
    account::CgroupPath,
    units::{Bytes, Pages, Pid, Uid},
};
use plimsoll_wire::text::{
    Membership, Meminfo, Pressure, Printable, SmapsRollup, Stat, WireError, Zoneinfo, parse_cgroup,
    parse_meminfo, parse_pressure, parse_smaps_rollup, parse_stat, parse_statm, printable_cmdline,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RawDir, StatxFlags, makedev, openat, statat, statx},
    io::read,
    path::Arg,
};
use std::{
    ffi::CStr,
    io::Write,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Room for the longest file read whole: `cgroup` has a path of at most 4,096 bytes for each of some 13 hierarchies.
/// Only the pages that a file reaches become resident.
const TEXT_BYTES: usize = 64 * 1024;

/// Room for one `stat` line: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const STAT_BYTES: usize = 2048;

const ROLLUP: &str = "smaps_rollup";

/// Room for the names of a few threads.
const THREADS_BYTES: usize = 512;

/// Threads that have exited, or are about to, are passed over, so many at most: a tracer may keep them.
const THREADS_MAX: usize = 4096;

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
    /// How many names it has; 0: it runs, and was deleted or replaced.
    pub links: u32,
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

    /// How many threads of the machine run or wait for a CPU, of `/proc/loadavg`; `None` where it does not say so.
    pub fn read_running(&mut self) -> Option<u32> {
        running(self.files.read_at(c"loadavg").ok()?)
    }

    /// Reads `/proc/pressure/memory`; `None` on a kernel that does not measure stalls: built without PSI, or started with
    /// `psi=0`. It waits for whoever adds the numbers up (`avgs_lock`, `psi_show` in kernel/sched/psi.c): not for the
    /// kill path.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn read_memory_pressure(&mut self) -> Result<Option<Pressure>, ProcessError> {
        match self.files.read_at(c"pressure/memory") {
            Ok(text) => parse_pressure(text)
                .map(Some)
                .map_err(|error| ProcessError::Unreadable { subject: Subject::Machine, error }),
            Err(Errno::NOENT | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(ProcessError::of_machine("read /proc/pressure/memory", errno)),
        }
    }

    /// The cgroup path of a process, as [`Printable`] text (see [`plimsoll_wire::text::Membership::path`] for which
    /// of several); `None` on a kernel without cgroups. Kernels up to 6.10 wait for the `cgroup_mutex` here, which
    /// whoever makes a cgroup holds while memory is found for it: not for the kill path.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn cgroup(&mut self, pid: Pid) -> Result<Option<String>, ProcessError> {
        Ok(self.membership(pid)?.path().map(|path| Printable(path).to_string()))
    }

    /// Whether a process is in that cgroup or below it. It may wait, as [`ProcRoot::cgroup`].
    ///
    /// # Errors
    /// As [`ProcRoot::cgroup`].
    pub fn is_below(&mut self, pid: Pid, path: &CgroupPath) -> Result<bool, ProcessError> {
        let is_below = |membership: Membership<'_>| membership.path().is_some_and(|own| path.covers(own));
        if is_below(self.membership(pid)?) {
            return Ok(true);
        }
        // With version 1 a first thread that has exited is in the root.
        let Some(thread) = self.files.another_thread(pid)? else { return Ok(false) };
        let text = self.files.read(pid, &format!("task/{thread}/cgroup"), "read the cgroup")?;
        parse_cgroup(text).map(is_below).map_err(|error| unreadable(pid, error))
    }

    fn membership(&mut self, pid: Pid) -> Result<Membership<'_>, ProcessError> {
        let text = self.files.read(pid, "cgroup", "read the cgroup")?;
        parse_cgroup(text).map_err(|error| unreadable(pid, error))
    }

    /// Shows `use_path` the path of a process in the tree of the v1 freezer; `None` where there is no such tree.
    pub(super) fn freezer_cgroup<T>(
        &mut self,
        pid: Pid,
        use_path: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, ProcessError> {
        Ok(self.membership(pid)?.freezer.and_then(use_path))
    }

    /// As [`ProcRoot::freezer_cgroup`], in the tree of the v1 cpu controller.
    pub(super) fn cpu_cgroup<T>(
        &mut self,
        pid: Pid,
        use_path: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, ProcessError> {
        Ok(self.membership(pid)?.cpu.and_then(use_path))
    }

    /// The memory that waits in the lists of single CPUs: freed, and in no figure of [`ProcRoot::read_meminfo`]. A
    /// machine with many CPUs has a long file; it is read in pieces, and nothing is allocated.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn read_zoneinfo(&mut self) -> Result<Zoneinfo, ProcessError> {
        let failed = |errno| ProcessError::of_machine("read /proc/zoneinfo", errno);
        let file = open_file(&self.files.dir, c"zoneinfo").map_err(failed)?;
        let mut zoneinfo = Zoneinfo::default();
        for_each_line(&file, &mut self.files.text, failed, |line| {
            zoneinfo
                .take_line(line)
                .map_err(|error| ProcessError::Unreadable { subject: Subject::Machine, error })
        })?;
        Ok(zoneinfo)
    }

    /// The command line of a process as safe text (see [`printable_cmdline`]); `None` where it has none. Waits for
    /// the process's address space, which a stuck process can hold for ever: not for the kill path.
    ///
    /// # Errors
    /// By what the kernel says.
    pub fn cmdline(&mut self, pid: Pid) -> Result<Option<String>, ProcessError> {
        let operation = "read the command line";
        let line = self.files.read_start(pid, "cmdline", operation).map(printable_cmdline)?;
        if line.is_some() {
            return Ok(line);
        }
        // A first thread that has exited has none; the others have.
        let Some(thread) = self.files.another_thread(pid)? else { return Ok(None) };
        self.files.read_start(pid, &format!("task/{thread}/cmdline"), operation).map(printable_cmdline)
    }

    /// The exact memory of a process; `None` where it has no address space. Walks its page tables and waits for its
    /// address space: not for the kill path.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn smaps_rollup(&mut self, pid: Pid) -> Result<Option<SmapsRollup>, ProcessError> {
        match self.files.rollup(pid, &EntryPath::new(pid, ROLLUP)?) {
            // The kernel says ESRCH for one without an address space, too: its first thread has none once that has ended.
            Err(ProcessError::Vanished(_)) if self.files.exists(pid)? => {
                let Some(thread) = self.files.another_thread(pid)? else { return Ok(None) };
                self.files.rollup(pid, &EntryPath::of_thread(pid, thread, ROLLUP)?).map(Some)
            }
            rollup => rollup.map(Some),
        }
    }

    /// The executable of a process; `None` where it has none (kernel threads, zombies).
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Denied`] without `CAP_SYS_PTRACE` over it.
    pub fn exe_identity(&self, pid: Pid) -> Result<Option<ExeIdentity>, ProcessError> {
        let path = EntryPath::new(pid, "exe")?;
        match identify(&self.files.dir, path.name()) {
            Ok(identity) => Ok(Some(identity)),
            Err(Errno::NOENT | Errno::SRCH) if self.files.exists(pid)? => Ok(None),
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

/// What a file is, as far as the kernel knows without asking: one on a FUSE or network file system whose server does not
/// answer would keep whoever asks waiting.
pub(super) fn identify(dir: impl AsFd, path: impl Arg) -> Result<ExeIdentity, Errno> {
    let wanted = StatxFlags::INO | StatxFlags::UID | StatxFlags::MODE | StatxFlags::TYPE | StatxFlags::NLINK;
    let stat = statx(dir, path, AtFlags::STATX_DONT_SYNC, wanted)?;
    Ok(ExeIdentity {
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        owner: Uid(stat.stx_uid),
        mode: u32::from(stat.stx_mode),
        links: stat.stx_nlink,
    })
}

pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The first thread of a process's `task` folder that has an address space, and its folder; `ENFILE` where too many have none.
pub(super) fn living_thread(tasks: &OwnedFd) -> Result<Option<(Pid, OwnedFd)>, Errno> {
    let mut names = [MaybeUninit::uninit(); THREADS_BYTES];
    let mut entries = RawDir::new(tasks, &mut names);
    let mut passed_over = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Some(thread) = scan::number(entry.file_name()) else { continue };
        if let Ok(folder) = openat(tasks, entry.file_name(), FOLDER, Mode::empty())
            && identify(&folder, c"exe").is_ok()
        {
            return Ok(Some((thread, folder)));
        }
        passed_over += 1;
        if passed_over == THREADS_MAX {
            return Err(Errno::NFILE);
        }
    }
    Ok(None)
}

pub(super) const fn unreadable(pid: Pid, error: WireError) -> ProcessError {
    ProcessError::Unreadable { subject: Subject::Process(pid), error }
}

/// The first of the fourth word: `0.20 0.18 0.12 3/80 11206`.
fn running(loadavg: &[u8]) -> Option<u32> {
    let (running, _) = std::str::from_utf8(loadavg).ok()?.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The files of a `/proc` and the buffer they are read into.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) dir: OwnedFd,
    pub(super) text: Vec<u8>,
}

impl Files {
    fn read_at(&mut self, name: &CStr) -> Result<&[u8], Errno> {
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

    /// Resident minus shared pages by `/proc/PID/statm`: about what it has in anonymous memory, at a tenth of the price of
    /// `status`. `None` where it has no address space any more.
    pub(super) fn anonymous_about(&mut self, pid: Pid) -> Result<Option<Pages>, ProcessError> {
        let text = self.read(pid, "statm", "read statm")?;
        let statm = parse_statm(text).map_err(|error| unreadable(pid, error))?;
        let anonymous = statm.anonymous();
        Ok((statm.resident.0 > 0).then_some(anonymous))
    }

    fn rollup(&mut self, pid: Pid, path: &EntryPath) -> Result<SmapsRollup, ProcessError> {
        let text = self
            .read_at(path.name())
            .map_err(|errno| ProcessError::of_process(pid, "read smaps_rollup", errno))?;
        parse_smaps_rollup(text).map_err(|error| unreadable(pid, error))
    }

    /// A thread that has an address space where the first one has none any more.
    fn another_thread(&self, pid: Pid) -> Result<Option<Pid>, ProcessError> {
        let failed = |errno| ProcessError::of_process(pid, "list the threads", errno);
        let folder =
            openat(&self.dir, EntryPath::new(pid, "task")?.name(), FOLDER, Mode::empty()).map_err(failed)?;
        let living = living_thread(&folder).map_err(failed)?;
        Ok(living.map(|(thread, _)| thread).filter(|thread| *thread != pid))
    }

    /// Whether the number is in use.
    fn exists(&self, pid: Pid) -> Result<bool, ProcessError> {
        let path = EntryPath::new(pid, "stat")?;
        match statat(&self.dir, path.name(), AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::SRCH) => Ok(false),
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
            errno: Errno::NAMETOOLONG,
        })?;
        Ok(Self { bytes })
    }

    pub(super) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

pub(super) fn open_file(dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Reads until a read leaves room: the kernel formats each of these files in one piece, so asking again for the end
/// would only cost a system call. `EFBIG` when the buffer is full.
pub(super) fn read_whole<'text>(
    dir: &OwnedFd,
    name: &CStr,
    text: &'text mut [u8],
) -> Result<&'text [u8], Errno> {
    let file = open_file(dir, name)?;
    let length = rustix::io::retry_on_intr(|| read(&file, &mut *text))?;
    if length < text.len() { Ok(text.get(..length).unwrap_or(&[])) } else { Err(Errno::FBIG) }
}

/// Reads to the end of the file and shows each line, whole; one longer than the buffer is an error, and so is one without its
/// end: the number in it could be the beginning of another. A read gives whole records of such a file, fewer than fit: only an
/// empty one is the end.
pub(crate) fn for_each_line<E>(
    file: &OwnedFd,
    text: &mut [u8],
    failed: impl Fn(Errno) -> E,
    mut show: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut held = 0;
    loop {
        let room = text.get_mut(held..).unwrap_or(&mut []);
        if room.is_empty() {
            return Err(failed(Errno::FBIG));
        }
        let got = rustix::io::retry_on_intr(|| read(file, &mut *room)).map_err(&failed)?;
        let filled = held.saturating_add(got);
        let mut rest = text.get(..filled).unwrap_or(&[]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            show(line)?;
            rest = after.get(1..).unwrap_or(&[]);
        }
        let left = rest.len();
        if got == 0 {
            return if left == 0 { Ok(()) } else { Err(failed(Errno::BADMSG)) };
        }
        text.copy_within(filled.saturating_sub(left)..filled, 0);
        held = left;
    }
}

/// All memory the kernel manages (`MemTotal`).
///
/// # Errors
/// By what the kernel says of `/proc/meminfo`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn mem_total() -> Result<Bytes, ProcessError> {
    let meminfo = ProcRoot::open(Path::new("/proc"))?.read_meminfo()?;
    meminfo.mem_total.ok_or(ProcessError::Unreadable {
        subject: Subject::Machine,
        error: WireError::Missing { file: "/proc/meminfo", field: "MemTotal" },
    })
}

#[cfg(test)]
mod tests;
