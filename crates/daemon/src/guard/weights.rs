//! What the processes of accounts near their line count when the largest is looked for: who is to be judged, and what came of
//! it, written into the programs. The programs' entry is the one truth: both sides choose by it, and it outlives the daemon.

use super::{
    attached::Attached,
    examiner::{CASES_MAX, Case, Docket, Findings, Verdict},
    hands::Hands,
    kernel::{Kernel, Programs as _},
    population::Program,
};
use crate::{
    cmdlines::{Line, Wanted},
    pace::Pace,
};
use plimsoll_policy::{
    preference::Judgement,
    selection::{Candidate, Protection, Standing, Weight, floor_of_interest, order},
    units::{Nanos, Uid},
    victim::VictimId,
};
use plimsoll_sys::bpf::{AddressSpace, BpfError, Weighing};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Between two looks at who is to be judged: they list processes, and a storm would have one for each that it starts. Where
/// there are many, at least as many times as long as a look takes.
const LOOK_REST: Nanos = Nanos(10_000_000);
const LOOK_PARTS: u64 = 16;

/// One part of so many of a CPU may be spent on judging one account's processes: a storm starts new ones all the time.
const JUDGING_PARTS: u32 = 128;
/// What is noted of one docket at most, in milliseconds.
const JUDGING_NOTED_MAX_MS: u64 = 50;
/// What may be spent at once, in milliseconds: some hundreds of processes.
const JUDGING_CREDIT_MS: u64 = 50;

/// While an account stays near, whoever could come first is judged again after this long: marks, cgroups and
/// `oom_score_adj` change without an event.
const JUDGED_FOR: Nanos = Nanos(5_000_000_000);

/// Findings that have not come back for this long are not coming: asked again.
const LOST_AFTER: Nanos = Nanos(10_000_000_000);

/// What was found out of one address space.
#[derive(Debug)]
struct Known {
    user: Uid,
    id: VictimId,
    tracked_ns: u64,
    judgement: Judgement,
    judged: Nanos,
    cmdline: Option<Arc<str>>,
    /// When its command line was asked for last.
    asked: Option<Nanos>,
}

impl Known {
    fn program(&self, mm: u64) -> Program {
        Program::Tracked { mm, tracked_ns: self.tracked_ns }
    }
}

/// Somebody who was handed to the examiner.
#[derive(Debug, Clone, Copy)]
struct Tried {
    user: Uid,
    tracked_ns: u64,
    when: Nanos,
}

/// As the programs have an address space of the account that was listed last.
#[derive(Debug, Clone, Copy)]
struct Entry {
    mm: u64,
    tracked_ns: u64,
    weight: Option<Weight>,
    never: bool,
    session: bool,
}

/// Who is judged, and who is to be.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    known: BTreeMap<u64, Known>,
    /// Those of whom the examiner has not said anything since it was asked.
    tried: BTreeMap<u64, Tried>,
    listed: Vec<Entry>,
    /// Accounts with somebody to be judged.
    wanted: BTreeSet<Uid>,
    /// Accounts whose findings are awaited, since when.
    awaited: BTreeMap<Uid, Nanos>,
    due: Option<Nanos>,
    /// When the next look may be at the earliest.
    rested: Nanos,
    pace: Pace<JUDGING_PARTS, JUDGING_NOTED_MAX_MS, JUDGING_CREDIT_MS>,
}

