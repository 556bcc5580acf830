//! When it acts: neither for a spike, nor for a stall where memory is plenty, nor too late for memory that is used up fast.

use super::*;
use crate::machine::{Margin, Measured, StallReading, trace::Line};

/// A machine of 10,000 MiB, looked at every 100 ms.
struct Machine {
    config: MachineConfig,
    state: MachineState,
    ms: u64,
    stalled_ms: u64,
    read_again_mib: u64,
}

/// What a tenth of a second is like.
#[derive(Clone, Copy)]
struct Tenth {
    available_mib: u64,
    swap_free_mib: u64,
    file_mib: u64,
    stalled_ms: u64,
    read_again_mib: u64,
}

const CALM: Tenth =
    Tenth { available_mib: 5000, swap_free_mib: 4000, file_mib: 1000, stalled_ms: 0, read_again_mib: 0 };

impl Machine {
    fn new() -> Self {
        Self {
            config: MachineConfig::default(),
            state: MachineState::default(),
            ms: 0,
            stalled_ms: 0,
            read_again_mib: 0,
        }
    }

    fn learn(&mut self, measured: Measured) {
        self.state.learn(&Line::Measured(measured), &self.config);
    }

    fn step(&mut self, tenth: Tenth) -> MachineAction {
        self.look(tenth).0
    }

    fn look(&mut self, tenth: Tenth) -> (MachineAction, Nanos) {
        self.ms += 100;
        self.stalled_ms += tenth.stalled_ms;
        self.read_again_mib += tenth.read_again_mib;
        let now = Nanos(self.ms * MS);
        let known = |mib: u64| Reading::Known(Bytes(mib * MIB));
        let stall = StallReading {
            at: now,
            stalled: Nanos(self.stalled_ms * MS),
            read_again: Bytes(self.read_again_mib * MIB),
        };
        let read = MachineReading {
            file: known(tenth.file_mib),
            stall: Reading::Known(stall),
            ..reading(tenth.available_mib, 10_000 - tenth.available_mib, 8000, tenth.swap_free_mib)
        };
        let (state, action, sleep) = decide(&read, &self.config, core::mem::take(&mut self.state), now);
        self.state = state;
        (action, sleep)
    }

    /// What is selected for within so many tenths, and in the how manieth.
    fn selects(&mut self, tenths: u64, tenth: impl Fn(u64) -> Tenth) -> Option<(Cause, Signal, u64)> {
        (1..=tenths).find_map(|number| {
            let MachineAction::Select(shortage) = self.step(tenth(number)) else { return None };
            Some((shortage.cause, shortage.signal, number))
        })
    }
}

#[test]
fn a_machine_that_only_waits_for_memory_has_somebody_killed_though_swap_is_free() {
    let mut machine = Machine::new();
    let thrashing = Tenth { available_mib: 400, stalled_ms: 60, ..CALM };
    assert_eq!(machine.selects(10, |_| CALM), None);
    assert_eq!(machine.selects(100, |_| thrashing), Some((Cause::Stall, Signal::Kill, 31)));
    // Not a second one before it is known what the first gave back.
    let now = Nanos(machine.ms * MS);
    machine.state.outcome(id(1), SignalOutcome::Sent(Signal::Kill), &machine.config, now);
    assert_eq!(machine.selects(20, |_| thrashing), None);
    let now = Nanos(machine.ms * MS);
    machine.state.outcome(id(1), SignalOutcome::Freed, &machine.config, now);
    assert_eq!(machine.selects(29, |_| thrashing), None);
    assert_eq!(machine.selects(100, |_| thrashing).map(|(cause, ..)| cause), Some(Cause::Stall));
}

#[test]
fn nobody_is_killed_for_a_stall_while_memory_is_plenty() {
    let stalled = Tenth { available_mib: 1100, stalled_ms: 100, read_again_mib: 1000, ..CALM };
    assert_eq!(Machine::new().selects(600, |_| stalled), None);
}

#[test]
fn a_stall_that_ends_before_its_time_kills_nobody() {
    let mut machine = Machine::new();
    let stalled =
        |number| Tenth { available_mib: 400, stalled_ms: if number % 40 < 11 { 100 } else { 0 }, ..CALM };
    assert_eq!(machine.selects(400, stalled), None);
}

