//! Whose turn it is to be read: users one after the other, and each user's connections one after the other.
//!
//! So whoever sends without end has to share with itself: a message of somebody else's waits for one turn of each other
//! user that has something to say, however many connections those have.

use super::desk::ConnectionId;
use plimsoll_policy::units::Uid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Connections that have something to read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    users: BTreeMap<Uid, VecDeque<ConnectionId>>,
    /// The users that have some, the next one first.
    order: VecDeque<Uid>,
    /// Those in all queues.
    queued: BTreeSet<ConnectionId>,
}

impl Turns {
    /// A connection has something to read. It counts for `owner`.
    pub(super) fn ready(&mut self, id: ConnectionId, owner: Uid) {
        if !self.queued.insert(id) {
            return;
        }
        let queue = self.users.entry(owner).or_default();
        if queue.is_empty() {
            self.order.push_back(owner);
        }
        queue.push_back(id);
    }

    /// Takes the next one out.
    pub(super) fn next(&mut self) -> Option<ConnectionId> {
        let user = self.order.pop_front()?;
        let queue = self.users.get_mut(&user)?;
        let id = queue.pop_front();
        if queue.is_empty() {
            self.users.remove(&user);
        } else {
            self.order.push_back(user);
        }
        if let Some(id) = &id {
            self.queued.remove(id);
        }
        id
    }

    /// Whether nobody has anything to say.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests;
