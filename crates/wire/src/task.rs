//! Records of the selection programs: one process each, with what a victim is selected by. Checked before anything believes
//! them.

use crate::{RecordError, abi, pages, read, text::Comm};
use plimsoll_policy::units::{Bytes, Pages, Pid, Uid};

#[cfg(test)]
mod tests;

const WHAT: &str = "a task record";

/// A page count is folded into the shared one when a CPU's remainder reaches `percpu_counter_batch`, which is twice the CPUs
/// that run and at least this (`compute_batch_value`, lib/percpu_counter.c, 6.2 to 7.2).
const BATCH_MIN: u32 = 32;

/// Faults that a thread of Linux 6.1 keeps to itself: it tells at the start of the first after 65, and then makes that one
/// (`check_sync_rss_stat`, `TASK_RSS_EVENTS_THRESH`, mm/memory.c).
const CACHED_FAULTS: u32 = 66;

/// Pages of a file or of shared memory that one fault maps at most (`fault_around_bytes`, 64 KiB of 4 KiB pages).
const AROUND_PAGES: u32 = 16;

/// How far approximate counts may be off, by how this kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looseness {
    /// Each running CPU keeps a remainder of each count to itself (since Linux 6.2).
    PerCpu {
        /// CPUs that run.
        online: u32,
    },
    /// Each thread keeps what its last faults added to itself (Linux 6.1).
    PerThread,
}

/// How far each count of a record may be off, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountErrors {
    /// Of anonymous pages, and of swapped ones.
    pub anonymous: Pages,
    /// Of shared pages, and of a file's.
    pub mapped: Pages,
}

impl Looseness {
    /// Of the shared counts alone, for memory that `users` tasks use.
    #[must_use]
    pub const fn errors(self, users: u32) -> CountErrors {
        match self {
            Self::PerCpu { online } => {
                let doubled = online.saturating_mul(2);
                let batch = if doubled > BATCH_MIN { doubled } else { BATCH_MIN };
                let each = Pages(batch.saturating_sub(1) as u64 * online as u64);
                CountErrors { anonymous: each, mapped: each }
            }
            Self::PerThread => {
                let each = users as u64 * CACHED_FAULTS as u64;
                CountErrors {
                    anonymous: Pages(each),
                    mapped: Pages(each.saturating_mul(AROUND_PAGES as u64)),
                }
            }
        }
    }

    /// Of exact counts: none, but for threads of other processes in the same memory on Linux 6.1, which are not asked.
    const fn errors_left(self, users: u32, threads: u32) -> CountErrors {
        match self {
            Self::PerCpu { .. } => CountErrors { anonymous: Pages(0), mapped: Pages(0) },
            Self::PerThread => self.errors(users.saturating_sub(threads)),
        }
    }
}

/// One process that has memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, as the programs set them")]
pub struct TaskFacts {
    /// Its number, in the initial pid namespace.
    pub pid: Pid,
    /// Start of its leader since boot in nanoseconds, not rounded to clock ticks as `/proc` does.
    pub start_ns: u64,
    /// Its parent's number; 0: none.
    pub parent: Pid,
    /// Its real uid, in the initial user namespace.
    pub uid: Uid,
    /// Its memory's opaque key: the same for all processes that use the same memory, and later for others.
    pub mm: u64,
    /// Its cgroup's id in the v2 hierarchy.
    pub cgroup_id: u64,
    /// Resident anonymous pages. Counts below 0, as one CPU's release is seen before another's charge, are 0 here.
    pub anonymous: Pages,
    /// Anonymous pages in swap.
    pub swapped: Pages,
    /// Pages of shared memory (shmem, tmpfs, memfd) that it has mapped.
    pub shared: Pages,
    /// Pages of files that it has mapped.
    pub file: Pages,
    /// How far each of these may be off. Where CPUs were taken away, others may keep what was allowed before until their
    /// next change.
    pub errors: CountErrors,
    /// Size of all its mappings (`total_vm`). Never less than its anonymous, swapped, shared and file pages together.
    pub mapped: Pages,
    /// Its page tables.
    pub table_bytes: Bytes,
    /// As it was set or inherited, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Its threads, those that are ending included.
    pub threads: u32,
    /// Tasks that use its memory. More than its threads: other processes use it too, or somebody is reading it.
    pub mm_users: u32,
    /// SIGKILL is pending, or the whole process is exiting.
    pub dying: bool,
    /// It is writing a core dump, for which it keeps its memory.
    pub dumping: bool,
    /// Its leading thread has exited before others: the next three flags are of one of those.
    pub leader_exited: bool,
    /// Its leading thread sleeps in a way that no signal ends. `/proc` shows sleeps that SIGKILL does end as `D` too.
    pub uninterruptible: bool,
    /// Its leading thread is stopped, by a signal or by a tracer.
    pub stopped: bool,
    /// The kernel's OOM killer has chosen it.
    pub oom_victim: bool,
    /// It runs in its parent's memory, until it calls exec or exits.
    pub vfork_child: bool,
    /// Counts its calls of exec, on from what its parent had when it was forked, modulo 2^32 (`task_struct::self_exec_id`).
    /// The memory's key changes first and this next (`begin_new_exec`, fs/exec.c): who has the same of both runs the same
    /// program.
    pub execs: u32,
    /// Its name, which it chose.
    pub comm: Comm,
}

