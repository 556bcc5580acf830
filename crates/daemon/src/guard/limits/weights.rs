//! What the processes of accounts near their line count when the largest is looked for: who is to be judged, and what came of
//! it, written into the programs. The programs' entry is the one truth: both sides choose by it, and it outlives the daemon.

use crate::{
    facts::cmdlines::{Line, Program, Wanted},
    guard::selection::judge::UNJUDGED_MAX,
    pace::Pace,
};
use plimsoll_policy::{
    account::Counted,
    preference::Judgement,
    selection::{Candidate, Protection, Standing, Weight, order},
    units::{Nanos, Uid},
    victim::VictimId,
};
use plimsoll_sys::bpf::AddressSpace;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// One part of so many of a CPU may be spent on judging one user's processes: a storm starts new ones all the time.
const JUDGING_PARTS: u32 = 128;
/// What is noted of one request at most, in milliseconds.
const JUDGING_NOTED_MAX_MS: u64 = 50;
/// What may be spent at once, in milliseconds: some hundreds of processes.
const JUDGING_CREDIT_MS: u64 = 50;

/// While an account stays near, whoever could come first is judged again after this long: marks, cgroups and
/// `oom_score_adj` change without an event.
const JUDGED_FOR: Nanos = Nanos(5_000_000_000);

/// What was found out of one address space.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) whose: Counted,
    pub(crate) id: VictimId,
    pub(crate) tracked_ns: u64,
    pub(crate) judgement: Judgement,
    pub(crate) judged: Nanos,
    pub(crate) cmdline: Option<Arc<str>>,
    /// When its command line was asked for last.
    pub(crate) asked: Option<Nanos>,
}

impl Known {
    pub(crate) fn program(&self, mm: u64) -> Program {
        Program::Tracked { mm, tracked_ns: self.tracked_ns }
    }
}

/// Somebody who was handed to the judge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) whose: Counted,
    pub(crate) tracked_ns: u64,
    pub(crate) when: Nanos,
}

/// As the programs have an address space of the account that was listed last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) mm: u64,
    /// Whose account it is charged to.
    pub(crate) user: Uid,
    pub(crate) tracked_ns: u64,
    pub(crate) weight: Option<Weight>,
    pub(crate) never: bool,
    pub(crate) session: bool,
}

/// Who is judged, and who is to be.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    pub(crate) known: BTreeMap<u64, Known>,
    /// Those of whom the judge has not said anything since it was asked.
    pub(crate) tried: BTreeMap<u64, Tried>,
    listed: Vec<Entry>,
    /// Accounts with somebody to be judged.
    pub(crate) wanted: BTreeSet<Counted>,
    /// Accounts whose answer is awaited, since when.
    pub(crate) awaited: BTreeMap<Counted, Nanos>,
    pub(crate) due: Option<Nanos>,
    /// When the next look may be at the earliest.
    pub(crate) rested: Nanos,
    pub(crate) pace: Pace<JUDGING_PARTS, JUDGING_NOTED_MAX_MS, JUDGING_CREDIT_MS>,
}

