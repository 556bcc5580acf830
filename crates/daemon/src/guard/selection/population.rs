//! The machine's processes as selection sees them: all roughly, a few closely. Apart from the rest of the kernel, so that
//! selection can be tried on populations that no machine has.

use crate::facts::{
    cgroups::{Group, NotKnown},
    cmdlines::Program,
};
use plimsoll_policy::{
    preference::{Mark, Scope},
    reading::Reading,
    selection::{Protection, Standing},
    units::{Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::Selector,
    process::{Portrait, Process, ProcessError, tick_ns},
};
use plimsoll_wire::text::Comm;
use std::fmt::Debug;

/// A process as a look at all of them shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Who.
    pub(crate) id: VictimId,
    /// Its parent.
    pub(crate) parent: Pid,
    /// Its real uid.
    pub(crate) uid: Uid,
    /// As [`plimsoll_policy::selection::Candidate::mm`].
    pub(crate) mm: u64,
    /// Anonymous and swapped pages. `Absent`: it has no address space.
    pub(crate) private: Reading<Pages>,
    /// Pages of shared memory that it has mapped.
    pub(crate) shared: Pages,
    /// How far both together may be off.
    pub(crate) error: Pages,
    /// What they cannot exceed.
    pub(crate) ceiling: Pages,
    /// `None`: not read yet.
    pub(crate) oom_score_adj: Option<i16>,
    /// Whether it is dying or the kernel's own; whatever else protects it is found out when it matters.
    pub(crate) standing: Standing,
    /// Its cgroup's id in the v2 hierarchy; `None`: not known.
    pub(crate) cgroup_id: Option<u64>,
    /// As [`plimsoll_wire::task::TaskFacts::execs`]; `None`: not known.
    pub(crate) execs: Option<u32>,
    /// Its name.
    pub(crate) comm: Comm,
}

impl From<&Process> for Seen {
    /// `/proc` tells no more exactly what it tells roughly, so its counts are taken as they are.
    fn from(process: &Process) -> Self {
        let standing = if process.kernel_thread {
            Standing::Protected(Protection::KernelThread)
        } else if process.dying {
            Standing::Dying
        } else {
            Standing::Free
        };
        Self {
            id: VictimId { pid: process.pid, start_ns: process.start_ns },
            parent: process.parent,
            uid: process.uid,
            mm: 0,
            private: process.usage(),
            shared: process.memory.latest().map(|memory| memory.shared).unwrap_or_default(),
            error: Pages(0),
            ceiling: Pages(u64::MAX),
            oom_score_adj: None,
            standing,
            cgroup_id: None,
            execs: None,
            comm: process.comm,
        }
    }
}

#[cfg(test)]
impl Seen {
    /// One that nothing is in the way of: user 1000's, started by init, counted exactly.
    pub(crate) fn of_tests(id: VictimId, pages: u64, comm: &[u8]) -> Self {
        Self {
            id,
            parent: Pid(1),
            uid: Uid(1000),
            mm: u64::from(id.pid.0),
            private: Reading::Known(Pages(pages)),
            shared: Pages(0),
            error: Pages(0),
            ceiling: Pages(u64::MAX),
            oom_score_adj: Some(0),
            standing: Standing::Free,
            cgroup_id: None,
            execs: Some(1),
            comm: Comm::from_bytes(comm),
        }
    }
}

impl Seen {
    /// What it runs.
    pub(crate) const fn program(&self) -> Program {
        Program::Seen { mm: self.mm, execs: self.execs, comm: self.comm }
    }

    /// A process that was looked at again; `None` where its number is another's by now.
    pub(crate) fn again(process: &Process, id: VictimId) -> Option<Self> {
        let ticks = |start_ns: u64| start_ns.checked_div(tick_ns());
        (ticks(process.start_ns) == ticks(id.start_ns)).then(|| Self { id, ..Self::from(process) })
    }
}

/// Somebody who has grown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// Who.
    pub(crate) id: VictimId,
    /// As [`Seen::mm`].
    pub(crate) mm: u64,
}

/// Where a look at all processes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The selection programs: one walk in the kernel.
    Programs,
    /// `/proc`: two files a process.
    Proc,
}

/// Everybody there is.
pub(crate) trait Population: Debug {
    /// The clock of the programs' records: `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;

    /// A decision begins: the time that it may wait for answers counts from here.
    fn begin_decision(&mut self);

    /// The daemon's own process.
    fn own_pid(&self) -> Pid;

    /// Shows every process that may have memory, roughly.
    fn census(&mut self, visit: impl FnMut(&Seen)) -> Result<Source, ProcessError>;

    /// One process as exactly as can be had without waiting for it; `None` where it has gone.
    fn look_closely(&mut self, id: VictimId) -> Option<Seen>;

    /// What rules are held against. `cgroup_id`: its cgroup's, where that is known. Whether all of it is another only when a
    /// close look shows another program or another cgroup.
    fn portray(
        &mut self,
        id: VictimId,
        cgroup_id: Option<u64>,
        into: &mut Portrait,
    ) -> Result<bool, ProcessError>;

    /// The mark on the cgroup at this path. `id`: its id, where that is known.
    fn mark_of(&mut self, cgroup: &[u8], id: Option<u64>) -> Result<Option<Mark>, NotKnown>;

    /// The cgroup that goes whole with a process in this one: itself for [`Scope::Cgroup`], otherwise what
    /// `memory.oom.group` says. `id` as for [`Population::mark_of`].
    fn group_of(&mut self, cgroup: &[u8], id: Option<u64>, scope: Scope) -> Result<Option<Group>, NotKnown>;

    /// From here on notes who reaches so many pages of anonymous, swapped and shared memory; whether that is possible.
    fn watch(&mut self, floor: Pages) -> bool;

    /// Shows who was noted since the last call; `Some(false)`: some found no room and are not known.
    fn grown(&mut self, visit: impl FnMut(Growth)) -> Option<bool>;

    /// Nobody is noted any more.
    fn unwatch(&mut self);

    /// From here on these programs are asked first.
    fn equip(&mut self, selector: Selector);
}
