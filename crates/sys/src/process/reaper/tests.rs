use super::*;
use crate::process::testing::{CpuGroup, Freezer, Guest, proc_root, wait_for_exit};
use crate::process::urgency::{Schedule, schedule_of};
use crate::process::{Priority, Reap, page_size, raise_decider};
use plimsoll_policy::victim::Signal;
use plimsoll_policy::{
    reap::Hindrance,
    units::{Bytes, Pid},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Command,
    thread,
    time::Instant,
};

mod hindrances;
mod leaving;

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
    assert_eq!(usize::try_from(report.attempts).unwrap(), worker::RETRY_WAITS_MS.len() + 1);
    assert!(report.found.contains(Hindrance::NotKilled), "{report:?}");
    assert_eq!(report.back_ns, None);
    assert!(report.took_ns >= 63_000_000, "{} ns", report.took_ns);
    assert_eq!(report.pidfd.has_exited(), Ok(false));
    let untouched = schedule_of(Some(guest.pid())).unwrap();
    assert!(!untouched.is_urgent(), "{untouched:?}");
}

#[test]
fn a_kill_that_arrives_after_the_victim_was_handed_over_is_still_served() {
    let guest = Guest::holding(8);
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    reaper.submit(guest.pidfd(), 1).unwrap();
    wait_until("a thread has asked for its memory", || reaper.calls.made() > 0);
    guest.pidfd().send_signal(Signal::Kill).unwrap();
    let report = told.recv_timeout(PATIENCE).unwrap();
    // One that ends by itself before it is tried again was there to be tried once.
    assert!(
        matches!((report.result, report.attempts), (Reap::Reaped, 2..) | (Reap::AlreadyGone, 1..)),
        "{report:?}"
    );
    assert!(report.exited, "{report:?}");
}

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < PATIENCE, "not yet: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A reaper whose one thread is busy with one that has exited until `release` is dropped. It tells the tags.
struct Busy {
    guest: Guest,
    reaper: Reaper,
    release: Sender<()>,
    told: Receiver<u64>,
}

impl Busy {
    fn start() -> Self {
        let guest = Guest::asleep();
        let pidfd = guest.pidfd();
        pidfd.send_signal(Signal::Kill).unwrap();
        wait_for_exit(&pidfd);
        let (entered, inside) = channel();
        let (release, released) = channel::<()>();
        let (tell, told) = channel();
        let released = Mutex::new(released);
        let reaper = Reaper::spawn_with(with_threads(1), move |report| {
            // Only the first one is waited for.
            entered.send(()).ok();
            released.lock().unwrap().recv().unwrap_err();
            tell.send(report.tag).unwrap();
        })
        .unwrap();
        reaper.submit(pidfd, 0).unwrap();
        inside.recv_timeout(PATIENCE).unwrap();
        Self { guest, reaper, release, told }
    }

    /// All tags, in their order.
    fn end(self) -> Vec<u64> {
        drop(self.release);
        self.reaper.stop().unwrap();
        self.told.iter().collect()
    }
}

#[test]
fn a_full_queue_gives_the_victim_back_at_once_and_counts_it() {
    let busy = Busy::start();
    let Busy { guest, reaper, .. } = &busy;
    // Exactly the queue's length fits behind it.
    for tag in 1..=u64::try_from(REAPER_QUEUE_MAX).unwrap() {
        reaper.submit(guest.pidfd(), tag).unwrap();
    }
    assert_eq!(reaper.refused(), 0);
    let given_back = reaper.submit(guest.pidfd(), 999).unwrap_err();
    assert_eq!((given_back.pid(), reaper.refused()), (guest.pid(), 1));
    assert_eq!(busy.end(), (0..=u64::try_from(REAPER_QUEUE_MAX).unwrap()).collect::<Vec<_>>());
}

