//! The limits guard's user-space half: lines into the programs, their records into decisions, decisions into signals.

use super::{
    attached::{Attached, Watch},
    flights::{Flight, Flights, Owner},
    ledger::{Entry, Ledger, Occasion, user},
    report::Notices,
};
use crate::biography::Biographer;
use plimsoll_policy::{
    account::Action,
    incident::{Guard, Trigger, Victim},
    limits::{LimitAction, LimitConfig, Snapshot, decide},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Decision, Standing},
    units::{Nanos, Pages, Uid},
    victim::{Signal, SignalFault, SignalOutcome, Stage, VictimId},
};
use plimsoll_sys::{
    bpf::{AccountFacts, BpfError, Holder, VictimMark},
    process::{PidFd, ProcRoot, ProcessError, clock_monotonic_ns},
};
use plimsoll_wire::record::{Record, RecordKind};

/// Decisions in a row for one record: each either ends something or is the last.
const STEPS_MAX: usize = 16;

/// With nobody to kill, the kernel side need not ask again for this long.
const HOLD: Nanos = Nanos(1_000_000_000);

/// What the guard works with besides its own state.
#[derive(Debug)]
pub(crate) struct Hands<'a> {
    pub(crate) proc: &'a mut ProcRoot,
    pub(crate) flights: &'a mut Flights,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) notices: &'a mut Notices,
    pub(crate) biographer: &'a Biographer,
    pub(crate) config: LimitConfig,
}

fn now() -> Nanos {
    Nanos(clock_monotonic_ns())
}

/// What a line's action is when the kernel side was told a signal.
pub(crate) const fn action_of(signal: u32) -> Action {
    match signal {
        9 => Action::Kill,
        15 => Action::Term,
        _ => Action::Notify,
    }
}

impl Attached {
    /// Takes in everything the kernel side has to say.
    pub(crate) fn take_records(&mut self, hands: &mut Hands<'_>) {
        loop {
            match self.events.next() {
                Ok(Some(record)) => self.take(&record, hands),
                Ok(None) => break,
                Err(error) => {
                    hands.notices.once("records", &error);
                    break;
                }
            }
        }
    }

    fn take(&mut self, record: &Record, hands: &mut Hands<'_>) {
        let result = match record.kind {
            RecordKind::Exact => self.scan(),
            RecordKind::Near => self.on_near(record.uid, hands),
            RecordKind::Far => Ok(()),
            RecordKind::Crossed | RecordKind::Notify => self.judge(record.uid, Some(record), hands),
            RecordKind::Acted => self.on_acted(record, hands),
            RecordKind::Freed => {
                hands.flights.freed(record.process.mm, record.time);
                Ok(())
            }
        };
        if let Err(error) = result {
            hands.notices.once("limits", &error);
        }
    }

    /// An account came near: settle it exactly and tell the kernel side its largest process.
    fn on_near(&mut self, uid: Uid, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        self.scan()?;
        self.end_holders(hands);
        if let Some(account) = self.limits.account(uid)? {
            self.list_candidates(&account)?;
            self.limits.answer(account.index, self.largest(), 0)?;
            self.introduce(hands);
        }
        Ok(())
    }

    /// Has the largest processes' names read while there is something to read.
    fn introduce(&mut self, hands: &Hands<'_>) {
        self.candidates.sort_unstable_by_key(|one| core::cmp::Reverse(one.usage.latest()));
        hands.biographer.read(self.candidates.iter().map(Candidate::id));
    }

