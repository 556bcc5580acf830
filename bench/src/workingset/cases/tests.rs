use super::{Taken, first_at, settled_at};

fn read(at: f64, seconds: f64) -> Taken {
    Taken { at, seconds, fetched_bytes: u64::from(seconds > 0.1) }
}

const CACHED: [Taken; 2] =
    [Taken { at: -4.0, seconds: 0.5, fetched_bytes: 1 }, Taken { at: -2.0, seconds: 0.01, fetched_bytes: 0 }];

#[test]
fn a_read_is_settled_when_it_is_fast_and_no_later_one_is_slow() {
    let reads = [&CACHED[..], &[read(1.0, 5.0), read(8.0, 0.02), read(10.0, 0.03)]].concat();
    assert_eq!(settled_at(&reads), Some(8.02));
}

#[test]
fn a_slow_read_afterwards_starts_it_anew() {
    let reads = [&CACHED[..], &[read(1.0, 0.01), read(3.0, 0.05), read(5.0, 0.015)]].concat();
    assert_eq!(settled_at(&reads), Some(5.015));
}

#[test]
fn the_first_fast_read_counts_from_a_moment_on_whatever_comes_after() {
    let reads = [&CACHED[..], &[read(1.0, 0.01), read(3.0, 0.05), read(5.0, 0.015), read(7.0, 5.0)]].concat();
    assert_eq!(first_at(&reads, 2.0), Some(5.015));
    assert_eq!(first_at(&reads, 6.0), None);
}

#[test]
fn what_stays_slow_or_was_never_cached_is_not_settled() {
    let slow = [&CACHED[..], &[read(1.0, 5.0), read(8.0, 0.03)]].concat();
    assert_eq!(settled_at(&slow), None);
    assert_eq!(settled_at(&[read(-2.0, 0.5), read(1.0, 0.01)]), None);
}
