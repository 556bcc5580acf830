//! How much of the daemon's time one user may have, by asking or by what befalls them: one part of a CPU in `PARTS` for each,
//! after `CREDIT_MS` milliseconds that may be spent at once by somebody who was given little before. Of one piece of work,
//! `NOTED_MAX_MS` milliseconds are noted at most: one that took longer had to wait for the guard, or for a CPU that was taken
//! away, which is not its user's fault.

use plimsoll_policy::units::{Nanos, Uid};
use plimsoll_sys::process::clock_monotonic_ns;
use std::{collections::BTreeMap, time::Duration};

/// The moment by the clock that all of this is reckoned by: the monotonic one.
pub(crate) fn now() -> Nanos {
    Nanos(clock_monotonic_ns())
}

/// Owners that are remembered; whoever has spent least of late is forgotten first.
const REMEMBERED_MAX: usize = 1024;

/// When all that was spent will have been made good by waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Debt<const PARTS: u32, const NOTED_MAX_MS: u64, const CREDIT_MS: u64>(Nanos);

impl<const PARTS: u32, const NOTED_MAX_MS: u64, const CREDIT_MS: u64> Debt<PARTS, NOTED_MAX_MS, CREDIT_MS> {
    /// Notes time that was spent until `now`; from when on more may be.
    pub(crate) fn pay(&mut self, time: Duration, now: Nanos) -> Nanos {
        let noted = time.min(Duration::from_millis(NOTED_MAX_MS));
        self.0 = self.0.max(now).saturating_add(wait_for::<PARTS>(noted));
        self.until()
    }

    /// How long it is until more may be spent.
    pub(crate) fn left(self, now: Nanos) -> Duration {
        left(self.until(), now)
    }

    fn until(self) -> Nanos {
        Nanos(self.0.0.saturating_sub(wait_for::<PARTS>(Duration::from_millis(CREDIT_MS)).0))
    }
}

/// How long it is until then; nothing where it is over.
pub(crate) fn left(until: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(until.0.saturating_sub(now.0))
}

/// How long it takes to make good what was spent.
fn wait_for<const PARTS: u32>(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.saturating_mul(PARTS).as_nanos()).unwrap_or(u64::MAX))
}

/// The pace of every owner; root, who could stop the daemon, has none.
#[derive(Debug, Default)]
pub(crate) struct Pace<const PARTS: u32, const NOTED_MAX_MS: u64, const CREDIT_MS: u64> {
    debts: BTreeMap<Uid, Debt<PARTS, NOTED_MAX_MS, CREDIT_MS>>,
}

impl<const PARTS: u32, const NOTED_MAX_MS: u64, const CREDIT_MS: u64> Pace<PARTS, NOTED_MAX_MS, CREDIT_MS> {
    /// Notes time that was spent for an owner until `now`.
    pub(crate) fn spent(&mut self, owner: Uid, time: Duration, now: Nanos) {
        if owner == Uid::ROOT {
            return;
        }
        if !self.debts.contains_key(&owner) && self.debts.len() >= REMEMBERED_MAX {
            let least = self.debts.iter().min_by_key(|(_, debt)| **debt).map(|(owner, _)| *owner);
            least.and_then(|owner| self.debts.remove(&owner));
        }
        self.debts.entry(owner).or_default().pay(time, now);
    }

    /// From when on this owner may have more.
    pub(crate) fn until(&self, owner: Uid) -> Nanos {
        self.debts.get(&owner).map(|debt| debt.until()).unwrap_or_default()
    }

    /// How long it is until then.
    pub(crate) fn left(&self, owner: Uid, now: Nanos) -> Duration {
        left(self.until(owner), now)
    }
}

#[cfg(test)]
mod tests;
