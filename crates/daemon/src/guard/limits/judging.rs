//! Has processes of accounts near their line judged, and writes into the programs what came of it.

use super::{
    attached::Attached,
    weights::{Entry, Known, Tried, may_be_judged},
};
use crate::{
    facts::cmdlines::Wanted,
    guard::{
        context::Context,
        kernel::{Kernel, Programs as _},
        selection::judge::{JudgeAnswer, JudgeRequest, Judged, UNJUDGED_MAX, Unjudged},
    },
};
use plimsoll_policy::{
    account::Counted,
    preference::Judgement,
    selection::{Candidate, Weight, floor_of_interest},
    units::Nanos,
};
use plimsoll_sys::bpf::{BpfError, Weighing};
use std::sync::Arc;

/// Between two looks at who is to be judged: they list processes, and a storm would have one for each that it starts. Where
/// there are many, at least as many times as long as a look takes.
const LOOK_REST: Nanos = Nanos(10_000_000);
const LOOK_PARTS: u64 = 16;

/// Answers that have not come back for this long are not coming: asked again.
const LOST_AFTER: Nanos = Nanos(10_000_000_000);

impl<K: Kernel> Attached<K> {
    /// Has those judged who could come first, of the account that was listed last. More than that are left alone: whoever
    /// stays below half of that cannot come first before the next look. `all`: and whoever was not judged, however small: a
    /// session may stand on it, which is to be known before the larger ones are gone.
    pub(crate) fn examine(&mut self, whose: Counted, all: bool, context: &Context<K>) {
        let moment = context.now();
        if let Some(since) = self.weights.awaited.get(&whose)
            && moment.0.saturating_sub(since.0) < LOST_AFTER.0
        {
            return;
        }
        let unjudged = self.unjudged_of(whose, all, context);
        if unjudged.is_empty() {
            self.ask_for_cmdlines(whose, moment, context);
            return;
        }
        let tried = |case: &Unjudged| (case.mm, Tried { whose, tracked_ns: case.tracked_ns, when: moment });
        let asked: Vec<(u64, Tried)> = unjudged.iter().map(tried).collect();
        if context.workers.judge.ask(JudgeRequest {
            whose,
            unjudged,
            eligibility: context.eligibility.clone(),
        }) {
            self.weights.awaited.insert(whose, moment);
            self.weights.tried.extend(asked);
        }
    }

    fn unjudged_of(&mut self, whose: Counted, all: bool, context: &Context<K>) -> Vec<Unjudged> {
        let moment = context.now();
        let Self { weights, candidates, .. } = self;
        weights.forget_gone(whose);
        let floor =
            floor_of_interest(candidates, context.eligibility.rules.range(), |_| false).unwrap_or_default();
        let open: Vec<(&Candidate, &Entry)> = candidates
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
        // Whose user has had as much as may be spent on them waits until that is made good, and costs no other member.
        let due = |(_, entry): &(&Candidate, &Entry)| weights.pace.until(entry.user);
        let (mut open, waiting): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| due(one) <= moment);
        let next = waiting.iter().map(due).min();
        open.sort_unstable_by(|one, other| weights.by_turn(*one, *other));
        let case = |(one, entry): (&Candidate, &Entry)| Unjudged {
            id: one.id(),
            mm: one.mm,
            user: entry.user,
            tracked_ns: entry.tracked_ns,
            cmdline: weights.of(entry.mm, entry.tracked_ns).and_then(|known| known.cmdline.clone()),
        };
        let unjudged = open.into_iter().take(UNJUDGED_MAX).map(case).collect();
        if let Some(next) = next {
            weights.want_from(whose, next);
        }
        unjudged
    }

    /// Takes in what came of a request, and looks whether there are more to be judged: who comes first may be another now.
    pub(crate) fn take_judged(
        &mut self,
        answer: JudgeAnswer,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let JudgeAnswer { whose, judged, rules, took, asked, .. } = answer;
        let each = took / asked.values().sum::<u32>().max(1);
        for (user, count) in asked {
            self.weights.pace.spent(user, each.saturating_mul(count), context.now());
        }
        if !Arc::ptr_eq(&rules, &context.eligibility.rules) {
            // Others are in force by now, and everybody is being judged by these.
            return Ok(());
        }
        self.weights.awaited.remove(&whose);
        let moment = context.now();
        let mut changed = judged.len() == UNJUDGED_MAX;
        for verdict in judged {
            changed |= self.write_down(whose, verdict, moment)?;
        }
        if (changed || self.weights.wanted.contains(&whose)) && self.near.contains(&whose) {
            self.weights.want(whose);
        }
        self.ask_for_cmdlines(whose, moment, context);
        Ok(())
    }

    /// Whether it is another judgement than the one before.
    fn write_down(&mut self, whose: Counted, verdict: Judged, moment: Nanos) -> Result<bool, BpfError> {
        let Judged { unjudged: Unjudged { id, mm, tracked_ns, cmdline, .. }, uid, judgement } = verdict;
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
        self.weights.known.insert(mm, Known { whose, id, tracked_ns, judgement, judged, cmdline, asked });
        Ok(changed || late)
    }

    fn ask_for_cmdlines(&mut self, whose: Counted, moment: Nanos, context: &Context<K>) {
        if !context.eligibility.rules.ask_for_command_lines() {
            return;
        }
        let unread = self.weights.without_cmdline(whose);
        // While it is still at others, these are asked for the next time.
        if !unread.is_empty() && context.workers.cmdlines.ask(unread.clone()) {
            let is_asked = |mm: u64, known: &Known| {
                unread.contains(&Wanted { id: known.id, program: known.program(mm) })
            };
            let asked = self.weights.known.iter_mut().filter(|(mm, known)| is_asked(**mm, known));
            asked.for_each(|(_, known)| known.asked = Some(moment));
        }
    }

    /// Looks at the accounts in which somebody is to be judged.
    pub(crate) fn judge_wanted(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let moment = context.now();
        if self.weights.due.is_none_or(|due| due > moment) {
            return Ok(());
        }
        self.weights.due = None;
        for whose in core::mem::take(&mut self.weights.wanted) {
            if self.weights.awaited.contains_key(&whose) {
                // Looked at again with what comes of them.
                self.weights.wanted.insert(whose);
                continue;
            }
            if let Some(until) = whose.user().map(|user| self.weights.pace.until(user))
                && until > moment
            {
                self.weights.want_from(whose, until);
                continue;
            }
            if let Some(account) = self.limits.account(whose)? {
                self.list_candidates(&account, context)?;
                self.examine(whose, false, context);
            }
        }
        let now = context.now();
        let took = now.0.saturating_sub(moment.0);
        self.weights.rested = now.saturating_add(Nanos(took.saturating_mul(LOOK_PARTS)).max(LOOK_REST));
        self.weights.due = self.weights.due.map(|due| due.max(self.weights.rested));
        Ok(())
    }
}
