use super::{
    Cause, MachineAction, MachineConfig, MachineConfigError, MachineFault, MachineReading, MachineStage,
    MachineState, Permille, Shortage, Thresholds, decide, select,
};
use crate::{
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Protection, Standing, tests::candidate},
    units::{Bytes, Nanos, PageSize, Pages, Pid},
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use proptest::{prop_assert, proptest};

mod mild;
mod pressure;
mod scenarios;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn reading(available_mib: u64, anon_mib: u64, swap_total_mib: u64, swap_free_mib: u64) -> MachineReading {
    let known = |mib: u64| Reading::Known(Bytes(mib * MIB));
    MachineReading {
        mem_available: known(available_mib),
        anon: known(anon_mib),
        swap_total: known(swap_total_mib),
        swap_free: known(swap_free_mib),
        shared: known(0),
        waiting: Reading::Absent,
        arc: Reading::Absent,
        file: known(available_mib / 2),
        stall: Reading::Absent,
        ending: Reading::Absent,
    }
}

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 100 }
}

/// It waits for no spike to end.
struct Guard {
    config: MachineConfig,
    state: MachineState,
}

impl Default for Guard {
    fn default() -> Self {
        let config = MachineConfig { spike: Nanos(0), ..MachineConfig::default() };
        Self { config, state: MachineState::default() }
    }
}

impl Guard {
    fn step(&mut self, reading: &MachineReading, second: u64) -> MachineAction {
        self.step_and_sleep(reading, second).0
    }

    fn step_and_sleep(&mut self, reading: &MachineReading, second: u64) -> (MachineAction, u64) {
        let (state, action, sleep) =
            decide(reading, &self.config, core::mem::take(&mut self.state), Nanos(second * SECOND));
        self.state = state;
        (action, sleep.0 / MS)
    }

    fn outcome(&mut self, pid: u32, outcome: SignalOutcome, second: u64) {
        self.state.outcome(id(pid), outcome, &self.config, Nanos(second * SECOND));
    }
}

fn called_for(action: MachineAction) -> Option<Signal> {
    let MachineAction::Select(shortage) = action else { return None };
    Some(shortage.signal)
}

#[test]
fn memory_and_swap_must_both_be_low() {
    let cases = [
        // available, anon, swap total, swap free, expected
        (101, 899, 1000, 0, None),
        (100, 900, 1000, 101, None),
        (100, 900, 1000, 100, Some(Signal::Term)),
        (51, 949, 1000, 0, Some(Signal::Term)),
        (0, 1000, 1000, 51, Some(Signal::Term)),
        (50, 950, 1000, 50, Some(Signal::Kill)),
        (0, 1000, 1000, 0, Some(Signal::Kill)),
    ];
    for (available, anon, total, free, expected) in cases {
        let action = Guard::default().step(&reading(available, anon, total, free), 0);
        assert_eq!(called_for(action), expected, "{available} {anon} {total} {free}");
    }
}

#[test]
fn without_swap_memory_alone_decides() {
    assert_eq!(called_for(Guard::default().step(&reading(100, 900, 0, 0), 0)), Some(Signal::Term));
    assert_eq!(called_for(Guard::default().step(&reading(101, 899, 0, 0), 0)), None);
    let no_such_line = MachineReading { swap_free: Reading::Absent, ..reading(50, 950, 0, 0) };
    assert_eq!(called_for(Guard::default().step(&no_such_line, 0)), Some(Signal::Kill));
}

#[test]
fn a_shortage_says_how_far_over_the_line_the_machine_is() {
    let MachineAction::Select(shortage) = Guard::default().step(&reading(60, 940, 0, 0), 0) else {
        panic!("no shortage")
    };
    let expected = Shortage {
        cause: Cause::Low,
        signal: Signal::Term,
        in_use: Bytes(940 * MIB),
        line: Bytes(900 * MIB),
    };
    assert_eq!(shortage, expected);
}

