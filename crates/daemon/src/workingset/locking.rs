//! One go at locking: for how long, and what is told of it meanwhile.

use super::{
    shared::{Shared, Thread},
    times::now,
};
use plimsoll_policy::{
    units::{Nanos, Pages},
    workingset::Tier,
};
use std::sync::Arc;

/// How much of a turn may go into locking.
const LOCKING_MAX: Nanos = Nanos(300_000_000);

/// Pages that are locked leave the lists that the kernel counts: the programs hear of it so often, in pages, lest they take
/// them for pages that are gone.
const TELL_EVERY: u64 = 2048;

/// One go at locking.
#[derive(Debug)]
pub(super) struct Locking {
    shared: Arc<Shared>,
    began: Nanos,
}

impl Locking {
    pub(super) const fn begin(shared: Arc<Shared>, began: Nanos) -> Self {
        Self { shared, began }
    }

    /// Whether no more is to be locked in a tier for now: in the soft one also as soon as it was let go.
    pub(super) fn is_enough(&self, tier: Tier) -> bool {
        let moment = now();
        self.shared.is_stopping()
            || moment.0.saturating_sub(self.began.0) >= LOCKING_MAX.0
            || (tier == Tier::Soft && self.shared.soft_rests(moment))
    }

    /// Locks at most so many pages more in a tier by what is done, which says how many it was. They count as locked from before
    /// on: whoever counts in between sees too much clean memory, and not too little.
    pub(super) fn lock<T>(&self, tier: Tier, most: Pages, done: impl FnOnce() -> (Pages, T)) -> T {
        let before = self.shared.add_locked(tier, most);
        if before.0 / TELL_EVERY != before.0.saturating_add(most.0) / TELL_EVERY {
            self.shared.ring(Thread::Floor);
        }
        let (locked, result) = done();
        self.shared.take_locked(tier, Pages(most.0.saturating_sub(locked.0)));
        result
    }
}