impl Weights {
    /// With room for so many processes of one account before it has to grow.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { listed: Vec::with_capacity(room), ..Self::default() }
    }

    /// Somebody of this account is to be judged.
    pub(crate) fn want(&mut self, user: Uid) {
        self.wanted.insert(user);
        if self.due.is_none() {
            self.due = Some(self.rested);
        }
    }

    /// Whether as much was spent on this account as may be; then it is looked at when that is made good.
    fn has_had_its_part(&mut self, user: Uid, moment: Nanos) -> bool {
        let until = self.pace.until(user);
        if until <= moment {
            return false;
        }
        self.wanted.insert(user);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
        true
    }

    /// When there is something to do.
    pub(crate) const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// All are to be judged anew: by other rules, or since it is not known what has changed.
    pub(crate) fn doubt_all(&mut self, near: &BTreeSet<Uid>) {
        self.known.clear();
        self.tried.clear();
        self.awaited.clear();
        near.iter().for_each(|user| self.want(*user));
    }

    /// Those of accounts that are not near any more are judged anew when they are again.
    pub(crate) fn forget_all_but(&mut self, near: &BTreeSet<Uid>) {
        self.known.retain(|_, known| near.contains(&known.user));
        self.tried.retain(|_, tried| near.contains(&tried.user));
        self.wanted.retain(|user| near.contains(user));
        self.awaited.retain(|user, _| near.contains(user));
    }

    /// Command lines were read: whoever has one is judged anew.
    pub(crate) fn learn(&mut self, found: &[Line]) {
        let mut users = BTreeSet::new();
        for (mm, known) in self.known.iter_mut().filter(|(_, known)| known.asked.is_some()) {
            if let Some(line) =
                found.iter().find(|line| (line.id, line.program) == (known.id, known.program(*mm)))
                && known.cmdline.as_deref() != Some(line.text.as_str())
            {
                known.cmdline = Some(line.text.as_str().into());
                known.judged = Nanos(0);
                users.insert(known.user);
            }
        }
        users.into_iter().for_each(|user| self.want(user));
    }

    /// An account is being listed.
    pub(super) fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// What an address space of it counts, and what protects it.
    pub(super) fn list(&mut self, space: &AddressSpace) -> (Weight, Option<Protection>) {
        let AddressSpace { mm, tracked_ns, weight, never, session, .. } = *space;
        self.listed.push(Entry { mm, tracked_ns, weight, never, session });
        // Of what an earlier daemon said only that is known.
        let why = || self.of(mm, tracked_ns).and_then(|known| known.judgement.protection);
        (weight.unwrap_or_default(), never.then(|| why().unwrap_or(Protection::Executable)))
    }

    /// Whether somebody of this account was judged to count anything but their size.
    pub(super) fn has_uneven(&self, user: Uid) -> bool {
        let uneven = |judgement: &Judgement| {
            judgement.protection.is_some() || judgement.session || judgement.weight != Weight::NEUTRAL
        };
        self.known.values().any(|known| known.user == user && uneven(&known.judgement))
    }

    /// Whether somebody of the account that was listed last counts anything but their size.
    pub(super) fn are_uneven(&self) -> bool {
        self.listed
            .iter()
            .any(|one| one.never || one.session || one.weight.is_some_and(|weight| weight != Weight::NEUTRAL))
    }

    /// Of those that are not in the list any more there is no end.
    fn forget_gone(&mut self, user: Uid) {
        self.listed.sort_unstable_by_key(|entry| entry.mm);
        let listed = &self.listed;
        let is_there = |mm: &u64| listed.binary_search_by_key(mm, |entry| entry.mm).is_ok();
        self.known.retain(|mm, known| known.user != user || is_there(mm));
        self.tried.retain(|mm, tried| tried.user != user || is_there(mm));
    }

    /// From the list, which is sorted.
    fn entry(&self, mm: u64) -> Option<&Entry> {
        self.listed.get(self.listed.binary_search_by_key(&mm, |entry| entry.mm).ok()?)
    }

    fn of(&self, mm: u64, tracked_ns: u64) -> Option<&Known> {
        self.known.get(&mm).filter(|known| known.tracked_ns == tracked_ns)
    }

    /// Whether one has to be judged: nobody has, it is too long ago, or its user changed, which the programs saw.
    fn is_open(&self, entry: &Entry, now: Nanos) -> bool {
        let fresh = |known: &Known| now.0.saturating_sub(known.judged.0) < JUDGED_FOR.0;
        entry.weight.is_none() || !self.of(entry.mm, entry.tracked_ns).is_some_and(fresh)
    }

    /// Who is handed to the examiner first: the largest; but whoever could not be looked at after all others, and among them
    /// who was tried the longest ago.
    fn by_turn(&self, (a, one): (&Candidate, &Entry), (b, other): (&Candidate, &Entry)) -> Ordering {
        self.tried(one).cmp(&self.tried(other)).then_with(|| order(a, b))
    }

    /// When one was handed to the examiner who has not said anything of it since; `None`: it said something, or was not asked.
    fn tried(&self, entry: &Entry) -> Option<Nanos> {
        self.tried.get(&entry.mm).filter(|tried| tried.tracked_ns == entry.tracked_ns).map(|tried| tried.when)
    }

    /// Whose command lines rules ask for and nobody has read. Some have none, and some never answer: whoever was not asked
    /// for comes first, then who was the longest ago.
    fn without_cmdline(&self, user: Uid) -> Vec<Wanted> {
        let its = self.known.iter().filter(|(_, known)| known.user == user && known.cmdline.is_none());
        let mut its: Vec<(&u64, &Known)> = its.collect();
        its.sort_by_key(|(_, known)| known.asked);
        let wanted = |(mm, known): (&u64, &Known)| Wanted { id: known.id, program: known.program(*mm) };
        its.into_iter().take(CASES_MAX).map(wanted).collect()
    }
}

