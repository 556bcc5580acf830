//! The floor: the least clean file memory that is to be left when the kernel takes pages back.
//!
//! Less than that, and nothing to swap: the next pages taken would be those that programs are running from. Then the
//! process that the daemon's selection found ends, in the kernel, before reclaim goes on. The daemon keeps the
//! selection ready while the floor is near.

use super::Tunables;
use crate::{
    reading::Reading,
    units::{Bytes, Nanos, PageSize, Pages},
    victim::VictimId,
};
use serde::{Deserialize, Serialize};

/// What the floor is judged by: of the machine, or of one memory cgroup with its limit for the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorReading {
    /// File pages on the LRU lists that need no writing: active and inactive ones, less the dirty ones.
    pub clean: Reading<Pages>,
    /// What we have locked: it is in none of the lists, and is clean file memory all the same.
    pub locked: Pages,
    /// Swap that is free; [`Reading::Absent`] where there is none.
    pub swap_free: Reading<Pages>,
    /// Anonymous memory.
    pub anon: Reading<Pages>,
    /// Free memory; of a memory cgroup, what it may still take. As long as there is much, nothing is reclaimed,
    /// however little clean file memory there is.
    pub free: Reading<Pages>,
    /// All of the memory: `MemTotal`, or the cgroup's limit.
    pub mem_total: Pages,
}

/// Where clean file memory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Protection is off, or the floor is 0 %.
    Off,
    /// A reading is missing: nothing is done, and nobody is ended by a guess.
    Unknown,
    /// Far above, or so much memory is free that none is reclaimed.
    Above,
    /// Near the floor.
    Near,
    /// Under it, and the kernel can swap: programs' memory goes there first.
    Swapping,
    /// Under it, and so little of the memory is programs' own that ending one would not bring it back.
    NothingToFree,
    /// Under it: when the kernel takes pages back, a process ends.
    Below,
}

/// A victim on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Dying {
    victim: VictimId,
    since: Nanos,
}

/// What is remembered of the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloorState {
    /// Victims are to be selected and kept ready.
    pub near: bool,
    /// A process is to end when the kernel takes pages back.
    pub below: bool,
    /// Nobody is to end, not even if the floor is crossed before the next reading.
    pub spares: bool,
    /// The same in full.
    pub standing: Standing,
    /// The floor, in pages.
    pub line: Pages,
    dying: Option<Dying>,
}

impl Default for FloorState {
    fn default() -> Self {
        Self { near: false, below: false, spares: true, standing: Standing::Off, line: Pages(0), dying: None }
    }
}

/// How long a victim of the floor may take to die before the next one may be selected. Its memory is missed by
/// everybody meanwhile, so this is shorter than for a line of an account.
pub const FLOOR_DEADLINE: Nanos = Nanos(2_000_000_000);

/// A CPU keeps so many pages of a node's count to itself at most, in either direction (`calculate_normal_threshold`,
/// mm/vmstat.c, 6.1 to 7.2): reckoned with once, though there may be several counts and nodes, as all are never off in one way.
const KEPT_BY_A_CPU: Pages = Pages(125);

/// Of memory that is large, so much is kept in hand while the soft tier holds some: taken at 4 GiB/s it lasts for 16 ms.
const RESERVE_MAX: Bytes = Bytes(64 << 20);

/// With less clean file memory than this left to take, the soft tier is to go: a 32nd of the memory, at most 64 MiB and what
/// so many CPUs may not have told yet (0 where counts are exact). 0 while it holds nothing, and while there is swap to take
/// instead.
#[must_use]
pub fn soft_reserve(reading: &FloorReading, soft: Pages, cpus: u32, page_size: PageSize) -> Pages {
    if soft == Pages(0) || can_swap(reading) != Some(false) {
        return Pages(0);
    }
    let untold = KEPT_BY_A_CPU.0.saturating_mul(cpus.into());
    Pages(reading.mem_total.0 >> 5).min(Pages(page_size.to_pages(RESERVE_MAX).0.saturating_add(untold)))
}

