use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn look_ms(room_mib: u64, took_us: u64, cpus: Option<u32>, coarse: bool) -> Option<u64> {
    look_after(Bytes(room_mib * MIB), Nanos(took_us * 1000), cpus, coarse).map(|after| after.0 / MS)
}

#[test]
fn the_next_look_comes_before_the_closest_line_could_be_reached() {
    // Two CPUs fill 24,000 MiB a second, and 20 ms are kept for what has to be done then.
    for (room_mib, after) in [(0, None), (719, None), (720, Some(10)), (1200, Some(30)), (12_000, Some(480))]
    {
        assert_eq!(look_ms(room_mib, 0, Some(2), true), after, "{room_mib} MiB below the line");
    }
    assert_eq!(look_ms(1 << 20, 0, Some(2), true), Some(1000), "at least once a second");
    for cpus in [1, 2, 3, 16, 80, 500] {
        for room_mib in (0..100_000).step_by(997) {
            for took_us in [0, 100, 5000, 100_000] {
                let Some(after) = look_ms(room_mib, took_us, Some(cpus), true) else { continue };
                let taken = (after + 20 + 3 * took_us / 1000) * 12_000 * u64::from(cpus.min(80)) / 1000;
                assert!(taken <= room_mib, "{cpus} CPUs, {room_mib} MiB, {took_us} us: {taken}");
            }
        }
    }
}

#[test]
fn walks_that_take_long_are_rare_or_not_made() {
    assert_eq!(look_ms(12_000, 1000, Some(2), true), Some(477));
    assert_eq!(look_ms(1200, 1000, Some(2), true), None, "64 times a millisecond would be too late");
    assert_eq!(look_ms(1 << 20, 50_000, Some(2), true), Some(3200));
}

#[test]
fn what_is_looked_at_stays_so_for_a_while() {
    assert_eq!(look_ms(1000, 0, Some(2), true), Some(21));
    assert_eq!(look_ms(1000, 0, Some(2), false), None);
    assert_eq!(look_ms(1080, 0, Some(2), false), Some(25));
}

#[test]
fn more_cpus_need_more_room_and_no_more_than_eighty() {
    assert_eq!(look_ms(80_000, 0, None, true), look_ms(80_000, 0, Some(80), true));
    assert_eq!(look_ms(80_000, 0, Some(256), true), look_ms(80_000, 0, Some(80), true));
    assert!(look_ms(8000, 0, Some(4), true) > look_ms(8000, 0, Some(8), true));
}
