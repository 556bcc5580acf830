//! Copy-on-write: what forked processes copied of the pages they share changes no counter. While it could bring an account
//! near its line, the programs count copies as they are made, and surveys find those that were not counted.

use super::{
    attached::Attached,
    surveys::{Surveys, Turn, UnreadMember},
};
use crate::{
    facts::copied::{MEMBERS_MAX, Member, Survey},
    guard::{
        context::Context,
        kernel::{Kernel, Programs as _},
    },
};
use plimsoll_policy::{
    copies::{self, copied},
    units::{Nanos, Pages, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError, CopiesPart, Coverage, STRAYS_MOST};
use std::collections::{BTreeMap, BTreeSet};

/// Twice in the second within which growth is to be seen.
const SURVEY_EVERY: Nanos = Nanos(500_000_000);

/// So soon again where copies have no place: what a survey comes to is read in turns.
const HURRIED: Nanos = Nanos(100_000_000);

/// Surveys of large processes take long: no more than a tenth of the time goes to those of one account, and no more than a
/// fifth to waiting for some of its; no more than half to reading all.
const SHARE_OF_TIME: u64 = 10;
const SHARE_OF_WAITING: u64 = 4;

/// Whether copies could bring an account to its soft limit; as the programs decide it (`may_copy`).
pub(crate) const fn may_copy(account: &AccountFacts) -> bool {
    account.copyable.0 > 0 && account.usage.0.saturating_add(account.copyable.0) >= account.soft.0
}

impl<K: Kernel> Attached<K> {
    /// Asks for the surveys that are due.
    pub(crate) fn survey(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let moment = context.now();
        if self.surveys.due().is_none_or(|due| due > moment) {
            return Ok(());
        }
        let (mut wanted, mut anew) = (BTreeMap::new(), BTreeSet::new());
        // Before anything that can fail: it is not asked again at once.
        let mut due_now = Vec::new();
        for (user, turn) in self.surveys.accounts.iter_mut().filter(|(_, turn)| turn.due <= moment) {
            turn.due = moment.saturating_add(SURVEY_EVERY);
            due_now.push(*user);
        }
        for user in due_now {
            let read = self.surveys.coverage(user);
            let account = self.limits.account(user.into())?;
            if let Some(account) = account
                && self.measures_again(&account, read)?
            {
                wanted.insert(account.index, user);
                if read == Coverage::All {
                    anew.insert(user);
                    self.surveys.accounts.entry(user).and_modify(|turn| turn.strays = account.strays);
                }
            } else {
                self.surveys.accounts.remove(&user);
                self.surveys.unread.retain(|_, unread| unread.user != user);
            }
        }
        let watched = !self.surveys.accounts.is_empty();
        let begins = self.limits.watch_copies(watched).unwrap_or_else(|error| {
            context.notices.once("copies", &error);
            false
        });
        if !watched {
            self.surveys = Surveys::default();
            return Ok(());
        }
        let members = self.members_of(&wanted, &anew, begins)?;
        if !members.is_empty() && context.workers.copied.ask(moment, members) {
            self.surveys.asked = Some((moment, wanted));
        }
        Ok(())
    }

    /// Whether copies could bring an account near its line, or one that is charged besides.
    fn measures_again(&self, account: &AccountFacts, read: Coverage) -> Result<bool, BpfError> {
        let mut again = self.limits.measure_again(account.index, read)?;
        for above in account.above.into_iter().filter(|above| *above != 0 && account.copyable.0 > 0) {
            again |= self.limits.measure_again(above, Coverage::Some)?;
        }
        Ok(again)
    }

    /// The processes of the families of these accounts that are read next, those of each account together. `anew`: of whom none
    /// counts as read. `begins`: copies are counted since just now.
    fn members_of(
        &mut self,
        wanted: &BTreeMap<u32, Uid>,
        anew: &BTreeSet<Uid>,
        begins: bool,
    ) -> Result<Vec<Member>, BpfError> {
        let mut all: BTreeMap<Uid, Vec<Member>> = BTreeMap::new();
        let surveys = &mut self.surveys;
        let mut living = BTreeSet::new();
        self.limits.address_spaces(|space| {
            if space.family == 0 || space.dying {
                return;
            }
            living.insert(space.mm);
            if begins {
                surveys.unknown.insert(space.mm);
            }
            let Some(user) = wanted.get(&space.account) else { return };
            if anew.contains(user) {
                surveys.unread.insert(space.mm, UnreadMember { user: *user, hinders: false });
            }
            all.entry(*user).or_default().push(Member {
                user: *user,
                family: space.family,
                mm: space.mm,
                pid: space.pid,
                start_ns: space.start_ns,
                own: space.own,
                is_slow: surveys.slow.contains(&space.mm),
            });
        })?;
        surveys.unknown.retain(|mm| living.contains(mm));
        surveys.found.retain(|mm, _| living.contains(mm));
        surveys.slow.retain(|mm| living.contains(mm));
        surveys.unread.retain(|mm, _| living.contains(mm));
        let share = MEMBERS_MAX.checked_div(all.len()).unwrap_or(MEMBERS_MAX).max(1);
        let mut all: Vec<(Turn, Vec<Member>)> = all
            .into_iter()
            .map(|(user, its)| (surveys.accounts.get(&user).copied().unwrap_or_default(), its))
            .collect();
        all.sort_by_key(|(turn, _)| turn.cost);
        let mut members = Vec::new();
        for (turn, mut its) in all {
            its.sort_unstable_by_key(|member| (member.mm <= turn.after, member.mm));
            members.extend(its.into_iter().take(share));
        }
        Ok(members)
    }

    /// Charges what a part of a survey found, and decides about the accounts that it is of.
    pub(crate) fn take_survey(&mut self, survey: &Survey, context: &mut Context<K>) -> Result<(), BpfError> {
        let Some((asked, accounts)) = self.surveys.come_back(survey, context.now()) else { return Ok(()) };
        let read: BTreeMap<u64, &(Member, Option<Pages>)> =
            survey.members.iter().map(|one| (one.0.mm, one)).collect();
        let mut families: BTreeMap<(Uid, u64), Vec<AddressSpace>> = BTreeMap::new();
        let mut living = BTreeSet::new();
        self.limits.address_spaces(|space| {
            living.insert(space.mm);
            // Who was born since has a part of what the others were found to have.
            if let Some(user) = accounts.get(&space.account)
                && space.family != 0
                && space.tracked_ns <= asked.0
            {
                families.entry((*user, space.family)).or_default().push(*space);
            }
        })?;
        for (member, found) in &survey.members {
            if found.is_some() {
                self.surveys.unknown.remove(&member.mm);
                self.surveys.unread.remove(&member.mm);
            } else if living.contains(&member.mm) {
                self.surveys.unread.insert(member.mm, UnreadMember { user: member.user, hinders: true });
                self.surveys.slow.insert(member.mm);
            }
            self.surveys.accounts.entry(member.user).and_modify(|turn| turn.after = member.mm);
        }
        self.surveys.unread.retain(|mm, _| living.contains(mm));
        let mut charged = BTreeSet::new();
        for user in accounts.values() {
            let now = self.limits.account((*user).into())?.map_or(Pages(0), |account| account.strays);
            let before = self.surveys.accounts.get(user).map_or(Pages(0), |turn| turn.strays);
            let strays = Pages(now.0.saturating_add(before.0));
            // Where copies were made that are nowhere to be charged, as many are whoever's was not read.
            let mut hidden = if strays >= STRAYS_MOST { strays } else { Pages(0) };
            self.rest(*user, survey, hidden, context.now());
            for ((_, family), members) in families.range((*user, 0)..=(*user, u64::MAX)) {
                // Of one that the survey did not come to, nothing is known that was not before.
                if hidden > Pages(0) || members.iter().any(|space| read.contains_key(&space.mm)) {
                    self.charge_family(*family, members, &read, &mut hidden)?;
                }
            }
            // No event came with what was charged: nobody but us looks at the line. At each once.
            charged.extend(self.groups.beside((*user).into()));
        }
        for whose in charged {
            self.judge(whose, None, context)?;
        }
        Ok(())
    }

    /// When this account is surveyed next: soon where some of it is `hidden` still, and to be found by reading more of it.
    fn rest(&mut self, user: Uid, survey: &Survey, hidden: Pages, now: Nanos) {
        let hurries = hidden > Pages(0) && self.surveys.coverage(user) != Coverage::Hindered;
        let Some(turn) = self.surveys.accounts.get_mut(&user) else { return };
        let spent = survey.spent.get(&user).copied().unwrap_or_default();
        turn.cost = spent.reading.saturating_add(spent.waiting);
        let reading = spent.reading.0.saturating_mul(SHARE_OF_TIME);
        let waiting = spent.waiting.0.saturating_mul(SHARE_OF_WAITING);
        turn.rested = now.saturating_add(Nanos(reading.saturating_add(waiting)));
        let least = if hurries { HURRIED } else { SURVEY_EVERY };
        turn.due = turn.rested.max(now.saturating_add(least));
    }

    /// What was counted as it was copied is its members' own by now: what is found beyond that was not.
    fn charge_family(
        &mut self,
        family: u64,
        members: &[AddressSpace],
        read: &BTreeMap<u64, &(Member, Option<Pages>)>,
        hidden: &mut Pages,
    ) -> Result<(), BpfError> {
        let Some(facts) = self.limits.family(family)? else { return Ok(()) };
        let count = u64::try_from(members.len()).unwrap_or(u64::MAX);
        let (mut parts, mut held) = (Vec::new(), Vec::new());
        for space in members {
            let tried = read.get(&space.mm).filter(|(member, _)| {
                space.pid == member.pid && space.start_ns == member.start_ns && space.family == member.family
            });
            let known = match tried {
                Some((member, Some(proportional))) => {
                    let found =
                        copies::Member { proportional: *proportional, own: member.own.max(space.own) };
                    parts.push(CopiesPart { mm: space.mm, pid: space.pid, copied: found.part() });
                    self.surveys.found.insert(space.mm, found.copies(space.shared, count));
                    held.push(found);
                    continue;
                }
                // Whoever lets nobody look at it, however long that waits, may have copied everything before that was counted.
                Some((member, None)) if member.is_slow && self.surveys.unknown.contains(&space.mm) => {
                    space.shared
                }
                Some(_) | None => self.surveys.found.get(&space.mm).copied().unwrap_or_default(),
            };
            let more = space.shared.saturating_sub(known).min(*hidden);
            *hidden = hidden.saturating_sub(more);
            let copied = Pages(known.0.saturating_add(more.0));
            held.push(copies::Member::unread(space.own, space.shared, copied, count));
        }
        self.limits.set_copies(family, copied(facts.pages, facts.shares, &held), &parts)?;
        Ok(())
    }
}
