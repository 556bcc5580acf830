//! How soon usage is looked at again that raises no event: of a cgroup, and of the machine. The next look comes no later than
//! usage could reach the line at the highest rate at which memory fills.

use crate::{
    machine::{fill_max, sleep},
    units::{Bytes, Nanos},
};

/// The shortest time from one look to the next, as the machine guard's: 10 ms while usage grows, else 100 ms.
const GROWING_MIN: Nanos = sleep::MIN;
const APART_MIN: Nanos = sleep::AT_REST;

/// Usage grows where it rose by more than this since the look before: what grows more slowly is found in time by any look.
const GROWTH: Bytes = Bytes(1 << 20);

/// The longest, 1 s: as long as the machine guard's.
const APART_MAX: Nanos = sleep::MAX;

/// Looks take at most this part of a CPU's time: a hundredth, unless one takes more than 10 ms.
const REST: u64 = 100;

/// From a look that took so long, at a usage so far below the line and so far above that of the look before, to the next one,
/// on a machine of so many CPUs (`None`: not known).
#[must_use]
pub fn apart(room: Bytes, rose: Bytes, took: Nanos, cpus: Option<u32>) -> Nanos {
    let least = if rose > GROWTH { GROWING_MIN } else { APART_MIN };
    let rest = Nanos(took.0.saturating_mul(REST));
    let fills = sleep::time_to_fill((room, fill_max(cpus)), Bytes(0));
    fills.max(least).max(rest).min(APART_MAX)
}

#[cfg(test)]
mod tests;
