//! The floor of anonymous memory: with swap, so much of programs' own memory stays in RAM.
//!
//! While there is no more of it than that, swapping is held back as a whole, by means that act for all of a cgroup or
//! machine. So it is a switch with two positions, kept from flickering by a gap between them.

use super::Tunables;
use crate::{
    reading::Reading,
    units::{Nanos, Pages},
};

/// It falls if this part of the floor went since the last look.
const FELL: u32 = 6;

/// Swapping is held back this part of the floor above it, an eighth (2 % of memory at 15 %), and no more this part above
/// it, a quarter: what the kernel swaps out between two looks is not to be missing below. Up to an eighth of the floor went in
/// between in an emulated guest with zram (Linux 7.2, 960 MiB) whose machine was busy.
const BEGINS: u32 = 3;
const ENDS: u32 = 2;

/// From one look to the next: while it falls towards the floor, while the floor may be reached soon, and at other times.
const FALLING: Nanos = Nanos(20_000_000);
const NEAR: Nanos = Nanos(100_000_000);
const FAR: Nanos = Nanos(1_000_000_000);

/// What it is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnonReading {
    /// Anonymous memory in RAM.
    pub anon: Reading<Pages>,
    /// How much can be swapped to in all; 0: nothing, so that nothing has to be held back.
    pub swap_total: Reading<Pages>,
    /// All of the memory.
    pub mem_total: Pages,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AnonState {
    /// The floor, in pages; 0: there is none, as nothing can be swapped or protection is off.
    pub line: Pages,
    /// Swapping is to be held back.
    pub holds: bool,
    /// Anonymous memory at the last look.
    pub anon: Pages,
    /// When to look again, from now on.
    pub look_in: Nanos,
}

/// Judges a reading.
#[must_use]
pub fn judge(state: AnonState, reading: &AnonReading, tunables: &Tunables) -> AnonState {
    let floor = tunables.anon_min_ratio.of(reading.mem_total);
    let none = AnonState { look_in: FAR, ..AnonState::default() };
    if !tunables.workingset_protection || floor == Pages(0) {
        return none;
    }
    let anon = match (reading.anon, reading.swap_total) {
        (_, Reading::Absent | Reading::Known(Pages(0))) => return none,
        (Reading::Known(anon), Reading::Known(_)) => anon,
        // Neither begun nor ended by a guess.
        _ => return AnonState { line: floor, look_in: NEAR, ..state },
    };
    let above = |part: u32| Pages(floor.0.saturating_add(floor.0 >> part));
    let holds = if state.holds { anon < above(ENDS) } else { anon <= above(BEGINS) };
    // Where swap is memory itself (zram), a GiB goes in less than a second: three times the floor in some seconds at most.
    let soon = !holds && anon.0 >> 2 < floor.0;
    let falls = state.anon.saturating_sub(anon).0 > floor.0 >> FELL;
    let look_in = match (soon, falls) {
        (true, true) => FALLING,
        (true, false) => NEAR,
        (false, _) => FAR,
    };
    AnonState { line: floor, holds, anon, look_in }
}

#[cfg(test)]
mod tests;
