//! Whose turn it is to be read: users one after the other, and each user's connections one after the other. Who has had more
//! of a CPU than a user may have has no turn until that is made good.
//!
//! So whoever sends without end has to share with itself: a message of somebody else's waits for one turn of each other
//! user that has something to say, however many connections those have.

use super::account::ConnectionId;
use crate::pace;
use plimsoll_policy::units::{Nanos, Uid};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// One part of so many of a CPU is spent for a user at most, over time: this thread runs before all ordinary ones. A lease of
/// 64 KiB takes some 10 us of it, so a program that takes them without a pause still has several hundred MiB a second, which
/// nothing under a line does for long.
const PARTS: u32 = 8;
/// What is noted of one turn at most, in milliseconds: a hundred times what most take.
const NOTED_MAX_MS: u64 = 2;
/// What may be spent at once by somebody who has asked for little before, in milliseconds.
const CREDIT_MS: u64 = 100;

pub(super) type Debt = pace::Debt<PARTS, NOTED_MAX_MS, CREDIT_MS>;

/// Connections that have something to read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    users: BTreeMap<Uid, VecDeque<ConnectionId>>,
    /// The users that have some, the next one first.
    order: VecDeque<Uid>,
    /// Those that have some and no turn before then.
    parked: BTreeSet<(Nanos, Uid)>,
    /// Those in all queues.
    queued: BTreeSet<ConnectionId>,
    pace: pace::Pace<PARTS, NOTED_MAX_MS, CREDIT_MS>,
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
    pub(super) fn next(&mut self, now: Nanos) -> Option<ConnectionId> {
        while self.parked.first().is_some_and(|(until, _)| *until <= now) {
            self.order.extend(self.parked.pop_first().map(|(_, user)| user));
        }
        let user = loop {
            let user = self.order.pop_front()?;
            let until = self.pace.until(user);
            if until <= now {
                break user;
            }
            self.parked.insert((until, user));
        };
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

    /// Notes time that was spent for a user until `now`.
    pub(super) fn spent(&mut self, owner: Uid, time: Duration, now: Nanos) {
        self.pace.spent(owner, time, now);
    }

    /// When [`Turns::next`] is to be called; `None`: nobody has anything to say.
    pub(super) fn due(&self) -> Option<Nanos> {
        if self.order.is_empty() { self.parked.first().map(|(until, _)| *until) } else { Some(Nanos(0)) }
    }
}

#[cfg(test)]
mod tests;
