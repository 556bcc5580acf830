//! One kill, from its victims to its incident, whichever guard decided it: each victim is noted, held by pidfd, checked to be
//! the one selected, and signalled; then all of it is written down as one incident, and each is followed until its memory is
//! back.

pub(super) mod cgroups;
pub(super) mod company;
pub(super) mod ledger;
pub(super) mod pending;
pub(super) mod unit_marks;

use super::{
    context::Context,
    kernel::{Held as _, Kernel},
};
use ledger::Entry;
use pending::{Owner, PendingKill};
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
    escalated: Option<Escalated>,
}

struct Escalated {
    victim: VictimId,
    candidate: Option<Candidate>,
    /// As that of [`Signalled`].
    _note: Option<Note>,
}

struct Signalled<K: Kernel> {
    candidate: Candidate,
    pidfd: Option<K::Held>,
    moment: Nanos,
    /// Until the incident is recorded.
    _note: Option<Note>,
}

impl<K: Kernel> Kill<K> {
    /// Nobody is signalled yet.
    pub(super) const fn new(owner: Owner, signal: Signal, mut entry: Entry) -> Self {
        entry.signal = Some(signal);
        Self { owner, signal, entry, signalled: Vec::new(), escalated: None }
    }

    /// Notes that a candidate is about to be signalled, for [`Kill::send`]; a note that is dropped says that nothing was done.
    pub(super) fn intend(&self, candidate: &Candidate, context: &Context<K>) -> Option<Note> {
        context.ledger.intend(&self.entry, &context.ledger.victim(candidate))
    }

    /// Signals a candidate; `held`: by this, where it is held already.
    pub(super) fn send(
        &mut self,
        candidate: &Candidate,
        note: Option<Note>,
        held: Option<K::Held>,
        context: &mut Context<K>,
    ) -> (SignalOutcome, Nanos) {
        let (pidfd, outcome, moment) = signal(candidate, held, self.signal, context);
        if matches!(outcome, SignalOutcome::Sent(_)) {
            if self.is_empty() {
                self.entry.signalled = Some(moment);
            }
            self.signalled.push(Signalled { candidate: *candidate, pidfd, moment, _note: note });
        }
        (outcome, moment)
    }

    /// Takes a candidate in that the programs sent SIGKILL at this moment.
    pub(super) fn add(&mut self, candidate: &Candidate, pidfd: Option<K::Held>, moment: Nanos) {
        self.signalled.push(Signalled { candidate: *candidate, pidfd, moment, _note: None });
    }

    /// Sends SIGKILL to one that was asked to end and is held since. The caller tells [`pending::PendingKills::escalated`],
    /// once the programs know. `candidate`: as it is known now.
    pub(super) fn escalate(
        &mut self,
        victim: VictimId,
        candidate: Option<Candidate>,
        context: &mut Context<K>,
    ) -> (SignalOutcome, Nanos) {
        let note = candidate.as_ref().and_then(|candidate| self.intend(candidate, context));
        let killed = context.pending.kill(victim);
        let outcome = killed.map_or(SignalOutcome::Vanished, |result| outcome_of(&result, Signal::Kill));
        let moment = context.now();
        if matches!(outcome, SignalOutcome::Sent(_)) {
            self.entry.signalled = Some(moment);
            self.escalated = Some(Escalated { victim, candidate, _note: note });
        }
        (outcome, moment)
    }

    /// What the decision can be replayed from.
    pub(super) fn traced(&mut self, trace: Option<String>) {
        self.entry.trace = trace;
    }

    /// Those who were sent its signal, in that order.
    pub(super) fn victims(&self) -> impl Iterator<Item = &Candidate> {
        let escalated = self.escalated.iter().filter_map(|one| one.candidate.as_ref());
        escalated.chain(self.signalled.iter().map(|one| &one.candidate))
    }

    /// The same as incidents tell them, with the job that each is in.
    fn victims_told(&self, context: &Context<K>) -> Vec<Victim> {
        let membership = context.ledger.membership();
        let escalated = self.escalated.iter().filter_map(|one| Some((one.candidate.as_ref()?, None)));
        let signalled = self.signalled.iter().map(|one| (&one.candidate, one.pidfd.as_ref()));
        let told = |(candidate, pidfd): (&Candidate, Option<&K::Held>)| {
            let mut victim = context.ledger.victim(candidate);
            match (&membership, pidfd) {
                (Some(membership), Some(pidfd)) => victim.jobs.extend(pidfd.job(membership)),
                (Some(_), None) => context.ledger.find_job(&mut victim),
                (None, _) => {}
            }
            victim
        };
        escalated.chain(signalled).map(told).collect()
    }

    /// Whether nobody was signalled.
    pub(super) fn is_empty(&self) -> bool {
        self.signalled.is_empty() && self.escalated.is_none()
    }

    /// Writes it down, with whom its victims were compared, and has them followed; nothing, where there is none.
    pub(super) fn conclude(self, peers: Vec<Victim>, context: &mut Context<K>) {
        if self.is_empty() {
            return;
        }
        let victims = self.victims_told(context);
        let Self { owner, signal, entry, signalled, escalated } = self;
        let incident = context.ledger.record(Entry { victims, peers, ..entry });
        if let Some(Escalated { victim, .. }) = escalated {
            context.pending.told(victim, signal, incident);
        }
        for Signalled { candidate, pidfd, moment, .. } in signalled {
            context.pending.add(PendingKill {
                // The machine guard's keys are not the accounting's.
                mm: if matches!(owner, Owner::Line(_)) { candidate.mm } else { 0 },
                pidfd,
                incident,
                pages: candidate.usage.latest().unwrap_or_default(),
                ..PendingKill::new(candidate.id(), owner, signal, moment)
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
    context: &mut Context<K>,
) -> (Option<K::Held>, SignalOutcome, Nanos) {
    let held = held.map_or_else(|| context.kernel.hold(candidate.pid, candidate.start_ns), Ok);
    if let (Ok(pidfd), Signal::Kill) = (&held, signal) {
        context.pending.expect(pidfd, candidate.usage);
    }
    let moment = context.now();
    let (pidfd, sent) = match held {
        Ok(pidfd) => {
            let sent = pidfd.send_signal(signal);
            (Some(pidfd), sent)
        }
        Err(error) => (None, Err(error)),
    };
    let outcome = outcome_of(&sent, signal);
    if matches!(outcome, SignalOutcome::Failed(_)) {
        context.notices.signal_failed(candidate.pid, signal);
    }
    (pidfd, outcome, moment)
}

fn outcome_of(result: &Result<(), ProcessError>, signal: Signal) -> SignalOutcome {
    match result {
        Ok(()) => SignalOutcome::Sent(signal),
        Err(ProcessError::Vanished(_)) => SignalOutcome::Vanished,
        Err(ProcessError::Denied { .. }) => SignalOutcome::Failed(SignalFault::NotPermitted),
        Err(ProcessError::Failed { errno, .. }) => {
            SignalOutcome::Failed(SignalFault::Other(errno.raw_os_error()))
        }
        Err(ProcessError::Unsupported { .. } | ProcessError::Unreadable { .. }) => {
            SignalOutcome::Failed(SignalFault::Other(0))
        }
    }
}