/// Judges a reading. What was near or under stays so until it is clearly not.
#[must_use]
pub fn judge(state: FloorState, reading: &FloorReading, tunables: &Tunables, now: Nanos) -> FloorState {
    let mut next = state;
    if state.dying.is_some_and(|dying| now >= dying.since.saturating_add(FLOOR_DEADLINE)) {
        next.dying = None;
    }
    next.line = tunables.clean_min_ratio.of(reading.mem_total);
    next.standing = standing(&state, reading, tunables);
    next.below = next.standing == Standing::Below;
    next.near = match next.standing {
        Standing::Near | Standing::Swapping | Standing::NothingToFree | Standing::Below => true,
        // A reading that failed once is no reason to drop the victims that are ready.
        Standing::Unknown => state.near,
        Standing::Off | Standing::Above => false,
    };
    next.spares = match next.standing {
        Standing::Below => false,
        // A program can take as much in a moment as the rest of the machine has.
        Standing::Above | Standing::Near => can_swap(reading) != Some(false),
        Standing::Off | Standing::Unknown | Standing::Swapping | Standing::NothingToFree => true,
    };
    next
}

/// Whether the kernel has swap to give; `None` where that is not known.
fn can_swap(reading: &FloorReading) -> Option<bool> {
    match reading.swap_free {
        Reading::Absent => Some(false),
        // Some swap is always free in the caches of single CPUs; the kernel has none to give when so little is left.
        Reading::Known(free) => Some(free.0 > reading.mem_total.0 >> 8),
        Reading::Unreadable | Reading::Stale { .. } => None,
    }
}

fn standing(state: &FloorState, reading: &FloorReading, tunables: &Tunables) -> Standing {
    let line = tunables.clean_min_ratio.of(reading.mem_total);
    if !tunables.workingset_protection || line == Pages(0) {
        return Standing::Off;
    }
    let (Some(clean), Some(free)) = (reading.clean.known(), reading.free.known()) else {
        return Standing::Unknown;
    };
    let kept = clean.0.saturating_add(reading.locked.0);
    let slack = line.0 >> 4;
    let line_now = line.0.saturating_add(if state.is_under() { slack } else { 0 });
    let under = kept < line_now && free.0 < line_now;
    // From twice the floor to the floor it takes some tenths of a second when a hog grows on a fast machine.
    let near_now = line.0.saturating_mul(2).saturating_add(if state.near { slack } else { 0 });
    let near = kept < near_now && free.0 < near_now;
    if !under {
        return if near { Standing::Near } else { Standing::Above };
    }
    let (Some(can_swap), Some(anon)) = (can_swap(reading), reading.anon.known()) else {
        return Standing::Unknown;
    };
    let anon_floor = tunables.anon_min_ratio.of(reading.mem_total);
    if anon.0 <= line.0 >> 2 {
        Standing::NothingToFree
    } else if can_swap && anon > anon_floor {
        Standing::Swapping
    } else {
        Standing::Below
    }
}

impl FloorState {
    /// SIGKILL was sent to this one, by the kernel side or by the daemon.
    pub const fn sent(&mut self, victim: VictimId, now: Nanos) {
        self.dying = Some(Dying { victim, since: now });
    }

    /// This one is gone and its memory back, or the signal could not be sent.
    pub fn gone(&mut self, victim: VictimId) {
        if self.dying.is_some_and(|dying| dying.victim == victim) {
            self.dying = None;
        }
    }

    /// Who is dying.
    #[must_use]
    pub fn dying(&self) -> Option<VictimId> {
        self.dying.map(|dying| dying.victim)
    }

    const fn is_under(&self) -> bool {
        matches!(self.standing, Standing::Below | Standing::Swapping | Standing::NothingToFree)
    }
}

#[cfg(test)]
mod tests;
