use super::{IN_FLIGHT_MAX, LimitAction, LimitConfig, LimitState, Snapshot, decide, effective};
use crate::{
    account::Action,
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Protection, Standing, tests::candidate},
    units::{Nanos, Pages, Pid},
    victim::{Signal, SignalFault, SignalOutcome, Stage, VictimId},
};
use proptest::{prop_assert, proptest};
use std::vec::Vec;

mod scenarios;

const SECOND: u64 = 1_000_000_000;

/// An account with a hard limit of 100 pages, a soft limit of 90, and what its candidates use.
fn account(candidates: &[Candidate]) -> Snapshot<'_> {
    let usage = candidates.iter().filter_map(|one| one.usage.latest()).map(|pages| pages.0).sum();
    Snapshot {
        usage: Reading::Known(Pages(usage)),
        effective_hard: Pages(100),
        hard: Pages(100),
        soft: Pages(90),
        dying: Pages(0),
        dying_most: Pages(100),
        may_leave: Pages(0),
        action: Action::Kill,
        candidates,
        kernel_asked_at: None,
    }
}

/// An account's guard between decisions, with a clock in seconds.
struct Guard {
    config: LimitConfig,
    state: LimitState,
}

impl Guard {
    fn new() -> Self {
        // Already near, so that notices do not come between.
        let mut state = LimitState::default();
        state.near = true;
        Self { config: LimitConfig::default(), state }
    }

    fn step(&mut self, snapshot: &Snapshot<'_>, second: u64) -> LimitAction {
        let (state, action) =
            decide(snapshot, &self.config, core::mem::take(&mut self.state), Nanos(second * SECOND));
        self.state = state;
        action
    }

    fn outcome(&mut self, pid: u32, outcome: SignalOutcome, second: u64) {
        self.state.outcome(id(pid), outcome, Nanos(second * SECOND));
    }

    fn stages(&self) -> Vec<(u32, Stage)> {
        self.state.in_flight().iter().map(|flight| (flight.victim.pid.0, flight.stage)).collect()
    }
}

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 100 }
}

fn killed(action: &LimitAction) -> Option<u32> {
    let LimitAction::Kill(decision) = action else { return None };
    decision.victims.first().map(|victim| victim.pid.0)
}

#[test]
fn at_the_line_nothing_happens_and_one_page_over_it_the_largest_is_killed() {
    let mut guard = Guard::new();
    assert_eq!(guard.step(&account(&[candidate(10, 60), candidate(11, 40)]), 0), LimitAction::None);
    let over = [candidate(10, 60), candidate(11, 41)];
    let asked = Snapshot { kernel_asked_at: Some(Nanos(7)), ..account(&over) };
    let LimitAction::Kill(decision) = guard.step(&asked, 0) else { panic!("no kill") };
    assert_eq!(decision.reason, Reason::OverHardLimitSelected);
    assert_eq!((decision.usage, decision.hard, decision.dying), (Pages(101), Pages(100), Pages(0)));
    assert_eq!(decision.victims.iter().map(|one| one.pid.0).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(decision.peers.iter().map(|one| one.pid.0).collect::<Vec<_>>(), [11]);
    assert_eq!((decision.asked_at, decision.dry_run), (Some(Nanos(7)), false));
}

#[test]
fn the_line_in_force_counts_not_the_lowered_one() {
    let lowered = [candidate(10, 150)];
    let snapshot = Snapshot { effective_hard: Pages(150), ..account(&lowered) };
    assert_eq!(Guard::new().step(&snapshot, 0), LimitAction::None);
}

#[test]
fn no_second_victim_while_the_first_brings_usage_under_the_line() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 50)];
    assert_eq!(killed(&guard.step(&account(&candidates), 0)), Some(10));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&account(&candidates), 1), LimitAction::None);
    assert_eq!(guard.step(&account(&candidates), 4), LimitAction::None);
}

