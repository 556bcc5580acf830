//! When usage is looked at that raises no event: of a cgroup, and of the machine.
//!
//! While CPUs work, the next look comes no later than usage could reach the line at the highest rate at which memory fills.
//! Where they idle nothing fills, and a look a second is enough to see that they do not any more.

use crate::{
    machine::{FILL_MAX_PER_SECOND, FILLING_CPUS_MAX, sleep},
    units::{Bytes, Nanos},
};

/// The shortest time from one look to the next, as the machine guard's: 10 ms while usage grows, else 100 ms.
const GROWING_MIN: Nanos = sleep::MIN;
const APART_MIN: Nanos = sleep::MIN_AT_REST;

/// Usage grows where it rose by more than this since the look before: what grows more slowly is found in time by any look.
const GROWTH: Bytes = Bytes(1 << 20);

/// The longest, 1 s: as long as the machine guard's.
const APART_MAX: Nanos = sleep::MAX;

/// Looks take at most this part of a CPU's time: a hundredth, unless one takes more than 10 ms.
const REST: u64 = 100;

/// Whether CPUs work is told from at least this long: 0.2 s. What the kernel tells of it is good to some hundredths.
const WINDOW: Nanos = Nanos(200_000_000);

/// CPUs idle while they work less than an eighth of one CPU's time, all together; as a shift.
const IDLE_SHIFT: u32 = 3;

/// How much time all CPUs together were idle since boot, and when that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpus {
    /// When, on a monotonic clock.
    pub at: Nanos,
    /// Idle time of all.
    pub idle: Nanos,
    /// How many there are.
    pub count: u32,
}

/// What is remembered from look to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spacing {
    before: Option<Cpus>,
    idle: bool,
}

impl Spacing {
    /// Takes in how idle the CPUs were; `None`: it is not known, and they are taken to work.
    pub fn observe(&mut self, now: Option<Cpus>) {
        let (Some(now), Some(before)) = (now, self.before) else {
            *self = Self { before: now, idle: false };
            return;
        };
        let span = now.at.saturating_sub(before.at);
        if span >= WINDOW {
            let all = span.0.saturating_mul(now.count.into());
            let worked = all.saturating_sub(now.idle.saturating_sub(before.idle).0);
            *self = Self { before: Some(now), idle: worked < span.0 >> IDLE_SHIFT };
        }
    }

    /// From a look that took so long, at a usage so far below the line and so far above that of the look before, to the next
    /// one.
    #[must_use]
    pub fn apart(&self, room: Bytes, rose: Bytes, took: Nanos) -> Nanos {
        let least = if rose > GROWTH { GROWING_MIN } else { APART_MIN };
        let rest = Nanos(took.0.saturating_mul(REST));
        let cpus = self.before.map_or(FILLING_CPUS_MAX, |cpus| cpus.count.clamp(1, FILLING_CPUS_MAX));
        let rate = FILL_MAX_PER_SECOND.saturating_mul(cpus.into());
        let fills = if self.idle { APART_MAX } else { sleep::time_to_fill((room, rate), Bytes(0)) };
        fills.max(least).max(rest).min(APART_MAX)
    }
}

#[cfg(test)]
mod tests;