impl TaskFacts {
    /// The least that it may hold: anonymous, swapped and shared pages.
    #[must_use]
    pub fn least(&self) -> Pages {
        self.counted().saturating_sub(self.error())
    }

    /// The most that it may hold: anonymous, swapped and shared pages.
    #[must_use]
    pub fn most(&self) -> Pages {
        Pages(self.counted().0.saturating_add(self.error().0).min(self.mapped.0))
    }

    /// Anonymous, swapped and shared pages, as they were counted.
    #[must_use]
    pub fn counted(&self) -> Pages {
        Pages(self.anonymous.0.saturating_add(self.swapped.0).saturating_add(self.shared.0))
    }

    fn error(&self) -> Pages {
        Pages(self.errors.anonymous.0.saturating_mul(2).saturating_add(self.errors.mapped.0))
    }
}

/// Decodes one record of a sweep or a measurement.
///
/// # Errors
/// [`RecordError`] when no process can be like that; the caller counts and drops it.
pub fn decode(bytes: &[u8], looseness: Looseness) -> Result<TaskFacts, RecordError> {
    check(&read(WHAT, bytes)?, looseness)
}

/// As [`decode`], of a record that is part of another.
///
/// # Errors
/// As [`decode`].
pub fn check(task: &abi::plimsoll_task, looseness: Looseness) -> Result<TaskFacts, RecordError> {
    let impossible = [
        ("number", task.tgid == 0),
        ("memory", task.mm == 0),
        ("oom_score_adj", !(-1000..=1000).contains(&task.oom_score_adj)),
        ("flag", task.flags & !abi::PLIMSOLL_TASK_FLAGS != 0),
    ];
    if let Some((field, _)) = impossible.into_iter().find(|(_, wrong)| *wrong) {
        return Err(RecordError::Field { what: WHAT, field });
    }
    let has = |flag: u32| task.flags & flag != 0;
    let count = |member: u32| pages(task.pages.get(member as usize).copied().unwrap_or_default());
    Ok(TaskFacts {
        pid: Pid(task.tgid),
        start_ns: task.start_ns,
        parent: Pid(task.parent),
        uid: Uid(task.uid),
        mm: task.mm,
        cgroup_id: task.cgroup_id,
        anonymous: count(abi::PLIMSOLL_MEMBER_ANON),
        swapped: count(abi::PLIMSOLL_MEMBER_SWAP),
        shared: count(abi::PLIMSOLL_MEMBER_SHMEM),
        file: count(abi::PLIMSOLL_MEMBER_FILE),
        errors: if has(abi::PLIMSOLL_TASK_EXACT) {
            looseness.errors_left(task.mm_users, task.threads)
        } else {
            looseness.errors(task.mm_users.max(task.threads))
        },
        mapped: Pages(task.mapped_pages),
        table_bytes: Bytes(task.table_bytes),
        oom_score_adj: task.oom_score_adj,
        threads: task.threads,
        mm_users: task.mm_users,
        dying: has(abi::PLIMSOLL_TASK_DYING),
        dumping: has(abi::PLIMSOLL_TASK_DUMPING),
        leader_exited: has(abi::PLIMSOLL_TASK_LEADER_EXITED),
        uninterruptible: has(abi::PLIMSOLL_TASK_UNINTERRUPTIBLE),
        stopped: has(abi::PLIMSOLL_TASK_STOPPED),
        oom_victim: has(abi::PLIMSOLL_TASK_OOM_VICTIM),
        vfork_child: has(abi::PLIMSOLL_TASK_VFORK_CHILD),
        execs: task.execs,
        comm: Comm::from_bytes(&task.comm),
    })
}
