//! Why something was done: a closed list whose texts never change their meaning, because scripts match on them.

use crate::human;
use alloc::string::{String, ToString};
use core::str::FromStr;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal: $sentence:literal;)*) => {
        texts! {
            /// Why something was done, or was not.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum Reason {
                $($(#[$doc])* $name = $text,)*
            }
            /// The stable text, as in incidents, metrics and the journal.
            fn text, Display
        }

        impl Reason {
            /// What it means, as one sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

reasons! {
    /// In the kernel: the process that crossed was the account's largest.
    OverHardLimitLargest = "over-hard-limit-largest":
        "The process whose allocation crossed the hard limit was also the account's largest, so it was \
         killed in that very event.";
    /// In the kernel: another process crossed, and the account's largest was taken.
    OverHardLimitOther = "over-hard-limit-other":
        "Another process's allocation crossed the hard limit; this one was the account's largest, so it was \
         killed in that very event.";
    /// In the kernel: who allocated goes before the largest while much of what was killed is not freed.
    OverHardLimitAllocating = "over-hard-limit-allocating":
        "The account was over its hard limit while more than an eighth of it, of processes killed before, was still \
         to be freed: so this process, which allocated, was killed, and not the largest, which would have had to \
         wait for a CPU to end.";
    /// By the daemon: the largest process of the account.
    OverHardLimitSelected = "over-hard-limit-selected":
        "The account was over its hard limit and its largest process was selected.";
    /// In the kernel: nobody selected in time.
    OverHardLimitUnanswered = "over-hard-limit-unanswered":
        "The account was over its hard limit and nobody answered the kernel's request to select, so the \
         allocating process was killed.";
    /// Nothing was done: the account's processes are all protected.
    OverHardLimitOnlyProtectedLeft = "over-hard-limit-only-protected-left":
        "The account was over its hard limit, but only protected processes are left in it; nothing was killed.";
    /// Nothing was done: no process holds memory that killing it would return.
    OverHardLimitNothingToFree = "over-hard-limit-nothing-to-free":
        "The account was over its hard limit, but no process is left in it whose end would free memory; \
         nothing was killed.";
    /// Nothing was done: over the line only with shared memory that no end of a process gives back for sure.
    OverHardLimitSharedLasts = "over-hard-limit-shared-lasts":
        "The account was over its hard limit with shared memory that stays when its processes end, or that others than its \
         owner may have filled; nothing was killed, and no more is granted.";
    /// The line's action is `notify`.
    OverHardLimitNotify = "over-hard-limit-notify":
        "The account was over its hard limit, and its action is to notify only.";
    /// The line's action is `term`.
    OverHardLimitTerm = "over-hard-limit-term":
        "The account was over its hard limit and its largest process was asked to end.";
    /// The line's action is `term`, and no more is asked to end and left alone.
    OverHardLimitNoGrace = "over-hard-limit-no-grace":
        "The account was over its hard limit, and what had been asked to end before held more than the limit and a quarter, or \
         would have with this process: so it was killed with no grace period, or before its own was over.";
    /// In the kernel: the table of address spaces is almost full.
    TableFullMostProcesses = "table-full-most-processes":
        "The table of processes that can be charged was almost full and this account has most of them, so this process was \
         killed; so were others, perhaps, within the same tenth of a second.";
    /// SIGTERM was sent for a line and the grace period is over.
    TermDeadlinePassed = "term-deadline-passed":
        "The process was asked to end and was still there when the grace period was over.";
    /// The machine gets short of memory: nothing is done yet.
    MachineLowMemoryNotice = "machine-low-memory-notice":
        "The machine's available memory and free swap are both getting low; the process named first would be selected \
         if they fall further.";
    /// The machine is short of memory.
    MachineLowMemoryTerm = "machine-low-memory-term":
        "The machine's available memory and free swap were both low, and its largest process was asked to end.";
    /// The machine is very short of memory.
    MachineLowMemoryKill = "machine-low-memory-kill":
        "The machine's available memory and free swap were both almost used up, and its largest process was \
         selected.";
    /// The machine is thrashing.
    MachineThrashing = "machine-thrashing":
        "The machine did little but wait for memory, whatever swap was free, and its largest process was selected.";
    /// SIGTERM was sent for the machine and the grace period is over.
    MachineTermDeadlinePassed = "machine-term-deadline-passed":
        "The machine was short of memory; the process was asked to end and was still there when the grace \
         period was over.";
    /// Nothing was done: all that is left is protected.
    MachineOnlyProtectedLeft = "machine-only-protected-left":
        "The machine was short of memory, but only protected processes are left; the kernel's own OOM \
         killer is the last defence.";
    /// Blocks of several pages ran out, and there are enough of them again, or some.
    MemoryCompacted = "memory-compacted":
        "Memory was compacted ahead of need, so that the kernel finds blocks of that size without stalling or killing.";
    /// Blocks of several pages ran out, and compaction made hardly any.
    CompactionInVain = "compaction-in-vain":
        "Memory was compacted, and that made hardly any blocks of that size: pages that cannot be moved lie between the free \
         ones.";
    /// Signals were sent, and their records lost.
    ActionsNotRecorded = "actions-not-recorded":
        "The kernel side acted, and there was no room left to record whom it signalled: no daemon was there \
         to read the records, or it was too busy.";
    /// The history gave up the oldest of an account that has more than its share, or kills came faster than each is told of.
    IncidentsFolded = "incidents-folded":
        "This account has more incidents than are told one by one: the older ones made room, as each account has a share of \
         the history, or its processes were killed faster than each is told of.";
    /// `memory.max` of the user's slice, as set by us, was reached.
    LastDefenceMemoryMax = "last-defence-memory-max":
        "The user's slice reached the memory.max that was set above the line, and the kernel's own OOM killer ended \
         a process in it.";
    /// The kernel's own OOM killer was at work when the process that was raised ended.
    LastDefenceOutOfMemory = "last-defence-out-of-memory":
        "The kernel's own OOM killer was at work when this process ended, which had been put before the others of \
         its user by its oom_score_adj because the user was near the line.";
    /// The kernel's own OOM killer, for the whole machine.
    KernelOutOfMemory = "kernel-out-of-memory":
        "The kernel could not serve a request for memory in any other way, and its own OOM killer ended this process.";
    /// The kernel's own OOM killer, for a cgroup.
    KernelCgroupLimit = "kernel-cgroup-limit":
        "A memory cgroup was at its limit, and the kernel's own OOM killer ended a process in it.";
    /// The kernel's own OOM killer, for the nodes of a cpuset or of a NUMA policy.
    KernelNodesFull = "kernel-nodes-full":
        "The memory nodes that a process is bound to had no memory left, and the kernel's own OOM killer ended this \
         process.";
    /// The kernel's own OOM killer, and its log does not tell for what.
    KernelOomKill = "kernel-oom-kill":
        "The kernel's own OOM killer ended this process.";
    /// Kills of the kernel were made, and their records lost.
    KernelKillsNotRecorded = "kernel-kills-not-recorded":
        "The kernel's own OOM killer ended processes, and there was no room left to record which: no daemon was there \
         to read the records, or it was too busy.";
    /// systemd-oomd took a cgroup.
    SystemdOomdKill = "systemd-oomd-kill":
        "systemd-oomd takes cgroups as a whole, and does not say which processes were in them.";
    /// earlyoom took a process.
    EarlyoomKill = "earlyoom-kill":
        "earlyoom chose this process, as the machine's available memory was low.";
    /// Clean file memory was under the floor that working-set protection keeps.
    WorkingsetFloor = "workingset-floor":
        "Clean file memory was under its floor and nothing could be swapped: before the kernel took the pages that \
         programs run from, the process that had been selected was killed.";
    /// Reclaim found nothing to take near the floor that working-set protection keeps.
    WorkingsetNoProgress = "workingset-no-progress":
        "The kernel looked for memory to take back again and again and found none: before its OOM killer chose, the \
         process that had been selected was killed.";
    /// Nothing was done: all that is left is protected.
    WorkingsetFloorOnlyProtectedLeft = "workingset-floor-only-protected-left":
        "Clean file memory was at its floor, but only protected processes are left; nothing was killed.";
    /// The signal could not be sent.
    SignalFailed = "signal-failed":
        "A process was selected, but the signal could not be sent to it.";
}

/// A text that is no reason of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown reason '{}'; it may come from a later version", human::escaped(.0))]
pub struct UnknownReason(pub String);

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.text() == text)
            .ok_or_else(|| UnknownReason(text.to_string()))
    }
}

as_text!(Reason);

#[cfg(test)]
mod tests;
