//! What became of a victim.

use super::KilledBy;
use crate::process::{PidFd, Reap};
use plimsoll_policy::{
    reap::{Hindrances, RATED_BYTES_MIN, rate},
    units::Bytes,
};
use plimsoll_wire::text::Status;
use std::sync::Arc;

/// What a victim held. `None` where the kernel does not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holdings {
    /// Anonymous memory, resident: what comes back to everybody. Known to a few pages per CPU.
    pub anonymous: Bytes,
    /// Shared memory that it had mapped: comes back when nobody else has it.
    pub shared: Option<Bytes>,
    /// Pages of files: stay in the page cache, where they can be reclaimed.
    pub file: Option<Bytes>,
    /// Anonymous memory in swap: its slots come back.
    pub swapped: Option<Bytes>,
    /// Huge pages of hugetlbfs: go back to their pool.
    pub hugetlb: Option<Bytes>,
    /// Locked memory, resident or not; counted above as well.
    pub locked: Option<Bytes>,
}

impl Holdings {
    /// By `/proc/PID/status`; `None` without an address space.
    pub(super) fn of(status: &Status) -> Option<Self> {
        Some(Self {
            anonymous: status.rss_anonymous?,
            shared: status.rss_shmem,
            file: status.rss_file,
            swapped: status.swap,
            hugetlb: status.hugetlb,
            locked: status.locked,
        })
    }
}

/// What became of one victim.
#[derive(Debug)]
pub struct ReapReport {
    /// What the submitter called it.
    pub tag: u64,
    /// Who killed it.
    pub killed_by: KilledBy,
    /// Nothing was done, as it was somebody else's kill: of one of our own victims, or of one whose tracer may want its memory.
    pub left_alone: bool,
    /// How long a thread was at it: in calls that free, and in turns, in nanoseconds.
    pub cost_ns: u64,
    /// The victim. A thread that has not come back from it has it as well.
    pub pidfd: Arc<PidFd>,
    /// How the last try to free its memory from outside ended.
    pub result: Reap,
    /// Tries, at least 1.
    pub attempts: u32,
    /// From its handing over to its turn, in nanoseconds.
    pub queued_ns: u64,
    /// From its turn to its end or to when it was given up, retries included, in nanoseconds.
    pub took_ns: u64,
    /// It is gone. `false`: it was not, when it was given up.
    pub exited: bool,
    /// What it held at its turn. What it had freed by itself until then is not in it; `None`: it had no address space
    /// any more, or could not be read.
    pub held: Option<Holdings>,
    /// Anonymous memory that is not back: 0 where the kernel freed it from outside or said that nobody else has it, all
    /// of it where a living process shares the address space. `None`: not known. So it is of a victim that had let go of
    /// its address space by itself at the first try ([`Reap::AlreadyGone`]): mostly that is 0.
    pub left: Option<Bytes>,
    /// From its turn to when its anonymous memory was back, in nanoseconds; `None`: it is not, or not known to be.
    pub back_ns: Option<u64>,
    /// It was freed from outside at the first try. Only then [`ReapReport::rate`] tells how fast the kernel frees: whoever
    /// shares an address space, or holds it, decides when a later try succeeds.
    pub at_first: bool,
    /// What stood in the way.
    pub found: Hindrances,
    /// What of it was lifted.
    pub lifted: Hindrances,
}

impl ReapReport {
    /// Anonymous bytes that came back, and within how many nanoseconds from its turn, where both are known and it held
    /// enough to measure a rate by.
    #[must_use]
    pub fn measured(&self) -> Option<(u64, u64)> {
        let came_back = self.held?.anonymous.saturating_sub(self.left?);
        (came_back.0 >= RATED_BYTES_MIN).then_some((came_back.0, self.back_ns?))
    }

    /// How fast its memory came back, in bytes a second, where nobody but the kernel had a say in that.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        self.measured().filter(|_| self.at_first).and_then(|(bytes, took_ns)| rate(bytes, took_ns))
    }
}