#[test]
fn for_shared_memory_one_goes_at_a_time_and_the_next_when_it_is_known_what_came_back() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 55)];
    let shared =
        Snapshot { usage: Reading::Known(Pages(150)), may_leave: Pages(100), ..account(&candidates) };
    assert_eq!(killed(&guard.step(&shared, 0)), Some(10));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&shared, 1), LimitAction::None);
    guard.outcome(10, SignalOutcome::Freed, 2);
    assert_eq!(killed(&guard.step(&Snapshot { candidates: &candidates[1..], ..shared }, 2)), Some(11));
}

#[test]
fn a_second_victim_at_once_where_the_first_is_not_enough() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 55), candidate(12, 50)];
    assert_eq!(killed(&guard.step(&account(&candidates), 0)), Some(10));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(killed(&guard.step(&account(&candidates), 0)), Some(11));
    guard.outcome(11, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&account(&candidates), 0), LimitAction::None);
}

#[test]
fn a_victim_that_does_not_die_is_not_waited_for_after_its_deadline() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 50)];
    guard.step(&account(&candidates), 0);
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.state.next_deadline(&guard.config), Some(Nanos(5 * SECOND)));
    // The accounting goes on calling it dying; that must not hold the line open.
    let stuck = Snapshot { dying: Pages(60), ..account(&candidates) };
    assert_eq!(guard.step(&stuck, 4), LimitAction::None);
    assert_eq!(killed(&guard.step(&stuck, 5)), Some(11));
    assert_eq!(guard.stages(), [(10, Stage::Overdue)]);
}

#[test]
fn victims_that_are_held_make_room_for_no_more_than_a_line_s_worth() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 90), candidate(11, 90), candidate(12, 30)];
    let at = |dying| Snapshot { dying: Pages(dying), ..account(&candidates) };
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(killed(&guard.step(&at(90), 0)), Some(11), "120 pages remain");
    guard.outcome(11, SignalOutcome::Sent(Signal::Kill), 0);
    // 180 are dying, and were left out: 30 remained.
    assert_eq!(killed(&guard.step(&at(100), 0)), Some(12), "110 remain, as 100 are left out at most");
}

#[test]
fn a_signal_that_could_not_be_sent_marks_nothing_as_dying_and_the_next_is_tried() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 50)];
    guard.step(&account(&candidates), 0);
    guard.outcome(10, SignalOutcome::Failed(SignalFault::NotPermitted), 0);
    assert_eq!(guard.stages(), []);
    assert_eq!(killed(&guard.step(&account(&candidates), 0)), Some(11));
    guard.outcome(11, SignalOutcome::Failed(SignalFault::Other(22)), 0);
    let LimitAction::NothingKillable(decision) = guard.step(&account(&candidates), 1) else {
        panic!("killable")
    };
    assert_eq!(decision.reason, Reason::SignalFailed);
    assert_eq!(guard.step(&account(&candidates), 2), LimitAction::None);
    assert_eq!(killed(&guard.step(&account(&candidates), 5)), Some(10), "tried again after a while");
}

#[test]
fn a_victim_that_vanished_or_was_freed_is_forgotten() {
    for outcome in [SignalOutcome::Vanished, SignalOutcome::Freed] {
        let mut guard = Guard::new();
        guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
        guard.outcome(10, outcome, 1);
        assert_eq!(guard.stages(), []);
    }
}

#[test]
fn a_later_process_of_the_same_number_is_another_one() {
    let mut guard = Guard::new();
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    let reborn = [Candidate { start_ns: 200, ..candidate(10, 101) }];
    assert_eq!(killed(&guard.step(&account(&reborn), 1)), Some(10));
}

#[test]
fn what_the_accounting_calls_dying_counts_without_being_told() {
    let candidates = [candidate(10, 101)];
    let snapshot = Snapshot { dying: Pages(1), ..account(&candidates) };
    assert_eq!(Guard::new().step(&snapshot, 0), LimitAction::None);
}

