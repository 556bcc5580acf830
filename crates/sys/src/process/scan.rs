//! All processes, each with what selection needs, at two small reads a process.

use super::{
    ProcRoot, ProcessError,
    machine::{page_size, tick_ns},
    root::{EntryPath, Files, open_file, unreadable},
    walk,
};
use plimsoll_policy::{
    reading::Reading,
    units::{Bytes, Pages, Pid, Uid},
};
use plimsoll_wire::text::{Comm, ProcessState, Stat, Status, WireError};
use rustix::{
    fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek},
    io::read,
};
use std::{ffi::CStr, mem::MaybeUninit, os::fd::OwnedFd, time::Duration};

/// Room for the names of about 1,300 processes; the kernel is asked again when more are there.
const LISTING_BYTES: usize = 32 * 1024;

/// Room for the names of the first threads of a process; more are asked for as needed.
const THREADS_BYTES: usize = 1024;

/// What a process is charged for, by `/proc/PID/status`. From kernel 6.2 on both may miss a few pages per CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident anonymous pages.
    pub anonymous: Pages,
    /// Anonymous pages in swap.
    pub swapped: Pages,
    /// Resident pages of shared memory (shmem, tmpfs, memfd) that it has mapped.
    pub shared: Pages,
}

impl Memory {
    /// The first two together: what an account is charged.
    #[must_use]
    pub const fn usage(&self) -> Pages {
        Pages(self.anonymous.0.saturating_add(self.swapped.0))
    }
}

/// One process as a scan finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// Start time since boot in nanoseconds, rounded down to a clock tick (10 ms).
    pub start_ns: u64,
    /// Its parent.
    pub parent: Pid,
    /// Its real uid; root for kernel threads.
    pub uid: Uid,
    /// Its memory. `Absent`: it has no address space (kernel threads, zombies, the end of an exit).
    pub memory: Reading<Memory>,
    /// The state of its leading thread. `Zombie` with threads left is a living process whose leader has exited.
    pub state: ProcessState,
    /// A thread of the kernel's own.
    pub kernel_thread: bool,
    /// SIGKILL is pending, or it is exiting: its memory is on its way out.
    pub dying: bool,
    /// Its name, which it chose.
    pub comm: Comm,
    /// Its threads, the leader included.
    pub threads: u64,
    /// Processor time that it has used, in clock ticks ([`super::tick_ns`]).
    pub cpu_ticks: u64,
}

impl Process {
    /// Anonymous and swapped pages: what it is charged.
    #[must_use]
    pub fn usage(&self) -> Reading<Pages> {
        self.memory.map(|memory| memory.usage())
    }

    /// Stopped by a signal, `SIGSTOP` or a terminal's.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == ProcessState::Stopped
    }

    /// Exited, and only its number is left.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        match self.state {
            ProcessState::Zombie => self.threads <= 1,
            ProcessState::Dead => true,
            ProcessState::Running
            | ProcessState::Sleeping
            | ProcessState::Uninterruptible
            | ProcessState::Idle
            | ProcessState::Stopped
            | ProcessState::Traced
            | ProcessState::Parked
            | ProcessState::Other(_) => false,
        }
    }
}

/// What a scan met. A process that is in one of the last four was not shown to the visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanCounts {
    /// Shown to the visitor, kernel threads included.
    pub visited: u64,
    /// Of those, kernel threads.
    pub kernel_threads: u64,
    /// Exited, only not yet waited for.
    pub zombies: u64,
    /// Gone between the listing and the reading.
    pub vanished: u64,
    /// Not ours to read: a right is missing.
    pub denied: u64,
    /// Not read or not understood for another reason.
    pub unreadable: u64,
}

/// The listing of a `/proc` and the buffer it is read into.
#[derive(Debug)]
pub(super) struct Listing {
    dir: OwnedFd,
    names: Vec<u8>,
    /// What the last listing took of a CPU.
    took: Duration,
}

impl Listing {
    pub(super) fn new(dir: OwnedFd) -> Self {
        Self { dir, names: Vec::with_capacity(LISTING_BYTES), took: Duration::ZERO }
    }

    /// Every number, in order.
    fn each(&mut self, mut visit: impl FnMut(Pid)) -> Result<(), ProcessError> {
        let failed = |errno| ProcessError::of_machine("list /proc", errno);
        seek(&self.dir, SeekFrom::Start(0)).map_err(failed)?;
        let mut entries = RawDir::new(&self.dir, self.names.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            if let Some(pid) = number(entry.map_err(failed)?.file_name()) {
                visit(pid);
            }
        }
        Ok(())
    }
}

