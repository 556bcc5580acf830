use super::Reading;

#[test]
fn only_a_fresh_reading_is_known() {
    assert_eq!(Reading::Known(7).known(), Some(7));
    assert_eq!(Reading::Stale { value: 7, age_ns: 1 }.known(), None);
    assert_eq!(Reading::<u8>::Absent.known(), None);
    assert_eq!(Reading::<u8>::Unreadable.known(), None);
}

#[test]
fn the_latest_value_may_be_old_but_is_never_invented() {
    assert_eq!(Reading::Known(7).latest(), Some(7));
    assert_eq!(Reading::Stale { value: 7, age_ns: 1 }.latest(), Some(7));
    assert_eq!(Reading::<u8>::Absent.latest(), None);
    assert_eq!(Reading::<u8>::Unreadable.latest(), None);
}

#[test]
fn a_derived_reading_keeps_its_kind() {
    let double = |value: u8| value * 2;
    assert_eq!(Reading::Known(7).map(double), Reading::Known(14));
    assert_eq!(Reading::Stale { value: 7, age_ns: 1 }.map(double), Reading::Stale { value: 14, age_ns: 1 });
    assert_eq!(Reading::<u8>::Absent.map(double), Reading::Absent);
    assert_eq!(Reading::<u8>::Unreadable.map(double), Reading::Unreadable);
}
