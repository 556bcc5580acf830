use super::*;
use crate::process::testing::{Guest, proc_root};
use crate::process::{Priority, urgency};
use std::{process::Command, thread};

/// A guest at `SCHED_IDLE`, nice 19, on the first CPU alone.
fn throttled() -> Guest {
    let guest = Guest::start(
        Command::new("taskset").args(["1", "chrt", "--idle", "0", "nice", "-n", "19", "sleep", "60"]),
    );
    guest.wait_until("it runs sleep", |root, pid| root.process(pid).unwrap().comm.as_bytes() == b"sleep");
    guest
}

fn two_cpus() -> Option<CpuSet> {
    sched_getaffinity(None).ok().filter(|cpus| cpus.count() >= 2)
}

#[test]
fn class_nice_value_and_affinity_are_lifted() {
    let guest = throttled();
    let Some(cpus) = two_cpus() else {
        println!("SKIPPED: class_nice_value_and_affinity_are_lifted: one CPU");
        return;
    };
    let all = expedite(&proc_root().files, &guest.pidfd(), Some(&cpus)).unwrap();
    let expected = [Hindrance::IdleClass, Hindrance::Nice, Hindrance::Affinity];
    assert!(all.found.iter().eq(expected) && all.lifted.iter().eq(expected), "{all:?}");
    assert_eq!(schedule_of(Some(guest.pid())).unwrap(), Schedule::DYING);
    assert!(has_all(&sched_getaffinity(raw_pid(guest.pid())).unwrap(), &cpus));
}

#[test]
fn a_thread_that_nothing_holds_back_is_made_urgent_and_nothing_is_said() {
    let guest = Guest::asleep();
    // The tests themselves may have been started nice.
    setpriority_process(raw_pid(guest.pid()), 0).unwrap();
    let all = expedite(&proc_root().files, &guest.pidfd(), two_cpus().as_ref()).unwrap();
    assert!(all.found.is_empty() && all.lifted.is_empty(), "{all:?}");
    assert_eq!(schedule_of(Some(guest.pid())).unwrap(), Schedule::DYING);
}

#[test]
fn every_thread_of_a_process_is_made_urgent() {
    // This very process: its threads are of tests, and get back what they had.
    let own = PidFd::open(Pid(std::process::id())).unwrap();
    let before = schedule_of(None).unwrap();
    let waiting = thread::spawn(thread::park);
    let all = expedite(&proc_root().files, &own, None);
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads: Vec<Pid> =
        names.map(|name| Pid(name.file_name().to_str().unwrap().parse().unwrap())).collect();
    let urgent =
        threads.iter().filter(|thread| schedule_of(Some(**thread)).is_ok_and(Schedule::is_urgent)).count();
    for thread in &threads {
        set_schedule(Some(*thread), before).ok();
    }
    waiting.thread().unpark();
    waiting.join().unwrap();
    assert!(
        all.is_ok() && threads.len() >= 2 && urgent + 1 >= threads.len(),
        "{urgent} of {}",
        threads.len()
    );
}

#[test]
fn what_may_not_be_lifted_is_said() {
    let guest = throttled();
    let all = thread::spawn(move || {
        let now = rustix::thread::capabilities(None).unwrap();
        let effective = now.effective.difference(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective, ..now }).unwrap();
        assert_eq!(urgency::raise_self(1), Priority::Unchanged);
        expedite(&proc_root().files, &guest.pidfd(), None).unwrap()
    })
    .join()
    .unwrap();
    assert!(all.found.iter().eq([Hindrance::IdleClass, Hindrance::Nice, Hindrance::Denied]), "{all:?}");
    assert!(all.lifted.is_empty(), "{all:?}");
}

#[test]
fn a_number_that_is_no_thread_of_the_victim_is_found_out_and_put_back() {
    let (guest, stranger) = (Guest::asleep(), throttled());
    let threads = Threads::open(&proc_root().files, &guest.pidfd()).unwrap();
    assert!(threads.has(guest.pid()) && !threads.has(stranger.pid()));
    let own = sched_getaffinity(raw_pid(stranger.pid())).unwrap();
    let was = schedule_of(Some(stranger.pid())).unwrap();
    let before = quicken(stranger.pid(), two_cpus().as_ref(), &mut Lifted::default());
    assert!(schedule_of(Some(stranger.pid())).unwrap().is_urgent());
    put_back(&before);
    assert_eq!(schedule_of(Some(stranger.pid())).unwrap(), was);
    assert_eq!(sched_getaffinity(raw_pid(stranger.pid())).unwrap(), own);
}

#[test]
fn one_that_was_waited_for_has_no_threads_to_change() {
    let mut guest = Guest::asleep();
    let pidfd = guest.pidfd();
    guest.bury();
    let gone = expedite(&proc_root().files, &pidfd, None).unwrap_err();
    assert_eq!(gone, ProcessError::Vanished(guest.pid()));
}
