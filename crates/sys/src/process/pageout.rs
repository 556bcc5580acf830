//! To push a process's memory out to swap while it lives: `process_madvise(2)` with `MADV_PAGEOUT`.
//!
//! Reads `maps` and takes the process's `mmap_lock` for each batch, both of which wait for a process that is stuck
//! in a page fault: for a thread that may wait, never for the kill path. Without swap it can do nothing and says
//! so.
#![expect(unsafe_code, reason = "no safe wrapper of process_madvise(2) exists")]

use super::{
    Memory, PidFd, ProcRoot, ProcessError, checked, clock_monotonic_ns,
    root::{EntryPath, for_each_line, open_file, unreadable},
};
use plimsoll_policy::{
    reading::Reading,
    units::{Bytes, Pid},
};
use plimsoll_wire::text::parse_mapping;
use rustix::io::Errno;
use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    time::Duration,
};

/// What is pushed out between two looks at the budget, in bytes.
pub const PAGE_OUT_BATCH_BYTES: u64 = 16 << 20;

/// Ranges of one batch: the kernel takes 1,024 at most.
const RANGES_MAX: usize = 64;

/// What of `maps` is read at once. A line is at most an address, a few numbers and a path of 4,096 bytes.
const MAPS_BYTES: usize = 8192;

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct PageOutOrder {
    /// How much of its address space to advise at most. Memory that was never touched, or is in swap already,
    /// counts, too.
    pub bytes: Bytes,
    /// No new batch is begun after this.
    pub budget: Duration,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageOutEnd {
    /// All of its own memory was advised.
    Whole,
    /// As much as was ordered.
    Bytes,
    /// The budget was used up, or a signal came.
    Stopped,
    /// The process went.
    Exited,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageOut {
    /// Why it ended.
    pub end: PageOutEnd,
    /// What the kernel took the advice for; how much went is the difference between `before` and `after`.
    pub advised: Bytes,
    /// Ranges that the kernel would not take it for: locked into memory, or unmapped since.
    pub refused: u64,
    /// What the process was charged before.
    pub before: Reading<Memory>,
    /// And after.
    pub after: Reading<Memory>,
}

/// As `struct iovec`: a range of another process's addresses, which mean nothing in this one.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    start: usize,
    bytes: usize,
}

impl ProcRoot {
    /// Pushes a process's own memory (private, writable, without a file, not its stack) out to swap, in batches.
    ///
    /// The mappings are those of the number, the advice goes to the pidfd: should the number have changed hands, the
    /// process behind the pidfd is gone and nobody is advised.
    ///
    /// # Errors
    /// [`ProcessError::Unsupported`] without free swap; [`ProcessError::Denied`] without
    /// `CAP_SYS_NICE` and `CAP_SYS_PTRACE`; otherwise by what the kernel says.
    pub fn page_out(&mut self, pidfd: &PidFd, order: &PageOutOrder) -> Result<PageOut, ProcessError> {
        if self.read_meminfo()?.swap_free.is_none_or(|free| free.0 == 0) {
            return Err(ProcessError::Unsupported { operation: "page out without free swap" });
        }
        let pid = pidfd.pid();
        let before = self.process(pid)?.memory;
        let budget_ns = u64::try_from(order.budget.as_nanos()).unwrap_or(u64::MAX);
        let mut work = Work {
            pid,
            pidfd: pidfd.as_fd(),
            end_ns: clock_monotonic_ns().saturating_add(budget_ns),
            left: order.bytes.0,
            advised: 0,
            refused: 0,
            ranges: Vec::with_capacity(RANGES_MAX),
            held: 0,
        };
        let end = self.advise_mappings(pid, &mut work)?;
        let after = self.process(pid).map_or(Reading::Absent, |process| process.memory);
        Ok(PageOut { end, advised: Bytes(work.advised), refused: work.refused, before, after })
    }

    /// Feeds the process's own mappings to `work` until it has enough; why it had.
    fn advise_mappings(&self, pid: Pid, work: &mut Work<'_>) -> Result<PageOutEnd, ProcessError> {
        let failed = |errno| ProcessError::of_process(pid, "read maps", errno);
        let path = EntryPath::new(pid, "maps")?;
        let file = open_file(&self.files.dir, path.name()).map_err(failed)?;
        let mut text = vec![0; MAPS_BYTES];
        let failed = |errno| Stop::Failed(failed(errno));
        let shown = for_each_line(&file, &mut text, failed, |line| {
            let mapping = parse_mapping(line).map_err(|error| Stop::Failed(unreadable(pid, error)))?;
            if mapping.is_own_memory() { work.add(mapping.start, mapping.bytes()) } else { Ok(()) }
        });
        shown.and_then(|()| work.flush()).map_or_else(Stop::told, |()| Ok(PageOutEnd::Whole))
    }
}

/// Why no more is done.
enum Stop {
    End(PageOutEnd),
    Failed(ProcessError),
}

impl Stop {
    fn told(self) -> Result<PageOutEnd, ProcessError> {
        match self {
            Self::End(end) => Ok(end),
            Self::Failed(error) => Err(error),
        }
    }
}

/// The batch that is being filled.
struct Work<'a> {
    pid: Pid,
    pidfd: BorrowedFd<'a>,
    end_ns: u64,
    left: u64,
    advised: u64,
    refused: u64,
    ranges: Vec<Range>,
    held: u64,
}

