//! Processes as the host sees them: read through `/proc`, held by pidfd, signalled, and freed from outside.
//!
//! A process is named by its number and its start time, and acted on only through a [`PidFd`] that was opened and
//! compared with both ([`PidFd::open_verified`]): no signal of ours can reach a later process of the same number.
//! What the daemon does next decides the kind of an error ([`ProcessError`]). The files read here in the kill path
//! (`stat`, `status`) need no lock of the process's address space; `cmdline` and `smaps_rollup` wait for one, and
//! belong to threads that may wait.

mod bpffs;
mod error;
mod machine;
mod mrelease;
mod own;
mod pidfd;
mod reaper;
mod root;
mod scan;

pub use bpffs::{BPFFS_PATH, Bpffs, is_bpffs, try_mount_bpffs};
pub use error::{Errno, ProcessError, Subject};
pub use machine::{
    clock_boottime_ns, clock_monotonic_ns, kernel_version, mem_total, page_size, possible_cpus, tick_ns,
};
pub use mrelease::Reap;
pub use own::{MemoryLock, OomScore, lock_memory, set_oom_score_adj_self};
pub use pidfd::PidFd;
pub use reaper::{Priority, REAPER_QUEUE_MAX, ReapReport, Reaper};
pub use root::{ExeIdentity, ProcRoot};
pub use scan::{Memory, Process, ScanCounts};

#[cfg(test)]
mod testing;
