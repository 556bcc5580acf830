//! Processes as the host sees them: read through `/proc`, held by pidfd, signalled, and freed from outside.
//!
//! A process is named by its number and its start time, and acted on only through a [`PidFd`] that was opened and
//! compared with both ([`PidFd::open_verified`]): no signal of ours can reach a later process of the same number.
//! What the daemon does next decides the kind of an error ([`ProcessError`]). The files read here in the kill path
//! (`stat`, `status`) need no lock of the process's address space; `cmdline` and `smaps_rollup` wait for one, and
//! belong to threads that may wait.

mod adjust;
mod bpffs;
mod child;
mod cpu_tree;
mod cpus;
mod error;
mod expedite;
mod freezer;
mod inherited;
mod machine;
mod mrelease;
mod own;
mod pageout;
mod pidfd;
mod portrait;
mod reaper;
mod reserve;
mod root;
mod scan;
mod urgency;
mod v1_tree;

pub use adjust::{HeldFolder, without_sys_resource};
pub use bpffs::{BPFFS_PATH, Bpffs, is_bpffs, try_mount_bpffs};
pub use child::spawn_bound;
pub(crate) use error::checked;
pub use error::{Errno, ProcessError, Subject};
pub use inherited::{inherited_descriptors, named_descriptor};
pub use machine::{
    arc_available, clock_boottime_ns, clock_monotonic_ns, clock_realtime_ns, compactions, cpu_time_of,
    free_blocks, kernel_version, memory_stall_trigger, online_cpus, oom_kills, page_size, pagetypes,
    possible_cpus, process_cpu_time, refaults, thread_cpu_time, tick_ns, zone_marks,
};
pub use mrelease::Reap;
pub(crate) use mrelease::signal_nothing;
pub use own::{MemoryLock, OomScore, lock_memory, raise_open_files, set_oom_score_adj_self};
pub use pageout::{PAGE_OUT_BATCH_BYTES, PageOut, PageOutEnd, PageOutOrder};
pub use pidfd::PidFd;
pub use portrait::Portrait;
pub use reaper::{
    Holdings, KilledBy, OwnerOf, REAPER_QUEUE_MAX, ReapReport, Reaper, ReaperHandle, ReaperOptions,
    Watch as ReaperWatch,
};
pub(crate) use root::for_each_line;
pub use root::{ExeIdentity, ProcRoot, mem_total};
pub use scan::{Memory, Process, ScanCounts};
pub(crate) use urgency::{Pieces, walk};
pub use urgency::{Priority, not_real_time, own_nice, raise_decider, set_own_nice, unhurried};

#[cfg(test)]
pub(crate) mod testing;