#[test]
fn a_process_found_dying_is_adopted_and_forgotten_when_gone() {
    let mut guard = Guard::new();
    let dying = Candidate { standing: Standing::Dying, ..candidate(10, 60) };
    assert_eq!(guard.step(&account(&[dying, candidate(11, 50)]), 0), LimitAction::None);
    assert_eq!(guard.stages(), [(10, Stage::Kill)]);
    assert_eq!(killed(&guard.step(&account(&[dying, candidate(11, 50)]), 5)), Some(11));
    assert_eq!(guard.step(&account(&[candidate(11, 50)]), 6), LimitAction::Far { usage: Pages(50) });
    assert_eq!(guard.stages(), []);
}

#[test]
fn a_process_that_left_the_memory_it_was_found_dying_in_is_not_waited_for() {
    let mut guard = Guard::new();
    let dying = Candidate { standing: Standing::Dying, ..candidate(10, 60) };
    assert_eq!(guard.step(&account(&[dying, candidate(11, 50)]), 0), LimitAction::None);
    // By exec: the same process, in memory of its own.
    assert_eq!(killed(&guard.step(&account(&[candidate(10, 60), candidate(11, 50)]), 5)), Some(10));
}

#[test]
fn a_dying_process_whose_memory_another_holds_is_not_counted_on() {
    let mut guard = Guard::new();
    let shared = |pid| Candidate { mm: 7, ..candidate(pid, 101) };
    let candidates = [shared(10), shared(11)];
    let snapshot = Snapshot { usage: Reading::Known(Pages(101)), ..account(&candidates) };
    guard.outcome(11, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(killed(&guard.step(&snapshot, 0)), Some(10));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&snapshot, 0), LimitAction::None);
    // Counted once, not twice: 150 more pages are not covered by it.
    let more = [shared(10), shared(11), candidate(12, 150)];
    let snapshot = Snapshot { usage: Reading::Known(Pages(251)), ..account(&more) };
    assert_eq!(killed(&guard.step(&snapshot, 0)), Some(12));
}

#[test]
fn while_a_victims_share_cannot_be_read_it_is_waited_for_until_its_deadline() {
    let mut guard = Guard::new();
    let unread = Candidate { usage: Reading::Unreadable, ..candidate(10, 0) };
    let candidates = [unread, candidate(11, 150)];
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    assert_eq!(guard.step(&account(&candidates), 4), LimitAction::None);
    assert_eq!(killed(&guard.step(&account(&candidates), 5)), Some(11));
}

#[test]
fn term_asks_first_and_kills_when_the_grace_is_over() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 60), candidate(11, 50)];
    let snapshot = Snapshot { action: Action::Term, ..account(&candidates) };
    let LimitAction::Term(decision) = guard.step(&snapshot, 0) else { panic!("no term") };
    assert_eq!((decision.reason, decision.victims[0].pid), (Reason::OverHardLimitTerm, Pid(10)));
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    assert_eq!(guard.step(&snapshot, 9), LimitAction::None);
    let reason = Reason::TermDeadlinePassed;
    assert_eq!(guard.step(&snapshot, 10), LimitAction::Escalate { victim: id(10), since: Nanos(0), reason });
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 10);
    assert_eq!(guard.step(&snapshot, 14), LimitAction::None);
    assert_eq!(guard.stages(), [(10, Stage::Kill)]);
}

#[test]
fn who_would_be_asked_beyond_what_is_left_alone_is_killed() {
    for (asked, next, expected) in [(60, 40, Action::Term), (60, 41, Action::Kill)] {
        let mut guard = Guard::new();
        let candidates = [candidate(10, asked), candidate(11, next), candidate(12, 1)];
        // As for a line of 100 pages less a bit, so that the next one crosses it.
        let snapshot = Snapshot { action: Action::Term, effective_hard: Pages(next), ..account(&candidates) };
        assert!(matches!(guard.step(&snapshot, 0), LimitAction::Term(_)), "the first is, however large");
        guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
        let action = guard.step(&snapshot, 1);
        let (LimitAction::Term(decision) | LimitAction::Kill(decision)) = &action else {
            panic!("{action:?}")
        };
        let action = if matches!(action, LimitAction::Kill(_)) { Action::Kill } else { Action::Term };
        assert_eq!((action, decision.victims[0].pid), (expected, Pid(11)), "{asked} and {next}");
        let reason =
            if action == Action::Kill { Reason::OverHardLimitNoGrace } else { Reason::OverHardLimitTerm };
        assert_eq!(decision.reason, reason);
    }
}

