//! The limits guard's user-space half: lines into the programs, their records into decisions, decisions into signals.

use super::{
    attached::{Attached, Watch},
    hands::{Hands, now},
};
use plimsoll_policy::{
    account::Action,
    limits::{LimitAction, Snapshot, decide},
    reading::Reading,
    selection::Candidate,
    units::{Nanos, Pages, Uid},
    victim::{Signal, Stage},
};
use plimsoll_sys::bpf::{AccountFacts, BpfError, VictimMark};
use plimsoll_wire::record::{Record, RecordKind};
use std::collections::BTreeSet;

/// Decisions in a row for one record: each either ends something or is the last.
const STEPS_MAX: usize = 16;

/// With nobody to kill, the kernel side need not ask again for this long.
const HOLD: Nanos = Nanos(1_000_000_000);

/// What a line's action is when the kernel side was told a signal.
pub(crate) const fn action_of(signal: u32) -> Action {
    match signal {
        9 => Action::Kill,
        15 => Action::Term,
        _ => Action::Notify,
    }
}

impl Attached {
    /// Takes in everything the kernel side has to say: what somebody waits for first, then what can wait.
    pub(crate) fn take_records(&mut self, hands: &mut Hands<'_>) {
        let mut unsettled = false;
        loop {
            match self.events.next_record() {
                Ok(Some(record)) => {
                    unsettled |= matches!(record.kind, RecordKind::Exact | RecordKind::Near);
                    if let Err(error) = self.take(&record, hands) {
                        hands.notices.once("limits", &error);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    hands.notices.once("records", &error);
                    break;
                }
            }
        }
        if unsettled && let Err(error) = self.settle_near(hands) {
            hands.notices.once("limits", &error);
        }
    }

    fn take(&mut self, record: &Record, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        match record.kind {
            RecordKind::Exact => Ok(()),
            RecordKind::Near => self.on_near(record.uid, hands),
            RecordKind::Far => {
                self.near.remove(&record.uid);
                // The crossing is over: the next one is told again.
                self.judge(record.uid, None, hands)
            }
            RecordKind::Crossed | RecordKind::Notify => self.judge(record.uid, Some(record), hands),
            RecordKind::Acted => self.on_acted(record, hands),
            RecordKind::Freed => {
                hands.flights.freed(record.process.mm, record.time);
                Ok(())
            }
        }
    }

    /// An account came near: whoever may be a victim is introduced while there is something to read.
    fn on_near(&mut self, uid: Uid, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        self.near.insert(uid);
        if let Some(account) = self.limits.account(uid)? {
            self.list_candidates(&account, hands)?;
            self.introduce(hands);
        }
        Ok(())
    }

    /// Settles every counter exactly.
    fn settle_near(&mut self, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        self.scan()?;
        self.end_holders(hands);
        self.limits.protect_cgroups(&hands.shield.cgroup_ids())?;
        self.plan_scan(now());
        Ok(())
    }

    /// Has the largest processes' names read while there is something to read.
    fn introduce(&mut self, hands: &Hands<'_>) {
        self.candidates.sort_unstable_by_key(|one| core::cmp::Reverse(one.usage.latest()));
        hands.biographer.read(self.candidates.iter().map(Candidate::id));
    }

    /// Decides about one account, and acts, until there is nothing to do.
    pub(crate) fn judge(
        &mut self,
        uid: Uid,
        asked: Option<&Record>,
        hands: &mut Hands<'_>,
    ) -> Result<(), BpfError> {
        for _ in 0..STEPS_MAX {
            let Some(account) = self.limits.account(uid)? else {
                self.watched.remove(&uid);
                return Ok(());
            };
            self.list_candidates(&account, hands)?;
            let action = self.line_action(&account, hands.config.dry_run);
            let snapshot = Snapshot {
                usage: Reading::Known(account.usage),
                effective_hard: account.effective.unwrap_or(Pages(u64::MAX)),
                hard: account.hard,
                soft: account.soft,
                dying: account.dying,
                action,
                candidates: &self.candidates,
                kernel_asked_at: asked.map(|record| record.time),
            };
            let watch = self.watched.entry(uid).or_insert_with(|| Watch::new(action));
            let (state, next) = decide(&snapshot, &hands.config, core::mem::take(&mut watch.state), now());
            watch.state = state;
            if !self.carry_out(&account, next, hands)? {
                return Ok(());
            }
        }
        // Other accounts, and those who ask something, get their turn in between.
        self.unfinished.insert(uid);
        Ok(())
    }

    /// In a dry run the kernel side is told to notify only; what would be done is decided here.
    fn line_action(&self, account: &AccountFacts, dry_run: bool) -> Action {
        match self.watched.get(&account.uid) {
            Some(watch) if dry_run => watch.action,
            Some(_) | None => action_of(account.signal),
        }
    }

    /// Carries one action out; whether to decide again.
    fn carry_out(
        &mut self,
        account: &AccountFacts,
        action: LimitAction,
        hands: &mut Hands<'_>,
    ) -> Result<bool, BpfError> {
        match action {
            LimitAction::None => {
                self.limits.answer(account.index, 0)?;
                Ok(false)
            }
            LimitAction::Near { .. } | LimitAction::Far { .. } | LimitAction::UsageUnknown => Ok(true),
            LimitAction::Kill(decision) if !decision.dry_run => {
                self.send(account, &decision, Signal::Kill, hands)
            }
            LimitAction::Term(decision) if !decision.dry_run => {
                self.send(account, &decision, Signal::Term, hands)
            }
            LimitAction::Kill(decision)
            | LimitAction::Term(decision)
            | LimitAction::Notify(decision)
            | LimitAction::NothingKillable(decision) => {
                self.only_tell(account, &decision, hands);
                let until = Nanos(now().0.saturating_add(HOLD.0));
                self.limits.answer(account.index, until.0)?;
                Ok(false)
            }
            LimitAction::Escalate { victim, .. } => self.escalate(account, victim, hands),
        }
    }

    /// Looks after what is due: the scan while something is near or dying, and ladders whose deadline passed.
    pub(crate) fn tend(&mut self, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        let moment = now();
        let scan_due = self.next_scan().is_some_and(|due| due <= moment);
        if scan_due {
            // First the next time, so that what fails is not tried again at once.
            self.postpone_scan(moment);
            self.scan()?;
            self.end_holders(hands);
            if core::mem::take(&mut self.inherited) {
                self.finish_inherited(hands)?;
            }
            // Records may be lost; what the maps say is so.
            self.near = self.limits.accounts()?.iter().filter(|one| one.near).map(|one| one.uid).collect();
        }
        let is_due =
            |watch: &Watch| watch.state.next_deadline(&hands.config).is_some_and(|due| due <= moment);
        let late = self.watched.iter().filter(|(_, watch)| is_due(watch)).map(|(uid, _)| *uid);
        let mut uids: BTreeSet<Uid> = late.collect();
        uids.append(&mut self.unfinished);
        if scan_due {
            uids.extend(&self.near);
            uids.extend(self.watched.iter().filter(|(_, watch)| watch.is_waiting()).map(|(uid, _)| *uid));
        }
        for uid in uids {
            // One account's trouble is not the others'.
            if let Err(error) = self.judge(uid, None, hands).and_then(|()| self.expire(uid)) {
                hands.notices.once("limits", &error);
            }
            self.introduce(hands);
        }
        self.plan_scan(moment);
        Ok(())
    }

    /// Tells the kernel side whose deadline passed: its memory counts as used again.
    fn expire(&self, uid: Uid) -> Result<(), BpfError> {
        let Some(watch) = self.watched.get(&uid) else {
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
