//! When no event has to be looked at. While every account is farther from its line than memory can be taken between two looks,
//! programs where pages are charged would only cost: all tasks are walked instead, and the next walk is made before anybody
//! can have come near.

use crate::{
    machine::{fill_max, sleep},
    units::{Bytes, Nanos},
};

/// So many times as much as memory is taken to fill at by one CPU ([`fill_max`]): one that took huge pages filled 7600 MiB a
/// second on Linux 6.18, 1.3 times that.
const FILL_TIMES: u64 = 2;

/// So many CPUs at that rate use the bandwidth of two sockets with twelve channels of DDR5 each, 920 GB/s.
const FILLING_CPUS_MAX: u32 = 80;

/// From the moment that a look was asked for until each event is looked at again: the guard wakes, walks all tasks, finds
/// somebody too close, attaches the programs and walks once more, which comes besides. 20 ms, of which attaching takes one
/// (0.1 to 0.9 ms on Linux 6.18), and up to ten where the programs were detached just before (a grace period of RCU).
const LEAD: Nanos = Nanos(20_000_000);

/// Walks before that: the one that it is counted from, the one that finds it, and the one that makes it exact.
const LEAD_WALKS: u64 = 3;

/// The shortest time from one walk to the next, and the longest.
const APART_MIN: Nanos = sleep::MIN;
const APART_MAX: Nanos = sleep::MAX;

/// Walks take at most this part of a CPU's time: a sixty-fourth.
const REST: u64 = 64;

/// Between the tiers: what is coarse stays so while there is room enough, and becomes so where there is half as much again.
const SLACK_HALVES: u64 = 3;

/// From the beginning of a walk that took so long, and found the account that is closest to its soft limit so far from it, to
/// the next, on a machine of so many CPUs (`None`: not known). `None`: each event has to be looked at. `coarse`: none is now.
#[must_use]
pub fn look_after(room: Bytes, took: Nanos, cpus: Option<u32>, coarse: bool) -> Option<Nanos> {
    let cpus = cpus.unwrap_or(FILLING_CPUS_MAX).clamp(1, FILLING_CPUS_MAX);
    let per_second = fill_max(Some(1)).saturating_mul(FILL_TIMES).saturating_mul(cpus.into());
    let fills = sleep::time_to_fill((room, per_second), Bytes(0)).0;
    let lead = LEAD.0.saturating_add(took.0.saturating_mul(LEAD_WALKS));
    let least = APART_MIN.0.max(took.0.saturating_mul(REST));
    let needed = lead.saturating_add(least);
    let needed = if coarse { needed } else { needed.saturating_mul(SLACK_HALVES) / 2 };
    (fills >= needed).then(|| Nanos(fills.saturating_sub(lead).min(APART_MAX.0.max(least))))
}

#[cfg(test)]
mod tests;
