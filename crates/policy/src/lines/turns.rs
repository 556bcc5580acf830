//! Whose turn it is: jobs that wait until memory can be promised to them.
//!
//! What is promised to a job and not used yet is taken for used, by its user's account, by those of their groups and by those
//! of the jobs around it. A job in another has its part of what that one was promised. Of those that were started in the same
//! place, the first comes first, whatever would fit behind it: nobody is overtaken, but who is above a line by now. Those
//! inside a job that runs wait for nobody outside of it, who may in turn wait for that job to end.

use super::{BTreeMap, JobId, Jobs, Uid, Vec};
use crate::{
    account::Counted,
    units::{Bytes, Gid},
};
use alloc::collections::BTreeSet;

/// How an account stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stand {
    /// What is charged to it.
    pub usage: Bytes,
    /// Its line; `None`: it has none.
    pub hard: Option<Bytes>,
}

/// What turns are judged by.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// How accounts stand. One that is missing has nothing, and no line.
    pub accounts: BTreeMap<Counted, Stand>,
    /// The groups that each user is charged to.
    pub groups: BTreeMap<Uid, Vec<Gid>>,
    /// Jobs in which nobody runs or waits any more, and that are listed still.
    pub over: BTreeSet<JobId>,
    /// What the machine could give to programs; what other users are promised is not taken from it.
    pub available: Bytes,
}

/// What is promised and not used yet.
#[derive(Debug, Clone, Copy, Default)]
struct Promised {
    /// To the account itself.
    own: Bytes,
    /// To jobs in it, which is a part of that or goes beyond it.
    inner: Bytes,
}

impl Promised {
    fn all(self) -> Bytes {
        self.own.max(self.inner)
    }
}

/// What one more promise adds to each account above it.
type Added = Vec<(Counted, Bytes)>;

struct Promises<'a> {
    jobs: &'a Jobs,
    turns: &'a Turns,
    promised: BTreeMap<Counted, Promised>,
}

impl Jobs {
    /// The jobs that wait and have their turn now, in order.
    #[must_use]
    pub fn turns(&self, turns: &Turns) -> Vec<JobId> {
        let mut promises = Promises { jobs: self, turns, promised: BTreeMap::new() };
        for (id, job) in self.iter().filter(|(id, job)| !job.waits && !turns.over.contains(id)) {
            let reserve = job.reserve.unwrap_or_default();
            promises.give(id, promises.unused(id, reserve));
        }
        let (mut their_turn, mut held_up) = (Vec::new(), BTreeSet::new());
        for (id, job) in self.iter().filter(|(id, job)| job.waits && !turns.over.contains(id)) {
            let place = (job.user, job.outer);
            if held_up.contains(&place) {
                continue;
            }
            let reserve = job.reserve.unwrap_or_default();
            let own = promises.unused(id, reserve);
            if promises.can_be_given(id, own) {
                promises.give(id, own);
                their_turn.push(id);
            } else if promises.fits_when_alone(id, reserve) {
                held_up.insert(place);
            }
        }
        their_turn
    }

    /// What is promised to those that are there, used or not.
    #[must_use]
    pub fn promised(&self, is_there: impl Fn(JobId) -> bool) -> Bytes {
        let unused = Turns::default();
        let mut promises = Promises { jobs: self, turns: &unused, promised: BTreeMap::new() };
        for (id, job) in self.iter().filter(|(id, job)| !job.waits && is_there(*id)) {
            promises.give(id, job.reserve.unwrap_or_default());
        }
        let of_users = promises.promised.iter().filter(|(account, _)| account.user().is_some());
        of_users.map(|(_, promised)| promised.inner).sum()
    }
}

impl Promises<'_> {
    fn stand(&self, account: Counted) -> Stand {
        self.turns.accounts.get(&account).copied().unwrap_or_default()
    }

    fn promised(&self, account: Counted) -> Promised {
        self.promised.get(&account).copied().unwrap_or_default()
    }

    /// Of what a job is promised, what it does not use.
    fn unused(&self, id: JobId, reserve: Bytes) -> Bytes {
        reserve.saturating_sub(self.stand(id.into()).usage)
    }

    /// What those above a job have more to keep free where so much is promised to it.
    fn added(&self, id: JobId, own: Bytes) -> Added {
        let Some(job) = self.jobs.get(id) else { return Vec::new() };
        let mut added = Vec::new();
        let before = self.promised(id.into());
        let mut more = Promised { own, ..before }.all().saturating_sub(before.all());
        for outer in self.jobs.around(id) {
            added.push((outer.into(), more));
            let before = self.promised(outer.into());
            let after = Promised { inner: before.inner.saturating_add(more), ..before };
            more = after.all().saturating_sub(before.all());
        }
        let groups = self.turns.groups.get(&job.user).into_iter().flatten();
        added.push((job.user.into(), more));
        added.extend(groups.map(|gid| ((*gid).into(), more)));
        added
    }

    /// Whether there is room for that at all of them, and on the machine.
    fn can_be_given(&self, id: JobId, own: Bytes) -> bool {
        self.added(id, own).into_iter().filter(|(_, more)| *more > Bytes(0)).all(|(account, more)| {
            let Stand { usage, hard } = self.stand(account);
            let wanted = self.promised(account).inner.saturating_add(more);
            let is_there = account.user().is_none() || wanted <= self.turns.available;
            is_there && hard.is_none_or(|hard| usage.saturating_add(wanted) <= hard)
        })
    }

    /// Whether it is below all lines: one may have been lowered since.
    fn fits_when_alone(&self, id: JobId, reserve: Bytes) -> bool {
        let above = self.added(id, reserve);
        above.into_iter().all(|(account, _)| self.stand(account).hard.is_none_or(|hard| reserve <= hard))
    }

    fn give(&mut self, id: JobId, own: Bytes) {
        for (account, more) in self.added(id, own) {
            let promised = self.promised.entry(account).or_default();
            promised.inner = promised.inner.saturating_add(more);
        }
        self.promised.entry(id.into()).or_default().own = own;
    }
}

#[cfg(test)]
mod tests;
