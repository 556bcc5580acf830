//! The machine guard's hands: reads `/proc/meminfo`, lists processes when memory is short, signals.

use super::{
    acting::{outcome_of, signal_candidate},
    flights::{Flight, Owner},
    hands::{Hands, now},
    ledger::{Entry, Occasion},
};
use plimsoll_policy::{
    incident::{Guard, Trigger},
    machine::{MachineAction, MachineConfig, MachineReading, MachineState, Shortage, decide, select},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Protection, Standing},
    units::{Bytes, Nanos, Pages},
    victim::{Signal, SignalOutcome, VictimId},
};
use plimsoll_sys::process::{Process, ProcessError};

/// Room for this many processes before the list has to grow: allocated before memory is short.
const CANDIDATES_ROOM: usize = 16_384;

/// The guard of the whole machine.
#[derive(Debug)]
pub(crate) struct MachineGuard {
    config: MachineConfig,
    state: MachineState,
    candidates: Vec<Candidate>,
    last: Option<MachineReading>,
    due: Nanos,
}

fn reading(value: Option<Bytes>) -> Reading<Bytes> {
    value.map_or(Reading::Absent, Reading::Known)
}

impl MachineGuard {
    pub(crate) fn new(config: MachineConfig) -> Self {
        Self {
            config,
            state: MachineState::default(),
            candidates: Vec::with_capacity(CANDIDATES_ROOM),
            last: None,
            due: Nanos(0),
        }
    }

    pub(crate) fn configure(&mut self, config: MachineConfig) {
        self.config = config;
        self.due = Nanos(0);
    }

    pub(crate) const fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// The reading that was decided on last.
    pub(crate) const fn last(&self) -> Option<&MachineReading> {
        self.last.as_ref()
    }

    /// When to look next.
    pub(crate) const fn due(&self) -> Nanos {
        self.due
    }

    /// Looks and acts, if it is time.
    pub(crate) fn tend(&mut self, hands: &mut Hands<'_>) {
        let moment = now();
        if moment < self.due {
            return;
        }
        let reading = match hands.proc.read_meminfo() {
            Ok(info) => MachineReading {
                mem_available: reading(info.mem_available),
                anon: reading(info.anonymous),
                swap_total: reading(info.swap_total),
                swap_free: reading(info.swap_free),
            },
            Err(error) => {
                hands.notices.once("machine guard", &error);
                let unread = Reading::Unreadable;
                MachineReading { mem_available: unread, anon: unread, swap_total: unread, swap_free: unread }
            }
        };
        self.last = Some(reading);
        let state = core::mem::take(&mut self.state);
        let (state, action, sleep) = decide(&reading, &self.config, state, moment);
        self.state = state;
        self.due = Nanos(moment.0.saturating_add(sleep.0));
        match action {
            MachineAction::Rest => {}
            MachineAction::Select(shortage) => self.relieve(&shortage, moment, hands),
            MachineAction::Escalate { victim, reason } => self.escalate(victim, reason, hands),
            MachineAction::Report(fault) => {
                hands
                    .notices
                    .once("machine guard", &format_args!("cannot decide: {fault:?} in /proc/meminfo"));
            }
        }
    }

