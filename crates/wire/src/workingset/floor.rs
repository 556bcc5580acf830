//! What the programs are told of the floor, and what they count there.

use crate::{RecordError, abi, read};
use plimsoll_policy::{
    units::{Nanos, Pages, Pid},
    victim::VictimId,
};
use zerocopy::FromZeros;

/// Bytes of the settings as the programs read them.
pub const FLOOR_BYTES: usize = size_of::<abi::plimsoll_floor>();

/// Victims that the programs are told of; more are left out.
pub const VICTIMS_MAX: usize = abi::PLIMSOLL_FLOOR_VICTIMS as usize;

/// What the programs go by. The default is no floor: nobody is taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FloorSettings {
    /// Clean file memory never falls below it by reclaim; 0: there is no floor.
    pub line: Pages,
    /// Pages locked by the daemon, which count as clean file memory.
    pub locked: Pages,
    /// Dirty file memory of the cgroup. The machine's the programs read themselves.
    pub dirty: Pages,
    /// With more free memory than this, memory is not short and nobody is taken: of the machine, or up to the cgroup's limit.
    pub free_max: Pages,
    /// With less clean file memory that is not locked, the soft tier is to go; 0: there is nothing in it.
    pub reserve: Pages,
    /// The victims are believed until then, on `CLOCK_MONOTONIC`: later the daemon is taken to be dead.
    pub valid_until: Nanos,
    /// Nobody is taken before: somebody else is dying, or the daemon was asked and is at it.
    pub hold_until: Nanos,
    /// How long a victim is waited for; ten times as long once it is exiting.
    pub hold: Nanos,
    /// The memory cgroup, by its inode, whose limit is physical memory; `None`: the machine.
    pub cgroup: Option<u64>,
    /// The process whose own faults are not counted as use.
    pub own: Pid,
    /// In order: the first that lives is taken. Those beyond [`VICTIMS_MAX`] are left out.
    pub victims: Vec<VictimId>,
}

impl FloorSettings {
    /// As the programs read it.
    #[must_use]
    pub fn encode(&self) -> [u8; FLOOR_BYTES] {
        let pages = |count: Pages| i64::try_from(count.0).unwrap_or(i64::MAX);
        let mut floor = abi::plimsoll_floor {
            line_pages: pages(self.line),
            locked_pages: pages(self.locked),
            dirty_pages: pages(self.dirty),
            free_max_pages: pages(self.free_max),
            reserve_pages: pages(self.reserve),
            valid_until_ns: self.valid_until.0,
            hold_until_ns: self.hold_until.0,
            hold_ns: self.hold.0,
            cgroup: self.cgroup.unwrap_or_default(),
            own_tgid: self.own.0,
            ..FromZeros::new_zeroed()
        };
        // Process 1 and none at all are nobody's victims, whatever the table says.
        let victims = self.victims.iter().filter(|victim| victim.pid.0 > 1);
        for (place, victim) in floor.victims.iter_mut().zip(victims) {
            (place.start_ns, place.tgid) = (victim.start_ns, victim.pid.0);
        }
        zerocopy::transmute!(floor)
    }
}

/// What the programs counted at the floor since they were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FloorCounts {
    /// How often the line was looked at, at reclaim.
    pub checks: u64,
    /// Of those: clean memory was below it, or none could be taken, and memory was short.
    pub below: u64,
    /// Of those: nobody could be taken, because the daemon had not said for too long whom.
    pub stale: u64,
    /// How often clean memory could not be read: there is no memory controller.
    pub blind: u64,
    /// Processes taken by the programs.
    pub taken: u64,
    /// Events that found no room.
    pub lost: u64,
    /// Whom the programs took last, or had the daemon asked to; `None` before the first.
    pub victim: Option<VictimId>,
}

impl FloorCounts {
    /// Bytes of what is decoded.
    pub const BYTES: usize = size_of::<abi::plimsoll_floor_state>();

    /// Decodes what the programs keep.
    ///
    /// # Errors
    /// [`RecordError::Length`]
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let state: abi::plimsoll_floor_state = read("the floor's counts", bytes)?;
        let (pid, start_ns) = (Pid(state.victim.tgid), state.victim.start_ns);
        Ok(Self {
            checks: state.checks,
            below: state.below,
            stale: state.stale,
            blind: state.blind,
            taken: state.taken,
            lost: state.lost,
            victim: (pid.0 > 0).then_some(VictimId { pid, start_ns }),
        })
    }
}