#[test]
fn idle_threads_never_wake_and_are_real_time() {
    let may_be = || raise_decider() == Priority::RealTime;
    if !thread::spawn(may_be).join().unwrap() {
        return crate::process::testing::skip("no CAP_SYS_NICE, or a cgroup without it");
    }
    let _reaper = Reaper::spawn_with(with_threads(3), |_| ()).unwrap();
    // A thread has its name before its class; and those of other tests come and go.
    let urgent = |thread: &Pid| schedule_of(Some(*thread)).is_ok_and(Schedule::is_urgent);
    let begin = Instant::now();
    let own = loop {
        let own = named("reaper");
        if own.len() >= 3 && own.iter().all(urgent) {
            break own;
        }
        assert!(begin.elapsed() < PATIENCE, "{own:?} are not all real-time");
        thread::sleep(Duration::from_millis(5));
    };
    // They may still be on their way to sleep.
    let wakeups = || -> Vec<String> {
        let status = |thread: &Pid| fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok();
        let line =
            |text: String| text.lines().find(|line| line.starts_with("voluntary_ctxt")).map(str::to_owned);
        own.iter().filter_map(status).filter_map(line).collect()
    };
    let start = Instant::now();
    let (mut settled, mut since) = (wakeups(), start);
    while since.elapsed() < Duration::from_millis(400) {
        thread::sleep(Duration::from_millis(20));
        if wakeups() != settled {
            (settled, since) = (wakeups(), Instant::now());
        }
        assert!(start.elapsed() < PATIENCE, "they wake again and again");
    }
}

/// The threads of this process that are called so.
fn named(name: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_one = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let number = |name: std::ffi::OsString| name.to_str().unwrap().parse().map(Pid).unwrap();
    entries.filter(|entry| is_one(&entry.path())).map(|entry| number(entry.file_name())).collect()
}

fn with_threads(threads: usize) -> ReaperOptions {
    ReaperOptions { threads: NonZeroUsize::new(threads), ..ReaperOptions::default() }
}

/// A process of 64 MiB whose exit its tracer holds up until that is killed.
fn traced() -> (Guest, PidFd) {
    // PTRACE_SEIZE with PTRACE_O_TRACEEXIT and PTRACE_O_EXITKILL.
    let script = "import ctypes, os, sys, time\n\
        here, there = os.pipe()\n\
        child = os.fork()\n\
        if child == 0:\n\
        \x20   block = b'x' * (65 << 20)\n\
        \x20   os.write(there, b'x')\n\
        \x20   time.sleep(60)\n\
        os.read(here, 1)\n\
        assert ctypes.CDLL(None).ptrace(0x4206, child, None, ctypes.c_void_p(0x100040)) == 0\n\
        print(child, flush=True)\n\
        sys.stdin.read()\n";
    let mut guest = Guest::start(Command::new("python3").args(["-c", script]));
    let mut said = String::new();
    BufReader::new(guest.stdout()).read_line(&mut said).unwrap();
    let child = PidFd::open(Pid(said.trim().parse().unwrap())).unwrap();
    (guest, child)
}

fn reap_one(guest: &Guest) -> (ReapReport, Rates) {
    reap_this(guest.pidfd())
}

fn reap_this(victim: PidFd) -> (ReapReport, Rates) {
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    victim.send_signal(Signal::Kill).unwrap();
    reaper.submit(victim, 7).unwrap();
    let report = told.recv_timeout(PATIENCE).unwrap();
    let rates = reaper.rates();
    reaper.stop().unwrap();
    (report, rates)
}

#[test]
fn a_rate_is_told_by_when_the_memory_was_free_and_not_by_a_tracer() {
    let (mut tracer, victim) = traced();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    victim.send_signal(Signal::Kill).unwrap();
    reaper.submit(victim, 7).unwrap();
    thread::sleep(Duration::from_millis(500));
    tracer.bury();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(report.exited && report.took_ns >= 400_000_000, "{report:?}");
    assert!(report.at_first && report.back_ns.is_some_and(|back_ns| back_ns < 200_000_000), "{report:?}");
    assert_eq!((reaper.rates().count(), reaper.rates().lowest()), (1, report.rate()));
}

#[test]
fn who_can_only_be_freed_later_has_no_rate() {
    let (mut tracer, victim) = traced();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    let mut root = proc_root();
    let mut holds = || root.files.anonymous_about(victim.pid()).unwrap().is_some_and(|pages| pages.0 > 0);
    assert!(holds());
    reaper.submit(victim.try_clone().unwrap(), 7).unwrap();
    wait_until("a thread has asked for its memory", || reaper.calls.made() > 0);
    victim.send_signal(Signal::Kill).unwrap();
    wait_until("its memory is free", || !holds());
    tracer.bury();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(report.result == Reap::Reaped && report.measured().is_some(), "{report:?}");
    assert_eq!((report.rate(), reaper.rates().count()), (None, 0));
}

