//! How many may talk to the daemon at once: each connection that is served holds a slot, and a slot is a thread. Those for
//! whom there is none wait for one, in the order in which they came, at the cost of a descriptor.

use super::peer::Peer;
use plimsoll_policy::units::Uid;
use std::{
    collections::{BTreeMap, VecDeque},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Bounds on connections. It takes `total - kept_for_root` of them to keep another user out, of `per_user` each; none can keep
/// root out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// All connections together.
    pub total: usize,
    /// Connections of one user, those of their subordinate uids among them; root may hold up to `total`.
    pub per_user: usize,
    /// Of `total`, those that only root may take.
    pub kept_for_root: usize,
}

impl SlotLimits {
    /// The daemon's own, of connections that are served: seven users can keep an eighth one out.
    pub const SERVED: Self = Self { total: 64, per_user: 8, kept_for_root: 8 };
    /// And of those that wait to be served.
    pub const WAITING: Self = Self { total: 256, per_user: 64, kept_for_root: 32 };

    /// Whether one more of this owner's is within the bounds, besides those of `others`.
    fn allow(&self, owner: Uid, others: impl Iterator<Item = Uid>) -> bool {
        let (mut all, mut own) = (0_usize, 0_usize);
        for other in others {
            all = all.saturating_add(1);
            own = own.saturating_add(usize::from(other == owner));
        }
        let free = self.total.saturating_sub(all);
        if owner == Uid::ROOT { free > 0 } else { free > self.kept_for_root && own < self.per_user }
    }
}

/// A connection, and whose it is.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who connected.
    pub peer: Peer,
    /// The connection.
    pub stream: Arc<UnixStream>,
}

/// What becomes of a connection.
#[derive(Debug)]
pub enum Admitted {
    /// It is served.
    Served(Slot),
    /// It waits for a slot, or for its time to be up.
    Waits,
    /// There is no place for it.
    TurnedAway,
}

#[derive(Debug, Default)]
struct Held {
    next_id: u64,
    served: BTreeMap<u64, Caller>,
    /// Since when each waits.
    waiting: VecDeque<(Instant, Caller)>,
}

impl Held {
    /// Whether there is a slot for one more of this owner's.
    fn has_slot(&self, limits: SlotLimits, owner: Uid) -> bool {
        limits.allow(owner, self.served.values().map(|one| one.peer.owner))
    }

    fn serve(&mut self, caller: Caller) -> u64 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.served.insert(id, caller);
        id
    }
}

/// All slots, and who waits for one.
#[derive(Debug)]
pub struct Slots {
    limits: SlotLimits,
    waiting: SlotLimits,
    held: Mutex<Held>,
}

impl Slots {
    /// Empty slots, for so many, and places for so many who wait.
    #[must_use]
    pub fn new(limits: SlotLimits, waiting: SlotLimits) -> Arc<Self> {
        Arc::new(Self { limits, waiting, held: Mutex::default() })
    }

    /// Finds a slot for a connection, or a place to wait in: behind others of its owner's.
    pub fn admit(self: &Arc<Self>, caller: &Caller, now: Instant) -> Admitted {
        let owner = caller.peer.owner;
        let mut held = self.lock();
        let waits_one = held.waiting.iter().any(|(_, waits)| waits.peer.owner == owner);
        if !waits_one && held.has_slot(self.limits, owner) {
            let id = held.serve(caller.clone());
            return Admitted::Served(Slot { slots: Arc::clone(self), id });
        }
        if !self.waiting.allow(owner, held.waiting.iter().map(|(_, waits)| waits.peer.owner)) {
            return Admitted::TurnedAway;
        }
        held.waiting.push_back((now, caller.clone()));
        Admitted::Waits
    }

    /// Since when whoever waits longest does.
    #[must_use]
    pub fn waits_since(&self) -> Option<Instant> {
        self.lock().waiting.front().map(|(since, _)| *since)
    }

    /// Those whose time is up: they wait no more.
    pub fn give_up(&self, patience: Duration, now: Instant) -> Vec<Caller> {
        let mut held = self.lock();
        let over =
            held.waiting.iter().take_while(|(since, _)| now.saturating_duration_since(*since) >= patience);
        let over = over.count();
        held.waiting.drain(..over).map(|(_, caller)| caller).collect()
    }

    /// How many are served.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().served.len()
    }

    /// Ends every conversation after the answer in hand, and those that have not begun: nothing more is read from any of them.
    pub fn end_all(&self) {
        let mut held = self.lock();
        held.waiting.clear();
        for Caller { stream, .. } in held.served.values() {
            // It fails only where the other side is gone already, which is what is wanted.
            drop(stream.shutdown(Shutdown::Read));
        }
    }

    /// A poisoned lock is entered all the same: the table is whole between any two statements that change it.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to be served.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Slot {
    /// Gives it back, and one to the first of those that wait for whom there is one now.
    #[must_use]
    pub fn hand_on(mut self) -> Option<(Self, Caller)> {
        let caller = {
            let mut held = self.slots.lock();
            held.served.remove(&self.id);
            let limits = self.slots.limits;
            let first = held.waiting.iter().position(|(_, one)| held.has_slot(limits, one.peer.owner))?;
            let (_, caller) = held.waiting.remove(first)?;
            self.id = held.serve(caller.clone());
            caller
        };
        Some((self, caller))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().served.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
