use super::{UnitMark, UnitMarks};
use crate::offload::Offload;
use std::{sync::mpsc::channel, time::Duration};

fn beginning() -> UnitMark {
    UnitMark { cgroup: b"/x.service".to_vec(), whole: false, killed: None }
}

/// As good as for ever.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_mark_in_time_is_set_before_the_guard_goes_on() {
    let (set, done) = channel();
    let marks = UnitMarks::with(
        &Offload::start().unwrap(),
        Box::new(move |unit| set.send(unit.killed).unwrap()),
        LONG,
    );
    for _ in 0..100 {
        assert!(marks.set(beginning()));
        assert_eq!(done.try_recv(), Ok(None));
    }
}

#[test]
fn one_that_is_held_up_is_not_waited_for_and_nor_are_those_behind_it() {
    let (go_on, held) = channel::<()>();
    let (set, done) = channel();
    let marker = move |unit: &UnitMark| {
        held.recv().unwrap();
        set.send(unit.killed).unwrap();
    };
    let mut marks = UnitMarks::with(&Offload::start().unwrap(), Box::new(marker), Duration::from_millis(1));
    assert!(!marks.set(beginning()), "it was told in time though nothing was set");
    marks.patience = LONG;
    assert!(!marks.set(beginning()), "another is behind it");
    // What is not waited for either way: it only takes its place.
    assert!(marks.set(UnitMark { killed: Some(1), ..beginning() }));
    for expected in [None, None, Some(1)] {
        go_on.send(()).unwrap();
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(expected));
    }
    go_on.send(()).unwrap();
    assert!(marks.set(beginning()), "nobody waits any more");
}

#[test]
fn without_room_it_goes_on_and_says_so() {
    assert!(!UnitMarks::mute().set(beginning()));
}