impl Weights {
    /// With room for so many processes of one account before it has to grow.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { listed: Vec::with_capacity(room), ..Self::default() }
    }

    /// Somebody of this account is to be judged.
    pub(crate) fn want(&mut self, whose: Counted) {
        self.want_from(whose, self.rested);
    }

    /// Somebody of this account is to be judged, not before then.
    pub(crate) fn want_from(&mut self, whose: Counted, from: Nanos) {
        self.wanted.insert(whose);
        self.due = Some(self.due.map_or(from, |due| due.min(from)));
    }

    /// When there is something to do.
    pub(crate) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// All are to be judged anew: by other rules, or since it is not known what has changed.
    pub(crate) fn doubt_all(&mut self, near: &BTreeSet<Counted>) {
        self.known.clear();
        self.tried.clear();
        self.awaited.clear();
        near.iter().for_each(|whose| self.want(*whose));
    }

    /// Those of accounts that are not near any more are judged anew when they are again.
    pub(crate) fn forget_all_but(&mut self, near: &BTreeSet<Counted>) {
        self.known.retain(|_, known| near.contains(&known.whose));
        self.tried.retain(|_, tried| near.contains(&tried.whose));
        self.wanted.retain(|whose| near.contains(whose));
        self.awaited.retain(|whose, _| near.contains(whose));
    }

    /// Command lines were read: whoever has one is judged anew.
    pub(crate) fn learn(&mut self, found: &[Line]) {
        let mut accounts = BTreeSet::new();
        for (mm, known) in self.known.iter_mut().filter(|(_, known)| known.asked.is_some()) {
            if let Some(line) =
                found.iter().find(|line| (line.id, line.program) == (known.id, known.program(*mm)))
                && known.cmdline.as_deref() != Some(line.text.as_str())
            {
                known.cmdline = Some(line.text.as_str().into());
                known.judged = Nanos(0);
                accounts.insert(known.whose);
            }
        }
        accounts.into_iter().for_each(|whose| self.want(whose));
    }

    /// An account is being listed.
    pub(crate) fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// What an address space of it counts, and what protects it.
    pub(crate) fn list(&mut self, space: &AddressSpace) -> (Weight, Option<Protection>) {
        let AddressSpace { mm, user, tracked_ns, weight, never, session, .. } = *space;
        self.listed.push(Entry { mm, user, tracked_ns, weight, never, session });
        // Of what an earlier daemon said only that is known.
        let why = || self.of(mm, tracked_ns).and_then(|known| known.judgement.protection);
        (weight.unwrap_or_default(), never.then(|| why().unwrap_or(Protection::Executable)))
    }

    /// Whether somebody of this account was judged to count anything but their size.
    pub(crate) fn has_uneven(&self, whose: Counted) -> bool {
        let uneven = |judgement: &Judgement| {
            judgement.protection.is_some() || judgement.session || judgement.weight != Weight::NEUTRAL
        };
        self.known.values().any(|known| known.whose == whose && uneven(&known.judgement))
    }

    /// Whether somebody of the account that was listed last counts anything but their size.
    pub(crate) fn are_uneven(&self) -> bool {
        self.listed
            .iter()
            .any(|one| one.never || one.session || one.weight.is_some_and(|weight| weight != Weight::NEUTRAL))
    }

    /// Of those that are not in the list any more there is no end.
    pub(crate) fn forget_gone(&mut self, whose: Counted) {
        self.listed.sort_unstable_by_key(|entry| entry.mm);
        let listed = &self.listed;
        let is_there = |mm: &u64| listed.binary_search_by_key(mm, |entry| entry.mm).is_ok();
        self.known.retain(|mm, known| known.whose != whose || is_there(mm));
        self.tried.retain(|mm, tried| tried.whose != whose || is_there(mm));
    }

    /// From the list, which is sorted.
    pub(crate) fn entry(&self, mm: u64) -> Option<&Entry> {
        self.listed.get(self.listed.binary_search_by_key(&mm, |entry| entry.mm).ok()?)
    }

    pub(crate) fn of(&self, mm: u64, tracked_ns: u64) -> Option<&Known> {
        self.known.get(&mm).filter(|known| known.tracked_ns == tracked_ns)
    }

    /// Whether one has to be judged: nobody has, it is too long ago, or its user changed, which the programs saw.
    pub(crate) fn is_open(&self, entry: &Entry, now: Nanos) -> bool {
        let fresh = |known: &Known| now.0.saturating_sub(known.judged.0) < JUDGED_FOR.0;
        entry.weight.is_none() || !self.of(entry.mm, entry.tracked_ns).is_some_and(fresh)
    }

    /// Who is handed to the judge first: the largest; but whoever could not be looked at after all others, and among them
    /// who was tried the longest ago.
    pub(crate) fn by_turn(
        &self,
        (a, one): (&Candidate, &Entry),
        (b, other): (&Candidate, &Entry),
    ) -> Ordering {
        self.tried(one).cmp(&self.tried(other)).then_with(|| order(a, b))
    }

    /// When one was handed to the judge who has not said anything of it since; `None`: it said something, or was not asked.
    fn tried(&self, entry: &Entry) -> Option<Nanos> {
        self.tried.get(&entry.mm).filter(|tried| tried.tracked_ns == entry.tracked_ns).map(|tried| tried.when)
    }

    /// Whose command lines rules ask for and nobody has read. Some have none, and some never answer: whoever was not asked
    /// for comes first, then who was the longest ago.
    pub(crate) fn without_cmdline(&self, whose: Counted) -> Vec<Wanted> {
        let its = self.known.iter().filter(|(_, known)| known.whose == whose && known.cmdline.is_none());
        let mut its: Vec<(&u64, &Known)> = its.collect();
        its.sort_by_key(|(_, known)| known.asked);
        let wanted = |(mm, known): (&u64, &Known)| Wanted { id: known.id, program: known.program(*mm) };
        its.into_iter().take(UNJUDGED_MAX).map(wanted).collect()
    }
}

/// Whether a candidate may turn out to count otherwise: not one that the programs themselves protect, or that is dying.
pub(crate) const fn may_be_judged(one: &Candidate, entry: &Entry) -> bool {
    matches!(one.standing, Standing::Free) || (entry.never && matches!(one.standing, Standing::Protected(_)))
}

#[cfg(test)]
mod tests;