#[test]
fn several_victims_at_once_are_each_freed_and_reported_once() {
    let guests: Vec<Guest> = (0..8).map(|_| Guest::holding(16)).collect();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    for (guest, tag) in guests.iter().zip(0..) {
        guest.pidfd().send_signal(Signal::Kill).unwrap();
        reaper.submit(guest.pidfd(), tag).unwrap();
    }
    reaper.stop().unwrap();
    let mut tags: Vec<u64> = told
        .iter()
        .map(|report| {
            assert!(report.exited && report.left.is_none_or(|left| left == Bytes(0)), "{report:?}");
            report.tag
        })
        .collect();
    tags.sort_unstable();
    assert!(tags.iter().copied().eq(0..8), "{tags:?}");
}

#[test]
fn a_zombie_and_one_that_was_waited_for_are_reported_at_once() {
    let mut guest = Guest::asleep();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    reaper.submit(pidfd.try_clone().unwrap(), 1).unwrap();
    let zombie: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    guest.bury();
    reaper.submit(pidfd, 2).unwrap();
    let gone: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    for report in [zombie, gone] {
        assert!(report.exited && report.result == Reap::AlreadyGone, "{report:?}");
        assert_eq!((report.held, report.left, report.measured()), (None, None, None));
        assert!(report.found.is_empty(), "{report:?}");
    }
}

#[test]
fn a_stopped_victim_is_gone_like_any_other() {
    let guest = Guest::holding(16);
    let stopped = Command::new("kill").args(["-STOP", &guest.pid().to_string()]).status().unwrap();
    assert!(stopped.success());
    guest.wait_until("it is stopped", |root, pid| {
        root.process(pid).unwrap().state == plimsoll_wire::text::ProcessState::Stopped
    });
    let (report, _) = reap_one(&guest);
    assert!(report.exited && report.left.is_none_or(|left| left == Bytes(0)), "{report:?}");
}

#[test]
fn memory_shared_with_a_living_process_is_said_and_left_alone() {
    // clone(CLONE_VM | CLONE_VFORK | SIGCHLD): the parent waits for a child that has its memory and sleeps.
    let clone = if cfg!(target_arch = "x86_64") { "56" } else { "220" };
    let Some(freezer) = Freezer::make() else { return };
    let script = format!("$x = 'x' x 16777216; syscall({clone}, 0x4100 | 17, 0, 0, 0, 0); sleep 60");
    let guest = Guest::start(Command::new("perl").args(["-e", &script]));
    let child = || {
        let path = format!("/proc/{0}/task/{0}/children", guest.pid());
        fs::read_to_string(path).unwrap().trim().parse().map(Pid).ok()
    };
    let start = Instant::now();
    let child = loop {
        match child() {
            Some(child) => break PidFd::open(child).unwrap(),
            None => assert!(start.elapsed() < PATIENCE, "it has no child"),
        }
    };
    // The child is the victim: frozen, so that it cannot let go of the memory before it is looked at.
    freezer.freeze(&[child.pid()]);
    let (report, rates) = reap_this(child.try_clone().unwrap());
    assert_eq!(report.result, Reap::NotDying);
    assert!(report.exited && report.found.contains(Hindrance::SharedSpace), "{report:?}");
    let held = report.held.unwrap().anonymous;
    assert!(held > Bytes(16 << 20), "{report:?}");
    assert_eq!((report.left, report.back_ns, rates.count()), (Some(held), None, 0));
}

#[test]
fn a_frozen_victim_is_freed_and_thawed_alone_and_its_rate_is_kept() {
    // Thawed before it is waited for, whatever fails: what is declared last is dropped first.
    let (guest, beside) = (Guest::holding(192), Guest::asleep());
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid(), beside.pid()]);
    let (report, rates) = reap_one(&guest);
    assert_eq!(report.result, Reap::Reaped);
    assert!(report.held.unwrap().anonymous >= Bytes(192 << 20), "{report:?}");
    assert!(report.exited && report.left == Some(Bytes(0)), "{report:?}");
    assert!(
        report.found.contains(Hindrance::Frozen) && report.lifted.contains(Hindrance::Frozen),
        "{report:?}"
    );
    assert_eq!((rates.count(), rates.lowest()), (1, report.rate()));
    assert!(report.rate().is_some());
    assert!(freezer.holds(beside.pid()));
}