#[test]
fn a_missing_reading_does_nothing_and_is_reported_once() {
    type Set = fn(&mut MachineReading, Reading<Bytes>);
    let fields: [(&str, Set); 4] = [
        ("MemAvailable", |reading, value| reading.mem_available = value),
        ("AnonPages", |reading, value| reading.anon = value),
        ("SwapTotal", |reading, value| reading.swap_total = value),
        ("SwapFree", |reading, value| reading.swap_free = value),
    ];
    for (name, set) in fields {
        for value in [Reading::Absent, Reading::Unreadable, Reading::Stale { value: Bytes(0), age_ns: 1 }] {
            let mut guard = Guard::default();
            let mut missing = reading(0, 1000, 1000, 0);
            set(&mut missing, value);
            assert_eq!(guard.step(&missing, 0), MachineAction::Report(MachineFault::Missing(name)));
            assert_eq!(guard.step_and_sleep(&missing, 1), (MachineAction::Rest, 1000));
            guard.step(&reading(900, 100, 0, 0), 2);
            assert_eq!(guard.step(&missing, 3), MachineAction::Report(MachineFault::Missing(name)));
        }
    }
}

#[test]
fn a_machine_without_any_memory_is_not_believed() {
    let action = Guard::default().step(&reading(0, 0, 0, 0), 0);
    assert_eq!(action, MachineAction::Report(MachineFault::Implausible));
}

#[test]
fn sigterm_becomes_sigkill_after_the_grace_whether_or_not_the_shortage_goes_on() {
    for later in [reading(100, 900, 0, 0), reading(900, 100, 0, 0)] {
        let mut guard = Guard::default();
        guard.step(&reading(100, 900, 0, 0), 0);
        guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
        assert_eq!(guard.step(&later, 9), MachineAction::Rest);
        let escalate = MachineAction::Escalate { victim: id(10), reason: Reason::MachineTermDeadlinePassed };
        assert_eq!(guard.step(&later, 10), escalate);
    }
}

#[test]
fn escalation_needs_no_reading() {
    let mut guard = Guard::default();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    let blind = MachineReading { mem_available: Reading::Unreadable, ..reading(0, 0, 0, 0) };
    guard.step(&blind, 1);
    assert!(matches!(guard.step(&blind, 10), MachineAction::Escalate { .. }));
}

#[test]
fn sigterm_becomes_sigkill_at_once_when_memory_falls_further() {
    let mut guard = Guard::default();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    let escalate = MachineAction::Escalate { victim: id(10), reason: Reason::MachineLowMemoryKill };
    assert_eq!(guard.step(&reading(50, 950, 0, 0), 1), escalate);
}

#[test]
fn a_victim_that_ended_is_not_killed() {
    for outcome in [SignalOutcome::Freed, SignalOutcome::Vanished] {
        let mut guard = Guard::default();
        guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
        guard.outcome(10, outcome, 1);
        assert_eq!(guard.state.stage(), MachineStage::Idle);
        assert_eq!(guard.step(&reading(900, 100, 0, 0), 10), MachineAction::Rest);
    }
}

#[test]
fn no_second_victim_while_one_is_dying_before_its_deadline() {
    let mut guard = Guard::default();
    let short = reading(10, 990, 0, 0);
    guard.step(&short, 0);
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&short, 4), MachineAction::Rest);
    let MachineAction::Select(shortage) = guard.step(&short, 5) else { panic!("the deadline is over") };
    let decision = choose(&guard, &[candidate(10, 9), candidate(11, 5)], &shortage);
    assert_eq!(decision.victims[0].pid, Pid(11), "the overdue one is not selected again");
}

