//! How many may talk to the daemon at once: each open connection holds a slot, and a slot is a thread.

use plimsoll_policy::units::Uid;
use std::{
    collections::BTreeMap,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The bounds. No unprivileged user can keep another one out for less than seven users' worth of connections, and
/// none can keep root out.
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
    /// The daemon's own.
    pub const SERVER: Self = Self { total: 64, per_user: 8, kept_for_root: 8 };
}

#[derive(Debug, Default)]
struct Taken {
    next_id: u64,
    /// Whom each counts for.
    slots: BTreeMap<u64, (Uid, Arc<UnixStream>)>,
}

/// All slots.
#[derive(Debug)]
pub struct Slots {
    limits: SlotLimits,
    taken: Mutex<Taken>,
}

impl Slots {
    /// Empty slots.
    #[must_use]
    pub fn new(limits: SlotLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// A slot for a connection that counts for `owner`, given back when dropped; `None` when there is none for this user.
    pub fn take(self: &Arc<Self>, owner: Uid, stream: &Arc<UnixStream>) -> Option<Slot> {
        let mut taken = self.lock();
        let free = self.limits.total.saturating_sub(taken.slots.len());
        let allowed = if owner == Uid(0) {
            free > 0
        } else {
            let own = taken.slots.values().filter(|(holder, _)| *holder == owner).count();
            free > self.limits.kept_for_root && own < self.limits.per_user
        };
        if !allowed {
            return None;
        }
        let id = taken.next_id;
        taken.next_id = id.wrapping_add(1);
        taken.slots.insert(id, (owner, Arc::clone(stream)));
        drop(taken);
        Some(Slot { slots: Arc::clone(self), id })
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().slots.len()
    }

    /// Ends every conversation after the answer in hand: nothing more is read from any of them.
    pub fn end_all(&self) {
        for (_, stream) in self.lock().slots.values() {
            // It fails only where the other side is gone already, which is what is wanted.
            drop(stream.shutdown(Shutdown::Read));
        }
    }

    /// A poisoned lock is entered all the same: the table is whole between any two statements that change it.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to one connection.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().slots.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
