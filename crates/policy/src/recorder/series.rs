//! One series of samples, thinned out as they come.

use crate::units::Nanos;
use alloc::collections::VecDeque;

/// What stays the same is kept this often all the same: 10 s.
const GAP: Nanos = Nanos(10_000_000_000);

/// A sample as the ring keeps it.
pub(super) trait Entry: Clone {
    /// When it was taken.
    fn at(&self) -> Nanos;
    /// Whether it tells nothing that the one kept last does not.
    fn is_like(&self, kept: &Self) -> bool;
}

/// Where a series stands: the sample kept last, and the newest after it, which may turn out to be worth keeping.
#[derive(Debug, Clone)]
pub(super) struct Slot<E> {
    pub(super) kept: E,
    pub(super) pending: Option<E>,
}

impl<E: Entry> Slot<E> {
    /// A series that begins with a sample, which was kept.
    pub(super) const fn new(first: E) -> Self {
        Self { kept: first, pending: None }
    }

    /// The newest sample.
    pub(super) fn latest(&self) -> &E {
        self.pending.as_ref().unwrap_or(&self.kept)
    }

    /// Goes on with a sample; `keep` is given what is to be kept, in order. One that is not later than the last is ignored.
    pub(super) fn take(&mut self, sample: E, mut keep: impl FnMut(E)) {
        if sample.at() <= self.latest().at() {
            return;
        }
        let alike = sample.is_like(&self.kept);
        if alike && sample.at().saturating_sub(self.kept.at()) < GAP {
            self.pending = Some(sample);
            return;
        }
        // Before a change: without it the step would be drawn as a slope from the last one kept.
        if let Some(pending) = self.pending.take().filter(|_| !alike) {
            keep(pending);
        }
        keep(sample.clone());
        self.kept = sample;
    }
}

/// Adds to a ring of at most `max`.
pub(super) fn push<E>(ring: &mut VecDeque<E>, entry: E, max: usize) {
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(entry);
}
