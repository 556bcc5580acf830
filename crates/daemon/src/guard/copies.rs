//! Copy-on-write: what forked processes copied of the pages they share changes no counter and raises no event. While it
//! could bring an account near its line, they are surveyed, and what was found is charged.

use super::{
    attached::Attached,
    hands::Hands,
    kernel::{Kernel, Programs as _},
};
use crate::survey::{MEMBERS_MAX, Member, Survey};
use plimsoll_policy::{
    copies::{self, copied},
    units::{Nanos, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError, CopiesPart};
use std::collections::{BTreeMap, BTreeSet};

/// Twice in the second within which growth is to be seen.
const SURVEY_EVERY: Nanos = Nanos(500_000_000);

/// Surveys of large processes take long: no more than a tenth of the time goes to them.
const SHARE_OF_TIME: u64 = 10;

/// A survey that has not come back for this long is not coming: asked again.
const LOST_AFTER: Nanos = Nanos(10_000_000_000);

/// Which accounts are surveyed, and when next.
#[derive(Debug, Default)]
pub(crate) struct Surveys {
    accounts: BTreeSet<Uid>,
    next: Option<Nanos>,
}

impl Surveys {
    /// An account that copies could bring near its line.
    pub(crate) fn add(&mut self, user: Uid) {
        if self.accounts.insert(user) && self.next.is_none() {
            self.next = Some(Nanos(0));
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
    pub(crate) fn survey(&mut self, hands: &Hands<'_, K>) -> Result<(), BpfError> {
        let moment = hands.now();
        if self.surveys.next.is_none_or(|due| due > moment) {
            return Ok(());
        }
        let mut wanted = BTreeMap::new();
        for user in core::mem::take(&mut self.surveys.accounts) {
            if let Some(account) = self.limits.account(user)?
                && self.limits.measure_again(account.index)?
            {
                wanted.insert(account.index, user);
                self.surveys.accounts.insert(user);
            }
        }
        self.surveys.next = None;
        if wanted.is_empty() {
            return Ok(());
        }
        let members = self.members_of(&wanted)?;
        if !members.is_empty() && hands.surveyor.ask(members) {
            self.surveys.next = Some(moment.saturating_add(LOST_AFTER));
        } else {
            self.surveys.next = Some(moment.saturating_add(SURVEY_EVERY));
        }
        Ok(())
    }

    /// Every process of the families of these accounts.
    fn members_of(&mut self, wanted: &BTreeMap<u32, Uid>) -> Result<Vec<Member>, BpfError> {
        let mut members = Vec::new();
        self.limits.address_spaces(|space| {
            if space.family != 0
                && !space.dying
                && let Some(user) = wanted.get(&space.account)
                && members.len() < MEMBERS_MAX
            {
                members.push(Member {
                    user: *user,
                    family: space.family,
                    mm: space.mm,
                    pid: space.pid,
                    start_ns: space.start_ns,
                    own: space.own,
                });
            }
        })?;
        Ok(members)
    }

    /// Charges what a survey found, and decides about the accounts that it is of.
    pub(crate) fn take_survey(&mut self, survey: &Survey, hands: &mut Hands<'_, K>) -> Result<(), BpfError> {
        let pause = SURVEY_EVERY.max(Nanos(survey.took.0.saturating_mul(SHARE_OF_TIME)));
        self.surveys.next = Some(hands.now().saturating_add(pause));
        let mut spaces: BTreeMap<u64, AddressSpace> = BTreeMap::new();
        self.limits.address_spaces(|space| {
            if space.family != 0 {
                spaces.insert(space.mm, *space);
            }
        })?;
        let mut families: BTreeMap<u64, Vec<(CopiesPart, copies::Member)>> = BTreeMap::new();
        for (member, proportional) in &survey.members {
            let still = spaces.get(&member.mm).filter(|space| {
                space.pid == member.pid && space.start_ns == member.start_ns && space.family == member.family
            });
            let Some(space) = still else { continue };
            let read = copies::Member { proportional: *proportional, own: member.own.max(space.own) };
            let part = CopiesPart { mm: member.mm, pid: member.pid, copied: read.part() };
            families.entry(member.family).or_default().push((part, read));
        }
        for (family, members) in families {
            let Some(facts) = self.limits.family(family)? else { continue };
            let (parts, read): (Vec<_>, Vec<_>) = members.into_iter().unzip();
            let pages = copied(facts.pages, facts.shares, &read);
            self.limits.set_copies(family, pages, &parts)?;
        }
        let users: BTreeSet<Uid> = survey.members.iter().map(|(member, _)| member.user).collect();
        for user in users {
            // No event came with what was charged: nobody but us looks at the line.
            self.judge(user, None, hands)?;
        }
        Ok(())
    }
}