#[test]
fn where_those_who_end_give_too_little_back_the_next_does_not_wait_for_them() {
    let mut guard = Guard::default();
    // SIGKILL is sent at 5 %: 50 MiB.
    let ending = |mib| MachineReading { ending: Reading::Known(Bytes(mib * MIB)), ..reading(10, 990, 0, 0) };
    guard.step(&ending(0), 0);
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    for (held, next) in [(41, None), (40, Some(Signal::Kill)), (0, Some(Signal::Kill)), (990, None)] {
        assert_eq!(called_for(guard.step(&ending(held), 0)), next, "{held}");
    }
    // Nor where memory is only low enough for SIGTERM.
    let milder = MachineReading { ending: Reading::Known(Bytes(0)), ..reading(60, 940, 0, 0) };
    assert_eq!(guard.step(&milder, 0), MachineAction::Rest);
}

#[test]
fn the_end_of_another_process_is_not_the_victims() {
    let mut guard = Guard::default();
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    guard.outcome(11, SignalOutcome::Freed, 1);
    assert!(matches!(guard.state.stage(), MachineStage::Killed { .. }));
}

fn choose(guard: &Guard, candidates: &[Candidate], shortage: &Shortage) -> crate::selection::Decision {
    select(candidates, shortage, &guard.state, &guard.config, PageSize::from_bytes(4096).unwrap())
}

fn shortage(signal: Signal) -> Shortage {
    Shortage { cause: Cause::Low, signal, in_use: Bytes(950 * MIB), line: Bytes(900 * MIB) }
}

#[test]
fn a_decision_holds_the_numbers_and_says_why() {
    let candidates = [candidate(10, 5), candidate(11, 9)];
    for (signal, reason) in
        [(Signal::Term, Reason::MachineLowMemoryTerm), (Signal::Kill, Reason::MachineLowMemoryKill)]
    {
        let decision = choose(&Guard::default(), &candidates, &shortage(signal));
        assert_eq!(
            (decision.reason, decision.victims[0].pid, decision.peers[0].pid),
            (reason, Pid(11), Pid(10))
        );
        assert_eq!((decision.usage, decision.hard), (Pages(950 * 256), Pages(900 * 256)));
    }
}

#[test]
fn when_only_the_protected_are_left_nobody_is_selected() {
    let protected = Candidate { standing: Standing::Protected(Protection::Executable), ..candidate(10, 9) };
    let decision = choose(&Guard::default(), &[protected, candidate(1, 9)], &shortage(Signal::Kill));
    assert_eq!((decision.reason, decision.victims.len()), (Reason::MachineOnlyProtectedLeft, 0));
}

#[test]
fn a_signal_that_failed_leaves_the_guard_idle_and_the_next_is_tried() {
    let mut guard = Guard::default();
    guard.outcome(10, SignalOutcome::Failed(SignalFault::NotPermitted), 0);
    assert_eq!(guard.state.stage(), MachineStage::Idle);
    assert!(called_for(guard.step(&reading(10, 990, 0, 0), 0)).is_some());
    let both = [candidate(10, 9), candidate(11, 5)];
    assert_eq!(choose(&guard, &both, &shortage(Signal::Kill)).victims[0].pid, Pid(11));
    assert_eq!(choose(&guard, &both[..1], &shortage(Signal::Kill)).reason, Reason::SignalFailed);
    guard.step(&reading(10, 990, 0, 0), 5);
    assert_eq!(choose(&guard, &both, &shortage(Signal::Kill)).victims[0].pid, Pid(10), "tried again later");
}

#[test]
fn a_failed_escalation_gives_the_victim_up_for_a_while() {
    let mut guard = Guard::default();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    guard.outcome(10, SignalOutcome::Failed(SignalFault::NotPermitted), 10);
    assert_eq!(guard.step(&reading(900, 100, 0, 0), 10), MachineAction::Rest);
}

