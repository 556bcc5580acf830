use super::{CgroupFacts, sort};
use crate::{
    cgroup::testing::{Grove, USER, take, until, write},
    process::testing::Guest,
};
use plimsoll_policy::{reading::Reading, units::Uid};
use plimsoll_wire::text::{CgroupEvents, CgroupType, parse_oom_group};
use rustix::io::Errno;
use std::time::Duration;

const EMPTY: CgroupEvents = CgroupEvents { populated: false, frozen: Some(false) };

#[test]
fn a_cgroup_tells_whether_anybody_is_in_it_or_below_it() {
    let Some(mut grove) = Grove::plant("a_cgroup_tells_whether_anybody_is_in_it_or_below_it") else { return };
    let below = grove.make("below");
    let top = grove.top();
    assert_eq!(top.facts().unwrap().events, Reading::Known(EMPTY));
    let mut guest = Guest::asleep();
    take(&below, guest.pid());
    let CgroupFacts { events, kind, owner, .. } = top.facts().unwrap();
    assert_eq!(events, Reading::Known(CgroupEvents { populated: true, ..EMPTY }));
    assert_eq!((kind, owner), (Reading::Known(CgroupType::Domain), Reading::Known(Uid(0))));
    Grove::give_away(&top);
    assert_eq!(top.facts().unwrap().owner, Reading::Known(Uid(USER)));
    guest.bury();
    assert_eq!(top.facts().unwrap().events, Reading::Known(EMPTY));
}

#[test]
fn memory_that_no_controller_counts_is_absent_and_not_0() {
    let name = "memory_that_no_controller_counts_is_absent_and_not_0";
    let Some(grove) = Grove::plant(name) else { return };
    if grove.root.has_memory() {
        println!("\nSKIPPED: {name}: the memory controller is switched on here");
        return;
    }
    let facts = grove.top().facts().unwrap();
    assert_eq!((facts.memory, facts.swap), (Reading::Absent, Reading::Absent));
    assert_eq!((facts.oom_group, facts.threads), (Reading::Absent, Reading::Absent));
}

#[test]
fn the_root_has_no_events_and_no_type() {
    let Some(grove) = Grove::plant("the_root_has_no_events_and_no_type") else { return };
    let facts = grove.root.cgroup(b"/").unwrap().facts().unwrap();
    assert_eq!((facts.events, facts.kind), (Reading::Absent, Reading::Absent));
}

#[test]
fn a_file_that_cannot_be_read_or_understood_is_not_absent() {
    assert_eq!(sort(Err(Errno::IO), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Err(Errno::NODEV), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Ok(b"2\n"), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Err(Errno::NOENT), parse_oom_group), Reading::Absent);
}

#[test]
fn a_watch_hears_the_freezer_and_the_last_process_go() {
    let Some(grove) = Grove::plant("a_watch_hears_the_freezer_and_the_last_process_go") else { return };
    let top = grove.top();
    let mut guest = Guest::asleep();
    take(&top, guest.pid());
    let watch = top.watch().unwrap();
    assert!(watch.read().unwrap().populated);
    assert!(!watch.wait(Duration::ZERO).unwrap());
    write(&top, "cgroup.freeze", "1");
    until("it is frozen", || watch.read().unwrap().frozen == Some(true));
    write(&top, "cgroup.freeze", "0");
    until("it is not frozen", || watch.read().unwrap().frozen == Some(false));
    guest.bury();
    until("the watch has news", || watch.wait(Duration::from_millis(100)).unwrap());
    assert!(!watch.read().unwrap().populated);
}