#[test]
fn what_is_read_again_counts_where_it_is_all_that_files_have_left() {
    let again =
        |read_again_mib| Tenth { available_mib: 400, file_mib: 300, stalled_ms: 20, read_again_mib, ..CALM };
    assert_eq!(Machine::new().selects(200, |_| again(11)).map(|(cause, ..)| cause), Some(Cause::Stall));
    assert_eq!(Machine::new().selects(200, |_| again(8)), None);
    let less_stalled = Tenth { stalled_ms: 14, ..again(11) };
    assert_eq!(Machine::new().selects(200, |_| less_stalled), None);
}

#[test]
fn a_spike_is_waited_for_and_a_shortage_that_lasts_is_not() {
    let full = Tenth { available_mib: 1300, swap_free_mib: 0, ..CALM };
    // By 500 MiB in half a second, and back.
    let spike = |number: u64| match number % 40 {
        falls @ 10..15 => Tenth { available_mib: 1300 - 100 * (falls - 9), ..full },
        15..19 => Tenth { available_mib: 800, ..full },
        _ => full,
    };
    assert_eq!(Machine::new().selects(400, spike), None);
    let stays = |number: u64| Tenth { available_mib: 1300 - 100 * number.min(5), ..full };
    // It was low in the third tenth.
    assert_eq!(Machine::new().selects(400, stays), Some((Cause::Low, Signal::Term, 13)));
    let mut at_once = Machine::new();
    at_once.config.spike = Nanos(0);
    assert_eq!(at_once.selects(400, stays), Some((Cause::Low, Signal::Term, 3)));
}

#[test]
fn the_sooner_memory_would_be_gone_the_sooner_it_is_looked_again() {
    for (used_mib, us, leaves_time) in [
        (0, 100_000, true),
        (20, 100_000, true),
        (100, 28_125, true),
        (300, 10_000, true),
        (400, 10_000, false),
    ] {
        let mut machine = Machine::new();
        machine.look(Tenth { available_mib: 900 + used_mib, swap_free_mib: 0, ..CALM });
        let (_, sleep) = machine.look(Tenth { available_mib: 900, swap_free_mib: 0, ..CALM });
        assert_eq!(sleep, Nanos(us * 1000), "{used_mib} MiB in a tenth of a second");
        assert_eq!(machine.state.leaves_time(Bytes(900 * MIB)), leaves_time, "{used_mib}");
    }
}

#[test]
fn memory_that_is_used_up_fast_is_not_waited_for() {
    // 1 GiB a second: in the eighth tenth it is at 700 MiB, a fifth of a second above 500.
    let falls = |number: u64| Tenth { available_mib: 1500 - 100 * number.min(15), swap_free_mib: 0, ..CALM };
    assert_eq!(Machine::new().selects(100, falls), Some((Cause::Low, Signal::Term, 8)));
    // Asked to end, it goes on: killed as soon as memory is almost gone, at 500 MiB.
    let mut machine = Machine::new();
    machine.selects(100, falls);
    machine.state.outcome(id(1), SignalOutcome::Sent(Signal::Term), &machine.config, Nanos(machine.ms * MS));
    let killed =
        (9..15).find(|number| matches!(machine.step(falls(*number)), MachineAction::Escalate { .. }));
    assert_eq!(killed, Some(10));
}

fn reap_at(machine: &mut Machine, bytes_per_second: u64) {
    machine.learn(Measured::Reap(Some(bytes_per_second)));
}

fn margin_while_a_gib_a_second_goes(reap_per_second: u64) -> Margin {
    let mut machine = Machine::new();
    reap_at(&mut machine, reap_per_second);
    machine.selects(5, |number| Tenth { available_mib: 5000 - 102 * number, ..CALM });
    *machine.state.margin()
}

