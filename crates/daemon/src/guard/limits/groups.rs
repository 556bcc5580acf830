//! Accounts above others, as the programs have them: who is charged to which, and whether a group's counts are the sum of its
//! members'.

use crate::pressure_socket::Topic;
use plimsoll_policy::{
    account::Counted,
    units::{Gid, Nanos, Uid},
};
use plimsoll_sys::bpf::{ABOVE_MOST, AccountFacts, Counts};
use std::collections::{BTreeMap, BTreeSet};

/// Between the two looks that find the same difference: an event that is under way is no difference.
const LOOKS_APART: Nanos = Nanos(50_000_000);

/// One group.
#[derive(Debug, Default)]
struct Group {
    /// The number of its account.
    index: u32,
    /// Its members, by the number of their account.
    members: BTreeMap<u32, Uid>,
    /// What its members count more than it does, and since when.
    differs: Option<(Counts, Nanos)>,
    /// Its counts were the sum once since it has these members. What is seen later is under way: nothing that users do is taken
    /// for a mistake.
    is_settled: bool,
}

/// An account that processes are charged to: a user's or a job's.
#[derive(Debug, Clone, Copy)]
struct Leaf {
    whose: Counted,
    user: Uid,
    above: [u32; ABOVE_MOST],
}

/// Who is charged to which account.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Gid, Group>,
    leaves: BTreeMap<u32, Leaf>,
}

impl Groups {
    /// Takes in which accounts there are.
    pub(crate) fn renew(&mut self, accounts: &[AccountFacts]) {
        let leaf = |one: &AccountFacts| {
            Some((one.index, Leaf { whose: one.whose, user: one.user?, above: one.above }))
        };
        self.leaves = accounts.iter().filter_map(leaf).collect();
        let mut below: BTreeMap<u32, BTreeMap<u32, Uid>> = BTreeMap::new();
        // What a job has is its user's as well: it is counted once.
        for (one, uid) in accounts.iter().filter_map(|one| Some((one, one.whose.user()?))) {
            for group in one.above.iter().filter(|group| **group != 0) {
                below.entry(*group).or_default().insert(one.index, uid);
            }
        }
        let mut before = core::mem::take(&mut self.groups);
        for one in accounts {
            let Counted::Group(gid) = one.whose else { continue };
            let members = below.remove(&one.index).unwrap_or_default();
            let known =
                before.remove(&gid).filter(|known| (known.index, &known.members) == (one.index, &members));
            let new = || Group { index: one.index, members, ..Group::default() };
            self.groups.insert(gid, known.unwrap_or_else(new));
        }
    }

    /// Whether what is charged to the account of this number is charged to that one.
    pub(crate) fn is_charged(&self, leaf: u32, account: &AccountFacts) -> bool {
        let is_below = || self.leaves.get(&leaf).is_some_and(|leaf| leaf.above.contains(&account.index));
        leaf == account.index || is_below()
    }

    /// The users whose processes are charged to an account.
    pub(crate) fn users_of(&self, whose: Counted) -> Vec<Uid> {
        match whose {
            Counted::User(uid) => Vec::from([uid]),
            Counted::Group(gid) => {
                self.groups.get(&gid).map_or_else(Vec::new, |group| group.members.values().copied().collect())
            }
            Counted::Job(_) => self.leaf(whose).map(|(_, leaf)| leaf.user).into_iter().collect(),
        }
    }

    /// The account that processes are charged to, with its number.
    fn leaf(&self, whose: Counted) -> Option<(u32, &Leaf)> {
        self.leaves.iter().find(|(_, leaf)| leaf.whose == whose).map(|(index, leaf)| (*index, leaf))
    }

    /// For what somebody may listen, of these accounts: their users' lines, and the jobs' own.
    pub(crate) fn topics_of(&self, accounts: &BTreeSet<Counted>) -> BTreeSet<Topic> {
        let of_groups = accounts.iter().filter(|whose| !matches!(whose, Counted::Job(_)));
        let users = of_groups.flat_map(|whose| self.users_of(*whose)).map(Topic::from);
        let jobs = self.leaves.values().filter(|leaf| accounts.contains(&leaf.whose)).filter_map(|leaf| {
            let Counted::Job(id) = leaf.whose else { return None };
            Some([Topic::from(leaf.user), Topic { owner: leaf.user, job: Some(id) }])
        });
        users.chain(jobs.flatten()).collect()
    }

    /// An account, and those that have to do with it: those above it, and those below.
    pub(crate) fn beside(&self, whose: Counted) -> Vec<Counted> {
        let index = match whose {
            Counted::Group(gid) => self.groups.get(&gid).map(|group| group.index),
            Counted::User(_) | Counted::Job(_) => self.leaf(whose).map(|(index, _)| index),
        };
        let above = self.leaf(whose).map(|(_, leaf)| leaf.above).unwrap_or_default();
        let is_above = |index: &u32| *index != 0 && above.contains(index);
        let groups = self.groups.iter().filter(|(_, group)| is_above(&group.index));
        let groups = groups.map(|(gid, _)| Counted::Group(*gid));
        let is_below = |leaf: &Leaf| index.is_some_and(|index| leaf.above.contains(&index));
        let leaves = self.leaves.iter().filter(|(index, leaf)| is_above(index) || is_below(leaf));
        [whose].into_iter().chain(groups).chain(leaves.map(|(_, leaf)| leaf.whose)).collect()
    }

    /// The users whose processes are charged to any of these.
    pub(crate) fn users_of_all(&self, accounts: &BTreeSet<Counted>) -> BTreeSet<Uid> {
        accounts.iter().flat_map(|whose| self.users_of(*whose)).collect()
    }

    /// What is to be added to whose counts: the same difference was found twice.
    pub(super) fn differences(&mut self, accounts: &[AccountFacts], now: Nanos) -> Vec<(u32, Gid, Counts)> {
        let counts: BTreeMap<u32, Counts> = accounts.iter().map(|one| (one.index, one.counts)).collect();
        let mut certain = Vec::new();
        for (gid, group) in self.groups.iter_mut().filter(|(_, group)| !group.is_settled) {
            let own = counts.get(&group.index).copied().unwrap_or_default();
            let members = group.members.keys().filter_map(|index| counts.get(index));
            let sum =
                members.fold(Counts::default(), |sum, one| sum.with(*one, |sum, one| sum.wrapping_add(one)));
            let more = sum.with(own, |sum, own| sum.wrapping_sub(own));
            let (before, since) = group.differs.unwrap_or((Counts::default(), now));
            group.is_settled = more == Counts::default();
            group.differs = match more {
                more if more == Counts::default() => None,
                more if more != before => Some((more, now)),
                more if now.0.saturating_sub(since.0) < LOOKS_APART.0 => Some((more, since)),
                more => {
                    certain.push((group.index, *gid, more));
                    None
                }
            };
        }
        certain
    }

    /// Whether a group's counts were not the sum of its members' at the last look.
    pub(super) fn differ(&self) -> bool {
        self.groups.values().any(|group| group.differs.is_some())
    }
}

#[cfg(test)]
mod tests;