    fn relieve(&mut self, shortage: &Shortage, noticed: Nanos, hands: &mut Hands<'_>) {
        if let Err(error) = self.list(hands) {
            hands.notices.once("machine guard", &error);
            return;
        }
        let decision =
            select(&self.candidates, shortage, &self.state, &self.config, hands.ledger.page_size());
        let mut occasion = Occasion {
            account: None,
            guard: Guard::Pressure,
            trigger: Trigger::Daemon,
            signal: None,
            crossed: Some(noticed),
            signalled: None,
        };
        let mut victims = Vec::new();
        let mut flight = None;
        let first = decision.victims.first().copied();
        match first {
            Some(candidate) if !decision.dry_run => {
                let (pidfd, outcome, moment) = signal_candidate(&candidate, shortage.signal, hands);
                self.state.outcome(candidate.id(), outcome, &self.config, moment);
                if !matches!(outcome, SignalOutcome::Sent(_)) {
                    if matches!(outcome, SignalOutcome::Failed(_)) {
                        hands.notices.signal_failed(candidate.pid, shortage.signal);
                    }
                    // Decide again at once: the next one is selected.
                    self.due = moment;
                    return;
                }
                occasion.signal = Some(shortage.signal);
                occasion.signalled = Some(moment);
                victims.push(hands.ledger.victim(&candidate));
                flight = Some((candidate, pidfd, moment));
            }
            Some(candidate) => {
                self.state.hold(shortage.signal, noticed);
                victims.push(hands.ledger.victim(&candidate));
            }
            None => self.state.hold(shortage.signal, noticed),
        }
        let peers = hands.ledger.peers(&decision);
        let incident = hands.ledger.record(Entry {
            occasion,
            reason: decision.reason,
            usage: decision.usage,
            hard: Some(decision.hard),
            victims,
            peers,
        });
        if let Some((candidate, pidfd, signalled)) = flight {
            hands.flights.add(Flight {
                victim: candidate.id(),
                owner: Owner::Machine,
                mm: 0,
                pidfd,
                incident,
                signal: shortage.signal,
                signalled,
                pages: candidate.usage.latest().unwrap_or_default(),
                freed: None,
                exited: false,
            });
        }
    }

    fn escalate(&mut self, victim: VictimId, reason: Reason, hands: &mut Hands<'_>) {
        let result = hands.flights.find(victim).and_then(|flight| {
            flight.pidfd.as_ref().map(|pidfd| (pidfd.send_signal(Signal::Kill), flight.pages))
        });
        let (outcome, pages) = result.map_or((SignalOutcome::Vanished, Pages(0)), |(result, pages)| {
            (outcome_of(&result, Signal::Kill), pages)
        });
        let moment = now();
        self.state.outcome(victim, outcome, &self.config, moment);
        if !matches!(outcome, SignalOutcome::Sent(_)) {
            return;
        }
        hands.flights.escalated(victim, moment);
        let candidate = self.candidates.iter().find(|one| one.id() == victim).copied();
        let incident = hands.ledger.record(Entry {
            occasion: Occasion {
                account: None,
                guard: Guard::Pressure,
                trigger: Trigger::Daemon,
                signal: Some(Signal::Kill),
                crossed: None,
                signalled: Some(moment),
            },
            reason,
            usage: pages,
            hard: None,
            victims: candidate.iter().map(|one| hands.ledger.victim(one)).collect(),
            peers: Vec::new(),
        });
        if let Some(flight) = hands.flights.find(victim) {
            flight.incident = incident;
        }
    }

    /// A victim of ours is gone.
    pub(crate) fn freed(&mut self, victim: VictimId) {
        self.state.outcome(victim, SignalOutcome::Freed, &self.config, now());
        self.due = now();
    }

    fn list(&mut self, hands: &mut Hands<'_>) -> Result<(), ProcessError> {
        let candidates = &mut self.candidates;
        candidates.clear();
        hands.proc.processes(|process| candidates.push(candidate(process)))?;
        hands.shield.by_executable(hands.proc, candidates);
        hands.shield.by_cgroup(hands.proc, candidates);
        Ok(())
    }
}

fn candidate(process: &Process) -> Candidate {
    let standing = if process.kernel_thread {
        Standing::Protected(Protection::KernelThread)
    } else if process.pid.0 == std::process::id() {
        Standing::Protected(Protection::Daemon)
    } else if process.dying {
        Standing::Dying
    } else {
        Standing::Free
    };
    Candidate {
        pid: process.pid,
        start_ns: process.start_ns,
        uid: process.uid,
        mm: 0,
        usage: process.usage(),
        standing,
    }
}
