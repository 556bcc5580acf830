//! Victims known beforehand: while an account is near its line, its largest processes are held by pidfd already, so
//! that at the crossing nothing is left to do but to signal.

use crate::guard::kernel::Kernel;
use plimsoll_policy::{
    account::Counted,
    selection::{Candidate, Standing},
    victim::VictimId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Processes held for one account.
const HELD_MAX: usize = 8;

/// Accounts they are held for; those of more accounts are opened at the crossing.
const ACCOUNTS_MAX: usize = 32;

/// The processes held, by account.
#[derive(Debug)]
pub(crate) struct Early<K: Kernel> {
    held: BTreeMap<Counted, Vec<(VictimId, K::Held)>>,
}

impl<K: Kernel> Default for Early<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new() }
    }
}

impl<K: Kernel> Early<K> {
    /// Holds the first few of an account's candidates, and lets go of those that are no longer among them.
    pub(crate) fn hold(&mut self, whose: Counted, candidates: &[Candidate], kernel: &K) {
        if !self.held.contains_key(&whose) && self.held.len() >= ACCOUNTS_MAX {
            return;
        }
        let held = self.held.entry(whose).or_default();
        let free = candidates.iter().filter(|one| one.standing == Standing::Free);
        let mut wanted: Vec<VictimId> = free.take(HELD_MAX).map(Candidate::id).collect();
        held.retain(|(id, _)| wanted.contains(id));
        wanted.retain(|id| held.iter().all(|(known, _)| known != id));
        // One that has gone meanwhile is no victim.
        held.extend(wanted.into_iter().filter_map(|id| Some((id, kernel.hold(id.pid, id.start_ns).ok()?))));
    }

    /// Lets go of an account's.
    pub(crate) fn forget(&mut self, whose: Counted) {
        self.held.remove(&whose);
    }

    /// Lets go of those of all accounts but these.
    pub(crate) fn forget_all_but(&mut self, near: &BTreeSet<Counted>) {
        self.held.retain(|whose, _| near.contains(whose));
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, whose: Counted, id: VictimId) -> Option<K::Held> {
        let held = self.held.get_mut(&whose)?;
        let place = held.iter().position(|(known, _)| *known == id)?;
        Some(held.swap_remove(place).1)
    }
}
