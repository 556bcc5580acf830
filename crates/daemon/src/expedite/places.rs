//! Whose victims are at the reapers, and who waits for that: the decision alone.
//!
//! Each user has a share of the places, of those that wait, and of the reapers' time. The fewer places are free, the fewer one
//! user may have: who has none comes first. Who is refused frees its memory itself, as it would without us.

use crate::pace::Pace;
use plimsoll_policy::{
    units::{Nanos, Uid},
    victim::VictimId,
};
use std::{collections::VecDeque, time::Duration};

/// Victims that are at the reapers.
pub(super) const AT_WORK_MAX: usize = 16;

/// Of these, so many of one user's.
const AT_WORK_EACH: usize = 4;

/// Victims that wait: a container with all its processes, and some more of those.
const WAITING_MAX: usize = 128;

/// Of these, so many of one user's.
const WAITING_EACH: usize = 32;

/// An eighth of a CPU for each user, after a second at once. Of one victim half a second is noted at most: some 5 GiB.
type Paces = Pace<8, 500, 1000>;

/// Whether a user who has so many of these places may have another: fewer than there are free ones, and than each may have.
const fn has_share(count: usize, taken: usize, max: usize, each: usize) -> bool {
    count < each && count < max.saturating_sub(taken)
}

/// Why one is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is among them already.
    Known,
    /// Its user's share is used up, or everybody's together.
    OverShare,
}

#[derive(Debug)]
struct AtWork {
    tag: u64,
    id: VictimId,
    owner: Uid,
}

#[derive(Debug)]
struct Waiting<T> {
    id: VictimId,
    owner: Uid,
    victim: T,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Places<T> {
    at_work: Vec<AtWork>,
    waiting: VecDeque<Waiting<T>>,
    newest: u64,
    paces: Paces,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { at_work: Vec::new(), waiting: VecDeque::new(), newest: 0, paces: Paces::default() }
    }
}

impl<T> Places<T> {
    /// Takes one in. It waits until [`Places::next`] gives it out.
    pub(super) fn enter(&mut self, id: VictimId, owner: Uid, victim: T, now: Nanos) -> Result<(), Refused> {
        let known = self
            .at_work
            .iter()
            .map(|one| one.id)
            .chain(self.waiting.iter().map(|one| one.id))
            .any(|one| one == id);
        if known {
            return Err(Refused::Known);
        }
        let of_owner = self.waiting.iter().filter(|one| one.owner == owner).count();
        if !has_share(of_owner, self.waiting.len(), WAITING_MAX, WAITING_EACH)
            || self.paces.until(owner) > now
        {
            return Err(Refused::OverShare);
        }
        self.waiting.push_back(Waiting { id, owner, victim });
        Ok(())
    }

    /// Who is to go to the reapers now, under which tag: of those whose user has fewest there, who has waited longest.
    pub(super) fn next(&mut self) -> Option<(u64, T)> {
        let counts = self.waiting.iter().map(|one| self.at_work_of(one.owner)).enumerate();
        let (at, fewest) = counts.min_by_key(|(_, count)| *count)?;
        if !has_share(fewest, self.at_work.len(), AT_WORK_MAX, AT_WORK_EACH) {
            return None;
        }
        let Waiting { id, owner, victim } = self.waiting.remove(at)?;
        self.newest = self.newest.wrapping_add(1);
        self.at_work.push(AtWork { tag: self.newest, id, owner });
        Some((self.newest, victim))
    }

    /// One has left the reapers, for whom it cost so much.
    pub(super) fn leave(&mut self, tag: u64, cost: Duration, now: Nanos) {
        if let Some(at) = self.at_work.iter().position(|one| one.tag == tag) {
            let AtWork { owner, .. } = self.at_work.swap_remove(at);
            self.paces.spent(owner, cost, now);
        }
    }

    fn at_work_of(&self, owner: Uid) -> usize {
        self.at_work.iter().filter(|one| one.owner == owner).count()
    }
}

#[cfg(test)]
mod tests;
