//! The recorded story of one action or refusal: before, decision, action, after.

use crate::{
    account::Account,
    frag::compaction::Ended,
    units::{Bytes, JobId, Pid, Uid},
};
use alloc::{string::String, vec::Vec};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod course;
pub mod origin;

pub use course::{Course, MachineSample, UsageSample};
use origin::Origin;

/// Which guard acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guard {
    /// A line of an account.
    Limits,
    /// The machine's own memory.
    Pressure,
    /// Working-set protection.
    Workingset,
    /// A refused reservation.
    Tmalloc,
    /// Blocks of several pages, which had run out.
    Fragmentation,
    /// None of ours: the kernel's own OOM killer, or another program ([`Origin`]).
    Kernel,
}

texts! {
    /// What set the action off.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Trigger {
        /// The allocation event itself, in the eBPF program.
        InKernel = "in-kernel",
        /// The daemon: a record from the kernel, or its own check.
        Daemon = "daemon",
        /// `memory.max` or the kernel's choice as arranged by us.
        LastDefence = "last-defence",
        /// The kernel's own OOM killer or another program, not arranged by us.
        Kernel = "kernel",
    }
    /// The word, as in JSON and in the journal.
    fn text
}

texts! {
    /// What was done.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Outcome {
        /// SIGKILL sent.
        Kill = "kill",
        /// SIGTERM sent.
        Term = "term",
        /// An allocation failed with ENOMEM.
        Deny = "deny",
        /// Nothing but this record. With victims: a dry run, and they are who would have been signalled; or, with the
        /// reason `signal-failed`, who could not be.
        Notify = "notify",
        /// A reservation was refused.
        Refuse = "refuse",
    }
    /// The word, as in JSON and in `plimsoll history`.
    fn text
}

/// A process as an incident remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Its number.
    pub pid: Pid,
    /// Start time since boot in nanoseconds (`start_boottime`): tells it from a later process of the same number.
    pub start_ns: u64,
    /// Its real uid.
    pub uid: Uid,
    /// `comm`, made printable; at most 15 bytes before that.
    pub comm: String,
    /// Command line; `None` where unknown or not for the reader's eyes.
    pub cmdline: Option<String>,
    /// Its cgroup path.
    pub cgroup: Option<String>,
    /// What it was charged.
    pub usage_bytes: u64,
    /// What each of its pages counted when it was compared, in permille; `None`: as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_permille: Option<u16>,
    /// Its user's session stood on it when it was compared: it came after all others of its account.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub session: bool,
    /// The jobs that it was in, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobId>,
}

/// What compacting memory ahead of need came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// For blocks of 2 to the power of so many pages.
    pub order: u32,
    /// The size of one.
    pub block_bytes: u64,
    /// How many were free when it began, larger ones taken apart.
    pub before: u64,
    /// How many are when it ended.
    pub after: u64,
    /// So many are kept: it begins when a quarter of them is gone.
    pub kept: u64,
    /// All free memory, when it ended.
    pub free_bytes: u64,
    /// What it took.
    pub took_ns: u64,
    /// What kcompactd had of CPUs.
    pub cost_ns: u64,
    /// Why it ended.
    pub ended: Ended,
}

/// One incident. `None` is 'not known', never 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Counts up from 1 within one state folder.
    pub id: u64,
    /// When the line was crossed.
    pub time: Timestamp,
    /// Whose line; `None` for the machine's.
    pub account: Option<Account>,
    /// Which guard.
    pub guard: Guard,
    /// What set it off.
    pub trigger: Trigger,
    /// What was done.
    pub action: Outcome,
    /// Who paid, in order.
    pub victims: Vec<Victim>,
    /// Usage when the decision was made; for [`Guard::Kernel`], what the victims held, as far as it is known.
    pub usage_bytes: u64,
    /// The line in force then.
    pub hard_bytes: Option<u64>,
    /// Usage above the line; 0 at or under it.
    pub overshoot_bytes: u64,
    /// What the crossing request asked for, where known.
    pub requested_bytes: Option<u64>,
    /// How many actions of the kernel side this stands for, whose own records were lost.
    pub unrecorded: Option<u64>,
    /// From the crossing event to the signal sent.
    pub cross_to_signal_ns: Option<u64>,
    /// From the signal to the victim's memory being returned.
    pub signal_to_freed_ns: Option<u64>,
    /// What the victim gave back.
    pub freed_bytes: Option<u64>,
    /// A [`crate::reason::Reason`], as text that never changes its meaning.
    pub reason: String,
    /// The largest processes it was compared with.
    pub peers: Vec<Victim>,
    /// Where the kill came from, where somebody else killed.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Of [`Guard::Fragmentation`]: what compaction did.
    #[serde(default)]
    pub compaction: Option<Compacted>,
    /// The minutes before and the seconds after. `None`: not recorded, or a list of incidents, which is told without.
    #[serde(default)]
    pub course: Option<Course>,
}

impl Incident {
    /// The usage, where there is one: 0 is said of a kill that was not ours where nobody knows it, and of a compaction.
    #[must_use]
    pub const fn usage(&self) -> Option<Bytes> {
        match (self.guard, self.usage_bytes) {
            (Guard::Kernel | Guard::Fragmentation, 0) => None,
            (_, usage) => Some(Bytes(usage)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