    /// Decides about one account, and acts, until there is nothing to do.
    pub(crate) fn judge(&mut self, uid: Uid, asked: Option<&Record>, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        for _ in 0..STEPS_MAX {
            let Some(account) = self.limits.account(uid)? else {
                self.watched.remove(&uid);
                return Ok(());
            };
            self.list_candidates(&account)?;
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
    fn carry_out(&mut self, account: &AccountFacts, action: LimitAction, hands: &mut Hands<'_>) -> Result<bool, BpfError> {
        match action {
            LimitAction::None => {
                self.limits.answer(account.index, self.largest(), 0)?;
                Ok(false)
            }
            LimitAction::Near { .. } | LimitAction::Far { .. } | LimitAction::UsageUnknown => Ok(true),
            LimitAction::Kill(decision) if !decision.dry_run => self.send(account, &decision, Signal::Kill, hands),
            LimitAction::Term(decision) if !decision.dry_run => self.send(account, &decision, Signal::Term, hands),
            LimitAction::Kill(decision)
            | LimitAction::Term(decision)
            | LimitAction::Notify(decision)
            | LimitAction::NothingKillable(decision) => {
                self.only_tell(account, &decision, hands);
                let until = Nanos(now().0.saturating_add(HOLD.0));
                self.limits.answer(account.index, None, until.0)?;
                Ok(false)
            }
            LimitAction::Escalate { victim, .. } => self.escalate(account, victim, hands),
        }
    }

    /// Signals the first victim, and those that share its memory.
    fn send(
        &mut self,
        account: &AccountFacts,
        decision: &Decision,
        signal: Signal,
        hands: &mut Hands<'_>,
    ) -> Result<bool, BpfError> {
        let mut sent = Vec::new();
        let mut signalled = None;
        for candidate in decision.together() {
            let (pidfd, outcome) = signal_candidate(candidate, signal, hands);
            let moment = now();
            self.watch(account.uid, account_action(signal)).state.outcome(candidate.id(), outcome, moment);
            if matches!(outcome, SignalOutcome::Sent(_)) {
                signalled.get_or_insert(moment);
                // Not tracked any more: it is gone, and nothing has to be left out of usage.
                self.limits.mark(candidate.mm, candidate.pid, VictimMark::Dying)?;
                sent.push((*candidate, pidfd, moment));
            } else if let SignalOutcome::Failed(_) = outcome {
                hands.notices.signal_failed(candidate.pid, signal);
            }
        }
        if !sent.is_empty() {
            let occasion = Occasion {
                account: Some(user(account.uid)),
                guard: Guard::Limits,
                trigger: Trigger::Daemon,
                signal: Some(signal),
                crossed: decision.asked_at,
                signalled,
            };
            let victims = sent.iter().map(|(candidate, ..)| hands.ledger.victim(candidate)).collect();
            let incident = hands.ledger.record(entry(occasion, decision, victims, hands.ledger));
            for (candidate, pidfd, moment) in sent {
                hands.flights.add(flight(&candidate, pidfd, account.uid, signal, moment, incident));
            }
        }
        Ok(true)
    }

    fn only_tell(&self, account: &AccountFacts, decision: &Decision, hands: &mut Hands<'_>) {
        let occasion = Occasion {
            account: Some(user(account.uid)),
            guard: Guard::Limits,
            trigger: Trigger::Daemon,
            signal: None,
            crossed: decision.asked_at,
            signalled: None,
        };
        // In a dry run the victim is named though nothing was sent to it.
        let victims = decision.together().map(|candidate| hands.ledger.victim(candidate)).collect();
        hands.ledger.record(entry(occasion, decision, victims, hands.ledger));
    }

    fn escalate(
        &mut self,
        account: &AccountFacts,
        victim: VictimId,
        hands: &mut Hands<'_>,
    ) -> Result<bool, BpfError> {
        let held = hands.flights.find(victim).and_then(|flight| flight.pidfd.as_ref().map(|pidfd| pidfd.send_signal(Signal::Kill)));
        let outcome = held.map_or(SignalOutcome::Vanished, |result| outcome_of(&result, Signal::Kill));
        let moment = now();
        self.watch(account.uid, Action::Term).state.outcome(victim, outcome, moment);
        if !matches!(outcome, SignalOutcome::Sent(_)) {
            return Ok(true);
        }
        let candidate = self.candidates.iter().find(|one| one.id() == victim).copied();
        hands.flights.escalated(victim, moment);
        let occasion = Occasion {
            account: Some(user(account.uid)),
            guard: Guard::Limits,
            trigger: Trigger::Daemon,
            signal: Some(Signal::Kill),
            crossed: None,
            signalled: Some(moment),
        };
        let incident = hands.ledger.record(Entry {
            occasion,
            reason: Reason::TermDeadlinePassed,
            usage: account.usage,
            hard: account.effective,
            victims: candidate.iter().map(|one| hands.ledger.victim(one)).collect(),
            peers: Vec::new(),
        });
        if let Some(flight) = hands.flights.find(victim) {
            flight.incident = incident;
        }
        Ok(true)
    }

    /// The kernel side took a victim, or could not.
    fn on_acted(&mut self, record: &Record, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        let process = &record.process;
        let victim = VictimId { pid: process.pid, start_ns: process.start_ns };
        let signal = if record.signal == 15 { Signal::Term } else { Signal::Kill };
        let action = account_action(signal);
        let Some(signalled) = record.signal_time else {
            let fault = SignalFault::Other(record.signal_errno.unwrap_or_default());
            self.watch(record.uid, action).state.outcome(victim, SignalOutcome::Failed(fault), now());
            hands.notices.signal_failed(process.pid, signal);
            return self.judge(record.uid, Some(record), hands);
        };
        // Gone already is the best that can happen: then there is nothing to hold.
        let pidfd = PidFd::open_verified(hands.proc, process.pid, process.start_ns).ok();
        self.watch(record.uid, action).state.outcome(victim, SignalOutcome::Sent(signal), signalled);
        let incident = hands.ledger.record(Entry {
            occasion: Occasion {
                account: Some(user(record.uid)),
                guard: Guard::Limits,
                trigger: Trigger::InKernel,
                signal: Some(signal),
                crossed: Some(record.time),
                signalled: Some(signalled),
            },
            reason: in_kernel_reason(record, signal),
            usage: record.usage,
            hard: Some(record.effective),
            victims: vec![Victim {
                pid: process.pid,
                start_ns: process.start_ns,
                uid: record.uid,
                comm: process.comm.clone().unwrap_or_default(),
                cmdline: process.cmdline.clone(),
                cgroup: None,
                usage_bytes: hands.ledger.page_size().to_bytes(process.pages).0,
            }],
            peers: Vec::new(),
        });
        hands.flights.add(Flight {
            victim,
            owner: Owner::User(record.uid),
            mm: process.mm,
            pidfd,
            incident,
            signal,
            signalled,
            pages: process.pages,
            freed: None,
            exited: false,
        });
        if record.mm_shared {
            self.scan()?;
            self.end_holders(hands);
        }
        Ok(())
    }

    /// An address space goes when the last process that uses it goes: the others of a victim's are ended with it.
    pub(crate) fn end_holders(&mut self, hands: &mut Hands<'_>) {
        for holder in core::mem::take(&mut self.holders) {
            if let Some(signal) = self.owed(&holder, hands) {
                let candidate = candidate_of(&holder);
                let (_, outcome) = signal_candidate(&candidate, signal, hands);
                if matches!(outcome, SignalOutcome::Failed(_)) {
                    hands.notices.signal_failed(holder.pid, signal);
                }
            }
        }
    }

    /// The signal that a holder has not had yet. Its own victim is dying already; another of the same address space is
    /// sent what the victim was.
    fn owed(&self, holder: &Holder, hands: &Hands<'_>) -> Option<Signal> {
        let signal = hands.flights.signal_of_mm(holder.mm, holder.pid)?;
        (holder.pid.0 > 1 && holder.pid.0 != std::process::id()).then_some(signal)
    }

    /// Looks after everything that is near or overdue: on the scan's own time, and after deadlines.
    pub(crate) fn tend(&mut self, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        if self.next_scan().is_some_and(|due| due <= now()) {
            self.scan()?;
            self.end_holders(hands);
        }
        let accounts = self.limits.accounts()?;
        for account in &accounts {
            if !account.near && !self.is_waiting(account.uid) {
                continue;
            }
            self.judge(account.uid, None, hands)?;
            self.introduce(hands);
            self.expire(account.uid)?;
        }
        let busy = accounts.iter().any(|account| account.near || self.is_waiting(account.uid));
        self.plan_scan(busy, now());
        Ok(())
    }

    fn is_waiting(&self, uid: Uid) -> bool {
        self.watched.get(&uid).is_some_and(|watch| !watch.state.in_flight().is_empty())
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

const fn account_action(signal: Signal) -> Action {
    match signal {
        Signal::Term => Action::Term,
        Signal::Kill => Action::Kill,
    }
}

const fn in_kernel_reason(record: &Record, signal: Signal) -> Reason {
    match (record.unanswered, signal) {
        (true, _) => Reason::OverHardLimitUnanswered,
        (false, Signal::Term) => Reason::OverHardLimitTerm,
        (false, Signal::Kill) => Reason::OverHardLimitLargest,
    }
}

fn candidate_of(holder: &Holder) -> Candidate {
    Candidate {
        pid: holder.pid,
        start_ns: holder.start_ns,
        uid: holder.uid,
        mm: holder.mm,
        usage: Reading::Absent,
        standing: Standing::Free,
    }
}

fn entry(occasion: Occasion, decision: &Decision, victims: Vec<Victim>, ledger: &Ledger) -> Entry {
    Entry {
        occasion,
        reason: decision.reason,
        usage: decision.usage,
        hard: Some(decision.hard),
        victims,
        peers: ledger.peers(decision),
    }
}

fn flight(
    candidate: &Candidate,
    pidfd: Option<PidFd>,
    uid: Uid,
    signal: Signal,
    signalled: Nanos,
    incident: u64,
) -> Flight {
    Flight {
        victim: candidate.id(),
        owner: Owner::User(uid),
        mm: candidate.mm,
        pidfd,
        incident,
        signal,
        signalled,
        pages: candidate.usage.latest().unwrap_or_default(),
        freed: None,
        exited: false,
    }
}

/// Holds a process, checks that it is the one selected, and signals it.
pub(crate) fn signal_candidate(
    candidate: &Candidate,
    signal: Signal,
    hands: &Hands<'_>,
) -> (Option<PidFd>, SignalOutcome) {
    match PidFd::open_verified(hands.proc, candidate.pid, candidate.start_ns) {
        Ok(pidfd) => {
            let outcome = outcome_of(&pidfd.send_signal(signal), signal);
            (Some(pidfd), outcome)
        }
        Err(error) => (None, outcome_of(&Err(error), signal)),
    }
}

pub(crate) fn outcome_of(result: &Result<(), ProcessError>, signal: Signal) -> SignalOutcome {
    match result {
        Ok(()) => SignalOutcome::Sent(signal),
        Err(ProcessError::Vanished(_)) => SignalOutcome::Vanished,
        Err(ProcessError::Denied { .. }) => SignalOutcome::Failed(SignalFault::NotPermitted),
        Err(ProcessError::Failed { errno, .. }) => SignalOutcome::Failed(SignalFault::Other(errno.0)),
        Err(ProcessError::Unsupported { .. } | ProcessError::Unreadable { .. }) => {
            SignalOutcome::Failed(SignalFault::Other(0))
        }
    }
}
