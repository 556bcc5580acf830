//! Who starts a job next: one at a time, users by turns, and those of one user in the order in which they came. A user whose
//! starts cost more has fewer. All users together have an eighth of a CPU for it, after a tenth of a second that may be spent
//! at once; one user has all of it while nobody else starts any. Root goes first, and has no bound.

use crate::pace::{self, now};
use plimsoll_policy::units::Uid;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::Duration,
};

/// An eighth of a CPU; of one start a second at most; 100 ms at once.
type Debt = pace::Debt<8, 1000, 100>;

/// The queue of those who start a job.
#[derive(Debug, Default)]
pub(super) struct Starts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    order: Order<Thread>,
    is_taken: bool,
    debt: Debt,
}

impl Starts {
    /// Waits until it is this owner's turn to start one.
    pub(super) fn enter(&self, owner: Uid) -> Turn<'_> {
        let mut state = self.lock();
        let place = state.order.join(owner, thread::current());
        while let Some(wait) = state.wait_of(place) {
            drop(state);
            thread::park_timeout(wait);
            state = self.lock();
        }
        state.order.leave(owner);
        state.is_taken = true;
        Turn { starts: self, owner, cost: Duration::ZERO }
    }

    /// Notes what was spent for an owner's starts.
    pub(super) fn note(&self, owner: Uid, cost: Duration) {
        self.lock().note(owner, cost);
    }

    /// A poisoned lock is entered all the same: no statement leaves the queue half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long who has this place has to wait; `None`: it is their turn. Who is not the first is woken when they are.
    fn wait_of(&self, place: Place) -> Option<Duration> {
        if self.is_taken || self.order.first().is_none_or(|(first, _)| first != place) {
            return Some(Duration::MAX);
        }
        let wait = if place.0 == Uid::ROOT { Duration::ZERO } else { self.debt.left(now()) };
        (!wait.is_zero()).then_some(wait)
    }

    /// Notes what was spent, and wakes the first, who may be another one by that.
    fn note(&mut self, owner: Uid, cost: Duration) {
        self.order.spent(owner, cost);
        if owner != Uid::ROOT {
            self.debt.pay(cost, now());
        }
        if let Some((_, first)) = self.order.first() {
            first.unpark();
        }
    }
}

/// The right to start a job, now. The next one has it when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    starts: &'a Starts,
    owner: Uid,
    cost: Duration,
}

impl Turn<'_> {
    /// Ends it, and notes what was spent.
    pub(super) fn end(mut self, cost: Duration) {
        self.cost = cost;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.starts.lock();
        state.is_taken = false;
        state.note(self.owner, self.cost);
    }
}

/// Whose it is, and its number.
type Place = (Uid, u64);

/// Whoever has had least goes first. Who comes has had as much as whoever had the last turn: nobody saves up, and nobody owes
/// what nobody else wanted.
#[derive(Debug)]
struct Order<T> {
    next_number: u64,
    /// What whoever had the last turn had had until then.
    had: Duration,
    owners: BTreeMap<Uid, Owner<T>>,
}

#[derive(Debug)]
struct Owner<T> {
    had: Duration,
    waiting: VecDeque<(u64, T)>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { next_number: 0, had: Duration::ZERO, owners: BTreeMap::new() }
    }
}

impl<T> Order<T> {
    fn join(&mut self, owner: Uid, who: T) -> Place {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let had = self.had;
        let joined = self.owners.entry(owner).or_insert_with(|| Owner { had, waiting: VecDeque::new() });
        if joined.waiting.is_empty() {
            joined.had = joined.had.max(had);
        }
        joined.waiting.push_back((number, who));
        (owner, number)
    }

    fn first(&self) -> Option<(Place, &T)> {
        let fronts =
            self.owners.iter().filter_map(|(owner, one)| Some((owner, one.had, one.waiting.front()?)));
        let first = fronts.min_by_key(|(owner, had, (number, _))| (**owner != Uid::ROOT, *had, *number));
        first.map(|(owner, _, (number, who))| ((*owner, *number), who))
    }

    /// This owner's first has its turn.
    fn leave(&mut self, owner: Uid) {
        let Some(one) = self.owners.get_mut(&owner) else { return };
        one.waiting.pop_front();
        if owner != Uid::ROOT {
            self.had = self.had.max(one.had);
        }
    }

    fn spent(&mut self, owner: Uid, cost: Duration) {
        if let Some(one) = self.owners.get_mut(&owner) {
            one.had = one.had.saturating_add(cost);
        }
        let had = self.had;
        self.owners.retain(|_, one| !one.waiting.is_empty() || one.had >= had);
    }
}

#[cfg(test)]
mod tests;