/// Whether a candidate may turn out to count otherwise: not one that the programs themselves protect, or that is dying.
const fn may_be_judged(one: &Candidate, entry: &Entry) -> bool {
    matches!(one.standing, Standing::Free) || (entry.never && matches!(one.standing, Standing::Protected(_)))
}

impl<K: Kernel> Attached<K> {
    /// Has those judged who could come first, of the account that was listed last. More than that are left alone: whoever
    /// stays below half of that cannot come first before the next look. `all`: and whoever was not judged, however small: a
    /// session may stand on it, which is to be known before the larger ones are gone.
    pub(crate) fn examine(&mut self, user: Uid, all: bool, hands: &Hands<K>) {
        let moment = hands.now();
        if let Some(since) = self.weights.awaited.get(&user)
            && moment.0.saturating_sub(since.0) < LOST_AFTER.0
        {
            return;
        }
        if self.weights.has_had_its_part(user, moment) {
            return;
        }
        let cases = self.open_cases(user, all, hands);
        if cases.is_empty() {
            self.ask_for_cmdlines(user, moment, hands);
            return;
        }
        let tried = |case: &Case| (case.mm, Tried { user, tracked_ns: case.tracked_ns, when: moment });
        let asked: Vec<(u64, Tried)> = cases.iter().map(tried).collect();
        if hands.workers.examiner.ask(Docket { user, cases, eligibility: hands.eligibility.clone() }) {
            self.weights.awaited.insert(user, moment);
            self.weights.tried.extend(asked);
        }
    }

    fn open_cases(&mut self, user: Uid, all: bool, hands: &Hands<K>) -> Vec<Case> {
        let moment = hands.now();
        let Self { weights, candidates, .. } = self;
        weights.forget_gone(user);
        let floor =
            floor_of_interest(candidates, hands.eligibility.rules.range(), |_| false).unwrap_or_default();
        let mut open: Vec<(&Candidate, &Entry)> = candidates
            .iter()
            .filter_map(|one| Some((one, weights.entry(one.mm)?)))
            .filter(|(one, entry)| may_be_judged(one, entry) && weights.is_open(entry, moment))
            // What was said under other rules, or of a parent, is looked into however small it is.
            .filter(|(one, entry)| {
                let uneven = entry.never || entry.session || one.weight != Weight::NEUTRAL;
                let unknown = all && weights.of(entry.mm, entry.tracked_ns).is_none();
                uneven || unknown || one.usage.latest().is_some_and(|usage| usage >= floor)
            })
            .collect();
        open.sort_unstable_by(|one, other| weights.by_turn(*one, *other));
        let case = |(one, entry): (&Candidate, &Entry)| Case {
            id: one.id(),
            mm: one.mm,
            tracked_ns: entry.tracked_ns,
            cmdline: weights.of(entry.mm, entry.tracked_ns).and_then(|known| known.cmdline.clone()),
        };
        open.into_iter().take(CASES_MAX).map(case).collect()
    }