impl ProcRoot {
    /// Shows every process to `visit`, in order of number, and counts what could not be shown.
    ///
    /// # Errors
    /// Only when the listing itself fails: one bad process never hides the others.
    pub fn processes(&mut self, visit: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError> {
        let mut last = self.listing.took;
        let done = walk(&mut last, || self.all_processes(visit));
        self.listing.took = last;
        done
    }

    fn all_processes(&mut self, mut visit: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError> {
        let Self { files, listing } = self;
        let mut counts = ScanCounts::default();
        listing.each(|pid| match files.process(pid) {
            Ok(process) if process.is_zombie() => add_one(&mut counts.zombies),
            Ok(process) => {
                add_one(&mut counts.visited);
                if process.kernel_thread {
                    add_one(&mut counts.kernel_threads);
                }
                visit(&process);
            }
            Err(ProcessError::Vanished(_)) => add_one(&mut counts.vanished),
            Err(ProcessError::Denied { .. }) => add_one(&mut counts.denied),
            Err(
                ProcessError::Unsupported { .. }
                | ProcessError::Failed { .. }
                | ProcessError::Unreadable { .. },
            ) => add_one(&mut counts.unreadable),
        })?;
        Ok(counts)
    }

    /// The number of every process, in order: a hundredth of the price of [`ProcRoot::processes`].
    ///
    /// # Errors
    /// By what the kernel says.
    pub fn pids(&mut self) -> Result<Vec<Pid>, ProcessError> {
        let mut pids = Vec::new();
        self.listing.each(|pid| pids.push(pid))?;
        Ok(pids)
    }

    /// One process, as [`ProcRoot::processes`] shows it; a zombie, too.
    ///
    /// # Errors
    /// By what the kernel says; [`ProcessError::Unreadable`] when it cannot be understood.
    pub fn process(&mut self, pid: Pid) -> Result<Process, ProcessError> {
        self.files.process(pid)
    }
}

/// A count cannot reach its end: the kernel has at most 2^22 process numbers.
const fn add_one(count: &mut u64) {
    *count = count.saturating_add(1);
}

/// A folder name that is a process number.
pub(super) fn number(name: &CStr) -> Option<Pid> {
    let name = name.to_str().ok()?;
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok().map(Pid))?
}

impl Files {
    fn process(&mut self, pid: Pid) -> Result<Process, ProcessError> {
        let stat = self.stat(pid)?;
        let bare = Process {
            pid,
            start_ns: stat.start_ticks.saturating_mul(tick_ns()),
            parent: stat.parent,
            uid: Uid(0),
            memory: Reading::Absent,
            state: stat.state,
            kernel_thread: stat.is_kernel_thread(),
            dying: false,
            comm: stat.comm,
            threads: stat.threads,
            cpu_ticks: stat.cpu_ticks,
        };
        // A kernel thread has no memory and is root's: nothing more to ask.
        if bare.kernel_thread {
            return Ok(bare);
        }
        let status = self.status(pid, EntryPath::new(pid, "status")?)?;
        let uid = status
            .real_uid
            .ok_or_else(|| unreadable(pid, WireError::Missing { file: "/proc/PID/status", field: "Uid" }))?;
        let (memory, dying) = if stat.leader_left_threads() {
            // The leader's own files show no memory; any other thread's do. Without this, a program could hide from
            // selection by letting its first thread exit.
            match self.living_thread(&stat)? {
                Some(thread) => (memory_of(&thread), thread.kill_is_pending()),
                None => (Reading::Absent, true),
            }
        } else {
            (memory_of(&status), stat.is_exiting() || status.kill_is_pending())
        };
        Ok(Process { uid, memory, dying, ..bare })
    }

    /// Reads a `status` in pieces of the buffer's size. Its `Groups` line can be longer than any buffer (65,536
    /// groups, which the owner of a user namespace can have): such a line is passed over, what follows is not lost.
    pub(super) fn status(&mut self, pid: Pid, path: EntryPath) -> Result<Status, ProcessError> {
        let failed = |errno| ProcessError::of_process(pid, "read status", errno);
        let file = open_file(&self.dir, path.name()).map_err(failed)?;
        let mut status = Status::default();
        let mut held = 0;
        let mut passing_over = false;
        loop {
            let room = self.text.get_mut(held..).unwrap_or(&mut []);
            let space = room.len();
            let got = rustix::io::retry_on_intr(|| read(&file, &mut *room)).map_err(failed)?;
            let filled = held.saturating_add(got);
            let mut rest = self.text.get(..filled).unwrap_or(&[]);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                if !std::mem::take(&mut passing_over) {
                    status.take_line(line).map_err(|error| unreadable(pid, error))?;
                }
                rest = after.get(1..).unwrap_or(&[]);
            }
            // The kernel formats a status in one piece: a read that leaves room was the last.
            if got < space {
                return Ok(status);
            }
            let left = rest.len();
            if left == filled {
                (passing_over, held) = (true, 0);
            } else {
                self.text.copy_within(filled.saturating_sub(left)..filled, 0);
                held = left;
            }
        }
    }

    /// The status of the first thread beside the leader that still has an address space.
    fn living_thread(&mut self, leader: &Stat) -> Result<Option<Status>, ProcessError> {
        let pid = leader.pid;
        let failed = |errno| ProcessError::of_process(pid, "list the threads", errno);
        let folder = EntryPath::new(pid, "task")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(&self.dir, folder.name(), flags, Mode::empty()).map_err(failed)?;
        let mut names = [MaybeUninit::uninit(); THREADS_BYTES];
        let mut entries = RawDir::new(&tasks, &mut names);
        while let Some(entry) = entries.next() {
            let Some(thread) = number(entry.map_err(failed)?.file_name()).filter(|thread| *thread != pid)
            else {
                continue;
            };
            match self.status(pid, EntryPath::of_thread(pid, thread, "status")?) {
                Ok(status) if status.rss_anonymous.is_some() => return Ok(Some(status)),
                Ok(_) | Err(ProcessError::Vanished(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn memory_of(status: &Status) -> Reading<Memory> {
    let pages = |bytes: Bytes| page_size().to_pages(bytes);
    match (status.rss_anonymous, status.swap, status.rss_shmem) {
        (Some(anonymous), Some(swap), Some(shared)) => Reading::Known(Memory {
            anonymous: pages(anonymous),
            swapped: pages(swap),
            shared: pages(shared),
        }),
        (None, None, None) => Reading::Absent,
        _ => Reading::Unreadable,
    }
}

#[cfg(test)]
mod tests;
