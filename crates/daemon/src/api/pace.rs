//! How much of the daemon's time clients may have: a small part of a CPU for each owner, after a start in which nobody waits.

use plimsoll_policy::units::Uid;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One part of so many is spent at most, over time.
const PARTS: u32 = 50;

/// What may be spent at once by somebody who has asked for little before: some hundred answers.
const CREDIT: Duration = Duration::from_millis(100);

/// What is noted of one answer at most: one that had to wait for the guard is not its client's fault alone.
const NOTED_MAX: Duration = Duration::from_millis(20);

/// Owners that are remembered; whoever has spent least of late is forgotten first.
const REMEMBERED_MAX: usize = 1024;

/// What was spent and has not been made good by waiting yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Debt {
    spent: Duration,
    at: Instant,
}

impl Debt {
    pub(super) const fn none(now: Instant) -> Self {
        Self { spent: Duration::ZERO, at: now }
    }

    fn spend(&mut self, time: Duration, now: Instant) {
        *self = Self { spent: self.left(now).saturating_add(time.min(NOTED_MAX)), at: now };
    }

    fn left(&self, now: Instant) -> Duration {
        self.spent.saturating_sub(now.saturating_duration_since(self.at) / PARTS)
    }

    /// How long to wait until there is credit again.
    fn wait(&self, now: Instant) -> Duration {
        self.left(now).saturating_sub(CREDIT).saturating_mul(PARTS)
    }

    /// Notes time that was spent; how long to wait for it.
    pub(super) fn pay(&mut self, time: Duration, now: Instant) -> Duration {
        self.spend(time, now);
        self.wait(now)
    }
}

/// The pace of every owner; root, who could stop the daemon, has none.
#[derive(Debug, Default)]
pub(super) struct Pace {
    debts: Mutex<BTreeMap<Uid, Debt>>,
}

impl Pace {
    /// Notes time that was spent for an owner.
    pub(super) fn spent(&self, owner: Uid, time: Duration) {
        if owner == Uid(0) {
            return;
        }
        let now = Instant::now();
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        if !debts.contains_key(&owner) && debts.len() >= REMEMBERED_MAX {
            let least = debts.iter().min_by_key(|(_, debt)| debt.left(now)).map(|(owner, _)| *owner);
            least.and_then(|owner| debts.remove(&owner));
        }
        debts.entry(owner).or_insert_with(|| Debt::none(now)).spend(time, now);
    }

    /// How long this owner waits for the next answer.
    pub(super) fn wait(&self, owner: Uid) -> Duration {
        let debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        debts.get(&owner).map(|debt| debt.wait(Instant::now())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
