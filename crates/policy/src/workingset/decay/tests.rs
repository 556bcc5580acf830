use super::left;
use crate::units::Nanos;
use proptest::{prop_assert, proptest};

const MINUTE: Nanos = Nanos(60_000_000_000);

fn after(value: u64, seconds: u64) -> u64 {
    left(value, Nanos(seconds * 1_000_000_000), MINUTE)
}

#[test]
fn half_is_left_after_a_half_life_and_nothing_after_many() {
    assert_eq!(after(1 << 30, 0), 1 << 30);
    assert_eq!(after(1 << 30, 60), 1 << 29);
    assert_eq!(after(1 << 30, 600), 1 << 20);
    assert_eq!(after(1 << 30, 60 * 31), 0);
    assert_eq!(left(u64::MAX, Nanos(u64::MAX), MINUTE), 0);
    assert_eq!(left(1, MINUTE, Nanos(0)), 0);
}

#[test]
fn in_between_it_follows_the_curve() {
    // 2^-0.5, 2^-0.25, 2^-(1/30), in millionths.
    for (seconds, expected) in [(30, 707_107), (15, 840_896), (2, 977_160)] {
        let found = after(1_000_000, seconds);
        assert!(found.abs_diff(expected) <= 300, "{seconds} s: {found}, expected {expected}");
    }
}

#[test]
fn many_small_steps_forget_as_much_as_one_large_one() {
    let mut value = 1_u64 << 40;
    for _ in 0..600 {
        value = left(value, Nanos(100_000_000), MINUTE);
    }
    let whole = 1_u64 << 39;
    assert!(value.abs_diff(whole) < whole / 50, "{value}, expected {whole}");
}

proptest! {
    #[test]
    fn nothing_grows_and_later_is_never_more(value: u64, span: u64, more: u64) {
        let first = left(value, Nanos(span), MINUTE);
        prop_assert!(first <= value);
        prop_assert!(left(value, Nanos(span.saturating_add(more)), MINUTE) <= first);
    }
}
