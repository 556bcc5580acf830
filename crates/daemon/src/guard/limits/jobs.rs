//! What is known of jobs: who started them, and which have ended.
//!
//! A job has ended once two walks, a second apart, found nobody in it and who started it is gone: a process that executes
//! another program is in none for a moment. Until then its account stays, at the cost of one look for each fork: nobody is
//! woken when its last process exits.

use plimsoll_policy::{
    account::Counted,
    units::{JobId, Nanos},
};
use plimsoll_sys::{bpf::AccountFacts, process::PidFd};
use std::{collections::BTreeMap, sync::Arc};

/// All tasks are walked this often while there are jobs, and nothing else to walk for; programs stay attached for so long after
/// the last one: whoever runs one after the other does not have them loaded each time.
pub(super) const JOBS_EVERY: Nanos = Nanos(60_000_000_000);

/// For so long nobody is seen in one that has ended.
const EMPTY_FOR: Nanos = Nanos(1_000_000_000);

/// What is known of jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Who started each of those that this daemon was asked for.
    starters: BTreeMap<JobId, Arc<PidFd>>,
    /// Since when nobody is seen in one.
    empty: BTreeMap<JobId, Nanos>,
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
        let is_empty = |one: &AccountFacts| match one.whose {
            Counted::Job(id) if one.processes == 0 => Some(id),
            Counted::Job(_) | Counted::User(_) | Counted::Group(_) => None,
        };
        let empty = accounts.iter().filter_map(is_empty).filter(|id| !self.has_starter(*id));
        let empty: Vec<JobId> = empty.collect();
        self.empty.retain(|id, _| empty.contains(id));
        for id in empty {
            self.empty.entry(id).or_insert(now);
        }
        let ended = self.ended(now).count();
        self.in_doubt = ended < self.empty.len();
        self.have_ended = ended > 0;
    }

    /// Whether some have ended that nobody was told of.
    pub(super) const fn take_ended(&mut self) -> bool {
        core::mem::replace(&mut self.have_ended, false)
    }
}

#[cfg(test)]
mod tests;
