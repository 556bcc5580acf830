//! Carrying decisions out: a victim is held by pidfd, checked to be the one selected, signalled, marked, written down.

use super::{
    attached::Attached,
    flights::{Flight, Owner},
    hands::{Hands, now},
    ledger::{Entry, Ledger, Occasion, user},
};
use plimsoll_policy::{
    account::Action,
    incident::{Guard, Trigger, Victim},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Decision, Standing},
    units::{Nanos, Uid},
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use plimsoll_sys::{
    bpf::{AccountFacts, BpfError, Holder, VictimMark},
    process::{PidFd, ProcessError},
};
use plimsoll_wire::record::Record;

impl Attached {
    /// Signals the first victim, and those that share its memory.
    pub(super) fn send(
        &mut self,
        account: &AccountFacts,
        decision: &Decision,
        signal: Signal,
        hands: &mut Hands<'_>,
    ) -> Result<bool, BpfError> {
        let mut sent = Vec::new();
        let mut signalled = None;
        for candidate in decision.together() {
            // First, so that the kernel side does not take another meanwhile; it may just have.
            if !self.limits.mark(candidate.mm, candidate.pid, VictimMark::Dying)? {
                continue;
            }
            let (pidfd, outcome, moment) = signal_candidate(candidate, signal, hands);
            self.watch(account.uid, account_action(signal)).state.outcome(candidate.id(), outcome, moment);
            if matches!(outcome, SignalOutcome::Sent(_)) {
                signalled.get_or_insert(moment);
                sent.push(Signalled { candidate: *candidate, pidfd, moment });
                continue;
            }
            // Nothing is dying that was not signalled; one that is not tracked any more has gone.
            self.limits.mark(candidate.mm, candidate.pid, VictimMark::Spared)?;
            if let SignalOutcome::Failed(_) = outcome {
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
            let victims = sent.iter().map(|one| hands.ledger.victim(&one.candidate)).collect();
            let incident = hands.ledger.record(entry(occasion, decision, victims, hands.ledger));
            for one in sent {
                hands.flights.add(one.flight(account.uid, signal, incident));
            }
        }
        Ok(true)
    }

    pub(super) fn only_tell(&self, account: &AccountFacts, decision: &Decision, hands: &mut Hands<'_>) {
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

    pub(super) fn escalate(
        &mut self,
        account: &AccountFacts,
        victim: VictimId,
        hands: &mut Hands<'_>,
    ) -> Result<bool, BpfError> {
        let held = hands
            .flights
            .find(victim)
            .and_then(|flight| flight.pidfd.as_ref().map(|pidfd| pidfd.send_signal(Signal::Kill)));
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
    pub(super) fn on_acted(&mut self, record: &Record, hands: &mut Hands<'_>) -> Result<(), BpfError> {
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
        // It went on allocating between our own signal to it and the mark: one victim, and written down already.
        if hands.flights.find(victim).is_some_and(|flight| flight.signal == signal) {
            return Ok(());
        }
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

    /// Ends what an earlier daemon asked to end and nobody waits for any more: its grace period died with that daemon.
    pub(super) fn finish_inherited(&mut self, hands: &mut Hands<'_>) -> Result<(), BpfError> {
        let mut left = Vec::new();
        self.limits.address_spaces(|space| {
            if space.dying || space.expired {
                left.push(*space);
            }
        })?;
        for space in left {
            let candidate = Candidate {
                pid: space.pid,
                start_ns: space.start_ns,
                uid: space.uid,
                mm: space.mm,
                usage: Reading::Known(space.own),
                standing: Standing::Free,
            };
            if space.protected || hands.flights.find(candidate.id()).is_some() {
                continue;
            }
            let (pidfd, outcome, moment) = signal_candidate(&candidate, Signal::Kill, hands);
            if !matches!(outcome, SignalOutcome::Sent(_)) {
                continue;
            }
            self.watch(space.uid, Action::Term).state.outcome(candidate.id(), outcome, moment);
            let account = self.limits.account(space.uid)?;
            let incident = hands.ledger.record(Entry {
                occasion: Occasion {
                    account: Some(user(space.uid)),
                    guard: Guard::Limits,
                    trigger: Trigger::Daemon,
                    signal: Some(Signal::Kill),
                    crossed: None,
                    signalled: Some(moment),
                },
                reason: Reason::TermDeadlinePassed,
                usage: account.map_or(space.own, |account| account.usage),
                hard: account.and_then(|account| account.effective),
                victims: vec![hands.ledger.victim(&candidate)],
                peers: Vec::new(),
            });
            let signalled = Signalled { candidate, pidfd, moment };
            hands.flights.add(signalled.flight(space.uid, Signal::Kill, incident));
        }
        Ok(())
    }

    /// An address space goes when the last process that uses it goes: the others of a victim's are ended with it.
    pub(crate) fn end_holders(&mut self, hands: &mut Hands<'_>) {
        for holder in core::mem::take(&mut self.holders) {
            if let Some(signal) = self.owed(&holder, hands) {
                let candidate = candidate_of(&holder);
                let (_, outcome, _) = signal_candidate(&candidate, signal, hands);
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

/// A candidate that was signalled.
struct Signalled {
    candidate: Candidate,
    pidfd: Option<PidFd>,
    moment: Nanos,
}

impl Signalled {
    fn flight(self, uid: Uid, signal: Signal, incident: u64) -> Flight {
        Flight {
            victim: self.candidate.id(),
            owner: Owner::User(uid),
            mm: self.candidate.mm,
            pidfd: self.pidfd,
            incident,
            signal,
            signalled: self.moment,
            pages: self.candidate.usage.latest().unwrap_or_default(),
            freed: None,
            exited: false,
        }
    }
}

/// Holds a process, checks that it is the one selected, and signals it. The moment is that of sending: a victim may
/// run, and end, before the call returns.
pub(crate) fn signal_candidate(
    candidate: &Candidate,
    signal: Signal,
    hands: &Hands<'_>,
) -> (Option<PidFd>, SignalOutcome, Nanos) {
    match PidFd::open_verified(hands.proc, candidate.pid, candidate.start_ns) {
        Ok(pidfd) => {
            let moment = now();
            let outcome = outcome_of(&pidfd.send_signal(signal), signal);
            (Some(pidfd), outcome, moment)
        }
        Err(error) => (None, outcome_of(&Err(error), signal), now()),
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
