//! The limits guard's user-space half: lines into the programs, their records into decisions, decisions into signals.

pub(super) mod attached;
mod coarse;
mod copies;
mod early;
mod folds;
mod groups;
mod job_lines;
pub(super) mod jobs;
mod judging;
mod kills;
mod lines;
pub(crate) mod shared;
pub(super) mod strict;
mod surveys;
pub(super) mod undrawn;
mod wanted;
mod weights;

use super::{
    context::Context,
    kernel::{Kernel, Programs as _, Records as _},
    kill::{ledger::Entry, pending::Owner},
    last_defence::{LineFacts, NearFacts},
};
use crate::tmalloc::Message;
use attached::{Attached, Watch};
use coarse::asks_for_events;
use copies::may_copy;
use plimsoll_policy::{
    account::{Action, Counted},
    incident::{Guard, Trigger},
    limits::{LimitAction, Snapshot, decide},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, order},
    units::{Nanos, Pages},
    victim::{Signal, Stage},
};
use plimsoll_sys::bpf::{AccountFacts, BpfError, VictimMark};
use plimsoll_wire::record::{Record, RecordKind};
use std::collections::BTreeSet;

/// Decisions in a row for one record: each either ends something or is the last.
const STEPS_MAX: usize = 16;

/// Scans in a row for what the last one did not see: each removes what was there before it, and meanwhile others exit.
const SWEEPS_MAX: u32 = 3;

/// With nobody to kill, the kernel side need not ask again for this long.
const HOLD: Nanos = Nanos(1_000_000_000);

/// While shared memory is walked, the kernel side need not ask again for this long where that alone is too much.
const WALKED: Nanos = Nanos(20_000_000);

/// While an account stays near, its largest processes are introduced again after this long at the earliest: in a storm they are
/// others each time, and each introduction opens some dozens of files.
const INTRODUCED_APART: Nanos = Nanos(250_000_000);

/// So many records are taken in before everything else has its turn: more than the ring holds (963), so that what waits in it
/// is written down before what comes of it, at 20 to 50 µs each.
const RECORDS_AT_ONCE: u32 = 1024;

