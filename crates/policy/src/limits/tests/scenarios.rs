//! Every small scenario: up to 4 processes of every kind, every action, every outcome of every signal, time passing by
//! little or by much. A model that shares no code with the rule says what must not happen, and what must.

use super::candidate;
use crate::{
    account::Action,
    limits::{LimitAction, LimitConfig, LimitState, Snapshot, decide},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Protection, Standing},
    units::{Nanos, Pages},
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use std::vec::Vec;

const DEADLINE: u64 = 50;
const GRACE: u64 = 30;
const HARD: u64 = 3;
const SOFT: u64 = 2;

fn config() -> LimitConfig {
    LimitConfig { kill_deadline: Nanos(DEADLINE), term_grace: Nanos(GRACE), ..LimitConfig::default() }
}

/// What the model knows of one process.
#[derive(Clone, Copy)]
struct Process {
    shown: Candidate,
    /// What it really uses, also where it cannot be read.
    pages: u64,
    termed_at: Option<u64>,
    killed_at: Option<u64>,
    failed_at: Option<u64>,
}

impl Process {
    fn leaving(&self, now: u64) -> bool {
        match (self.killed_at, self.termed_at) {
            (Some(at), _) => now < at + DEADLINE,
            (None, termed) => termed.is_some(),
        }
    }

    fn selectable(&self, now: u64) -> bool {
        self.shown.standing == Standing::Free
            && self.killed_at.is_none()
            && self.termed_at.is_none()
            && self.failed_at.is_none_or(|at| now >= at + DEADLINE)
    }
}

#[derive(Clone)]
struct Scenario {
    processes: Vec<Process>,
    action: Action,
    state: LimitState,
    now: u64,
    signals: u32,
}

#[derive(Default)]
struct Seen {
    steps: u64,
    kills: u64,
    terms: u64,
    escalations: u64,
    notices: u64,
    stuck: u64,
    seconds: u64,
}

fn kinds() -> Vec<Process> {
    let process = |pages, usage, standing: Standing| Process {
        shown: Candidate { usage, standing, ..candidate(0, 0) },
        pages,
        termed_at: None,
        // Found dying: the clock of its deadline starts when it is first seen.
        killed_at: (standing == Standing::Dying).then_some(0),
        failed_at: None,
    };
    let mut kinds = Vec::new();
    for standing in [Standing::Free, Standing::Protected(Protection::Unit), Standing::Dying] {
        for (pages, usage) in
            [(1, Reading::Known(Pages(1))), (4, Reading::Known(Pages(4))), (2, Reading::Unreadable)]
        {
            kinds.push(process(pages, usage, standing));
        }
    }
    kinds
}

/// Every choice of up to 4 kinds, with repetition, regardless of order.
fn populations() -> Vec<Vec<Process>> {
    let kinds = kinds();
    let mut populations: Vec<Vec<usize>> = std::vec![Vec::new()];
    let mut from = 0;
    for _ in 0..4 {
        let until = populations.len();
        for index in from..until {
            let last = populations[index].last().copied().unwrap_or(0);
            for kind in last..kinds.len() {
                let mut larger = populations[index].clone();
                larger.push(kind);
                populations.push(larger);
            }
        }
        from = until;
    }
    let people = |population: Vec<usize>| {
        (10..)
            .zip(population)
            .map(|(pid, kind)| {
                let Candidate { usage, standing, .. } = kinds[kind].shown;
                Process { shown: Candidate { usage, standing, ..candidate(pid, 0) }, ..kinds[kind] }
            })
            .collect()
    };
    populations.into_iter().map(people).collect()
}

#[test]
fn every_small_world_keeps_the_rules() {
    let mut seen = Seen::default();
    for processes in populations() {
        for action in [Action::Kill, Action::Term, Action::Notify] {
            let scenario = Scenario {
                processes: processes.clone(),
                action,
                state: LimitState::default(),
                now: 0,
                signals: 0,
            };
            // Four processes make most of the scenarios; three steps hold a kill, its deadline and the next one.
            explore(scenario, if processes.len() < 4 { 4 } else { 3 }, &mut seen);
        }
    }
    // The scenarios reach what they are there for.
    assert!(seen.steps > 100_000, "{} steps", seen.steps);
    for (what, count) in [
        ("kills", seen.kills),
        ("terms", seen.terms),
        ("escalations", seen.escalations),
        ("notices", seen.notices),
        ("stuck", seen.stuck),
        ("second victims", seen.seconds),
    ] {
        assert!(count > 100, "{what}: {count}");
    }
}

fn explore(scenario: Scenario, depth: u32, seen: &mut Seen) {
    if depth == 0 {
        return;
    }
    seen.steps += 1;
    let candidates: Vec<Candidate> = scenario.processes.iter().map(|one| one.shown).collect();
    let usage: u64 = scenario.processes.iter().map(|one| one.pages).sum();
    let snapshot = Snapshot {
        usage: Reading::Known(Pages(usage)),
        effective_hard: Pages(HARD),
        hard: Pages(HARD),
        soft: Pages(SOFT),
        dying: Pages(0),
        dying_most: Pages(u64::MAX),
        may_leave: Pages(0),
        action: scenario.action,
        candidates: &candidates,
        kernel_asked_at: None,
    };
    let (state, action) = decide(&snapshot, &config(), scenario.state.clone(), Nanos(scenario.now));
    let scenario = Scenario { state, ..scenario };
    check(&scenario, &action, usage, seen);
    let (victim, signal) = match action {
        LimitAction::Kill(decision) => (decision.victims[0].id(), Signal::Kill),
        LimitAction::Term(decision) => (decision.victims[0].id(), Signal::Term),
        LimitAction::Escalate { victim, .. } => (victim, Signal::Kill),
        LimitAction::None
        | LimitAction::Notify(_)
        | LimitAction::NothingKillable(_)
        | LimitAction::Near { .. }
        | LimitAction::Far { .. }
        | LimitAction::UsageUnknown => {
            pass(&scenario, depth, seen);
            return bury(&scenario, depth, seen);
        }
    };
    follow(&scenario, victim, signal, depth, seen);
}