#[test]
fn the_margin_is_what_goes_meanwhile_and_a_slower_rate_widens_it() {
    let fast = margin_while_a_gib_a_second_goes(4 << 30);
    let slow = margin_while_a_gib_a_second_goes(256 << 20);
    assert_eq!(fast.fill_per_second, 1020 * MIB);
    let until_signal = fast.detect.0 + fast.select.0 + fast.signal.0;
    assert_eq!(until_signal, 22 * MS, "10 and 6 ms to see it, 5 to select, 1 to signal");
    assert_eq!(fast.bytes.0, fast.fill_per_second * (until_signal + fast.reap.0) / SECOND);
    assert!(slow.reap.0 > 10 * fast.reap.0 && slow.bytes.0 > 3 * fast.bytes.0, "{slow:?} {fast:?}");
    let idle = Machine::new().state;
    assert_eq!(idle.margin().bytes, Bytes(0));
}

#[test]
fn what_kills_took_here_widens_the_margin_and_the_longest_is_forgotten_after_sixteen() {
    let mut machine = Machine::new();
    let falls = |number: u64| Tenth { available_mib: 5000 - 10 * number, ..CALM };
    machine.learn(Measured::Select(Nanos(80 * MS)));
    machine.selects(2, falls);
    assert_eq!(machine.state.margin().select, Nanos(80 * MS));
    (0..16).for_each(|_| machine.learn(Measured::Select(Nanos(3 * MS))));
    machine.selects(2, falls);
    assert_eq!(machine.state.margin().select, Nanos(3 * MS));
}

#[test]
fn what_small_victims_took_to_end_widens_the_margin_up_to_a_second() {
    let falls = |number: u64| Tenth { available_mib: 5000 - 10 * number, ..CALM };
    for (took_ms, reap_ms) in [(400, 400), (3000, 1000)] {
        let mut machine = Machine::new();
        machine.learn(Measured::End(Nanos(took_ms * MS)));
        machine.selects(3, falls);
        let margin = *machine.state.margin();
        assert_eq!(margin.reap, Nanos(reap_ms * MS));
        assert_eq!(margin.bytes, Bytes(100 * MIB * (22 + reap_ms) / 1000), "{took_ms}");
    }
}

#[test]
fn how_fast_memory_goes_shows_in_what_is_held_where_what_is_left_moves_in_steps() {
    // 100 MiB a second, looked at every 60 ms: what is left moves by 16 MiB at a time.
    let mut state = MachineState::default();
    for number in 0..20 {
        let taken = 6 * number;
        let read = reading(1000 - taken / 16 * 16, 9000 + taken, 0, 0);
        (state, ..) = decide(&read, &MachineConfig::default(), state, Nanos(number * 60 * MS));
    }
    assert_eq!(state.margin().fill_per_second, 100 * MIB);
    // What is swapped out is held still.
    let mut state = MachineState::default();
    for number in 0..20 {
        let read = reading(1000, 9000 - 6 * number, 8000, 4000 - 6 * number);
        (state, ..) = decide(&read, &MachineConfig::default(), state, Nanos(number * 60 * MS));
    }
    assert_eq!(state.margin().fill_per_second, 100 * MIB, "swap is used up");
}

#[test]
fn under_the_margin_somebody_is_killed_whatever_the_threshold() {
    let mut machine = Machine::new();
    reap_at(&mut machine, 100 << 20);
    // 20 GiB a second with 100 MiB/s back: more than there is, but nobody is killed above the threshold of SIGTERM.
    let falls = |number: u64| Tenth {
        available_mib: 9900 - 2000 * number.min(4) - 901 * (number / 5),
        swap_free_mib: 0,
        ..CALM
    };
    assert_eq!(machine.selects(5, falls), Some((Cause::Low, Signal::Kill, 5)));
    assert!(machine.state.margin().bytes > Bytes(10_000 * MIB));
}

#[test]
fn where_memory_goes_fast_those_who_end_are_to_give_back_the_margin_as_well() {
    type Part = fn(Nanos) -> Measured;
    let parts: [(Part, u64, Option<Signal>); 3] = [
        (Measured::Late, 0, None),
        (Measured::Late, 800, Some(Signal::Kill)),
        (Measured::End, 800, Some(Signal::Kill)),
    ];
    for (part, took_ms, next) in parts {
        let mut machine = Machine::new();
        machine.learn(part(Nanos(took_ms * MS)));
        for available_mib in [400, 300, 200] {
            machine.step(Tenth { available_mib, swap_free_mib: 0, ..CALM });
        }
        let now = Nanos((machine.ms + 100) * MS);
        machine.state.outcome(id(1), SignalOutcome::Sent(Signal::Kill), &machine.config, now);
        // Of 10,000 MiB SIGKILL is sent at 500: 700 would be left.
        let ending = Reading::Known(Bytes(600 * MIB));
        let read = MachineReading { ending, ..reading(100, 9900, 0, 0) };
        let (_, action, _) = decide(&read, &machine.config, machine.state, now);
        assert_eq!(called_for(action), next, "{took_ms}");
    }
}