impl Work<'_> {
    /// Takes a range up, in pieces where it is long.
    fn add(&mut self, mut start: u64, mut bytes: u64) -> Result<(), Stop> {
        while bytes > 0 {
            if self.left == 0 {
                self.flush()?;
                return Err(Stop::End(PageOutEnd::Bytes));
            }
            let piece = bytes.min(PAGE_OUT_BATCH_BYTES.saturating_sub(self.held)).min(self.left);
            let (Ok(address), Ok(length)) = (usize::try_from(start), usize::try_from(piece)) else {
                self.refused = self.refused.saturating_add(1);
                return Ok(());
            };
            self.ranges.push(Range { start: address, bytes: length });
            self.held = self.held.saturating_add(piece);
            self.left = self.left.saturating_sub(piece);
            (start, bytes) = (start.saturating_add(piece), bytes.saturating_sub(piece));
            if self.held >= PAGE_OUT_BATCH_BYTES || self.ranges.len() >= RANGES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Gives the advice for what was taken up. The kernel stops at the first range that it refuses and says how far
    /// it came: the rest is asked for again, without that range.
    fn flush(&mut self) -> Result<(), Stop> {
        let mut from = 0;
        while let Some(ranges) = self.ranges.get(from..).filter(|ranges| !ranges.is_empty()) {
            if clock_monotonic_ns() >= self.end_ns {
                return Err(Stop::End(PageOutEnd::Stopped));
            }
            let done = match advise(self.pidfd, ranges) {
                Ok(done) => done,
                Err(Errno::INVAL | Errno::NOMEM | Errno::AGAIN) => 0,
                Err(Errno::SRCH) => return Err(Stop::End(PageOutEnd::Exited)),
                Err(Errno::INTR) => return Err(Stop::End(PageOutEnd::Stopped)),
                Err(errno) => {
                    let failed = ProcessError::of_process(self.pid, "page out the memory", errno);
                    return Err(Stop::Failed(failed));
                }
            };
            let taken = whole_ranges(ranges, done);
            self.advised = self.advised.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            if taken < ranges.len() {
                self.refused = self.refused.saturating_add(1);
            }
            from = from.saturating_add(taken).saturating_add(1);
        }
        self.ranges.clear();
        self.held = 0;
        Ok(())
    }
}

/// How many ranges lie wholly in the first `done` bytes.
fn whole_ranges(ranges: &[Range], mut done: usize) -> usize {
    let lies_within = |range: &&Range| {
        done.checked_sub(range.bytes).is_some_and(|rest| {
            done = rest;
            true
        })
    };
    ranges.iter().take_while(lies_within).count()
}

/// One call; how many bytes the advice was taken for.
fn advise(pidfd: BorrowedFd<'_>, ranges: &[Range]) -> Result<usize, Errno> {
    // SAFETY: process_madvise(pidfd, ranges, count, advice, flags) reads `count` ranges from where the slice has as
    // many, laid out as `struct iovec`, and writes nothing to this process: the addresses are another process's.
    // MADV_PAGEOUT takes nothing away: a page that was pushed out comes back when it is touched, also should the
    // pidfd be our own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_PAGEOUT,
            0_u32,
        )
    };
    checked(result)
}

#[cfg(test)]
mod tests;