#[test]
fn the_largest_of_those_who_were_asked_ends_before_anybody_else_goes_for_what_it_took() {
    let mut guard = Guard::new();
    let before = [candidate(10, 500), candidate(11, 20), candidate(12, 30)];
    let snapshot = Snapshot { action: Action::Term, ..account(&before) };
    assert!(matches!(guard.step(&snapshot, 0), LimitAction::Term(_)), "the first is asked, however large");
    guard.outcome(11, SignalOutcome::Sent(Signal::Term), 0);
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 1);
    let (since, reason) = (Nanos(SECOND), Reason::OverHardLimitNoGrace);
    assert_eq!(guard.step(&snapshot, 2), LimitAction::Escalate { victim: id(10), since, reason });
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 2);
    assert_eq!(guard.step(&snapshot, 2), LimitAction::None, "it is on its way");
    let more = [candidate(10, 500), candidate(11, 20), candidate(12, 101)];
    let snapshot = Snapshot { action: Action::Term, ..account(&more) };
    assert_eq!(killed(&guard.step(&snapshot, 2)), Some(12), "that one is over by itself");
}

#[test]
fn with_every_place_taken_who_was_asked_first_is_ended_for_the_next() {
    let mut guard = Guard::new();
    let mut candidates: Vec<Candidate> = (10..).take(IN_FLIGHT_MAX).map(|pid| candidate(pid, 1)).collect();
    for (one, since) in candidates.iter().zip([1; 8].into_iter().chain([0; IN_FLIGHT_MAX - 8])) {
        guard.outcome(one.pid.0, SignalOutcome::Sent(Signal::Term), since);
    }
    candidates.push(candidate(900, 500));
    let snapshot = Snapshot { action: Action::Term, ..account(&candidates) };
    let reason = Reason::OverHardLimitNoGrace;
    assert_eq!(guard.step(&snapshot, 2), LimitAction::Escalate { victim: id(18), since: Nanos(0), reason });
    guard.outcome(18, SignalOutcome::Sent(Signal::Kill), 2);
    guard.outcome(18, SignalOutcome::Freed, 2);
    candidates.retain(|one| one.pid != Pid(18));
    let snapshot = Snapshot { action: Action::Term, ..account(&candidates) };
    assert!(matches!(guard.step(&snapshot, 2), LimitAction::Kill(_) | LimitAction::Term(_)));
}

#[test]
fn who_is_found_dying_and_then_told_to_have_been_asked_is_ended_when_the_grace_is_over() {
    let mut guard = Guard::new();
    let found = [Candidate { standing: Standing::Dying, ..candidate(10, 95) }];
    let snapshot = Snapshot { action: Action::Term, ..account(&found) };
    assert_eq!(guard.step(&snapshot, 0), LimitAction::None);
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 1);
    assert_eq!(guard.stages(), [(10, Stage::Term)]);
    let asked = [candidate(10, 95)];
    let snapshot = Snapshot { action: Action::Term, ..account(&asked) };
    let reason = Reason::TermDeadlinePassed;
    assert_eq!(guard.step(&snapshot, 9), LimitAction::None);
    assert_eq!(guard.step(&snapshot, 10), LimitAction::Escalate { victim: id(10), since: Nanos(0), reason });
}

#[test]
fn who_was_asked_finds_a_place_though_more_are_found_dying_than_there_are_places() {
    let mut guard = Guard::new();
    let dying = |pid| Candidate { standing: Standing::Dying, ..candidate(pid, 1) };
    let mut found: Vec<Candidate> = (100..).take(IN_FLIGHT_MAX + 8).map(dying).collect();
    guard.step(&Snapshot { action: Action::Term, ..account(&found) }, 0);
    assert_eq!(guard.stages().len(), IN_FLIGHT_MAX);
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    found.push(candidate(10, 95));
    let snapshot = Snapshot { action: Action::Term, ..account(&found) };
    let reason = Reason::TermDeadlinePassed;
    assert_eq!(guard.step(&snapshot, 10), LimitAction::Escalate { victim: id(10), since: Nanos(0), reason });
}