#[test]
fn a_large_machine_is_not_warned_at_a_tenth() {
    let mut guard = Guard::default();
    let of_256_gib = |available_gib: u64| reading(available_gib * 1024, (256 - available_gib) * 1024, 0, 0);
    assert_eq!(guard.step(&of_256_gib(20), 0), MachineAction::Rest);
    assert_eq!(called_for(guard.step(&of_256_gib(4), 1000)), Some(Signal::Term));
    guard.config.memory_max = Bytes(u64::MAX);
    assert_eq!(called_for(guard.step(&of_256_gib(25), 2000)), Some(Signal::Term));
    let config = MachineConfig::default();
    assert_eq!(config.memory_line(&config.kill, Bytes(256 << 30)), Bytes(2 << 30));
    assert_eq!(config.memory_line(&config.kill, Bytes(16 << 30)), Bytes((16 << 30) / 20));
}

#[test]
fn the_cache_of_zfs_counts_as_available() {
    let arc = MachineReading { arc: Reading::Known(Bytes(500 * MIB)), ..reading(50, 950, 0, 0) };
    assert_eq!(Guard::default().step(&arc, 0), MachineAction::Rest);
}

#[test]
fn a_hog_that_takes_all_between_two_looks_is_killed_at_the_first() {
    let full = Tenth { swap_free_mib: 0, ..CALM };
    let mut machine = Machine::new();
    machine.selects(3, |_| full);
    let gone = Tenth { available_mib: 200, ..full };
    assert_eq!(machine.selects(10, |_| gone), Some((Cause::Low, Signal::Kill, 1)));
    // Where nothing is known of a rate, a quarter of the threshold is left to nobody.
    let nearly = Tenth { available_mib: 125, ..full };
    assert_eq!(Machine::new().selects(10, |_| nearly), Some((Cause::Low, Signal::Kill, 1)));
}

#[test]
fn what_cannot_be_read_is_not_looked_at_without_end() {
    let mut machine = Machine::new();
    let low = Tenth { available_mib: 800, swap_free_mib: 0, ..CALM };
    machine.step(low);
    assert!(machine.state.next_deadline(&machine.config).is_some(), "the end of a spike");
    let now = Nanos(machine.ms * MS + SECOND);
    let (state, ..) = decide(&MachineReading::UNREADABLE, &machine.config, machine.state, now);
    assert_eq!(state.next_deadline(&machine.config), None);
}

#[test]
fn a_stall_read_before_a_victims_end_says_nothing_about_after_it() {
    let mut machine = Machine::new();
    let thrashing = Tenth { available_mib: 400, stalled_ms: 60, ..CALM };
    machine.selects(31, |_| thrashing);
    let now = Nanos(machine.ms * MS);
    machine.state.outcome(id(1), SignalOutcome::Sent(Signal::Kill), &machine.config, now);
    // Gone after 4 s; what was read last is of its first tenth.
    let old = machine.ms;
    let gone = Nanos((old + 4000) * MS);
    machine.state.outcome(id(1), SignalOutcome::Freed, &machine.config, gone);
    let read = |at, stalled_ms: u64| MachineReading {
        stall: Reading::Known(StallReading {
            at: Nanos(at * MS),
            stalled: Nanos(stalled_ms * MS),
            read_again: Bytes(0),
        }),
        ..reading(400, 9600, 8000, 4000)
    };
    for (at, stalled_ms, ms) in [(old, 1860, 4100), (old + 4200, 4400, 4200)] {
        let now = Nanos((old + ms) * MS);
        let (state, action, _) = decide(&read(at, stalled_ms), &machine.config, machine.state, now);
        machine.state = state;
        assert!(!matches!(action, MachineAction::Select(_)), "{action:?}");
    }
}
