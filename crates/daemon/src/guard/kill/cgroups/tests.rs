use super::{CgroupKiller, Ended, Order, told};
use crate::{facts::cgroups::Group, guard::Eligibility, journal::Journal, offload::Offload};
use plimsoll_policy::units::Nanos;
use plimsoll_sys::{cgroup::CgroupId, process::ReaperHandle};
use std::time::Duration;

fn order(cgroup: &str, dry_run: bool) -> Order {
    Order {
        cgroup: Group { path: cgroup.as_bytes().to_vec(), id: CgroupId(1) },
        ordered: Nanos(plimsoll_sys::process::clock_monotonic_ns()),
        eligibility: Eligibility::default(),
        dry_run,
    }
}

#[test]
fn what_was_done_is_told_with_nothing_raw_in_it() {
    let ended = || Ok(Ended { processes: 3, spared: 1, took: Nanos(1_500_000) });
    assert_eq!(
        told(&order("/a.slice", false), ended()),
        "killed 3 processes of cgroup /a.slice with the victim, 1 of it spared, in 1500 us"
    );
    let line = told(&order("/\u{1b}[2Jx", true), ended());
    assert!(line.starts_with("dry run: would have killed 3") && !line.contains('\u{1b}'), "{line}");
}

#[test]
fn a_cgroup_that_is_not_there_is_told_and_the_thread_goes_on() {
    let (journal, lines) = Journal::gather();
    let groups = CgroupKiller::new(&Offload::start().unwrap(), &journal, &ReaperHandle::default()).unwrap();
    for _ in 0..2 {
        assert!(groups.order(order("/no/such.slice", false)));
        let line = lines.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(line.starts_with("cgroup /no/such.slice was not killed with its victim: "), "{line}");
    }
}

#[test]
fn the_root_of_all_cgroups_is_never_killed() {
    let (journal, lines) = Journal::gather();
    let groups = CgroupKiller::new(&Offload::start().unwrap(), &journal, &ReaperHandle::default()).unwrap();
    assert!(groups.order(order("/", true)));
    let line = lines.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(line.contains("was not killed"), "{line}");
}

#[test]
fn an_order_that_is_old_or_for_another_cgroup_of_that_path_is_not_carried_out() {
    let (journal, lines) = Journal::gather();
    let groups = CgroupKiller::new(&Offload::start().unwrap(), &journal, &ReaperHandle::default()).unwrap();
    let line = || lines.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(groups.order(Order { ordered: Nanos(0), ..order("/", false) }));
    assert!(line().contains("decided too long ago"));
    if plimsoll_sys::cgroup::CgroupRoot::open().is_ok() {
        let other = Group { path: b"/".to_vec(), id: CgroupId(u64::MAX) };
        assert!(groups.order(Order { cgroup: other, ..order("/", false) }));
        assert!(line().contains("made again"));
    }
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while groups.busy() {
        assert!(std::time::Instant::now() < end, "it is busy for ever");
    }
}
