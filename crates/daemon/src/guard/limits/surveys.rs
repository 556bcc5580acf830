//! Which accounts are surveyed for copies, and when.

use crate::facts::copied::Survey;
use plimsoll_policy::units::{Nanos, Pages, Uid};
use plimsoll_sys::bpf::Coverage;
use std::collections::{BTreeMap, BTreeSet};

/// Which accounts are surveyed, and when next.
#[derive(Debug, Default)]
pub(crate) struct Surveys {
    pub(crate) accounts: BTreeMap<Uid, Turn>,
    /// The one under way: since when, and of whom, as far as it has not come back.
    pub(crate) asked: Option<(Nanos, BTreeMap<u32, Uid>)>,
    /// How long the reading of it took, as far as it has come back.
    pub(crate) read_for: Nanos,
    /// No other sooner.
    pub(crate) rested: Nanos,
    /// Members whose copies were not counted from the beginning on, and that were not read since.
    pub(crate) unknown: BTreeSet<u64>,
    /// What each was found to have copied when it was read last.
    pub(crate) found: BTreeMap<u64, Pages>,
    /// Members that did not answer in time once: they are waited for longer.
    pub(crate) slow: BTreeSet<u64>,
    /// Members that were not read since what went uncharged of their account began anew.
    pub(crate) unread: BTreeMap<u64, UnreadMember>,
}

/// When an account is surveyed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) due: Nanos,
    /// None sooner.
    pub(crate) rested: Nanos,
    /// How long its last one took, with the waiting for those that did not answer: who costs least comes first.
    pub(crate) cost: Nanos,
    /// The address space that was read last: those after it come first.
    pub(crate) after: u64,
    /// Copies that had no place when none counted as read.
    pub(crate) strays: Pages,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreadMember {
    pub(crate) user: Uid,
    /// It lets nobody read it: what it copied or exchanged uncharged is not found.
    pub(crate) hinders: bool,
}

impl Surveys {
    /// An account that copies could bring near its line.
    pub(crate) fn add(&mut self, user: Uid) {
        self.accounts.entry(user).or_default();
    }

    /// As [`Surveys::add`]: copies were made that are nowhere to be charged, or may have been.
    pub(crate) fn hasten(&mut self, users: &[Uid]) {
        for user in users {
            let turn = self.accounts.entry(*user).or_default();
            turn.due = turn.due.min(turn.rested);
        }
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let next = self.accounts.values().map(|turn| turn.due).min();
        next.filter(|_| self.asked.is_none()).map(|due| due.max(self.rested))
    }

    /// Takes in that a part of the survey under way has come back: since when it was asked for, and of whom this is. `None`:
    /// another one was given up.
    pub(crate) fn come_back(&mut self, survey: &Survey, now: Nanos) -> Option<(Nanos, BTreeMap<u32, Uid>)> {
        let (asked, accounts) = self.asked.take_if(|(asked, _)| *asked == survey.asked)?;
        let spent = survey.spent.values().map(|spent| spent.reading.0).fold(0, u64::saturating_add);
        self.read_for = self.read_for.saturating_add(Nanos(spent));
        if survey.is_last {
            self.rested = now.saturating_add(core::mem::take(&mut self.read_for));
            return Some((asked, accounts));
        }
        let (part, rest) = accounts.into_iter().partition(|(_, user)| survey.spent.contains_key(user));
        self.asked = Some((asked, rest));
        Some((asked, part))
    }

    pub(crate) fn coverage(&self, user: Uid) -> Coverage {
        let its = || self.unread.values().filter(|unread| unread.user == user);
        if its().any(|unread| unread.hinders) {
            Coverage::Hindered
        } else if its().next().is_some() {
            Coverage::Some
        } else {
            Coverage::All
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Surveys;
    use crate::facts::copied::{Spent, Survey};
    use plimsoll_policy::units::{Nanos, Uid};
    use std::collections::BTreeMap;

    fn part(asked: u64, users: &[u32], is_last: bool) -> Survey {
        let spent = Spent { reading: Nanos(100), waiting: Nanos(0) };
        let spent = users.iter().map(|user| (Uid(*user), spent)).collect();
        Survey { asked: Nanos(asked), is_last, spent, ..Survey::default() }
    }

    #[test]
    fn each_account_is_taken_in_as_it_comes_back_and_those_that_were_not_come_to_with_the_last() {
        let accounts = BTreeMap::from([(7, Uid(60_107)), (8, Uid(60_108)), (9, Uid(60_109))]);
        let mut surveys = Surveys { asked: Some((Nanos(5), accounts)), ..Surveys::default() };
        surveys.add(Uid(60_107));
        let mut users = |part: &Survey, now| {
            let came = surveys.come_back(part, Nanos(now));
            let users = came.map(|(_, part)| part.into_values().map(|user| user.0).collect::<Vec<_>>());
            (users, surveys.due())
        };
        assert_eq!(users(&part(4, &[60_107], true), 10), (None, None), "another, given up before");
        assert_eq!(users(&part(5, &[60_108], false), 20), (Some(vec![60_108]), None));
        assert_eq!(users(&part(5, &[60_107], true), 30), (Some(vec![60_107, 60_109]), Some(Nanos(230))));
        assert_eq!(users(&part(5, &[60_107], true), 40), (None, Some(Nanos(230))));
    }
}
