//! Every small scenario of the machine guard: every level of shortage in every order, every outcome of every signal, time
//! passing by little or by much, and the victim ending or not.

use super::{id, reading};
use crate::{
    machine::{MachineAction, MachineConfig, MachineReading, MachineStage, MachineState, decide},
    reading::Reading,
    reason::Reason,
    units::Nanos,
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};

const GRACE: u64 = 30_000_000_000;
const DEADLINE: u64 = 50_000_000_000;

fn config() -> MachineConfig {
    MachineConfig {
        spike: Nanos(0),
        term_grace: Nanos(GRACE),
        kill_deadline: Nanos(DEADLINE),
        ..MachineConfig::default()
    }
}

/// What the model knows of the one victim.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    Nobody,
    Termed(u64),
    Killed(u64),
}

#[derive(Clone)]
struct Scenario {
    state: MachineState,
    model: Model,
    now: u64,
    next_pid: u32,
    held: Option<(Signal, u64)>,
}

#[derive(Default)]
struct Seen {
    steps: u64,
    selections: u64,
    escalations: u64,
    reports: u64,
}

/// Each level of shortage, and a reading that failed.
fn levels() -> [(MachineReading, Option<Option<Signal>>); 4] {
    let blind = MachineReading { mem_available: Reading::Unreadable, ..reading(0, 1000, 0, 0) };
    [
        (reading(900, 100, 0, 0), Some(None)),
        (reading(100, 900, 0, 0), Some(Some(Signal::Term))),
        (reading(10, 990, 0, 0), Some(Some(Signal::Kill))),
        (blind, None),
    ]
}

#[test]
fn every_small_world_keeps_the_rules() {
    let mut seen = Seen::default();
    let start =
        Scenario { state: MachineState::default(), model: Model::Nobody, now: 0, next_pid: 10, held: None };
    explore(&start, 4, &mut seen);
    assert!(seen.steps > 50_000, "{} steps", seen.steps);
    for (what, count) in
        [("selections", seen.selections), ("escalations", seen.escalations), ("reports", seen.reports)]
    {
        assert!(count > 100, "{what}: {count}");
    }
}

fn explore(scenario: &Scenario, depth: u32, seen: &mut Seen) {
    if depth == 0 {
        return;
    }
    for (reading, level) in levels() {
        for span in [1, GRACE, DEADLINE] {
            seen.steps += 1;
            let now = scenario.now + span;
            let (state, action, sleep) = decide(&reading, &config(), scenario.state.clone(), Nanos(now));
            assert!((1..=1_000_000_000).contains(&sleep.0));
            let mut next = Scenario { state, now, ..scenario.clone() };
            if matches!(next.model, Model::Killed(at) if now >= at + DEADLINE) {
                next.model = Model::Nobody;
            }
            if level == Some(None) || next.held.is_some_and(|(_, until)| now >= until) {
                next.held = None;
            }
            check(&next, level, action, seen);
            follow(&next, action, depth, seen);
        }
    }
}

fn check(scenario: &Scenario, level: Option<Option<Signal>>, action: MachineAction, seen: &mut Seen) {
    let short = level.flatten();
    let due = match scenario.model {
        Model::Termed(at) => scenario.now >= at + GRACE || short == Some(Signal::Kill),
        Model::Nobody | Model::Killed(_) => false,
    };
    assert_eq!(
        due,
        matches!(action, MachineAction::Escalate { .. }),
        "escalation happens when due, never before"
    );
    match action {
        MachineAction::Select(shortage) => {
            assert!(scenario.model == Model::Nobody, "never two at a time before the deadline");
            assert_eq!(Some(shortage.signal), short, "only in a shortage, with its signal");
            seen.selections += 1;
        }
        MachineAction::Escalate { victim, reason } => {
            assert_eq!(Some(victim), victim_of(&scenario.state));
            let Model::Termed(at) = scenario.model else { panic!("nobody was told to end") };
            let expected = if scenario.now >= at + GRACE {
                Reason::MachineTermDeadlinePassed
            } else {
                Reason::MachineLowMemoryKill
            };
            assert_eq!(reason, expected);
            seen.escalations += 1;
        }
        MachineAction::Report(_) => {
            assert_eq!(level, None, "only what is missing is reported");
            seen.reports += 1;
        }
        MachineAction::Notice { .. } | MachineAction::Reclaim { .. } => {
            panic!("no level here is one of them alone")
        }
        MachineAction::Rest => {
            let held = scenario.held.is_some_and(|(signal, _)| short.is_some_and(|short| signal >= short));
            assert!(short.is_none() || scenario.model != Model::Nobody || held, "a shortage is acted on");
        }
    }
}

fn victim_of(state: &MachineState) -> Option<VictimId> {
    match state.stage() {
        MachineStage::Termed { victim, .. } | MachineStage::Killed { victim, .. } => Some(victim),
        MachineStage::Idle => None,
    }
}

fn follow(scenario: &Scenario, action: MachineAction, depth: u32, seen: &mut Seen) {
    let (victim, signal) = match action {
        MachineAction::Select(shortage) => (id(scenario.next_pid), shortage.signal),
        MachineAction::Escalate { victim, .. } => (victim, Signal::Kill),
        MachineAction::Rest
        | MachineAction::Report(_)
        | MachineAction::Notice { .. }
        | MachineAction::Reclaim { .. } => {
            explore(scenario, depth - 1, seen);
            if let Some(victim) = victim_of(&scenario.state) {
                explore(&told(scenario, victim, SignalOutcome::Freed), depth - 1, seen);
            }
            return;
        }
    };
    let failed = SignalOutcome::Failed(SignalFault::NotPermitted);
    for outcome in [SignalOutcome::Sent(signal), failed, SignalOutcome::Vanished] {
        explore(&told(scenario, victim, outcome), depth - 1, seen);
    }
    if let MachineAction::Select(shortage) = action {
        let mut held = scenario.clone();
        held.state.hold(shortage.signal, Nanos(scenario.now));
        held.held = Some((shortage.signal, scenario.now + 10_000_000_000));
        explore(&held, depth - 1, seen);
    }
}

fn told(scenario: &Scenario, victim: VictimId, outcome: SignalOutcome) -> Scenario {
    let mut next = scenario.clone();
    next.state.outcome(victim, outcome, &config(), Nanos(scenario.now));
    next.next_pid += 1;
    next.model = match outcome {
        SignalOutcome::Sent(Signal::Term) => Model::Termed(scenario.now),
        SignalOutcome::Sent(Signal::Kill) => Model::Killed(scenario.now),
        SignalOutcome::Failed(_) | SignalOutcome::Vanished | SignalOutcome::Freed => Model::Nobody,
    };
    next
}
