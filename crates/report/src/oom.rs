//! A report of the kernel's OOM killer as facts, and what they come to.
//!
//! The model holds what a report of any kernel from 3.x to 7.x may say; `None` is 'the report does not say', never 0.
//! [`diagnose`] judges it and puts it in words. Reading the text is `crate::oom::log`'s part.

use plimsoll_policy::{
    texts,
    units::{Bytes, Nanos, PageSize, Pid, Uid},
};
use serde::Serialize;

mod advice;
mod diagnosis;
mod gfp;
mod holders;
pub mod log;
mod words;
mod zone;

pub(crate) use advice::SYSRQ_ADVICE;
pub use diagnosis::{Cause, Diagnosis, diagnose};
pub use gfp::{Gfp, ZoneKind};
pub use zone::{Block, BlockKinds, Request, Zone};

texts! {
    /// Which limit the kernel was at: the constraint it names, or SysRq.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Kind {
        /// The whole machine.
        #[default]
        Global = "global",
        /// A memory cgroup at its limit.
        Memcg = "memcg",
        /// The memory nodes of a cpuset.
        Cpuset = "cpuset",
        /// The memory nodes of a NUMA policy.
        Mempolicy = "mempolicy",
        /// A person at the keyboard, or whoever wrote `f` to `/proc/sysrq-trigger`.
        Sysrq = "sysrq",
    }
    /// The word in JSON.
    fn name
}

/// Who asked for memory when there was none. The kernel's own threads ask, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invoker {
    /// Its name, made printable.
    pub comm: Option<String>,
    /// Its number: the thread's, as the kernel prints `current->pid`.
    pub pid: Option<Pid>,
    /// Its uid (Linux 6.13 and later print it).
    pub uid: Option<Uid>,
    /// -1000 to 1000.
    pub oom_score_adj: Option<i32>,
}

/// A process that was killed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Victim {
    /// Its number in the initial pid namespace.
    pub pid: Option<Pid>,
    /// Its name, made printable.
    pub comm: Option<String>,
    /// Its real uid (Linux 4.19 and later, and RHEL 7's 3.10).
    pub uid: Option<Uid>,
    /// All it had mapped, used or not.
    #[serde(rename = "total_vm_bytes")]
    pub total_vm: Option<Bytes>,
    /// Resident anonymous memory.
    #[serde(rename = "anon_bytes")]
    pub anon: Option<Bytes>,
    /// Resident pages of files.
    #[serde(rename = "file_bytes")]
    pub file: Option<Bytes>,
    /// Resident shared memory (Linux 4.5 and later).
    #[serde(rename = "shmem_bytes")]
    pub shmem: Option<Bytes>,
    /// Its page tables (Linux 5.3 and later).
    #[serde(rename = "pgtables_bytes")]
    pub pgtables: Option<Bytes>,
    /// -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// The points the kernel gave it, of 1000 (before Linux 5.0).
    #[serde(skip)]
    pub score: Option<u32>,
}

impl Victim {
    /// What was resident: anonymous memory, files and shared memory. `None` where not even the first is known.
    #[must_use]
    pub fn resident(&self) -> Option<Bytes> {
        Some([Some(self.anon?), self.file, self.shmem].into_iter().flatten().sum())
    }
}

/// A row of the report's table of processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Task {
    /// Its number.
    pub pid: Pid,
    /// Its real uid.
    pub uid: Option<Uid>,
    /// Its name, made printable.
    pub comm: String,
    /// Its thread group.
    #[serde(skip)]
    pub tgid: Option<Pid>,
    /// All it had mapped.
    #[serde(skip)]
    pub total_vm: Option<Bytes>,
    /// What was resident.
    #[serde(rename = "rss_bytes")]
    pub rss: Option<Bytes>,
    /// What of it was swapped out.
    #[serde(rename = "swap_bytes")]
    pub swap: Option<Bytes>,
    /// Its page tables.
    #[serde(rename = "pgtables_bytes")]
    pub pgtables: Option<Bytes>,
    /// Resident anonymous memory alone (Linux 6.9 and later).
    #[serde(skip)]
    pub anon: Option<Bytes>,
    /// -1000 to 1000.
    pub oom_score_adj: Option<i32>,
}

/// The page counters under `Mem-Info:`, and what only zones or nodes say, added up; in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Anonymous pages, active and inactive; tmpfs and shared memory are among them.
    pub anon: Option<Bytes>,
    /// Page cache on the file lists, active and inactive.
    pub file: Option<Bytes>,
    /// Pages that must not be reclaimed: mlock, ramfs, locked shared memory, secretmem.
    pub unevictable: Option<Bytes>,
    /// Changed pages of files, not yet being written.
    pub dirty: Option<Bytes>,
    /// Pages being written.
    pub writeback: Option<Bytes>,
    /// tmpfs, shared memory, memfds.
    pub shmem: Option<Bytes>,
    /// Slab caches that can shrink.
    pub slab_reclaimable: Option<Bytes>,
    /// Slab caches that cannot.
    pub slab_unreclaimable: Option<Bytes>,
    /// Page tables, those of virtual machines included.
    pub pagetables: Option<Bytes>,
    /// Stacks of kernel threads and system calls, shadow stacks included.
    pub kernel_stack: Option<Bytes>,
    /// Free pages.
    pub free: Option<Bytes>,
    /// Free pages that only movable requests may use.
    pub free_cma: Option<Bytes>,
    /// Pages set aside as hugetlbfs pages, used or not.
    pub hugetlb: Option<Bytes>,
}

