//! What is known of jobs: who started them, and which have ended.
//!
//! A job has ended once two walks, a second apart, found nobody in it and who started it is gone: a process that executes
//! another program is in none for a moment. Until then its account stays, at the cost of one look for each fork: nobody is
//! woken when its last process exits.

use plimsoll_policy::{
    account::Counted,
    lines::Jobs as JobList,
    units::{JobId, Nanos},
};
use plimsoll_sys::{bpf::AccountFacts, process::PidFd};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// All tasks are walked this often while there are jobs, and nothing else to walk for; programs stay attached for so long after
/// the last one: whoever runs one after the other does not have them loaded each time.
pub(super) const JOBS_EVERY: Nanos = Nanos(60_000_000_000);

/// It is looked this often whose turn it is, while anybody waits.
pub(super) const TURNS_EVERY: Nanos = Nanos(25_000_000);

/// And no more often than so many times what a look takes, however many wait: a fiftieth of a CPU. But this often at least:
/// what two looks say, one after the other, is known no longer than [`EMPTY_FOR`].
pub(super) const TURNS_REST: u64 = 50;
pub(super) const TURNS_APART_MAX: Nanos = Nanos(500_000_000);

/// For so long nobody is seen in one that has ended.
const EMPTY_FOR: Nanos = Nanos(1_000_000_000);

/// What is known of jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Who started each of those that this daemon was asked for.
    starters: BTreeMap<JobId, Arc<PidFd>>,
    /// Since when nobody is seen in one.
    empty: BTreeMap<JobId, Nanos>,
    /// The same, as looks found for turns, which walk no tasks.
    unused: BTreeMap<JobId, Nanos>,
    /// When it was looked last for turns.
    looked: Nanos,
    /// There are some, or there were a while ago.
    pub(super) any: bool,
    /// When the last one ended that anything was drawn for.
    pub(super) left: Option<Nanos>,
    in_doubt: bool,
    /// Some have ended, and nobody was told yet.
    have_ended: bool,
    /// Processes that are in no job for want of memory, as far as they were told of.
    pub(super) lost: u64,
}

impl Jobs {
    /// Who starts a job is in it before it has any memory there.
    pub(super) fn begin(&mut self, id: JobId, starter: Arc<PidFd>) {
        self.starters.insert(id, starter);
    }

    /// Whether a job may have processes that no walk has found.
    pub(super) fn has_starter(&self, id: JobId) -> bool {
        self.starters.get(&id).is_some_and(|starter| starter.has_exited().is_ok_and(|gone| !gone))
    }

    /// These are drawn now.
    pub(super) fn drawn(&mut self, jobs: &BTreeMap<JobId, u32>) {
        self.any = !jobs.is_empty();
        self.empty.retain(|id, _| jobs.contains_key(id));
        self.in_doubt &= !self.empty.is_empty();
        self.starters.retain(|id, _| jobs.contains_key(id));
    }

    /// Whether one may have ended, and it takes another walk to know.
    pub(super) const fn are_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Those that have ended, as walks have found.
    pub(super) fn ended(&self, now: Nanos) -> impl Iterator<Item = JobId> {
        let is_over = move |since: &Nanos| now.0.saturating_sub(since.0) >= EMPTY_FOR.0;
        self.empty.iter().filter(move |(_, since)| is_over(since)).map(|(id, _)| *id)
    }

    /// Takes in what a walk has found.
    pub(super) fn look(&mut self, accounts: &[AccountFacts], now: Nanos) {
        let empty = self.empty_of(accounts, |_| true);
        since(&mut self.empty, empty, now);
        let ended = self.ended(now).count();
        self.in_doubt = ended < self.empty.len();
        self.have_ended = ended > 0;
    }

    /// Those that something is promised to, or is to be, in which nobody was seen for so long that it is free.
    pub(super) fn unused(
        &mut self,
        jobs: &JobList,
        accounts: &[AccountFacts],
        now: Nanos,
    ) -> BTreeSet<JobId> {
        let has_promise = |id| jobs.get(id).is_some_and(|job| job.reserve.is_some());
        let empty = self.empty_of(accounts, has_promise);
        // Nobody knows what was in between.
        if now.0.saturating_sub(self.looked.0) > EMPTY_FOR.0 {
            self.unused.clear();
        }
        self.looked = now;
        since(&mut self.unused, empty, now);
        let is_free = |since: &Nanos| now.0.saturating_sub(since.0) >= TURNS_EVERY.0;
        self.unused.iter().filter(|(_, since)| is_free(since)).map(|(id, _)| *id).collect()
    }

    fn empty_of(&self, accounts: &[AccountFacts], is_asked_for: impl Fn(JobId) -> bool) -> BTreeSet<JobId> {
        let is_empty = |one: &AccountFacts| match one.whose {
            Counted::Job(id) if one.processes == 0 && is_asked_for(id) => Some(id),
            Counted::Job(_) | Counted::User(_) | Counted::Group(_) => None,
        };
        accounts.iter().filter_map(is_empty).filter(|id| !self.has_starter(*id)).collect()
    }

    /// Whether some have ended that nobody was told of.
    pub(super) const fn take_ended(&mut self) -> bool {
        core::mem::replace(&mut self.have_ended, false)
    }
}

/// Since when these jobs are as they are.
fn since(known: &mut BTreeMap<JobId, Nanos>, now_so: BTreeSet<JobId>, now: Nanos) {
    known.retain(|id, _| now_so.contains(id));
    for id in now_so {
        known.entry(id).or_insert(now);
    }
}

#[cfg(test)]
mod tests;
