//! One kill, from its victims to its incident, whichever guard decided it: each victim is noted, held by pidfd, checked to be
//! the one selected, and signalled; then all of it is written down as one incident, and each is followed until its memory is
//! back.

use super::{
    flights::{Flight, Owner},
    hands::Hands,
    kernel::{Held as _, Kernel},
    ledger::Entry,
};
use plimsoll_policy::{
    incident::Victim,
    selection::Candidate,
    units::Nanos,
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use plimsoll_sys::{bpf::Note, process::ProcessError};

/// A kill that is being carried out.
pub(super) struct Kill<K: Kernel> {
    owner: Owner,
    /// What its victims are sent.
    pub(super) signal: Signal,
    /// Without its victims, until it is written down.
    entry: Entry,
    signalled: Vec<Signalled<K>>,
    /// Who was sent SIGTERM by an earlier one; first among the victims.
    escalated: Option<(VictimId, Option<Candidate>)>,
    /// Until the incident is recorded.
    notes: Vec<Note>,
}

struct Signalled<K: Kernel> {
    candidate: Candidate,
    pidfd: Option<K::Held>,
    moment: Nanos,
}

impl<K: Kernel> Kill<K> {
    /// Nobody is signalled yet.
    pub(super) const fn new(owner: Owner, signal: Signal, mut entry: Entry) -> Self {
        entry.signal = Some(signal);
        Self { owner, signal, entry, signalled: Vec::new(), escalated: None, notes: Vec::new() }
    }

    /// Notes that a candidate is about to be signalled.
    pub(super) fn intend(&mut self, candidate: &Candidate, hands: &Hands<K>) {
        self.notes.extend(hands.ledger.intend(&self.entry, &hands.ledger.victim(candidate)));
    }

    /// Signals a candidate that was noted; `held`: by this, where it is held already.
    pub(super) fn send(
        &mut self,
        candidate: &Candidate,
        held: Option<K::Held>,
        hands: &mut Hands<K>,
    ) -> (SignalOutcome, Nanos) {
        let (pidfd, outcome, moment) = signal(candidate, held, self.signal, hands);
        if matches!(outcome, SignalOutcome::Sent(_)) {
            if self.is_empty() {
                self.entry.signalled = Some(moment);
            }
            self.add(candidate, pidfd, moment);
        }
        (outcome, moment)
    }

    /// Takes a candidate in that the programs sent SIGKILL at this moment.
    pub(super) fn add(&mut self, candidate: &Candidate, pidfd: Option<K::Held>, moment: Nanos) {
        self.signalled.push(Signalled { candidate: *candidate, pidfd, moment });
    }

    /// Sends SIGKILL to one that was asked to end and is held since. The caller tells [`super::flights::Flights::escalated`],
    /// once the programs know. `candidate`: as it is known now.
    pub(super) fn escalate(
        &mut self,
        victim: VictimId,
        candidate: Option<Candidate>,
        hands: &mut Hands<K>,
    ) -> (SignalOutcome, Nanos) {
        if let Some(candidate) = &candidate {
            self.intend(candidate, hands);
        }
        let killed = hands.flights.kill(victim);
        let outcome = killed.map_or(SignalOutcome::Vanished, |result| outcome_of(&result, Signal::Kill));
        let moment = hands.now();
        if matches!(outcome, SignalOutcome::Sent(_)) {
            self.entry.signalled = Some(moment);
            self.escalated = Some((victim, candidate));
        }
        (outcome, moment)
    }

    /// Those who were sent its signal, in that order.
    pub(super) fn victims(&self) -> impl Iterator<Item = &Candidate> {
        let escalated = self.escalated.iter().filter_map(|(_, candidate)| candidate.as_ref());
        escalated.chain(self.signalled.iter().map(|one| &one.candidate))
    }

    /// Whether nobody was signalled.
    pub(super) fn is_empty(&self) -> bool {
        self.signalled.is_empty() && self.escalated.is_none()
    }

    /// Writes it down, with whom its victims were compared, and has them followed; nothing, where there is none.
    pub(super) fn conclude(self, peers: Vec<Victim>, hands: &mut Hands<K>) {
        if self.is_empty() {
            return;
        }
        let victims = self.victims().map(|one| hands.ledger.victim(one)).collect();
        let Self { owner, signal, entry, signalled, escalated, notes } = self;
        let incident = hands.ledger.record(Entry { victims, peers, ..entry });
        drop(notes);
        if let Some((victim, _)) = escalated {
            hands.flights.told(victim, signal, incident);
        }
        for Signalled { candidate, pidfd, moment } in signalled {
            hands.flights.add(Flight {
                // The machine guard's keys are not the accounting's.
                mm: if matches!(owner, Owner::User(_)) { candidate.mm } else { 0 },
                pidfd,
                incident,
                pages: candidate.usage.latest().unwrap_or_default(),
                ..Flight::new(candidate.id(), owner, signal, moment)
            });
        }
    }
}

/// Holds a process, unless it is held, checks that it is the one selected, and signals it. The moment is that of sending: a
/// victim may run, and end, before the call returns.
pub(super) fn signal<K: Kernel>(
    candidate: &Candidate,
    held: Option<K::Held>,
    signal: Signal,
    hands: &mut Hands<K>,
) -> (Option<K::Held>, SignalOutcome, Nanos) {
    let held = held.map_or_else(|| hands.kernel.hold(candidate.pid, candidate.start_ns), Ok);
    let pidfd = match held {
        Ok(pidfd) => pidfd,
        Err(error) => return (None, outcome_of(&Err(error), signal), hands.now()),
    };
    if signal == Signal::Kill {
        hands.flights.expect(&pidfd, candidate.usage);
    }
    let moment = hands.now();
    let outcome = outcome_of(&pidfd.send_signal(signal), signal);
    if matches!(outcome, SignalOutcome::Failed(_)) {
        hands.notices.signal_failed(candidate.pid, signal);
    }
    (Some(pidfd), outcome, moment)
}

fn outcome_of(result: &Result<(), ProcessError>, signal: Signal) -> SignalOutcome {
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
