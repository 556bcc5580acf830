use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn apart_ms(room_mib: u64, rose_mib: u64, took_us: u64, cpus: Option<u32>) -> u64 {
    apart(Bytes(room_mib * MIB), Bytes(rose_mib * MIB), Nanos(took_us * 1000), cpus).0 / MS
}

#[test]
fn a_look_comes_before_the_line_could_be_reached() {
    for (room_mib, apart) in [(0, 10), (1, 10), (118, 10), (1200, 100), (6000, 500), (120_000, 1000)] {
        assert_eq!(apart_ms(room_mib, 2, 0, Some(2)), apart, "{room_mib} MiB below the line");
    }
    for (cpus, apart) in [(None, 62), (Some(0), 1000), (Some(1), 1000), (Some(8), 125), (Some(500), 62)] {
        assert_eq!(apart_ms(6000, 2, 0, cpus), apart, "{cpus:?} CPUs");
    }
}

#[test]
fn what_does_not_grow_is_looked_at_less_often() {
    for (room_mib, apart) in [(0, 100), (1200, 100), (6000, 500)] {
        assert_eq!(apart_ms(room_mib, 1, 0, Some(2)), apart, "{room_mib} MiB below the line");
    }
}

#[test]
fn looks_that_take_long_are_further_apart_and_never_more_than_a_second() {
    assert_eq!(apart_ms(0, 0, 3000, None), 300);
    assert_eq!(apart_ms(0, 0, 50_000, None), 1000);
    assert_eq!(apart(Bytes(0), Bytes(0), Nanos(u64::MAX), None), Nanos(1000 * MS));
}
