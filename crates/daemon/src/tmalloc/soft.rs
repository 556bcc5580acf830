//! Whether an account is at its soft limit, as its watchers are told: with room between 'reached' and 'left', and not more
//! often than they can act on it.

use plimsoll_policy::units::Nanos;
use plimsoll_sys::bpf::AccountFacts;

/// From one word to the next, and between two looks while it is not clear that the limit was left.
const PAUSE: Nanos = Nanos(100_000_000);

/// The limit is left when usage is below it by more than this share of it.
const ROOM: u64 = 32;

/// What the watchers of one account were told last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Soft {
    reached: bool,
    told: Option<Nanos>,
    look: Option<Nanos>,
}

impl Soft {
    /// Whether they were told that it is reached.
    pub(super) const fn reached(&self) -> bool {
        self.reached
    }

    /// When to look again without being told of anything.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.look
    }

    /// The account could not be looked at.
    pub(super) fn look_later(&mut self, now: Nanos) {
        self.look = Some(now.saturating_add(PAUSE));
    }

    /// Looks at the account (`None`: its line is gone); what to tell, if anything.
    pub(super) fn look(&mut self, account: Option<&AccountFacts>, now: Nanos) -> Option<bool> {
        self.look = None;
        let Some(account) = account else {
            return core::mem::take(&mut self.reached).then_some(false);
        };
        let floor = account.soft.0.saturating_sub(account.soft.0 / ROOM);
        let changed = if self.reached { account.usage.0 < floor } else { account.usage >= account.soft };
        if !changed {
            // Above the limit the programs tell when that ends; below it they have told already.
            self.look = (self.reached && account.usage < account.soft).then(|| now.saturating_add(PAUSE));
            return None;
        }
        let free = self.told.map_or(now, |told| told.saturating_add(PAUSE));
        if now < free {
            self.look = Some(free);
            return None;
        }
        self.reached = !self.reached;
        self.told = Some(now);
        Some(self.reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::units::Pages;

    fn account(usage: u64) -> AccountFacts {
        AccountFacts { soft: Pages(960), hard: Pages(1024), ..crate::guard::account(usage, 0) }
    }

    fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn reached_is_told_once_and_left_with_room() {
        let mut soft = Soft::default();
        assert_eq!(soft.look(Some(&account(959)), at(0)), None);
        assert_eq!(soft.look(Some(&account(960)), at(1)), Some(true));
        assert_eq!(soft.look(Some(&account(990)), at(2)), None);
        assert_eq!(soft.due(), None);
        // A little below: looked at again, since nobody tells.
        assert_eq!(soft.look(Some(&account(950)), at(200)), None);
        assert_eq!(soft.due(), Some(at(300)));
        assert_eq!(soft.look(Some(&account(929)), at(300)), Some(false));
        assert_eq!(soft.due(), None);
    }

    #[test]
    fn an_account_that_goes_to_and_fro_is_not_told_of_each_time() {
        let mut soft = Soft::default();
        let mut told = 0;
        for step in 0..1000 {
            let usage = if step % 2 == 0 { 1000 } else { 100 };
            told += u32::from(soft.look(Some(&account(usage)), at(step)).is_some());
        }
        assert!(told <= 11, "told {told} times in a second");
        // What it came to is told at last.
        let due = soft.due();
        assert!(due.is_some() || !soft.reached());
    }

    #[test]
    fn a_line_that_goes_takes_the_soft_limit_with_it() {
        let mut soft = Soft::default();
        assert_eq!(soft.look(Some(&account(1000)), at(0)), Some(true));
        assert_eq!(soft.look(None, at(1)), Some(false));
        assert_eq!(soft.look(None, at(2)), None);
    }
}