#[test]
fn a_process_told_to_end_is_ended_though_usage_fell_meanwhile() {
    let mut guard = Guard::new();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    let small = [candidate(10, 5)];
    assert!(matches!(guard.step(&account(&small), 10), LimitAction::Escalate { .. }));
}

#[test]
fn escalation_needs_no_reading() {
    let mut guard = Guard::new();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    let blind = Snapshot { usage: Reading::Unreadable, ..account(&[]) };
    assert!(matches!(guard.step(&blind, 10), LimitAction::Escalate { .. }));
}

#[test]
fn a_second_sigterm_gives_no_new_grace_and_sigkill_is_not_taken_back() {
    let mut guard = Guard::new();
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 9);
    assert_eq!(guard.state.next_deadline(&guard.config), Some(Nanos(10 * SECOND)));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 9);
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 9);
    assert_eq!(guard.stages(), [(10, Stage::Kill)]);
}

#[test]
fn notify_is_given_once_per_crossing_and_rearmed_under_the_soft_limit() {
    for action in [Action::Notify, Action::Deny] {
        let mut guard = Guard::new();
        let [over, between, under] = [[candidate(10, 101)], [candidate(10, 95)], [candidate(10, 89)]];
        let at = |candidates| Snapshot { action, ..account(candidates) };
        let LimitAction::Notify(decision) = guard.step(&at(&over), 0) else { panic!("no notice") };
        assert_eq!((decision.reason, decision.victims.len()), (Reason::OverHardLimitNotify, 0));
        for (candidates, second) in [(&over, 1), (&between, 2), (&over, 3)] {
            assert_eq!(guard.step(&at(candidates), second), LimitAction::None);
        }
        assert_eq!(guard.step(&at(&under), 4), LimitAction::Far { usage: Pages(89) });
        assert!(matches!(guard.step(&at(&over), 5), LimitAction::Notify(_)));
    }
}

#[test]
fn near_and_far_are_told_once_each() {
    let mut guard = Guard { config: LimitConfig::default(), state: LimitState::default() };
    let [far, near] = [[candidate(10, 89)], [candidate(10, 90)]];
    assert_eq!(guard.step(&account(&far), 0), LimitAction::None);
    assert_eq!(guard.step(&account(&near), 1), LimitAction::Near { usage: Pages(90), hard: Pages(100) });
    assert_eq!(guard.step(&account(&near), 2), LimitAction::None);
    assert_eq!(guard.step(&account(&far), 3), LimitAction::Far { usage: Pages(89) });
    assert_eq!(guard.step(&account(&far), 4), LimitAction::None);
}

#[test]
fn when_only_the_protected_are_left_it_is_said_once() {
    let mut guard = Guard::new();
    let candidates =
        [Candidate { standing: Standing::Protected(Protection::LoginPath), ..candidate(10, 101) }];
    let LimitAction::NothingKillable(decision) = guard.step(&account(&candidates), 0) else {
        panic!("killable")
    };
    assert_eq!(decision.reason, Reason::OverHardLimitOnlyProtectedLeft);
    assert_eq!(decision.peers[0].pid, Pid(10));
    assert_eq!(guard.step(&account(&candidates), 1), LimitAction::None);
    let joined = [candidates[0], candidate(11, 5)];
    assert_eq!(killed(&guard.step(&account(&joined), 2)), Some(11));
}

#[test]
fn when_nobody_holds_the_usage_nobody_is_killed() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 0)];
    let adrift = Snapshot { usage: Reading::Known(Pages(101)), ..account(&candidates) };
    let LimitAction::NothingKillable(decision) = guard.step(&adrift, 0) else { panic!("killable") };
    assert_eq!(decision.reason, Reason::OverHardLimitNothingToFree);
}

