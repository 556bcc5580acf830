//! How much of the time reads are watched: each costs some 100 ns while they are, and more where the caches are cold. Pure.
//!
//! What is seen is not scaled up for the time when nobody looked: one drain counts for one pass through a chunk at most, so
//! that whatever is used more than others is seen more often than they are.

use plimsoll_policy::units::Nanos;

/// Reads a second that may be watched: at 100 ns each that is 0.5 % of a core.
const ACCESSES_PER_SECOND: u64 = 50_000;

/// So soon it is looked how many there are, once watching begins: of millions a second a whole turn would be felt.
pub(super) const GLANCE: Nanos = Nanos(50_000_000);

/// How much longer than it watched it rests at most: beyond that too little would be seen to rank anything.
const REST_MAX: u64 = 63;

/// Watches, and rests as long as it takes to have watched no more than that on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DutyCycle {
    counted: u64,
    since: Nanos,
    rests_until: Option<Nanos>,
}

impl DutyCycle {
    /// Watches from now on. `counted`: accesses so far.
    pub(super) const fn new(counted: u64, now: Nanos) -> Self {
        Self { counted, since: now, rests_until: None }
    }

    /// Whether it is to be watched from now on, until it is asked again: at each turn, and when a glance is due. `counted`:
    /// accesses so far.
    pub(super) fn watches(&mut self, counted: u64, now: Nanos) -> bool {
        match self.rests_until {
            Some(until) if now < until => return false,
            Some(_) => self.rests_until = None,
            None => {
                let seen = counted.saturating_sub(self.counted);
                let span = now.0.saturating_sub(self.since.0);
                let owed = seen.saturating_mul(1_000_000_000).saturating_div(ACCESSES_PER_SECOND);
                if owed > span {
                    let rest = owed.saturating_sub(span).min(span.saturating_mul(REST_MAX));
                    self.rests_until = Some(now.saturating_add(Nanos(rest)));
                }
            }
        }
        (self.counted, self.since) = (counted, now);
        self.rests_until.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: u64 = 500_000_000;

    /// For how much of so many turns accesses are watched, in thousandths, when so many happen in a second.
    fn watched(per_second: u64, turns: u64) -> u64 {
        let mut duty = DutyCycle::new(0, Nanos(0));
        let (mut on, mut glance, mut last, mut counted, mut seen_ns) = (true, GLANCE.0, 0, 0, 0);
        let end = turns * TURN;
        while last < end {
            let next = (last / TURN + 1) * TURN;
            let now = if on && glance > last { next.min(glance) } else { next };
            if on {
                counted += per_second * (now - last) / 1_000_000_000;
                seen_ns += now - last;
            }
            let was = on;
            on = duty.watches(counted, Nanos(now));
            if on && !was {
                glance = now + GLANCE.0;
            }
            last = now;
        }
        seen_ns * 1_000 / end
    }

    #[test]
    fn few_accesses_are_always_watched() {
        assert_eq!(watched(40_000, 100), 1_000);
    }

    #[test]
    fn many_accesses_are_watched_for_a_part_of_the_time() {
        // A million a second: 20 times what is allowed. It is begun at a turn only.
        let seen = watched(1_000_000, 1_000);
        assert!((33..=50).contains(&seen), "{seen}");
    }

    #[test]
    fn what_happens_now_and_then_is_watched_in_between() {
        let mut duty = DutyCycle::new(0, Nanos(0));
        assert!(!duty.watches(10_000, Nanos(GLANCE.0)), "10,000 within a glance are 200,000 a second");
        assert!(!duty.watches(10_000, Nanos(199_000_000)));
        assert!(duty.watches(10_000, Nanos(200_000_000)));
        assert!(duty.watches(10_000, Nanos(700_000_000)));
    }

    #[test]
    fn something_is_seen_however_many_there_are() {
        assert!(watched(1 << 33, 640) >= 13);
    }
}
