use super::*;
use crate::offload::Offload;
use plimsoll_policy::{account::Account, reading::Reading, units::Uid};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const ALICE: Uid = Uid(60_689);

fn account(usage: u64) -> AccountNow {
    AccountNow {
        account: Account::User(ALICE),
        usage: Bytes(usage),
        line: Some(Bytes(64 << 20)),
        near: true,
        followed: true,
    }
}

fn incident() -> Incident {
    serde_json::from_value(serde_json::json!({
        "id": 3, "time": Timestamp::now(), "account": "user:60689", "guard": "limits",
        "trigger": "in-kernel", "action": "kill", "victims": [], "peers": [],
        "usage_bytes": 67_108_864, "hard_bytes": 67_108_864, "overshoot_bytes": 0,
        "reason": "over-hard-limit-largest",
    }))
    .unwrap()
}

fn seconds_ago(seconds: u64) -> Nanos {
    Nanos(clock_monotonic_ns() - seconds * 1_000_000_000)
}

#[test]
fn an_incident_gets_the_minutes_before_it_with_times_from_its_decision() {
    let mut sampler = Sampler::absent();
    let reading = MachineReading {
        mem_available: Reading::Known(Bytes(7 << 20)),
        swap_total: Reading::Known(Bytes(0)),
        swap_free: Reading::Known(Bytes(0)),
        ..MachineReading::UNREADABLE
    };
    sampler.take(seconds_ago(4), [account(20 << 20)].into_iter(), Some(&reading));
    sampler.take(seconds_ago(2), [account(40 << 20)].into_iter(), None);
    let mut told = incident();
    sampler.book.complete(&mut told);
    let course = told.course.clone().unwrap();
    let at: Vec<i64> = course.account.iter().map(|one| one.at_ms / 1000).collect();
    assert!(at == [-4, -2] || at == [-3, -1], "{course:?}");
    assert_eq!(course.machine.len(), 1);
    assert_eq!((course.machine[0].mem_available_bytes, course.machine[0].anon_bytes), (Some(7 << 20), None));
    assert_eq!(course.swap_total_bytes, Some(0));
    // What is known stays.
    sampler.take(seconds_ago(1), [account(60 << 20)].into_iter(), None);
    let before = told.clone();
    sampler.book.complete(&mut told);
    assert_eq!(told, before);
}

#[test]
fn an_incident_of_which_nothing_is_known_has_no_course() {
    let mut told = incident();
    Sampler::absent().book.complete(&mut told);
    assert_eq!(told.course, None);
    // Nor has one that stands for actions nobody recorded.
    let mut sampler = Sampler::absent();
    sampler.take(seconds_ago(1), [account(40 << 20)].into_iter(), None);
    let mut lost = Incident { unrecorded: Some(3), ..incident() };
    sampler.book.complete(&mut lost);
    assert_eq!(lost.course, None);
}

#[test]
fn the_guard_does_not_wait_for_a_book_that_is_in_use() {
    let mut sampler = Sampler::absent();
    let book = sampler.book.clone();
    let held = book.0.lock().unwrap();
    sampler.take(seconds_ago(1), [account(40 << 20)].into_iter(), None);
    drop(held);
    let mut told = incident();
    sampler.book.complete(&mut told);
    assert_eq!(told.course, None, "the sample was left out");
}

#[test]
fn the_thread_reads_the_machine_with_its_stalls() {
    let proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let (writer, _recorded) = crate::history::Recorded::by_a_writer(4);
    let book = SharedRecorder::new(Bytes(1 << 30));
    let sampler = Sampler::new(&Offload::start().unwrap(), book.clone(), proc, writer);
    sampler.look_at_machine();
    let end = Instant::now() + Duration::from_secs(20);
    let course = loop {
        let course = book.read(|recorder| recorder.course(None, Nanos(clock_monotonic_ns()), Nanos(0)));
        if !course.is_empty() {
            break course;
        }
        assert!(Instant::now() < end, "nothing was read");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(course.machine[0].mem_available_bytes > Some(0), "{course:?}");
    if Path::new("/proc/pressure/memory").exists() {
        assert!(course.machine[0].some_permille.is_some(), "{course:?}");
    }
}