#[test]
fn an_unknown_usage_is_reported_once_and_never_taken_for_zero() {
    let mut guard = Guard::new();
    let candidates = [candidate(10, 500)];
    for usage in [Reading::Absent, Reading::Unreadable, Reading::Stale { value: Pages(500), age_ns: 1 }] {
        guard.state.unread = false;
        let blind = Snapshot { usage, ..account(&candidates) };
        assert_eq!(guard.step(&blind, 0), LimitAction::UsageUnknown);
        assert_eq!(guard.step(&blind, 1), LimitAction::None);
        assert!(guard.state.near, "not taken for far");
    }
    assert_eq!(killed(&guard.step(&account(&candidates), 2)), Some(10));
    assert_eq!(
        guard.step(&Snapshot { usage: Reading::Absent, ..account(&candidates) }, 3),
        LimitAction::UsageUnknown
    );
}

#[test]
fn a_dry_run_tells_each_crossing_once_and_says_so() {
    let mut guard = Guard::new();
    guard.config.dry_run = true;
    let [over, under] = [[candidate(10, 101)], [candidate(10, 5)]];
    let LimitAction::Kill(decision) = guard.step(&account(&over), 0) else { panic!("no decision") };
    assert!(decision.dry_run);
    assert_eq!(guard.step(&account(&over), 1), LimitAction::None);
    guard.step(&account(&under), 2);
    assert_eq!(killed(&guard.step(&account(&over), 3)), Some(10));
}

#[test]
fn with_every_place_taken_the_next_victim_waits() {
    let mut guard = Guard::new();
    let mut candidates: Vec<Candidate> = (10..).take(IN_FLIGHT_MAX).map(|pid| candidate(pid, 1)).collect();
    for one in &candidates {
        guard.outcome(one.pid.0, SignalOutcome::Sent(Signal::Kill), 0);
    }
    candidates.push(candidate(900, 500));
    assert_eq!(guard.step(&account(&candidates), 1), LimitAction::None);
    assert_eq!(killed(&guard.step(&account(&candidates), 5)), Some(900), "the others are overdue");
    guard.outcome(900, SignalOutcome::Sent(Signal::Kill), 5);
    assert_eq!(guard.stages().len(), IN_FLIGHT_MAX);
    assert!(guard.stages().contains(&(900, Stage::Kill)));
}

#[test]
fn a_lowered_line_falls_with_usage_and_kills_nothing() {
    let mut line = effective(Pages(u64::MAX), Pages(100), Pages(300));
    assert_eq!(line, Pages(300));
    for (usage, expected) in [(250, 250), (280, 250), (90, 100), (200, 100)] {
        line = effective(line, Pages(100), Pages(usage));
        assert_eq!(line, Pages(expected), "usage {usage}");
    }
    assert_eq!(effective(line, Pages(400), Pages(200)), Pages(400), "raised");
}

proptest! {
    #[test]
    fn the_line_in_force_never_rises_but_to_a_raised_line(steps in proptest::collection::vec((1_u64..50, 0_u64..80), 1..40)) {
        let mut line = Pages(u64::MAX);
        for (hard, usage) in steps {
            let (hard, usage) = (Pages(hard), Pages(usage));
            let next = effective(line, hard, usage);
            prop_assert!(next >= hard);
            prop_assert!(next <= line.max(hard));
            prop_assert!(next == hard || next == usage || next == line);
            // Whoever was not over the line before is not over it after: lowering kills nothing.
            prop_assert!(usage > line || usage <= next);
            line = next;
        }
    }

    #[test]
    fn once_usage_met_the_new_line_it_is_the_line(hard in 1_u64..50, before in 0_u64..100, usage in 0_u64..50) {
        let line = effective(Pages(u64::MAX), Pages(hard), Pages(before));
        if usage <= hard {
            prop_assert!(effective(line, Pages(hard), Pages(usage)) == Pages(hard));
        }
    }
}
