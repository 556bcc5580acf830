use super::*;
use crate::process::testing::{Guest, wait_for_exit};
use plimsoll_policy::victim::Signal;
use std::{fs, path::PathBuf, sync::mpsc::channel, thread};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_killed_process_is_freed_and_reported_with_its_tag_and_time() {
    let guest = Guest::holding(64);
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    reaper.submit(pidfd, 42).unwrap();
    let report = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(report.tag, 42);
    assert!(matches!(report.result, Reap::Reaped | Reap::AlreadyGone), "{report:?}");
    assert!(report.took_ns > 0);
    assert_eq!(report.pidfd.pid(), guest.pid());
    wait_for_exit(&report.pidfd);
    reaper.stop().unwrap();
}

#[test]
fn a_process_that_was_not_killed_is_tried_a_few_times_and_left_alone() {
    let guest = Guest::asleep();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    reaper.submit(guest.pidfd(), 1).unwrap();
    let report = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(report.result, Reap::NotDying);
    assert_eq!(usize::try_from(report.attempts).unwrap(), RETRY_WAITS_MS.len() + 1);
    assert!(report.took_ns >= 63_000_000, "{} ns", report.took_ns);
    assert_eq!(report.pidfd.has_exited(), Ok(false));
}

#[test]
fn a_kill_that_arrives_after_the_victim_was_handed_over_is_still_served() {
    let guest = Guest::holding(8);
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    reaper.submit(guest.pidfd(), 1).unwrap();
    thread::sleep(Duration::from_millis(5));
    guest.pidfd().send_signal(Signal::Kill).unwrap();
    let report = told.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(report.result, Reap::Reaped | Reap::AlreadyGone), "{report:?}");
    assert!(report.attempts > 1, "{report:?}");
}

#[test]
fn a_full_queue_gives_the_victim_back_at_once_and_counts_it() {
    let guest = Guest::asleep();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    let (entered, inside) = channel();
    let (release, released) = channel::<()>();
    let (count, counted) = channel();
    let reaper = Reaper::spawn(move |report| {
        entered.send(()).unwrap();
        released.recv().unwrap_err();
        count.send(report.tag).unwrap();
    })
    .unwrap();
    reaper.submit(pidfd.try_clone().unwrap(), 0).unwrap();
    inside.recv_timeout(PATIENCE).unwrap();
    // The thread is busy with the first: exactly the queue's length fits behind it.
    for tag in 1..=u64::try_from(REAPER_QUEUE_MAX).unwrap() {
        reaper.submit(pidfd.try_clone().unwrap(), tag).unwrap();
    }
    assert_eq!(reaper.refused(), 0);
    let given_back = reaper.submit(pidfd, 999).unwrap_err();
    assert_eq!((given_back.pid(), reaper.refused()), (guest.pid(), 1));
    drop(release);
    reaper.stop().unwrap();
    let tags: Vec<u64> = counted.iter().collect();
    assert_eq!(tags, (0..=u64::try_from(REAPER_QUEUE_MAX).unwrap()).collect::<Vec<_>>());
}

#[test]
fn an_idle_reaper_never_wakes_and_is_more_urgent_than_others() {
    let guest = Guest::asleep();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |_| {
        tell.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
    })
    .unwrap();
    assert_eq!(reaper.priority(), Priority::Raised);
    reaper.submit(pidfd, 0).unwrap();
    let thread = PathBuf::from("/proc").join(told.recv_timeout(PATIENCE).unwrap());
    let stat = fs::read_to_string(thread.join("stat")).unwrap();
    let nice = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap();
    assert_eq!(nice, URGENT_NICE.to_string());
    // It may still be on its way to sleep.
    let wakeups = || {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.to_owned()
    };
    let start = std::time::Instant::now();
    let mut settled = wakeups();
    let mut since = start;
    while since.elapsed() < Duration::from_millis(400) {
        thread::sleep(Duration::from_millis(20));
        if wakeups() != settled {
            (settled, since) = (wakeups(), std::time::Instant::now());
        }
        assert!(start.elapsed() < PATIENCE, "it wakes again and again");
    }
}
