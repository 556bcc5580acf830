//! How many connections and processes are held for whom, and whose connection gives way to one more.
//!
//! A connection is no right, but what saves a process that asks again from making one: what it holds does not hang on it. So
//! nobody is turned away while a connection of the same user's lies idle, and no number of users keeps another one out.

use super::account::ConnectionId;
use plimsoll_policy::units::Uid;
use std::collections::{BTreeMap, BTreeSet};

/// Connections of one user, and processes that are held for one.
pub(super) const USER_MAX: usize = 256;
/// All connections, and all processes.
pub(super) const TOTAL_MAX: usize = 4096;

/// When a connection was used last: uses count up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Used(u64);

/// What counts for one user.
#[derive(Debug, Default)]
struct Share {
    by_use: BTreeSet<(Used, ConnectionId)>,
    processes: usize,
}

/// What counts for each.
#[derive(Debug, Default)]
pub(super) struct Shares {
    owners: BTreeMap<Uid, Share>,
    connections: usize,
    processes: usize,
    uses: u64,
}

impl Shares {
    /// One more connection, used now.
    pub(super) fn enter(&mut self, owner: Uid, id: ConnectionId) -> Used {
        self.connections = self.connections.saturating_add(1);
        self.note(owner, id)
    }

    /// A connection is used, which was used last at `before`.
    pub(super) fn renew(&mut self, owner: Uid, id: ConnectionId, before: Used) -> Used {
        if let Some(share) = self.owners.get_mut(&owner) {
            share.by_use.remove(&(before, id));
        }
        self.note(owner, id)
    }

    fn note(&mut self, owner: Uid, id: ConnectionId) -> Used {
        self.uses = self.uses.saturating_add(1);
        let used = Used(self.uses);
        self.owners.entry(owner).or_default().by_use.insert((used, id));
        used
    }

    /// A connection is there no more.
    pub(super) fn leave(&mut self, owner: Uid, id: ConnectionId, used: Used) {
        let Some(share) = self.owners.get_mut(&owner) else { return };
        if share.by_use.remove(&(used, id)) {
            self.connections = self.connections.saturating_sub(1);
        }
        self.drop_if_empty(owner);
    }

    /// Whose connection has to go before this user has one more: its own where it has its share, else one of whoever has
    /// most. `None`: there is room.
    pub(super) fn crowded(&self, owner: Uid) -> Option<Uid> {
        let has = |share: &Share| share.by_use.len();
        let own = self.owners.get(&owner).map_or(0, has);
        if own >= USER_MAX {
            return Some(owner);
        }
        if self.connections < TOTAL_MAX {
            return None;
        }
        let most = self.owners.iter().max_by_key(|(_, share)| has(share));
        Some(most.filter(|(_, share)| has(share) > own.saturating_add(1)).map_or(owner, |(most, _)| *most))
    }

    /// The connections of a user, from the one that was left alone for longest.
    pub(super) fn by_use(&self, owner: Uid) -> impl Iterator<Item = ConnectionId> {
        self.owners.get(&owner).into_iter().flat_map(|share| share.by_use.iter().map(|(_, id)| *id))
    }

    /// One more process. `false`: its user has as many as may be held, or all have.
    pub(super) fn hold(&mut self, owner: Uid) -> bool {
        let share = self.owners.entry(owner).or_default();
        let fits = share.processes < USER_MAX && self.processes < TOTAL_MAX;
        if fits {
            share.processes = share.processes.saturating_add(1);
            self.processes = self.processes.saturating_add(1);
        }
        self.drop_if_empty(owner);
        fits
    }

    /// A process is held no more.
    pub(super) fn release(&mut self, owner: Uid) {
        let Some(share) = self.owners.get_mut(&owner) else { return };
        share.processes = share.processes.saturating_sub(1);
        self.processes = self.processes.saturating_sub(1);
        self.drop_if_empty(owner);
    }

    fn drop_if_empty(&mut self, owner: Uid) {
        if self.owners.get(&owner).is_some_and(|share| share.by_use.is_empty() && share.processes == 0) {
            self.owners.remove(&owner);
        }
    }
}