/// What must hold for one action in one scenario.
fn check(scenario: &Scenario, action: &LimitAction, usage: u64, seen: &mut Seen) {
    let now = scenario.now;
    let leaving: u64 = scenario.processes.iter().filter(|one| one.leaving(now)).map(|one| one.pages).sum();
    let unread =
        scenario.processes.iter().any(|one| one.leaving(now) && one.shown.usage == Reading::Unreadable);
    let over = usage.saturating_sub(leaving) > HARD && !unread;
    let due = scenario
        .processes
        .iter()
        .any(|one| one.killed_at.is_none() && one.termed_at.is_some_and(|at| now >= at + GRACE));
    let selectable = scenario.processes.iter().any(|one| one.selectable(now));
    match action {
        LimitAction::Kill(decision) | LimitAction::Term(decision) => {
            assert!(over, "nobody is signalled while what is leaving brings usage to the line");
            for victim in &decision.victims {
                let process = scenario.processes.iter().find(|one| one.shown.id() == victim.id()).unwrap();
                assert!(process.selectable(now), "never the protected, the dying, or one twice");
            }
            let expected = if matches!(action, LimitAction::Kill(_)) { Action::Kill } else { Action::Term };
            assert_eq!(scenario.action, expected);
            seen.kills += u64::from(expected == Action::Kill);
            seen.terms += u64::from(expected == Action::Term);
            seen.seconds += u64::from(scenario.signals > 0);
        }
        LimitAction::Escalate { victim, since, reason } => {
            assert_eq!(*reason, Reason::TermDeadlinePassed);
            let process = scenario.processes.iter().find(|one| one.shown.id() == *victim).unwrap();
            assert_eq!((process.termed_at, process.killed_at), (Some(since.0), None));
            assert!(now >= since.0 + GRACE, "never before the grace is over");
            seen.escalations += 1;
        }
        LimitAction::Notify(decision) => {
            assert!(over && decision.victims.is_empty() && scenario.action == Action::Notify);
            seen.notices += 1;
        }
        LimitAction::NothingKillable(_) => {
            assert!(over && !selectable && scenario.action != Action::Notify);
            seen.stuck += 1;
        }
        LimitAction::Near { .. } | LimitAction::Far { .. } | LimitAction::None => {}
        LimitAction::UsageUnknown => panic!("usage is known"),
    }
    assert!(!due || matches!(action, LimitAction::Escalate { .. }), "escalation happens");
    let acts = matches!(action, LimitAction::Kill(_) | LimitAction::Term(_) | LimitAction::Escalate { .. });
    assert!(
        acts || !(over && selectable && scenario.action != Action::Notify),
        "whoever can be signalled is signalled"
    );
}

/// Each outcome of a signal, and then each way that time goes on.
fn follow(scenario: &Scenario, victim: VictimId, signal: Signal, depth: u32, seen: &mut Seen) {
    let outcomes = [
        SignalOutcome::Sent(signal),
        SignalOutcome::Failed(SignalFault::NotPermitted),
        SignalOutcome::Vanished,
    ];
    for outcome in outcomes {
        let mut next = scenario.clone();
        next.state.outcome(victim, outcome, Nanos(scenario.now));
        let now = scenario.now;
        let process = next.processes.iter_mut().find(|one| one.shown.id() == victim).unwrap();
        match outcome {
            SignalOutcome::Sent(Signal::Term) => process.termed_at = Some(now),
            SignalOutcome::Sent(Signal::Kill) => process.killed_at = Some(now),
            SignalOutcome::Failed(_) => {
                process.termed_at = None;
                process.failed_at = Some(now);
            }
            SignalOutcome::Vanished | SignalOutcome::Freed => {
                next.processes.retain(|one| one.shown.id() != victim);
            }
        }
        next.signals += u32::from(matches!(outcome, SignalOutcome::Sent(_)));
        pass(&next, depth, seen);
        bury(&next, depth, seen);
    }
}

/// Nothing happens for a moment, or until after every deadline.
fn pass(scenario: &Scenario, depth: u32, seen: &mut Seen) {
    for span in [1, GRACE, DEADLINE] {
        explore(Scenario { now: scenario.now + span, ..scenario.clone() }, depth - 1, seen);
    }
}

/// The first of those that were signalled dies.
fn bury(scenario: &Scenario, depth: u32, seen: &mut Seen) {
    let signalled = |one: &Process| one.termed_at.is_some() || one.killed_at.is_some();
    let Some(index) = scenario.processes.iter().position(signalled) else { return };
    let mut next = scenario.clone();
    let gone = next.processes.remove(index);
    next.state.outcome(gone.shown.id(), SignalOutcome::Freed, Nanos(scenario.now));
    next.now += 1;
    explore(next, depth - 1, seen);
}
