//! How much of the time accesses are watched: each costs some 100 ns while they are. Pure.
//!
//! What is seen is not scaled up for the time when nobody looked: one drain counts for one pass through a chunk at most, so
//! that whatever is used more than others is seen more often than they are.

use plimsoll_policy::units::Nanos;

/// Accesses a second that may be watched: at 100 ns each that is 1 % of a core.
const ACCESSES_PER_SECOND: u64 = 100_000;

/// Turns that are rested at most: beyond that too little would be seen to rank anything.
const REST_MAX: u64 = 63;

/// Watches one turn, and rests as many as it takes to have watched no more than that on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duty {
    /// Turns that are still rested.
    rest: u64,
    counted: u64,
    since: Nanos,
}

impl Duty {
    /// Watches from now on. `counted`: accesses so far.
    pub(super) const fn new(counted: u64, now: Nanos) -> Self {
        Self { rest: 0, counted, since: now }
    }

    /// Whether the next turn is watched. `counted`: accesses so far.
    pub(super) fn watches_next(&mut self, counted: u64, now: Nanos) -> bool {
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(1);
            self.counted = counted;
            self.since = now;
            return self.rest == 0;
        }
        let seen = counted.saturating_sub(self.counted);
        let span_ns = now.0.saturating_sub(self.since.0).max(1);
        let allowed = ACCESSES_PER_SECOND.saturating_mul(span_ns).saturating_div(1_000_000_000).max(1);
        self.rest = seen.saturating_sub(1).saturating_div(allowed).min(REST_MAX);
        self.counted = counted;
        self.since = now;
        self.rest == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: u64 = 500_000_000;

    /// Which of so many turns are watched when so many accesses happen in each.
    fn watched(per_turn: u64, turns: u64) -> u64 {
        let mut duty = Duty::new(0, Nanos(0));
        let (mut on, mut count, mut seen) = (true, 0, 0);
        for turn in 1..=turns {
            if on {
                count += per_turn;
                seen += 1;
            }
            on = duty.watches_next(count, Nanos(turn * TURN));
        }
        seen
    }

    #[test]
    fn few_accesses_are_always_watched() {
        assert_eq!(watched(50_000, 100), 100);
    }

    #[test]
    fn many_accesses_are_watched_for_a_part_of_the_time() {
        // 1.5 million a second: 15 times what is allowed.
        let seen = watched(750_000, 1_500);
        assert!((95..=105).contains(&seen), "{seen}");
    }

    #[test]
    fn something_is_seen_however_many_there_are() {
        assert!(watched(u64::MAX >> 12, 640) >= 9);
    }
}