#[test]
fn a_frozen_victim_that_cannot_be_thawed_is_freed_and_reported_at_the_deadline() {
    // Thawed before it is waited for, whatever fails: what is declared last is dropped first.
    let guest = Guest::holding(64);
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid()]);
    let (tell, told) = channel();
    let options = ReaperOptions { freezer: "/nonexistent".into(), ..ReaperOptions::default() };
    let reaper = Reaper::spawn_with(options, move |report| tell.send(report).unwrap()).unwrap();
    guest.pidfd().send_signal(Signal::Kill).unwrap();
    reaper.submit(guest.pidfd(), 7).unwrap();
    let other = Guest::holding(8);
    other.pidfd().send_signal(Signal::Kill).unwrap();
    reaper.submit(other.pidfd(), 8).unwrap();
    let first: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first.tag, 8, "one that does not die kept the others waiting");
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(!report.exited && report.found.contains(Hindrance::Uninterruptible), "{report:?}");
    assert_eq!((report.result, report.left), (Reap::Reaped, Some(Bytes(0))));
    assert!(report.rate().is_some() && report.took_ns >= 2_000_000_000, "{report:?}");
    reaper.stop().unwrap();
}

#[test]
fn without_the_right_to_it_victims_are_freed_all_the_same() {
    let guest = Guest::holding(16);
    let report = thread::spawn(move || {
        let now = rustix::thread::capabilities(None).unwrap();
        let effective = now.effective.difference(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective, ..now }).unwrap();
        let (tell, told) = channel();
        let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
        guest.pidfd().send_signal(Signal::Kill).unwrap();
        reaper.submit(guest.pidfd(), 7).unwrap();
        let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
        reaper.stop().unwrap();
        report
    })
    .join()
    .unwrap();
    assert!(report.exited && matches!(report.result, Reap::Reaped | Reap::AlreadyGone), "{report:?}");
}

#[test]
fn the_rates_that_were_kept_are_gone_on_with() {
    let mut rates = Rates::new();
    let kept = rates.record(64 << 20, 1_000_000_000);
    let reaper = Reaper::spawn_with(ReaperOptions { rates, ..ReaperOptions::default() }, |_| ()).unwrap();
    assert_eq!(reaper.rates().lowest(), kept);
    assert_eq!(reaper.rates().count(), 1);
}

#[test]
fn one_that_was_announced_and_is_not_killed_is_left_alone() {
    let guest = Guest::asleep();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    reaper.expect(&guest.pidfd());
    // Announced again and again, it keeps nobody from others.
    let other = Guest::holding(8);
    (0..8).for_each(|_| reaper.expect(&guest.pidfd()));
    other.pidfd().send_signal(Signal::Kill).unwrap();
    reaper.submit(other.pidfd(), 3).unwrap();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(report.tag == 3 && report.exited, "{report:?}");
    reaper.stop().unwrap();
    assert!(told.recv().is_err(), "nobody else was handed over");
    assert_eq!(guest.pidfd().has_exited(), Ok(false));
    assert!(!schedule_of(Some(guest.pid())).unwrap().is_urgent());
}

#[test]
fn what_was_freed_before_the_victim_was_handed_over_is_reported_with_it() {
    // Thawed before it is waited for, whatever fails: what is declared last is dropped first.
    let guest = Guest::holding(96);
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid()]);
    guest.pidfd().send_signal(Signal::Kill).unwrap();
    let (tell, told) = channel();
    let reaper = Reaper::spawn_with(with_threads(1), move |report| tell.send(report).unwrap()).unwrap();
    reaper.expect(&guest.pidfd());
    guest.wait_until("its memory is back", |root, pid| {
        root.process(pid).unwrap().usage().known().is_some_and(|usage| usage.0 < 1024)
    });
    reaper.submit(guest.pidfd(), 7).unwrap();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(report.exited && report.result == Reap::Reaped, "{report:?}");
    assert!(report.held.unwrap().anonymous >= Bytes(96 << 20), "{report:?}");
    assert!(report.rate().is_some() && report.queued_ns == 0, "{report:?}");
    reaper.stop().unwrap();
}

#[test]
fn one_whose_cpu_cgroup_holds_it_is_moved_out() {
    // Thawed before it is waited for, whatever fails: what is declared last is dropped first.
    let guest = Guest::holding(16);
    let (Some(group), Some(freezer)) = (CpuGroup::make(), Freezer::make()) else {
        return crate::process::testing::skip("no v1 cpu controller or freezer to hold it with");
    };
    group.take(guest.pid());
    // So that it cannot begin to exit before it is looked at.
    freezer.freeze(&[guest.pid()]);
    let (report, _) = reap_one(&guest);
    assert!(report.found.contains(Hindrance::CpuGroup) && report.exited, "{report:?}");
    assert!(report.lifted.contains(Hindrance::CpuGroup), "{report:?}");
    assert!(!report.found.contains(Hindrance::Denied), "{report:?}");
}

