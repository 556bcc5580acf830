//! What the programs are told of the floor, and what they count there.

use super::{WorkingSetError, field, sized};
use crate::abi;
use core::mem::offset_of;
use plimsoll_policy::{
    units::{Nanos, Pages, Pid},
    victim::VictimId,
};

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
        let mut bytes = [0; FLOOR_BYTES];
        let pages = |count: Pages| i64::try_from(count.0).unwrap_or(i64::MAX).to_ne_bytes();
        put(&mut bytes, offset_of!(abi::plimsoll_floor, line_pages), &pages(self.line));
        put(&mut bytes, offset_of!(abi::plimsoll_floor, locked_pages), &pages(self.locked));
        put(&mut bytes, offset_of!(abi::plimsoll_floor, dirty_pages), &pages(self.dirty));
        put(&mut bytes, offset_of!(abi::plimsoll_floor, free_max_pages), &pages(self.free_max));
        put(&mut bytes, offset_of!(abi::plimsoll_floor, reserve_pages), &pages(self.reserve));
        for (place, time) in [
            (offset_of!(abi::plimsoll_floor, valid_until_ns), self.valid_until),
            (offset_of!(abi::plimsoll_floor, hold_until_ns), self.hold_until),
            (offset_of!(abi::plimsoll_floor, hold_ns), self.hold),
        ] {
            put(&mut bytes, place, &time.0.to_ne_bytes());
        }
        let cgroup = self.cgroup.unwrap_or_default();
        put(&mut bytes, offset_of!(abi::plimsoll_floor, cgroup), &cgroup.to_ne_bytes());
        put(&mut bytes, offset_of!(abi::plimsoll_floor, own_tgid), &self.own.0.to_ne_bytes());
        let table = offset_of!(abi::plimsoll_floor, victims);
        let places = (table..FLOOR_BYTES).step_by(size_of::<abi::plimsoll_floor_victim>());
        // Process 1 and none at all are nobody's victims, whatever the table says.
        for (place, victim) in places.zip(self.victims.iter().filter(|victim| victim.pid.0 > 1)) {
            let at = |offset: usize| place.saturating_add(offset);
            let start = victim.start_ns.to_ne_bytes();
            put(&mut bytes, at(offset_of!(abi::plimsoll_floor_victim, start_ns)), &start);
            put(&mut bytes, at(offset_of!(abi::plimsoll_floor_victim, tgid)), &victim.pid.0.to_ne_bytes());
        }
        bytes
    }
}

fn put(bytes: &mut [u8], place: usize, value: &[u8]) {
    for (byte, value) in bytes.iter_mut().skip(place).zip(value) {
        *byte = *value;
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
    /// [`WorkingSetError::Length`]
    pub fn decode(bytes: &[u8]) -> Result<Self, WorkingSetError> {
        sized("the floor's counts", bytes, Self::BYTES)?;
        let pid = Pid(field!(u32, bytes, plimsoll_floor_state, victim.tgid));
        let start_ns = field!(u64, bytes, plimsoll_floor_state, victim.start_ns);
        Ok(Self {
            checks: field!(u64, bytes, plimsoll_floor_state, checks),
            below: field!(u64, bytes, plimsoll_floor_state, below),
            stale: field!(u64, bytes, plimsoll_floor_state, stale),
            blind: field!(u64, bytes, plimsoll_floor_state, blind),
            taken: field!(u64, bytes, plimsoll_floor_state, taken),
            lost: field!(u64, bytes, plimsoll_floor_state, lost),
            victim: (pid.0 > 0).then_some(VictimId { pid, start_ns }),
        })
    }
}