#[test]
fn a_told_decision_is_held_until_the_shortage_ends_gets_worse_or_lasts() {
    let (low, lower, fine) = (reading(100, 900, 0, 0), reading(10, 990, 0, 0), reading(900, 100, 0, 0));
    let held = || {
        let mut guard = Guard::default();
        guard.state.hold(Signal::Term, Nanos(0));
        guard
    };
    assert_eq!(held().step(&low, 9), MachineAction::Rest);
    assert_eq!(called_for(held().step(&low, 10)), Some(Signal::Term));
    assert_eq!(called_for(held().step(&lower, 1)), Some(Signal::Kill));
    let mut ended = held();
    ended.step(&fine, 1);
    assert_eq!(called_for(ended.step(&low, 2)), Some(Signal::Term));
}

#[test]
fn the_sleep_is_as_earlyooms() {
    // (available - 10 %) / 6000 MiB/s + (swap free - 10 %) / 800 MiB/s, between 100 and 1000 ms.
    let cases = [
        ((900, 9100, 0, 0), 100),
        ((2200, 7800, 0, 0), 200),
        ((2200, 7800, 1000, 100), 200),
        ((2200, 7800, 1000, 500), 700),
        ((6000, 4000, 0, 0), 833),
        ((9000, 1000, 8000, 8000), 1000),
        ((10, 990, 1000, 900), 1000),
    ];
    for ((available, anon, total, free), ms) in cases {
        let (_, sleep) = Guard::default().step_and_sleep(&reading(available, anon, total, free), 0);
        assert_eq!(sleep, ms, "{available} {anon} {total} {free}");
    }
}

#[test]
fn the_sleep_ends_at_the_next_deadline() {
    let mut guard = Guard {
        config: MachineConfig { term_grace: Nanos(SECOND / 2), ..MachineConfig::default() },
        ..Guard::default()
    };
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    assert_eq!(guard.step_and_sleep(&reading(9000, 1000, 0, 0), 0), (MachineAction::Rest, 500));
    let (action, sleep) = guard.step_and_sleep(&reading(9000, 1000, 0, 0), 1);
    assert!(matches!(action, MachineAction::Escalate { .. }));
    assert_eq!(sleep, 100, "soon, without spinning");
}

#[test]
fn thresholds_that_make_no_sense_are_refused() {
    let config = |term: (u16, u16), kill: (u16, u16)| MachineConfig {
        term: Thresholds { memory: Permille(term.0), swap: Permille(term.1) },
        kill: Thresholds { memory: Permille(kill.0), swap: Permille(kill.1) },
        ..MachineConfig::default()
    };
    assert_eq!(MachineConfig::default().validate(), Ok(()));
    assert_eq!(config((100, 1000), (50, 1000)).validate(), Ok(()));
    for (term, kill, number) in [
        ((0, 100), (50, 50), 0),
        ((1000, 100), (50, 50), 1000),
        ((100, 1001), (50, 50), 1001),
        ((100, 100), (50, 0), 0),
    ] {
        assert_eq!(config(term, kill).validate(), Err(MachineConfigError::OutOfRange(number)));
    }
    for (term, kill) in [((100, 100), (101, 50)), ((200, 100), (50, 101))] {
        let error = config(term, kill).validate().unwrap_err();
        assert_eq!(
            std::string::ToString::to_string(&error),
            "machine kill threshold 101 permille is above the term threshold 100 permille; give at most that"
        );
    }
}

proptest! {
    #[test]
    fn a_called_for_victim_means_usage_at_or_over_the_line(available: u64, anon: u64, total: u64, free: u64) {
        let known = |bytes| Reading::Known(Bytes(bytes));
        let reading = MachineReading {
            mem_available: known(available), anon: known(anon), swap_total: known(total), swap_free: known(free),
            ..MachineReading::UNREADABLE
        };
        let config = MachineConfig { spike: Nanos(0), ..MachineConfig::default() };
        let (_, action, sleep) = decide(&reading, &config, MachineState::default(), Nanos(0));
        if let MachineAction::Select(shortage) = action {
            prop_assert!(available.checked_add(anon).is_none() || shortage.in_use >= shortage.line);
        }
        prop_assert!((100 * MS..=1000 * MS).contains(&sleep.0));
    }
}