    /// Takes in what came of a docket, and looks whether there are more to be judged: who comes first may be another now.
    pub(crate) fn take_findings(&mut self, findings: Findings, hands: &mut Hands<K>) -> Result<(), BpfError> {
        let Findings { user, verdicts, rules, took, .. } = findings;
        self.weights.pace.spent(user, took, hands.now());
        if !Arc::ptr_eq(&rules, &hands.eligibility.rules) {
            // Others are in force by now, and everybody is being judged by these.
            return Ok(());
        }
        self.weights.awaited.remove(&user);
        let moment = hands.now();
        let mut changed = verdicts.len() == CASES_MAX;
        for verdict in verdicts {
            changed |= self.write_down(user, verdict, moment)?;
        }
        if (changed || self.weights.wanted.contains(&user)) && self.near.contains(&user) {
            self.weights.want(user);
        }
        self.ask_for_cmdlines(user, moment, hands);
        Ok(())
    }

    /// Whether it is another judgement than the one before.
    fn write_down(&mut self, user: Uid, verdict: Verdict, moment: Nanos) -> Result<bool, BpfError> {
        let Verdict { case: Case { id, mm, tracked_ns, cmdline }, uid, judgement } = verdict;
        let Judgement { weight, protection, session, .. } = judgement;
        let never = protection.is_some();
        self.weights.tried.remove(&mm);
        let weighing =
            Weighing { mm, tracked_ns, pid: id.pid, start_ns: id.start_ns, uid, weight, never, session };
        if !self.limits.weigh(&weighing)? {
            // Another program by now, or gone.
            self.weights.known.remove(&mm);
            return Ok(false);
        }
        let before = self.weights.known.remove(&mm).filter(|known| known.tracked_ns == tracked_ns);
        let changed = before.as_ref().is_none_or(|known| known.judgement != judgement);
        let (read, asked) = before.map_or((None, None), |known| (known.cmdline, known.asked));
        // Its command line was read meanwhile: it is judged by that next.
        let late = cmdline.is_none() && read.is_some();
        let (cmdline, judged) = (cmdline.or(read), if late { Nanos(0) } else { moment });
        self.weights.known.insert(mm, Known { user, id, tracked_ns, judgement, judged, cmdline, asked });
        Ok(changed || late)
    }

    fn ask_for_cmdlines(&mut self, user: Uid, moment: Nanos, hands: &Hands<K>) {
        if !hands.eligibility.rules.ask_for_command_lines() {
            return;
        }
        let unread = self.weights.without_cmdline(user);
        // While it is still at others, these are asked for the next time.
        if !unread.is_empty() && hands.workers.cmdlines.ask(unread.clone()) {
            let is_asked = |mm: u64, known: &Known| {
                unread.contains(&Wanted { id: known.id, program: known.program(mm) })
            };
            let asked = self.weights.known.iter_mut().filter(|(mm, known)| is_asked(**mm, known));
            asked.for_each(|(_, known)| known.asked = Some(moment));
        }
    }

    /// Looks at the accounts in which somebody is to be judged.
    pub(crate) fn judge_wanted(&mut self, hands: &mut Hands<K>) -> Result<(), BpfError> {
        let moment = hands.now();
        if self.weights.due.is_none_or(|due| due > moment) {
            return Ok(());
        }
        self.weights.due = None;
        for user in core::mem::take(&mut self.weights.wanted) {
            if self.weights.awaited.contains_key(&user) {
                // Looked at again with what comes of them.
                self.weights.wanted.insert(user);
                continue;
            }
            if self.weights.has_had_its_part(user, moment) {
                continue;
            }
            if let Some(account) = self.limits.account(user)? {
                self.list_candidates(&account, hands)?;
                self.examine(user, false, hands);
            }
        }
        let now = hands.now();
        let took = now.0.saturating_sub(moment.0);
        self.weights.rested = now.saturating_add(Nanos(took.saturating_mul(LOOK_PARTS)).max(LOOK_REST));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
