use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn cpus(at_ms: u64, idle_ms: u64) -> Option<Cpus> {
    Some(Cpus { at: Nanos(at_ms * MS), idle: Nanos(idle_ms * MS), count: 2 })
}

fn after(readings: &[(u64, u64)]) -> Spacing {
    let mut spacing = Spacing::default();
    readings.iter().for_each(|(at, idle)| spacing.observe(cpus(*at, *idle)));
    spacing
}

fn apart_ms(spacing: Spacing, room_mib: u64, took_us: u64) -> u64 {
    spacing.apart(Bytes(room_mib * MIB), Bytes(2 * MIB), Nanos(took_us * 1000)).0 / MS
}

#[test]
fn while_cpus_work_a_look_comes_before_the_line_could_be_reached() {
    let spacing = after(&[(0, 0), (1000, 1000)]);
    for (room_mib, apart) in [(0, 10), (1, 10), (118, 10), (1200, 100), (6000, 500), (120_000, 1000)] {
        assert_eq!(apart_ms(spacing, room_mib, 0), apart, "{room_mib} MiB below the line");
    }
}

#[test]
fn what_does_not_grow_is_looked_at_less_often() {
    let spacing = after(&[(0, 0), (1000, 1000)]);
    for (room_mib, apart) in [(0, 100), (1200, 100), (6000, 500)] {
        assert_eq!(
            spacing.apart(Bytes(room_mib * MIB), Bytes(MIB), Nanos(0)).0 / MS,
            apart,
            "{room_mib} MiB"
        );
    }
}

#[test]
fn while_cpus_idle_there_is_one_look_a_second() {
    let spacing = after(&[(0, 0), (1000, 1900)]);
    assert_eq!(apart_ms(spacing, 0, 0), 1000);
}

#[test]
fn whether_they_idle_is_not_told_from_a_moment_and_not_forgotten_for_one() {
    // Of 100 ms nothing is told; of 200 ms it is, from where the last one was.
    assert_eq!(apart_ms(after(&[(0, 0), (100, 200)]), 0, 0), 10);
    assert_eq!(apart_ms(after(&[(0, 0), (100, 200), (200, 399)]), 0, 0), 1000);
    assert_eq!(apart_ms(after(&[(0, 0), (200, 399), (210, 399)]), 0, 0), 1000);
    assert_eq!(apart_ms(after(&[(0, 0), (200, 399), (400, 599)]), 0, 0), 10);
}

#[test]
fn what_is_not_known_is_taken_for_work() {
    let mut spacing = after(&[(0, 0), (1000, 1990)]);
    spacing.observe(None);
    assert_eq!(apart_ms(spacing, 0, 0), 10);
    // A clock that seems to run backwards is no idleness.
    assert_eq!(apart_ms(after(&[(0, 5000), (1000, 0)]), 0, 0), 10);
}

#[test]
fn looks_that_take_long_are_further_apart_and_never_more_than_a_second() {
    let spacing = Spacing::default();
    assert_eq!(apart_ms(spacing, 0, 3000), 300);
    assert_eq!(apart_ms(spacing, 0, 50_000), 1000);
    assert_eq!(spacing.apart(Bytes(0), Bytes(0), Nanos(u64::MAX)), Nanos(1000 * MS));
}
