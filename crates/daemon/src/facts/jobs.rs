//! Which job a process is in, for whoever writes down what became of it.

use plimsoll_policy::{units::JobId, victim::VictimId};
use plimsoll_sys::{
    bpf::{Membership, Pins},
    process::{PidFd, ProcRoot},
};
use std::os::fd::AsFd as _;

/// Where that is kept.
#[derive(Debug)]
pub(crate) struct JobFinder {
    pub(crate) proc: ProcRoot,
    pub(crate) pins: Pins,
}

impl JobFinder {
    /// For who holds the processes; `None`: there are no jobs.
    pub(crate) fn membership(&self) -> Option<Membership> {
        Membership::open(&self.pins).ok()
    }

    /// The innermost. `None`: it is in none, or somebody has waited for it.
    pub(crate) fn job_of(&self, id: VictimId) -> Option<JobId> {
        let process = PidFd::open_verified(&self.proc, id.pid, id.start_ns).ok()?;
        self.membership()?.job_of(process.as_fd()).ok().flatten()
    }
}
