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

fn is_ordinary(thread: Pid) -> bool {
    schedule_of(Some(thread)) == Ok(Schedule::ORDINARY)
        && getpriority_process(raw_pid(thread)) == Ok(PATIENT_NICE)
}

fn two_cpus() -> Option<CpuSet> {
    sched_getaffinity(None).ok().filter(|cpus| cpus.count() >= 2)
}

#[test]
fn class_nice_value_and_affinity_are_lifted() {
    let guest = throttled();
    let Some(cpus) = two_cpus() else {
        return crate::process::testing::skip("one CPU");
    };
    let all = expedite(&proc_root().files, &guest.pidfd(), Some(&cpus)).unwrap();
    let expected = [Hindrance::IdleClass, Hindrance::Nice, Hindrance::Affinity];
    assert!(all.found.iter().eq(expected) && all.lifted.iter().eq(expected), "{all:?}");
    assert!(is_ordinary(guest.pid()));
    assert!(has_all(&sched_getaffinity(raw_pid(guest.pid())).unwrap(), &cpus));
}

#[test]
fn a_thread_that_nothing_holds_back_is_left_as_it_is_and_nothing_is_said() {
    let guest = Guest::asleep();
    // The tests themselves may have been started nice.
    setpriority_process(raw_pid(guest.pid()), 0).unwrap();
    let all = expedite(&proc_root().files, &guest.pidfd(), two_cpus().as_ref()).unwrap();
    assert!(all.found.is_empty() && all.lifted.is_empty(), "{all:?}");
    assert!(is_ordinary(guest.pid()));
}

#[test]
fn every_thread_of_a_process_is_made_ordinary() {
    let guest = Guest::start(Command::new("python3").args([
        "-c",
        "import threading, time\nfor _ in range(9): threading.Thread(target=time.sleep, args=(60,)).start()",
    ]));
    let folder = format!("/proc/{}/task", guest.pid());
    let names = || std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name());
    guest.wait_until("it has its threads", |_, _| names().count() == 10);
    let all = expedite(&proc_root().files, &guest.pidfd(), None).unwrap();
    assert!(all.found.iter().all(|found| found == Hindrance::Nice), "{all:?}");
    assert!(names().all(|name| is_ordinary(Pid(name.to_str().unwrap().parse().unwrap()))));
}

#[test]
fn one_that_was_more_urgent_than_others_is_it_no_longer() {
    let guest = Guest::asleep();
    if set_schedule(Some(guest.pid()), Schedule { policy: libc::SCHED_FIFO, level: 50 }).is_err() {
        return crate::process::testing::skip("no CAP_SYS_NICE, or a cgroup without it");
    }
    setpriority_process(raw_pid(guest.pid()), -20).unwrap();
    let all = expedite(&proc_root().files, &guest.pidfd(), None).unwrap();
    assert!(is_ordinary(guest.pid()) && all.found.is_empty(), "{all:?}");
}

#[test]
fn a_turn_ends_though_its_process_does_not() {
    let guest = Guest::start(Command::new("perl").args(["-e", "alarm 60; 1 while 1"]));
    let give = || give_turn(&proc_root().files, &guest.pidfd());
    // Nobody could take it back in time.
    assert_eq!(give(), Ok(Turn::Refused(Hindrance::Denied)));
    let turn = thread::scope(|scope| {
        scope.spawn(|| (urgency::raise_decider() == Priority::RealTime).then(give)).join().unwrap()
    });
    if turn != Some(Ok(Turn::Given)) {
        return crate::process::testing::skip("no CAP_SYS_NICE, or a cgroup without it");
    }
    assert_eq!(schedule_of(Some(guest.pid())), Ok(Schedule::ORDINARY));
}

#[test]
fn what_may_not_be_lifted_is_said() {
    let guest = throttled();
    let all = thread::spawn(move || {
        let now = rustix::thread::capabilities(None).unwrap();
        let effective = now.effective.difference(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective, ..now }).unwrap();
        assert_eq!(urgency::raise_decider(), Priority::Unchanged);
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
    assert!(is_ordinary(stranger.pid()));
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
