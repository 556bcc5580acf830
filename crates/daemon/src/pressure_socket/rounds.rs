//! When those who listen for an account are told: at once when it comes near, and then ever more rarely for as long as it stays
//! near. Whoever gave back what they could has little to give two seconds later.

use plimsoll_policy::units::Nanos;

/// From the first word to the second, as wide as the window in which systemd has the kernel look for stalls. Then twice as long
/// each time.
const FIRST: Nanos = Nanos(2_000_000_000);
/// Never longer.
const LONGEST: Nanos = Nanos(16_000_000_000);
/// Between two words at least, where an account comes and goes.
const APART: Nanos = Nanos(500_000_000);

/// The rounds of one account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    near: bool,
    due: Nanos,
    gap: Nanos,
    told: Option<Nanos>,
}

impl Rounds {
    /// Of an account that is far.
    pub(super) const fn far() -> Self {
        Self { near: false, due: Nanos(0), gap: FIRST, told: None }
    }

    /// It is near.
    pub(super) fn come_near(&mut self, now: Nanos) {
        if !self.near {
            let free = self.told.map_or(now, |told| told.saturating_add(APART));
            (self.near, self.due, self.gap) = (true, free.max(now), FIRST);
        }
    }

    /// It is near no more.
    pub(super) const fn leave(&mut self) {
        self.near = false;
    }

    /// When the next word is due, if any is.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.near.then_some(self.due)
    }

    /// They are told now.
    pub(super) fn tell(&mut self, now: Nanos) {
        self.told = Some(now);
        self.due = now.saturating_add(self.gap);
        self.gap = self.gap.saturating_add(self.gap).min(LONGEST);
    }

    /// Nothing would be different if it were not known.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        !self.near && self.told.is_none_or(|told| told.saturating_add(APART) <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    /// Looks once a millisecond; when somebody was told.
    fn told(rounds: &mut Rounds, moments: std::ops::Range<u64>) -> Vec<u64> {
        moments
            .filter(|moment| {
                let is_due = rounds.due().is_some_and(|due| due <= at(*moment));
                if is_due {
                    rounds.tell(at(*moment));
                }
                is_due
            })
            .collect()
    }

    #[test]
    fn an_account_that_stays_near_is_told_of_ever_more_rarely() {
        let mut rounds = Rounds::far();
        assert!(told(&mut rounds, 0..5000).is_empty(), "it is far");
        rounds.come_near(at(5000));
        rounds.come_near(at(5000));
        assert_eq!(told(&mut rounds, 5000..70_000), [5000, 7000, 11_000, 19_000, 35_000, 51_000, 67_000]);
        rounds.leave();
        assert!(told(&mut rounds, 70_000..100_000).is_empty(), "it is far again");
        rounds.come_near(at(100_000));
        assert_eq!(told(&mut rounds, 100_000..103_000), [100_000, 102_000], "from the beginning again");
    }

    #[test]
    fn one_that_comes_and_goes_is_told_of_twice_a_second_at_most() {
        let mut rounds = Rounds::far();
        let mut count = 0;
        for step in 0..1000 {
            rounds.come_near(at(step * 10));
            count += told(&mut rounds, step * 10..step * 10 + 5).len();
            rounds.leave();
            assert!(!rounds.is_over(at(step * 10 + 5)), "what was told a moment ago counts");
        }
        assert!((19..=20).contains(&count), "told {count} times in 10 s");
        assert!(rounds.is_over(at(20_000)));
    }
}
