use super::super::MachineGuard;
use crate::guard::machine::tests::town::{Guarded, Town};
use plimsoll_policy::{machine::MachineConfig, preference::Rules, units::Bytes};
use plimsoll_report::trace::{replay, words};

impl MachineGuard {
    /// What it remembers replays to what it did.
    pub(in crate::guard) fn assert_replays(&self) {
        let trace = self.trace();
        if trace.is_empty() {
            return;
        }
        let replay = replay(trace.as_bytes(), None).unwrap_or_else(|error| panic!("{error}:\n{trace}"));
        assert!(replay.is_exact(), "{}\n{trace}", words(&replay));
    }

    pub(in crate::guard) fn trace(&self) -> String {
        let whole = [self.recording.older.as_slice(), self.recording.newer.as_slice()].concat();
        String::from_utf8(whole).unwrap()
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn a_trace_is_bounded_and_replays_from_wherever_it_begins() {
    let town = Town::of(&[(10, 1, 90_000, "hog"), (11, 1, 5000, "second")]);
    let mut guarded = Guarded::new(&town, MachineConfig::default(), Rules::default());
    let mut longest = 0;
    for round in 0..2000_u64 {
        // Up and down, so that there is much to remember.
        town.has(Bytes((110 + round % 40) * MIB));
        guarded.tend();
        longest = longest.max(guarded.trace().len());
        if round % 50 == 0 {
            guarded.assert_replays();
        }
    }
    assert!((super::HALF_BYTES..=2 * super::HALF_BYTES).contains(&longest), "{longest}");
    assert_eq!(guarded.trace().matches("{\"begin\":").count(), 2);
}

#[test]
fn another_configuration_begins_another_part_of_the_trace() {
    let town = Town::of(&[(10, 1, 90_000, "hog"), (11, 1, 5000, "second")]);
    let mut guarded = Guarded::new(&town, MachineConfig::default(), Rules::default());
    town.has(Bytes(90 * MIB));
    (0..20).for_each(|_| guarded.tend());
    guarded.configure(MachineConfig { reclaim: false, ..MachineConfig::default() });
    (0..20).for_each(|_| guarded.tend());
    let trace = guarded.trace();
    let of = |reclaim| format!("\"reclaim\":{reclaim}");
    assert!(trace.contains(&of(true)) && trace.contains(&of(false)), "{trace}");
    guarded.assert_replays();
}

#[test]
fn of_incidents_in_a_row_so_many_have_a_trace_as_there_was_room_for_before() {
    let town = Town::of(&[(10, 1, 90_000, "hog")]);
    let mut guarded = Guarded::new(&town, MachineConfig::default(), Rules::default());
    town.has(Bytes(2000 * MIB));
    guarded.tend();
    let trace = guarded.trace();
    let recording = &mut guarded.guard.recording;
    for _ in 0..super::COPIES {
        assert_eq!(recording.text().as_deref(), Some(trace.as_str()));
    }
    assert_eq!(recording.text(), None);
    guarded.tend();
    let trace = guarded.trace();
    assert_eq!(guarded.guard.recording.text(), Some(trace));
}
