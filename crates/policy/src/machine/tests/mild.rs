//! Notice and reclaim: the steps before anybody is asked to end.

use super::{Guard, MIB, SECOND, reading};
use crate::{
    machine::{
        MachineAction, MachineConfig, MachineConfigError, MachineReading, Permille, Thresholds, is_near,
    },
    units::{Bytes, Nanos},
    victim::{Signal, SignalOutcome},
};

fn notice(in_use_mib: u64, line_mib: u64) -> MachineAction {
    MachineAction::Notice { in_use: Bytes(in_use_mib * MIB), line: Bytes(line_mib * MIB) }
}

const LOW: fn() -> MachineReading = || reading(150, 850, 0, 0);
const PLENTY: fn() -> MachineReading = || reading(151, 849, 0, 0);

#[test]
fn a_shortage_that_comes_is_told_once() {
    let mut guard = Guard::default();
    assert_eq!(guard.step(&PLENTY(), 0), MachineAction::Rest);
    assert_eq!(guard.step(&LOW(), 1), notice(850, 850));
    assert_eq!(guard.step(&LOW(), 2), MachineAction::Rest);
    assert_eq!(guard.step(&PLENTY(), 3), MachineAction::Rest);
    assert_eq!(guard.step(&LOW(), 4), notice(850, 850));
}

#[test]
fn a_shortage_that_somebody_was_selected_for_is_not_told_besides() {
    let mut guard = Guard::default();
    assert!(matches!(guard.step(&reading(90, 910, 0, 0), 0), MachineAction::Select(_)));
    guard.outcome(10, SignalOutcome::Sent(Signal::Term), 0);
    assert_eq!(guard.step(&reading(90, 910, 0, 0), 1), MachineAction::Rest);
    assert_eq!(guard.step(&LOW(), 2), MachineAction::Rest);
    guard.outcome(10, SignalOutcome::Freed, 3);
    assert_eq!(guard.step(&LOW(), 4), MachineAction::Rest);
}

#[test]
fn room_is_made_every_two_seconds_where_there_is_swap() {
    let mut guard = Guard::default();
    let swapping = |available| reading(available, 1000 - available, 1000, 500);
    let reclaim = |mib: u64| MachineAction::Reclaim { bytes: Bytes(mib * MIB) };
    assert_eq!(guard.step(&swapping(101), 0), MachineAction::Rest);
    assert_eq!(guard.step(&swapping(70), 1), reclaim(30));
    assert_eq!(guard.step(&swapping(70), 2), MachineAction::Rest);
    assert_eq!(guard.step(&swapping(60), 3), reclaim(40));
}

#[test]
fn no_more_than_a_piece_is_reclaimed_at_a_time_and_never_nothing() {
    let large = |available| reading(available, 10_000 - available, 1000, 500);
    assert_eq!(Guard::default().step(&large(500), 0), MachineAction::Reclaim { bytes: Bytes(256 * MIB) });
    assert_eq!(Guard::default().step(&large(1000), 0), MachineAction::Reclaim { bytes: Bytes(1) });
}

#[test]
fn nothing_is_reclaimed_without_swap_to_spare_or_when_it_is_switched_off() {
    let short = |swap_free| reading(70, 930, 1000, swap_free);
    assert!(matches!(Guard::default().step(&short(100), 0), MachineAction::Select(_)));
    let with = |config| Guard { config, ..Guard::default() }.step(&short(500), 0);
    assert_eq!(with(MachineConfig { reclaim: false, ..MachineConfig::default() }), MachineAction::Rest);
    // A notice is another matter.
    let reclaim = MachineAction::Reclaim { bytes: Bytes(30 * MIB) };
    assert_eq!(with(MachineConfig { notice: None, ..MachineConfig::default() }), reclaim);
}

#[test]
fn a_notice_comes_before_reclaim() {
    let mut guard = Guard::default();
    let both = reading(70, 930, 1000, 120);
    assert_eq!(guard.step(&both, 0), notice(930, 850));
    assert_eq!(guard.step(&both, 1), MachineAction::Reclaim { bytes: Bytes(30 * MIB) });
}

#[test]
fn what_waits_in_the_lists_of_cpus_costs_no_second_victim() {
    let mut guard = Guard::default();
    let dire = reading(40, 960, 0, 0);
    assert!(matches!(guard.step(&dire, 0), MachineAction::Select(_)));
    assert!(!guard.state.counts_waiting(Nanos(0)));
    guard.outcome(10, SignalOutcome::Sent(Signal::Kill), 0);
    guard.outcome(10, SignalOutcome::Freed, 1);
    assert!(
        guard.state.counts_waiting(Nanos(6 * SECOND - 1)) && !guard.state.counts_waiting(Nanos(6 * SECOND))
    );
    let waiting = MachineReading { waiting: crate::reading::Reading::Known(Bytes(200 * MIB)), ..dire };
    assert_eq!(guard.step(&waiting, 1), MachineAction::Rest);
    assert!(matches!(guard.step(&dire, 7), MachineAction::Select(_)));
}

#[test]
fn near_is_one_and_a_half_of_where_somebody_is_asked_to_end() {
    let config = MachineConfig::default();
    assert!(is_near(&reading(150, 850, 1000, 150), &config));
    assert!(!is_near(&reading(151, 849, 1000, 0), &config) && !is_near(&reading(1, 999, 1000, 151), &config));
    let blind = MachineReading { anon: crate::reading::Reading::Unreadable, ..reading(1, 999, 0, 0) };
    assert!(!is_near(&blind, &config));
}

#[test]
fn the_clock_that_made_room_last_is_the_guard_s_own() {
    let mut guard = Guard::default();
    assert!(matches!(guard.step(&reading(70, 930, 1000, 500), 5), MachineAction::Reclaim { .. }));
    assert_eq!(guard.state.reclaimed, Some(Nanos(5 * SECOND)));
}

#[test]
fn a_notice_under_the_term_threshold_is_as_if_it_were_the_same() {
    let both = |permille| Thresholds { memory: Permille(permille), swap: Permille(permille) };
    let config = MachineConfig { notice: Some(both(20)), ..Guard::default().config };
    assert_eq!(config.validate(), Ok(()));
    let mut guard = Guard { config, ..Guard::default() };
    assert_eq!(guard.step(&reading(101, 899, 0, 0), 0), MachineAction::Rest);
    assert!(matches!(guard.step(&reading(100, 900, 0, 0), 1), MachineAction::Select(_)));
    let config = MachineConfig { notice: Some(both(0)), ..MachineConfig::default() };
    assert_eq!(config.validate(), Err(MachineConfigError::OutOfRange(0)));
    assert_eq!(MachineConfig { notice: None, ..MachineConfig::default() }.validate(), Ok(()));
}