#[test]
fn a_victim_of_somebody_elses_kill_waits_for_our_own() {
    let busy = Busy::start();
    let Busy { guest, reaper, .. } = &busy;
    for tag in [3, 4] {
        reaper.handle().submit_other(guest.pidfd(), tag).unwrap();
    }
    for tag in [1, 2] {
        reaper.submit(guest.pidfd(), tag).unwrap();
    }
    assert_eq!(busy.end()[..3], [0, 1, 2]);
}

#[test]
fn a_tracee_of_somebody_elses_kill_is_left_to_its_tracer() {
    let (_tracer, victim) = traced();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    victim.send_signal(Signal::Kill).unwrap();
    reaper.handle().submit_other(victim.try_clone().unwrap(), 1).unwrap();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(report.left_alone && report.attempts == 0 && !report.exited, "{report:?}");
    let kept = proc_root().process(victim.pid()).unwrap().usage().known().unwrap();
    assert!(page_size().to_bytes(kept) >= Bytes(64 << 20), "{kept:?}");
    // Ours comes back, whoever looks on.
    reaper.submit(victim, 2).unwrap();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    assert!(!report.left_alone && report.left == Some(Bytes(0)), "{report:?}");
}

#[test]
fn of_those_that_others_killed_one_after_the_other_is_freed() {
    // Enough for a rate.
    let guests: Vec<Guest> = (0..4).map(|_| Guest::holding(64)).collect();
    let (tell, told) = channel();
    let reaper = Reaper::spawn_with(with_threads(2), move |report| tell.send(report).unwrap()).unwrap();
    for (guest, tag) in guests.iter().zip(0..) {
        let pidfd = guest.pidfd();
        pidfd.send_signal(Signal::Kill).unwrap();
        reaper.handle().submit_other(pidfd, tag).unwrap();
    }
    let mut tags: Vec<u64> = (0..4)
        .map(|_| {
            let report = told.recv_timeout(PATIENCE).unwrap();
            assert!(
                report.killed_by == KilledBy::Others && report.exited && !report.left_alone,
                "{report:?}"
            );
            report.tag
        })
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3]);
    assert_eq!((reaper.refused(), reaper.rates().count()), (0, 0));
}

#[test]
fn one_of_our_own_is_not_taken_again_for_somebody_else() {
    let guest = Guest::asleep();
    let (tell, told) = channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    // Not killed: it is tried for 63 ms.
    reaper.submit(guest.pidfd(), 1).unwrap();
    thread::sleep(Duration::from_millis(10));
    reaper.handle().submit_other(guest.pidfd(), 2).unwrap();
    let first = told.recv_timeout(PATIENCE).unwrap();
    assert!(first.tag == 2 && first.left_alone && first.attempts == 0, "{first:?}");
    let second = told.recv_timeout(PATIENCE).unwrap();
    assert!(second.tag == 1 && !second.left_alone, "{second:?}");
    // And it may come again once it was reported.
    reaper.handle().submit_other(guest.pidfd(), 3).unwrap();
    assert!(!told.recv_timeout(PATIENCE).unwrap().left_alone);
}

#[test]
fn a_victim_whose_cgroup_starves_it_and_keeps_it_from_the_real_time_class_has_time_reserved() {
    let guest = Guest::holding(256);
    let Some(group) = CpuGroup::make() else { return };
    let hogs: Vec<Guest> = (0..thread::available_parallelism().unwrap().get() * 2)
        .map(|_| Guest::start(Command::new("perl").args(["-e", "alarm 60; 1 while 1"])))
        .collect();
    group.take_with_least_share(guest.pid());
    // It is not moved out, as if it had begun to exit. That is most of what it does until it has let go of its memory.
    let options = ReaperOptions { cpu_tree: PathBuf::from("/nonexistent"), ..with_threads(1) };
    let (tell, told) = channel();
    let reaper = Reaper::spawn_with(options, move |report| tell.send(report).unwrap()).unwrap();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    guest.wait_until("it has let go of its memory", |root, pid| {
        root.process(pid).map_or(true, |process| process.usage().known().is_none_or(|usage| usage.0 == 0))
    });
    reaper.submit(pidfd, 1).unwrap();
    let report: ReapReport = told.recv_timeout(PATIENCE).unwrap();
    drop(hogs);
    assert!(report.exited && !report.found.contains(Hindrance::Denied), "{report:?}");
    if !report.found.contains(Hindrance::Starved) {
        return crate::process::testing::skip("it got the CPU in time by itself");
    }
    assert!(report.lifted.contains(Hindrance::Starved), "{report:?}");
}
