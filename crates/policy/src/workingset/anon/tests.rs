use super::{AnonReading, AnonState, FALLING, FAR, NEAR, judge};
use crate::{
    reading::Reading,
    units::Pages,
    workingset::{Ratio, Tunables},
};

fn on() -> Tunables {
    Tunables { workingset_protection: true, ..Tunables::default() }
}

/// Of 10000 pages with as much swap: the floor is 1500.
fn reading(anon: u64) -> AnonReading {
    AnonReading {
        anon: Reading::Known(Pages(anon)),
        swap_total: Reading::Known(Pages(10_000)),
        mem_total: Pages(10_000),
    }
}

fn after(anons: &[u64]) -> AnonState {
    anons.iter().fold(AnonState::default(), |state, anon| judge(state, &reading(*anon), &on()))
}

#[test]
fn swapping_is_held_back_at_the_floor_and_a_little_before() {
    assert_eq!(
        after(&[9000]),
        AnonState { line: Pages(1500), holds: false, anon: Pages(9000), look_in: FAR }
    );
    assert!(!after(&[1688]).holds);
    assert!(after(&[1687]).holds);
    assert!(after(&[0]).holds);
}

#[test]
fn it_is_let_go_on_only_when_there_is_clearly_more() {
    assert!(after(&[1400, 1700, 1874]).holds);
    assert!(!after(&[1400, 1875]).holds);
    assert!(!after(&[1400, 1875, 1700]).holds, "and then not held back again at once");
}

#[test]
fn without_swap_or_a_floor_nothing_is_held_back() {
    let held = after(&[1000]);
    assert!(held.holds);
    for swap_total in [Reading::Absent, Reading::Known(Pages(0))] {
        let state = judge(held, &AnonReading { swap_total, ..reading(1000) }, &on());
        assert_eq!((state.holds, state.line), (false, Pages(0)));
    }
    let zero = Tunables { anon_min_ratio: Ratio::default(), ..on() };
    for tunables in [zero, Tunables::default()] {
        assert_eq!(
            judge(held, &reading(1000), &tunables),
            AnonState { look_in: FAR, ..AnonState::default() }
        );
    }
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    for state in [after(&[1000]), after(&[5000])] {
        let unread = AnonReading { anon: Reading::Unreadable, ..reading(0) };
        assert_eq!(judge(state, &unread, &on()).holds, state.holds);
        let unread = AnonReading { swap_total: Reading::Unreadable, ..reading(5000) };
        assert_eq!(judge(state, &unread, &on()).holds, state.holds);
    }
}

#[test]
fn it_is_looked_often_while_the_floor_may_be_reached_soon() {
    assert_eq!(after(&[5999]).look_in, NEAR);
    assert_eq!(after(&[5999, 5976]).look_in, NEAR);
    assert_eq!(after(&[5999, 5975]).look_in, FALLING);
    assert_eq!(after(&[5999, 5975, 5975]).look_in, NEAR);
    assert_eq!(after(&[9000, 8000]).look_in, FAR);
    assert_eq!(after(&[1000]).look_in, FAR, "held back, nothing is urgent");
}