impl<K: Kernel> Attached<K> {
    /// Takes in what the kernel side has to say: what somebody waits for first, then what can wait. Whoever makes it say more
    /// and more meanwhile does not keep this from all else: the rest is for the next turn, which comes at once.
    pub(crate) fn take_records(&mut self, context: &mut Context<K>) {
        let (mut unsettled, mut any) = (false, false);
        for _ in 0..RECORDS_AT_ONCE {
            match self.events.next_record() {
                Ok(Some(record)) => {
                    any = true;
                    unsettled |= matches!(record.kind, RecordKind::Exact | RecordKind::Near);
                    if asks_for_events(record.kind) {
                        self.come_close(context);
                    }
                    if let Err(error) = self.take(&record, context) {
                        context.notices.once("limits", &error);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    context.notices.once("records", &error);
                    break;
                }
            }
        }
        if unsettled {
            self.want_scan();
        }
        if any {
            self.make_good_losses(context);
        }
    }

    /// Records that found the ring buffer full told of accounts that are near, or over, and are not known to be: the maps
    /// are looked at instead. Whoever fills it wakes this thread, so none is lost without a look here afterwards.
    fn make_good_losses(&mut self, context: &mut Context<K>) {
        match self.limits.counters() {
            Ok(counters) => {
                let lost = counters.records_dropped.saturating_add(self.events.undecodable());
                if core::mem::replace(&mut self.lost, lost) != lost {
                    self.hasten_scan();
                    context.tmalloc.lose();
                }
            }
            Err(error) => context.notices.once("records", &error),
        }
    }

    fn take(&mut self, record: &Record, context: &mut Context<K>) -> Result<(), BpfError> {
        match record.kind {
            RecordKind::Exact => Ok(()),
            RecordKind::Copies => {
                self.surveys.hasten(&self.groups.users_of(record.whose));
                Ok(())
            }
            RecordKind::Judge => {
                self.weights.want(record.whose);
                Ok(())
            }
            RecordKind::Near => {
                self.tell_moved(record.whose, context);
                self.on_near(record.whose, context)
            }
            RecordKind::Far => {
                self.tell_moved(record.whose, context);
                // Another CPU may have brought it near again, and have told so before.
                let account = self.limits.account(record.whose)?;
                if account.is_some_and(|account| account.folded > 0) {
                    self.want_scan();
                }
                if !account.is_some_and(|account| account.near) {
                    self.near.remove(&record.whose);
                    self.early.forget(record.whose);
                    self.weights.forget_all_but(&self.near);
                }
                // The crossing is over: the next one is told again.
                self.judge(record.whose, None, context)
            }
            // Left unanswered, as if nobody lived.
            RecordKind::Crossed if !context.config.triggers.daemon => Ok(()),
            RecordKind::Crossed | RecordKind::Notify => self.judge(record.whose, Some(record), context),
            RecordKind::Acted => self.on_acted(record, context),
            RecordKind::Freed => {
                context.pending.freed(record.process.mm, record.time);
                Ok(())
            }
        }
    }

    /// An account came near: whoever may be a victim is introduced while there is something to read.
    fn on_near(&mut self, whose: Counted, context: &mut Context<K>) -> Result<(), BpfError> {
        self.near.insert(whose);
        self.introduced.remove(&whose);
        if let Some(account) = self.limits.account(whose)? {
            self.list_candidates(&account, context)?;
            self.introduce(whose, context);
        }
        Ok(())
    }

    /// Where the daemon may not judge, nobody has listed the account's processes.
    fn list_unjudged(&mut self, whose: Counted, context: &mut Context<K>) -> Result<(), BpfError> {
        match self.limits.account(whose)? {
            Some(account) if !context.config.triggers.daemon => self.list_candidates(&account, context),
            Some(_) | None => Ok(()),
        }
    }

    /// Finds the accounts at their soft limit, and has those decided about that are past their line since. Records may be
    /// lost, and a scan that follows a process to its new user raises that user's usage without any event: what the
    /// maps say is so.
    fn find_near(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let accounts = self.limits.accounts()?;
        self.correct_groups(&accounts, context)?;
        self.look_at_jobs(&accounts, context)?;
        let remaining = |one: &AccountFacts| one.usage.saturating_sub(one.dying);
        let past = accounts.iter().filter(|one| one.effective.is_some_and(|line| remaining(one) > line));
        let over: BTreeSet<Counted> = past.map(|one| one.whose).collect();
        self.unfinished.extend(over.difference(&self.over));
        self.over = over;
        let near: BTreeSet<Counted> =
            accounts.iter().filter(|one| one.near || one.usage >= one.soft).map(|one| one.whose).collect();
        let before = core::mem::replace(&mut self.near, near);
        for whose in before.difference(&self.near) {
            // As where a record says so.
            self.tell_moved(*whose, context);
            self.unfinished.insert(*whose);
        }
        self.near_is_old = false;
        self.take_in_folded(&accounts, context)?;
        self.introduced.retain(|whose, _| self.near.contains(whose));
        self.early.forget_all_but(&self.near);
        self.weights.forget_all_but(&self.near);
        let copying = accounts.iter().filter(|one| may_copy(one)).map(|one| one.whose).collect();
        self.groups.users_of_all(&copying).into_iter().for_each(|user| self.surveys.add(user));
        Ok(())
    }

    /// Corrects what a group's account missed when a member with something came below it, or counted twice.
    fn correct_groups(&mut self, accounts: &[AccountFacts], context: &Context<K>) -> Result<(), BpfError> {
        self.groups.renew(accounts);
        for (index, gid, more) in self.groups.differences(accounts, context.now()) {
            if self.limits.correct(index, gid, &more)? {
                self.unfinished.insert(gid.into());
            }
        }
        if self.groups.differ() {
            self.want_scan();
        }
        Ok(())
    }

    /// Tells whoever promises memory that an account came to its soft limit, or left it.
    fn tell_moved(&self, whose: Counted, context: &Context<K>) {
        context.tmalloc.tell(Message::Moved(self.groups.users_of(whose)));
    }

    /// Has the largest processes' names read while there is something to read, has judged who could come first, and tells
    /// the last defence who they are.
    fn introduce(&mut self, whose: Counted, context: &mut Context<K>) {
        let now = context.now();
        if self.introduced.get(&whose).is_some_and(|since| now.0.saturating_sub(since.0) < INTRODUCED_APART.0)
        {
            return;
        }
        self.introduced.insert(whose, now);
        self.candidates.sort_unstable_by(order);
        context.workers.names.read(self.candidates.iter().map(Candidate::id));
        if !self.near.contains(&whose) {
            return;
        }
        self.early.hold(whose, &self.candidates, &context.kernel);
        self.examine(whose, true, context);
        if self.weights.are_uneven() {
            // The kernel's own OOM killer knows sizes only.
            self.candidates.sort_unstable_by_key(|one| core::cmp::Reverse(one.usage.latest()));
        }
        // Without its line, an account is told by the next scan.
        if let Ok(Some(account)) = self.limits.account(whose)
            && let Some(line) = LineFacts::new(&account, context.ledger.page_size())
        {
            context.last_defence.near(NearFacts::new(line, &self.candidates));
        }
    }

    /// Decides about one account, and acts, until there is nothing to do.
    pub(crate) fn judge(
        &mut self,
        whose: Counted,
        asked: Option<&Record>,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let waiting = self.watched.get(&whose).is_some_and(Watch::is_waiting);
        if !context.config.triggers.daemon && !waiting {
            return Ok(());
        }
        let (mut sweeps, mut verified) = (0, false);
        for _ in 0..STEPS_MAX {
            let Some(account) = self.limits.account(whose)? else {
                self.watched.remove(&whose);
                return Ok(());
            };
            // Some of it may be gone by now: it is walked first, and then decided who goes for it. Those who are on their way
            // out are seen to all the same.
            let selects = self.may_select(&account, context);
            if selects && !self.is_walked(context.now()) {
                self.walk(&context.kernel)?;
                continue;
            }
            if selects && !core::mem::replace(&mut verified, true) {
                self.limits.verify(account.index)?;
                continue;
            }
            self.list_candidates(&account, context)?;
            // What exits just now is seen by no walk, and swept by the next.
            if selects && self.unseen && sweeps < SWEEPS_MAX {
                self.scan(&context.kernel)?;
                sweeps += 1;
                continue;
            }
            let is_unsure = self.is_unsure(&account, context);
            if is_unsure {
                self.shared_memory.want();
                self.limits.hold_shared(account.index, context.now().saturating_add(WALKED).0)?;
            }
            let action = self.line_action(&account, context.config.dry_run);
            let in_force = account.effective.unwrap_or(Pages(u64::MAX));
            let snapshot = Snapshot {
                usage: Reading::Known(account.usage),
                effective_hard: if is_unsure { in_force.max(account.usage) } else { in_force },
                hard: account.hard,
                soft: account.soft,
                dying: account.dying,
                dying_most: account.dying_most,
                may_leave: account.shared,
                action,
                candidates: &self.candidates,
                kernel_asked_at: asked.map(|record| record.time),
            };
            let watch = self.watched.entry(whose).or_insert_with(|| Watch::new(action));
            let (state, next) =
                decide(&snapshot, &context.config, core::mem::take(&mut watch.state), context.now());
            watch.state = state;
            self.expire(whose)?;
            if !self.carry_out(&account, next, context)? {
                return Ok(());
            }
        }
        // Other accounts, and those who ask something, get their turn in between.
        self.unfinished.insert(whose);
        Ok(())
    }

    /// Whether the account is over its line, so that deciding may take a victim. Then it is made sure of first that all
    /// that is charged is there: what an exit that no event told of left behind kills nobody, and whose number an entry
    /// has is who runs in it now.
    fn may_select(&self, account: &AccountFacts, context: &Context<K>) -> bool {
        let over = account.effective.is_some_and(|line| account.usage.saturating_sub(account.dying) > line);
        let deadline =
            self.watched.get(&account.whose).and_then(|one| one.state.next_deadline(&context.config));
        over || deadline.is_some_and(|due| due <= context.now())
    }

    /// In a dry run the kernel side is told to notify only; what would be done is decided here.
    fn line_action(&self, account: &AccountFacts, dry_run: bool) -> Action {
        match self.watched.get(&account.whose) {
            Some(watch) if dry_run => watch.action,
            Some(_) | None => Action::of(Signal::numbered(account.signal)),
        }
    }

    /// Carries one action out; whether to decide again.
    fn carry_out(
        &mut self,
        account: &AccountFacts,
        action: LimitAction,
        context: &mut Context<K>,
    ) -> Result<bool, BpfError> {
        match action {
            LimitAction::None => {
                self.limits.answer(account.index, 0)?;
                Ok(false)
            }
            LimitAction::Near { .. } | LimitAction::Far { .. } | LimitAction::UsageUnknown => Ok(true),
            LimitAction::Kill(decision) if !decision.dry_run => {
                self.send(account, &decision, Signal::Kill, context)
            }
            LimitAction::Term(decision) if !decision.dry_run => {
                self.send(account, &decision, Signal::Term, context)
            }
            LimitAction::Kill(decision)
            | LimitAction::Term(decision)
            | LimitAction::Notify(decision)
            | LimitAction::NothingKillable(decision) => {
                self.only_tell(account, &decision, context);
                let until = context.now().saturating_add(HOLD);
                self.limits.answer(account.index, until.0)?;
                Ok(false)
            }
            LimitAction::Escalate { victim, reason, .. } => self.escalate(account, victim, reason, context),
        }
    }

    /// Looks after what is due: the scan while something is near or dying, and ladders whose deadline passed.
    pub(crate) fn tend(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let tended = self.tend_all(context);
        if tended.is_err() {
            // It may not have come to the next look.
            self.come_close(context);
        }
        tended
    }

    fn tend_all(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        for (owner, victim, since) in context.pending.asked() {
            if let Owner::Line(whose) = owner
                && let Some(watch) = self.watched.get_mut(&whose)
            {
                watch.state.still_asked(victim, since);
            }
        }
        let moment = context.now();
        let look_due = self.coarse.is_due(moment);
        let scan_due = look_due || self.next_scan().is_some_and(|due| due <= moment);
        if scan_due {
            // First the next time, so that what fails is not tried again at once.
            self.postpone_scan(moment);
            self.scan(&context.kernel)?;
            context.eligibility.shield.protect_cgroups(&self.limits)?;
            self.miss_records_of_ends(context)?;
            if core::mem::take(&mut self.inherited) {
                self.finish_inherited(context)?;
            }
            self.end_holders(context);
            self.own_up(context)?;
            self.find_near(context)?;
        }
        let is_due =
            |watch: &Watch| watch.state.next_deadline(&context.config).is_some_and(|due| due <= moment);
        let late = self.watched.iter().filter(|(_, watch)| is_due(watch)).map(|(whose, _)| *whose);
        let mut accounts: BTreeSet<Counted> = late.collect();
        accounts.append(&mut self.unfinished);
        if scan_due {
            accounts.extend(&self.near);
            accounts
                .extend(self.watched.iter().filter(|(_, watch)| watch.is_waiting()).map(|(whose, _)| *whose));
        }
        for whose in accounts {
            // One account's trouble is not the others'.
            let judged = self.judge(whose, None, context);
            match judged.and_then(|()| self.list_unjudged(whose, context)) {
                Ok(()) => self.introduce(whose, context),
                Err(error) => context.notices.once("limits", &error),
            }
        }
        if self.near_is_old {
            self.find_near(context)?;
        }
        if scan_due {
            self.plan_look(context)?;
        }
        self.plan_scan(moment);
        self.judge_wanted(context)?;
        self.look_at_shared(context)?;
        self.survey(context)
    }

    /// Records that there were actions which have no record. Whom they took is found among those who are dying: somebody has
    /// to wait for them.
    fn own_up(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let count = self.limits.counters()?.actions_dropped;
        let entry = Entry::new(Guard::Limits, Trigger::InKernel, Reason::ActionsNotRecorded.text());
        if count > 0 && context.ledger.record_number(entry, count) {
            self.limits.actions_told(count)?;
            let accounts = self.limits.accounts()?;
            self.unfinished.extend(accounts.iter().filter(|one| one.dying.0 > 0).map(|one| one.whose));
        }
        Ok(())
    }

    /// A victim that has exited, and whose address space is tracked no more, has ended also where no record said so. An
    /// address may be in use again.
    fn miss_records_of_ends(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        for flight in context.pending.unheard_of() {
            let mut tracked = false;
            self.limits.address_spaces(|space| {
                tracked |= space.mm == flight.mm && space.tracked_ns <= flight.signalled.0;
            })?;
            if !tracked {
                flight.mm = 0;
            }
        }
        Ok(())
    }

    /// Tells the kernel side whose deadline passed: its memory counts as used again.
    fn expire(&self, whose: Counted) -> Result<(), BpfError> {
        let Some(watch) = self.watched.get(&whose) else {
            return Ok(());
        };
        let overdue = watch.state.in_flight().iter().filter(|one| one.stage == Stage::Overdue);
        for flight in overdue {
            if let Some(candidate) = self.candidates.iter().find(|one| one.id() == flight.victim) {
                self.limits.mark(candidate.mm, candidate.pid, VictimMark::Expired)?;
            }
        }
        Ok(())
    }
}