/// A memory cgroup at its limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Memcg {
    /// Whose limit was reached (`oom_memcg`).
    pub path: Option<String>,
    /// What it used.
    #[serde(rename = "usage_bytes")]
    pub usage: Option<Bytes>,
    /// Its limit; `None` where the report does not say or there is none.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<Bytes>,
    /// How often it ran into the limit.
    pub failures: Option<u64>,
    /// Swap (cgroup v2) or memory and swap together (v1: see [`Memcg::swap_with_memory`]).
    #[serde(rename = "swap_usage_bytes")]
    pub swap_usage: Option<Bytes>,
    /// The limit of that.
    #[serde(rename = "swap_limit_bytes")]
    pub swap_limit: Option<Bytes>,
    /// The two above are of memory and swap together.
    pub swap_with_memory: bool,
    /// Anonymous memory.
    #[serde(rename = "anon_bytes")]
    pub anon: Option<Bytes>,
    /// Page cache, shared memory included.
    #[serde(rename = "file_bytes")]
    pub file: Option<Bytes>,
    /// tmpfs, shared memory, memfds.
    #[serde(rename = "shmem_bytes")]
    pub shmem: Option<Bytes>,
    /// Kernel memory charged to it (`kmem:` on v1, `kernel` in the stats of v2).
    #[serde(rename = "kernel_bytes")]
    pub kernel: Option<Bytes>,
    /// Pages that must not be reclaimed.
    #[serde(skip)]
    pub unevictable: Option<Bytes>,
    /// Slab.
    #[serde(skip)]
    pub slab: Option<Bytes>,
}

/// A slab cache that cannot shrink (`Unreclaimable slab info`, Linux 4.15 and later).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slab {
    /// Its name, made printable.
    pub name: String,
    /// What it takes.
    pub total: Bytes,
}

/// When, as the log says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct When {
    /// The date and time in front of the line, as it stands there: often without a year or a zone.
    pub clock: Option<String>,
    /// The kernel's own stamp, since boot.
    pub since_boot: Option<Nanos>,
    /// The machine, where a log collector wrote it down.
    pub host: Option<String>,
}

/// One report.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that the report says or does not")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Which limit.
    pub kind: Kind,
    /// When.
    pub when: When,
    /// The kernel's release, as `5.10.168-android12-9`.
    pub kernel: Option<String>,
    /// Bytes in a page: what the report's free blocks say; 4 KiB where it has none.
    pub page_size: Option<PageSize>,
    /// Who asked.
    pub invoker: Invoker,
    /// How it asked.
    pub gfp: Option<Gfp>,
    /// For 2^order pages in a row; -1 for SysRq.
    pub order: Option<i32>,
    /// The nodes a NUMA policy allows; `None` where the report does not say or all are allowed.
    pub nodes_of_policy: Option<Vec<u32>>,
    /// The nodes the cpuset allows.
    pub mems_allowed: Option<Vec<u32>>,
    /// The cpuset of who asked.
    pub cpuset: Option<String>,
    /// Functions in the call trace, innermost first, uncertain ones (`?`) left out.
    pub stack: Vec<String>,
    /// Where memory was.
    pub counters: Counters,
    /// Zone by zone, as listed.
    pub zones: Vec<Zone>,
    /// All swap.
    pub swap_total: Option<Bytes>,
    /// Free swap.
    pub swap_free: Option<Bytes>,
    /// What swap that is being turned off still held: the kernel shows it as a negative number of free swap.
    pub swap_leaving: Option<Bytes>,
    /// All memory (`pages RAM`), reserved pages included.
    pub ram: Option<Bytes>,
    /// Of that, never given to anybody (`pages reserved`).
    pub ram_reserved: Option<Bytes>,
    /// The page cache, shared memory and tmpfs included (`total pagecache pages`).
    pub pagecache: Option<Bytes>,
    /// The cgroup, for [`Kind::Memcg`].
    pub memcg: Option<Memcg>,
    /// The victim's cgroup (`task_memcg`).
    pub task_memcg: Option<String>,
    /// The largest slab caches that cannot shrink.
    pub slabs: Vec<Slab>,
    /// The table of processes.
    pub tasks: Vec<Task>,
    /// Rows of the table beyond those kept.
    pub tasks_left_out: u64,
    /// Who was killed first.
    pub victim: Option<Victim>,
    /// Killed with it, `memory.oom.group` being set.
    pub killed_with_it: Vec<Victim>,
    /// The cgroup that had to go as a whole, where `memory.oom.group` is set.
    pub group: Option<String>,
    /// The victim's memory was taken back at once (`oom_reaper: reaped`).
    pub reaped: bool,
    /// The kernel found nobody to kill.
    pub nobody_left: bool,
    /// The kernel panicked: it found nobody to kill, or `vm.panic_on_oom` says so.
    pub panicked: bool,
    /// A part of the report that kernels always print is not there.
    pub truncated: bool,
}

impl Report {
    /// Where memory was asked for, in words, where the call trace tells it.
    #[must_use]
    pub fn call_site(&self) -> Option<String> {
        crate::stack::call_site(&self.stack, self.gfp.as_ref().is_some_and(Gfp::is_zeroed))
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> Bytes {
        self.page_size.map_or(Bytes(4096), PageSize::bytes)
    }

    /// Memory that could be given to anybody: what zones manage, or all RAM without what is reserved.
    #[must_use]
    pub fn managed(&self) -> Option<Bytes> {
        let zones = Some(zone::managed(&self.zones)).filter(|zones| zones.0 > 0);
        zones.or_else(|| Some(self.ram?.saturating_sub(self.ram_reserved.unwrap_or_default())))
    }

    /// Free memory of all zones together, as the counters or the zones say.
    #[must_use]
    pub fn free(&self) -> Option<Bytes> {
        let mut zones = self.zones.iter().filter_map(|zone| zone.free).peekable();
        self.counters.free.or_else(|| zones.peek().is_some().then(|| zones.sum()))
    }
}

#[cfg(test)]
mod tests;
