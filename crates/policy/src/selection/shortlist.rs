//! The best few of many, in order, without allocating: selection runs when memory is short.

use super::{Candidate, Standing, order};
use crate::{
    units::{Pid, Uid},
    victim::VictimId,
};
use core::{cmp::Ordering, fmt, ops::Deref};

/// What fills the unused places; never seen from outside.
const NOBODY: Candidate = Candidate {
    standing: Standing::Dying,
    ..Candidate::of(VictimId { pid: Pid(0), start_ns: 0 }, Uid::ROOT)
};

/// Up to `N` candidates, best first. Reads like a slice.
#[derive(Clone, Copy)]
pub struct Shortlist<const N: usize> {
    places: [Candidate; N],
    taken: usize,
}

impl<const N: usize> Shortlist<N> {
    /// Nobody.
    pub const EMPTY: Self = Self { places: [NOBODY; N], taken: 0 };

    /// Puts a candidate into its place; the last one falls out where all places are taken.
    pub(crate) fn offer(&mut self, candidate: Candidate) {
        let place =
            self.iter().position(|one| order(&candidate, one) == Ordering::Less).unwrap_or(self.taken);
        let grown = self.taken.saturating_add(1).min(N);
        // Empty where every place is taken by a better one.
        if let Some(tail @ [_, ..]) = self.places.get_mut(place..grown) {
            tail.rotate_right(1);
            if let Some(slot) = tail.first_mut() {
                *slot = candidate;
                self.taken = grown;
            }
        }
    }

    /// Puts a candidate behind the others; `false` where every place is taken.
    pub(super) fn append(&mut self, candidate: Candidate) -> bool {
        let Some(slot) = self.places.get_mut(self.taken) else { return false };
        *slot = candidate;
        self.taken = self.taken.saturating_add(1);
        true
    }

    /// Has a candidate among the others: the last one falls out for it where all places are taken.
    pub(super) fn keep(&mut self, candidate: Candidate) {
        if !self.iter().any(|one| one.id() == candidate.id())
            && !self.append(candidate)
            && let Some(last) = self.places.last_mut()
        {
            *last = candidate;
        }
    }

    /// Gives each address space that they are in a number of its own, from 1 on, in the place of its key.
    pub(super) fn number_spaces(&mut self) {
        let (mut known, mut count) = ([0_u64; N], 0_usize);
        for place in self.places.iter_mut().take(self.taken).filter(|place| place.mm != 0) {
            let at = known.iter().take(count).position(|mm| *mm == place.mm).unwrap_or(count);
            if let Some(slot) = known.get_mut(at) {
                *slot = place.mm;
            }
            let number = at.saturating_add(1);
            count = count.max(number);
            place.mm = u64::try_from(number).unwrap_or(u64::MAX);
        }
    }

    /// Whether every place is taken.
    pub(super) const fn is_full(&self) -> bool {
        self.taken == N
    }
}

impl<const N: usize> Deref for Shortlist<N> {
    type Target = [Candidate];

    fn deref(&self) -> &[Candidate] {
        self.places.get(..self.taken).unwrap_or_default()
    }
}

impl<'a, const N: usize> IntoIterator for &'a Shortlist<N> {
    type Item = &'a Candidate;
    type IntoIter = core::slice::Iter<'a, Candidate>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<const N: usize> Default for Shortlist<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> PartialEq for Shortlist<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for Shortlist<N> {}

impl<const N: usize> fmt::Debug for Shortlist<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
