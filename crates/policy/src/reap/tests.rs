use super::*;
use std::format;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn the_lowest_rate_is_kept_when_the_newest_are_all_faster() {
    let mut rates = Rates::new();
    assert_eq!((rates.lowest(), rates.p50(), rates.count()), (None, None, 0));
    assert_eq!(rates.record(64 * MIB, SECOND_NS), Some(64 * MIB));
    for _ in 0..2 * RECENT_RATES_MAX {
        rates.record(1024 * MIB, SECOND_NS);
    }
    assert_eq!((rates.lowest(), rates.p50()), (Some(64 * MIB), Some(1024 * MIB)));
    assert_eq!(rates.count(), 129);
    assert_eq!(rates.recent.len(), RECENT_RATES_MAX);
}

#[test]
fn a_victim_too_small_to_measure_changes_nothing() {
    let mut rates = Rates::new();
    assert_eq!(rates.record(RATED_BYTES_MIN - 1, 60 * SECOND_NS), None);
    assert_eq!(rates.record(RATED_BYTES_MIN, 0), None);
    assert_eq!(rates, Rates::new());
}

#[test]
fn the_median_is_of_the_newest() {
    let mut rates = Rates::new();
    for mebibytes in (1..=RECENT_RATES_MAX as u64).map(|step| step * 64) {
        rates.record(mebibytes * MIB, SECOND_NS);
    }
    assert_eq!(rates.p50(), Some(32 * 64 * MIB));
    for _ in 0..=RECENT_RATES_MAX / 2 {
        rates.record(8192 * MIB, SECOND_NS);
    }
    assert_eq!(rates.p50(), Some(8192 * MIB));
}

#[test]
fn rates_come_back_from_a_disk_as_they_went() {
    let mut rates = Rates::new();
    for step in 1..100 {
        rates.record(step * 64 * MIB, SECOND_NS);
    }
    let text = serde_json::to_string(&rates).unwrap();
    assert_eq!(serde_json::from_str::<Rates>(&text).unwrap().sound(), rates);
}

#[test]
fn rates_that_a_disk_spoilt_are_bounded_and_never_0() {
    let spoilt = format!(r#"{{"lowest":0,"count":1,"recent":[0,7,{}9]}}"#, "8,".repeat(1000));
    let mut rates = serde_json::from_str::<Rates>(&spoilt).unwrap().sound();
    assert_eq!((rates.lowest(), rates.recent.len(), rates.count()), (Some(7), RECENT_RATES_MAX, 64));
    assert!(rates.record(64 * MIB, SECOND_NS).is_some());
}

#[test]
fn a_rate_is_neither_0_nor_more_than_fits() {
    assert_eq!(rate(1, u64::MAX), Some(1));
    assert_eq!(rate(u64::MAX, 1), Some(u64::MAX));
    assert_eq!((rate(0, 1), rate(1, 0)), (None, None));
}

#[test]
fn each_hindrance_has_a_place_of_its_own_and_words() {
    let mut all = Hindrances::NONE;
    for hindrance in Hindrance::ALL {
        assert!(!all.contains(hindrance), "{hindrance:?}");
        all.insert(hindrance);
        assert!(!hindrance.words().is_empty());
    }
    assert!(all.iter().eq(Hindrance::ALL));
}
