//! Copy-on-write: what forked processes copied of the pages they share changes no counter. While it could bring an account
//! near its line, the programs count copies as they are made, and surveys find those that were not counted.

use super::{
    attached::Attached,
    hands::Hands,
    kernel::{Kernel, Programs as _},
};
use crate::survey::{MEMBERS_MAX, Member, Survey};
use plimsoll_policy::{
    copies::{self, copied},
    units::{Nanos, Pages, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError, CopiesPart, STRAYS_MOST};
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

/// Twice in the second within which growth is to be seen.
const SURVEY_EVERY: Nanos = Nanos(500_000_000);

/// Surveys of large processes take long: no more than a tenth of the time goes to them.
const SHARE_OF_TIME: u64 = 10;

/// A survey that has not come back for this long is not coming: asked again.
const LOST_AFTER: Nanos = Nanos(10_000_000_000);

/// Which accounts are surveyed, and when next.
#[derive(Debug, Default)]
pub(crate) struct Surveys {
    /// Each with the address space that was read last: those after it come first.
    accounts: BTreeMap<Uid, u64>,
    next: Option<Nanos>,
    /// None sooner.
    rested: Nanos,
    /// Since when one is under way.
    asked: Option<Nanos>,
    /// Members whose copies were not counted from the beginning on, and that were not read since.
    unknown: BTreeSet<u64>,
    /// What each was found to have copied when it was read last.
    found: BTreeMap<u64, Pages>,
    /// Members that let nobody read them, and whose they are: what they copied or exchanged uncharged is not found.
    unread: BTreeMap<u64, Uid>,
}

impl Surveys {
    /// An account that copies could bring near its line.
    pub(crate) fn add(&mut self, user: Uid) {
        self.accounts.entry(user).or_default();
        if self.next.is_none() {
            self.next = Some(Nanos(0));
        }
    }

    /// As [`Surveys::add`]: copies were made that are nowhere to be charged, or may have been.
    pub(crate) fn hasten(&mut self, user: Uid) {
        self.add(user);
        if self.asked.is_none() {
            self.next = self.next.map(|due| due.min(self.rested));
        }
    }

    /// When there is something to do.
    pub(crate) const fn due(&self) -> Option<Nanos> {
        self.next
    }
}

/// Whether copies could bring an account to its soft limit; as the programs decide it (`may_copy`).
pub(crate) const fn may_copy(account: &AccountFacts) -> bool {
    account.copyable.0 > 0 && account.usage.0.saturating_add(account.copyable.0) >= account.soft.0
}

impl<K: Kernel> Attached<K> {
    /// Asks for the survey that is due.
    pub(crate) fn survey(&mut self, hands: &mut Hands<'_, K>) -> Result<(), BpfError> {
        let moment = hands.now();
        if self.surveys.next.is_none_or(|due| due > moment) {
            return Ok(());
        }
        self.surveys.asked = None;
        let mut wanted = BTreeMap::new();
        for (user, after) in core::mem::take(&mut self.surveys.accounts) {
            let all_read = self.surveys.unread.values().all(|owner| *owner != user);
            if let Some(account) = self.limits.account(user)?
                && self.limits.measure_again(account.index, all_read)?
            {
                wanted.insert(account.index, user);
                self.surveys.accounts.insert(user, after);
            }
        }
        self.surveys.next = None;
        let begins = self.limits.watch_copies(!wanted.is_empty()).unwrap_or_else(|error| {
            hands.notices.once("copies", &error);
            false
        });
        if wanted.is_empty() {
            self.surveys.unknown.clear();
            self.surveys.found.clear();
            self.surveys.unread.clear();
            return Ok(());
        }
        let members = self.members_of(&wanted, begins)?;
        self.surveys.asked = (!members.is_empty() && hands.surveyor.ask(members)).then_some(moment);
        let until = self.surveys.asked.map_or(SURVEY_EVERY, |_| LOST_AFTER);
        self.surveys.next = Some(moment.saturating_add(until));
        Ok(())
    }

    /// The processes of the families of these accounts that are read next, those of each account together. `begins`: copies
    /// are counted since just now.
    fn members_of(&mut self, wanted: &BTreeMap<u32, Uid>, begins: bool) -> Result<Vec<Member>, BpfError> {
        let mut all: BTreeMap<Uid, Vec<Member>> = BTreeMap::new();
        let unknown = &mut self.surveys.unknown;
        let mut living = BTreeSet::new();
        self.limits.address_spaces(|space| {
            if space.family == 0 || space.dying {
                return;
            }
            living.insert(space.mm);
            if begins {
                unknown.insert(space.mm);
            }
            let Some(user) = wanted.get(&space.account) else { return };
            all.entry(*user).or_default().push(Member {
                user: *user,
                family: space.family,
                mm: space.mm,
                pid: space.pid,
                start_ns: space.start_ns,
                own: space.own,
            });
        })?;
        unknown.retain(|mm| living.contains(mm));
        self.surveys.found.retain(|mm, _| living.contains(mm));
        self.surveys.unread.retain(|mm, _| living.contains(mm));
        let share = MEMBERS_MAX.checked_div(all.len()).unwrap_or(MEMBERS_MAX).max(1);
        let mut members = Vec::new();
        for (user, mut its) in all {
            let after = self.surveys.accounts.get(&user).copied().unwrap_or_default();
            its.sort_unstable_by_key(|member| (member.mm <= after, member.mm));
            members.extend(its.into_iter().take(share));
        }
        Ok(members)
    }

    /// Charges what a survey found, and decides about the accounts that it is of.
    pub(crate) fn take_survey(&mut self, survey: &Survey, hands: &mut Hands<'_, K>) -> Result<(), BpfError> {
        let rest = Nanos(survey.took.0.saturating_mul(SHARE_OF_TIME));
        let asked = self.surveys.asked.take().unwrap_or_default();
        self.surveys.rested = hands.now().saturating_add(rest);
        self.surveys.next = Some(hands.now().saturating_add(SURVEY_EVERY.max(rest)));
        let mut families: BTreeMap<u64, Vec<AddressSpace>> = BTreeMap::new();
        let read: BTreeMap<u64, &(Member, Option<Pages>)> =
            survey.members.iter().map(|one| (one.0.mm, one)).collect();
        let wanted: BTreeSet<u64> = survey.members.iter().map(|(member, _)| member.family).collect();
        self.limits.address_spaces(|space| {
            // Who was born since has a part of what the others were found to have.
            if wanted.contains(&space.family) && space.tracked_ns <= asked.0 {
                families.entry(space.family).or_default().push(*space);
            }
        })?;
        let mut strays = BTreeMap::new();
        for (member, found) in &survey.members {
            let user = member.user;
            if let Entry::Vacant(vacant) = strays.entry(user) {
                let account = self.limits.account(user)?;
                vacant.insert(account.is_some_and(|account| account.strays >= STRAYS_MOST));
            }
            if found.is_some() {
                self.surveys.unknown.remove(&member.mm);
                self.surveys.unread.remove(&member.mm);
            } else {
                self.surveys.unread.insert(member.mm, user);
                // Copies were made that are nowhere to be charged: they may all be its.
                if strays.get(&user) == Some(&true) {
                    self.surveys.unknown.insert(member.mm);
                }
            }
            self.surveys.accounts.entry(user).and_modify(|after| *after = member.mm);
        }
        for (family, members) in families {
            self.charge_family(family, &members, &read)?;
        }
        for user in strays.into_keys() {
            // No event came with what was charged: nobody but us looks at the line.
            self.judge(user, None, hands)?;
        }
        Ok(())
    }

    /// What was counted as it was copied is its members' own by now: what is found beyond that was not.
    fn charge_family(
        &mut self,
        family: u64,
        members: &[AddressSpace],
        read: &BTreeMap<u64, &(Member, Option<Pages>)>,
    ) -> Result<(), BpfError> {
        let Some(facts) = self.limits.family(family)? else { return Ok(()) };
        let count = u64::try_from(members.len()).unwrap_or(u64::MAX);
        let (mut parts, mut held) = (Vec::new(), Vec::new());
        for space in members {
            let tried = read.get(&space.mm).filter(|(member, _)| {
                space.pid == member.pid && space.start_ns == member.start_ns && space.family == member.family
            });
            let copied = match tried {
                Some((member, Some(proportional))) => {
                    let found =
                        copies::Member { proportional: *proportional, own: member.own.max(space.own) };
                    parts.push(CopiesPart { mm: space.mm, pid: space.pid, copied: found.part() });
                    self.surveys.found.insert(space.mm, found.copies(space.shared, count));
                    held.push(found);
                    continue;
                }
                // Whoever lets nobody look at it may have copied everything before that was counted.
                Some((_, None)) if self.surveys.unknown.contains(&space.mm) => space.shared,
                Some(_) | None => self.surveys.found.get(&space.mm).copied().unwrap_or_default(),
            };
            held.push(copies::Member::unread(space.own, space.shared, copied, count));
        }
        self.limits.set_copies(family, copied(facts.pages, facts.shares, &held), &parts)?;
        Ok(())
    }
}
