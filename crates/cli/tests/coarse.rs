//! Far from every line no event is looked at: nothing is attached there, and the lines hold all the same; by walks in time, and
//! by ticks where no daemon looks.
#![cfg(test)]

mod support;

use plimsoll_policy::units::Nanos;
use rustix::process::Signal;
use std::{thread, time::Duration};
use support::{
    ALICE, BOB, Fixture, SOON, exact,
    grants::{granted, pages, space},
    program::Program,
    skip, until, wait_for,
};

/// Two CPUs may be this far from a line; more need more.
const FAR: &str = "3G";
const FAR_MEBIBYTES: u64 = 3072;

/// Takes so much memory at once, and keeps it.
const TAKES: &str = "def takes(mebibytes, advice):\n\
    \x20   memory = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   memory.madvise(advice)\n\
    \x20   ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, mebibytes << 20)\n\
    \x20   return memory\n";
const HUGE_PAGES: u32 = 14;
const SINGLE_PAGES: u32 = 15;

fn mebibytes(pages: u64) -> u64 {
    (pages * exact::page_bytes()) >> 20
}

/// Whether no event is looked at.
fn is_coarse(fixture: &Fixture) -> bool {
    !fixture.pin().join("links/on_rss_stat").exists()
}

/// Goes there after each event was looked at for five seconds, as soon as a CPU works.
#[track_caller]
fn wait_for_coarse(fixture: &Fixture) {
    until("no event is looked at", 2 * SOON, || is_coarse(fixture).then_some(()));
}

fn takes(fixture: &Fixture, user: u32, mebibytes: u64, advice: u32) -> Program {
    let script =
        format!("{TAKES}say('ready')\nhear()\nkept = takes({mebibytes}, {advice})\nsay('taken')\nhear()\n");
    let mut program = fixture.python(user, &script);
    program.stage("ready");
    program
}

/// Whether there is memory for a line that two CPUs may be far from; where there is not, that is said.
fn has_room_for_a_far_line() -> bool {
    let available_mib = exact::number("/proc/meminfo", "MemAvailable") >> 10;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let has = available_mib > FAR_MEBIBYTES * 3 / 2 && cpus <= 2;
    if !has {
        skip(format_args!("it takes {FAR_MEBIBYTES} MiB, of {available_mib}, by 2 CPUs at most, of {cpus}"));
    }
    has
}

/// The most that a user is seen to use until the last process has ended, in MiB.
#[track_caller]
fn peak_mebibytes(user: u32, ended: &mut dyn FnMut() -> bool) -> u64 {
    let mut peak = 0;
    until("they end", 3 * SOON, || {
        peak = peak.max(exact::user_pages(user));
        ended().then_some(())
    });
    mebibytes(peak)
}

#[test]
fn far_from_every_line_no_event_is_looked_at_and_usage_is_exact_when_asked_for() {
    let fixture = fixture!();
    if !has_room_for_a_far_line() {
        return;
    }
    fixture.limit(ALICE, "100%", &[]);
    wait_for_coarse(&fixture);
    let mut holder = takes(&fixture, ALICE, 100, SINGLE_PAGES);
    holder.tell("");
    holder.stage("taken");
    let usage = fixture.usage_pages(ALICE);
    let own = exact::user_pages(ALICE);
    // Before Linux 6.2 each thread keeps up to 64 pages to itself, of which an event tells.
    let kept = if fixture.maps().meta().task_caches { 64 * 2 } else { 0 };
    assert!(usage <= own && usage + kept >= own, "{usage} {own}");
    assert!(is_coarse(&fixture));
    // One line that is near is enough.
    fixture.limit(BOB, "100M", &[]);
    assert!(!is_coarse(&fixture), "each event counts for a small line");
    assert_eq!(fixture.usage_pages(ALICE), exact::user_pages(ALICE));
    fixture.ok(&["limit", "clear", &BOB.to_string()]);
    wait_for_coarse(&fixture);
    fixture.assert_nobody_killed();
}

#[test]
fn who_runs_from_far_past_the_line_is_stopped_in_the_very_event() {
    let fixture = fixture!();
    if !has_room_for_a_far_line() {
        return;
    }
    fixture.limit(ALICE, FAR, &[]);
    for (count, advice) in [SINGLE_PAGES, HUGE_PAGES].into_iter().enumerate() {
        wait_for_coarse(&fixture);
        let mut hog = takes(&fixture, ALICE, FAR_MEBIBYTES + 200, advice);
        assert!(is_coarse(&fixture));
        hog.tell("");
        hog.killed();
        let incidents = fixture.incidents(count + 1);
        let overshoot = incidents[count]["overshoot_bytes"].as_u64().unwrap();
        let most = if advice == HUGE_PAGES { (2 << 20) + (64 << 10) } else { 64 << 10 };
        assert!(overshoot <= most, "{overshoot} bytes past the line: {}", incidents[count]);
    }
}

#[test]
fn ticks_hold_the_line_while_the_daemon_does_not_run() {
    let fixture = fixture!();
    if !has_room_for_a_far_line() {
        return;
    }
    fixture.limit(ALICE, FAR, &[]);
    wait_for_coarse(&fixture);
    let mut hog = takes(&fixture, ALICE, FAR_MEBIBYTES + 1024, SINGLE_PAGES);
    fixture.signal(Signal::STOP);
    hog.tell("");
    let peak = peak_mebibytes(ALICE, &mut || hog.try_end().is_some());
    fixture.signal(Signal::CONT);
    hog.killed();
    // A tick comes every 1 to 10 ms.
    assert!(peak <= FAR_MEBIBYTES + 128, "{peak} MiB");
    assert_eq!(fixture.incidents(1)[0]["victims"][0]["uid"], ALICE);
}

/// Its daemon died while no event was looked at: nobody can attach a program.
fn left_to_ticks(fixture: &mut Fixture) {
    fixture.end_daemon(Signal::KILL);
    let programs = fixture.maps();
    programs.set_look(Some(Nanos(1))).unwrap();
    programs.watch_events(false).unwrap();
    assert!(is_coarse(fixture));
}

#[test]
fn with_no_daemon_ticks_hold_the_line_and_the_next_one_tells_of_it() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut bystander = takes(&fixture, BOB, 100, SINGLE_PAGES);
    left_to_ticks(&mut fixture);
    let (signal, _) = fixture.for_another();
    for (processes, each, advice) in
        [(1, 200, SINGLE_PAGES), (1, 200, HUGE_PAGES), (4, 40, SINGLE_PAGES), (12, 16, SINGLE_PAGES)]
    {
        let mut hogs: Vec<Program> = (0..processes).map(|_| takes(&fixture, ALICE, each, advice)).collect();
        hogs.iter_mut().for_each(|hog| hog.tell(""));
        let mut settled = 0;
        let peak = peak_mebibytes(ALICE, &mut || {
            // Some of several may stay.
            let alive =
                hogs.iter_mut().filter_map(|hog| hog.try_end().is_none().then_some(())).count() as u64;
            settled = if alive * each <= 64 { settled + 1 } else { 0 };
            settled > 50
        });
        assert!(peak <= 64 + 96, "{processes} of {each} MiB: {peak} MiB ({signal})");
        assert!(mebibytes(exact::user_pages(ALICE)) <= 70, "what is left is below the line");
        hogs.into_iter().for_each(|mut hog| hog.stop());
        wait_for("all have ended", || exact::processes_of(ALICE).is_empty());
    }
    bystander.tell("");
    bystander.stage("taken");
    fixture.launch();
    assert!(!is_coarse(&fixture), "each event counts for a small line");
    let incidents = fixture.incidents(4);
    assert!(incidents.iter().all(|one| one["victims"][0]["uid"] == ALICE), "{incidents:?}");
    assert!(bystander.runs());
    let counters = fixture.maps().counters().unwrap();
    assert_eq!((counters.phantoms, counters.deletes_failed), (0, 0), "{counters:?}");
}

/// Takes memory by single pages between two ticks, and sleeps while they come.
const BETWEEN_TICKS: &str = "memory = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    memory.madvise(15)\n\
    say('ready')\nhear()\n\
    for page in range(0, len(memory), 4096 * 64):\n\
    \x20   for one in range(64): memory[page + 4096 * one] = 1\n\
    \x20   now = time.monotonic_ns() % 4000000\n\
    \x20   if now > 2000000: time.sleep((4300000 - now) / 1e9)\n\
    say('taken')\nhear()\n";

#[test]
fn whoever_sleeps_at_each_tick_is_found_by_others_ticks() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    left_to_ticks(&mut fixture);
    let mut evader = fixture.python(ALICE, BETWEEN_TICKS);
    evader.stage("ready");
    evader.tell("");
    let peak = peak_mebibytes(ALICE, &mut || evader.try_end().is_some());
    evader.killed();
    assert!(peak <= 64 + 64, "{peak} MiB");
}

#[test]
fn who_becomes_a_user_without_exec_is_charged_for_what_comes_after() {
    let fixture = fixture!();
    if !has_room_for_a_far_line() {
        return;
    }
    fixture.limit(ALICE, "100%", &[]);
    wait_for_coarse(&fixture);
    fixture.owns(ALICE);
    // A server of root's, whose child is somebody else: it keeps 60 MiB, which are nobody's.
    let mut server = fixture.root_python(&format!(
        "{TAKES}kept = takes(60, 15)\n\
         if os.fork() == 0:\n\
         \x20   os.setresuid({ALICE}, {ALICE}, {ALICE})\n\
         \x20   own = takes(50, 15)\n\
         \x20   say('taken')\n\
         \x20   hear()\n\
         \x20   os._exit(0)\n\
         os.wait()\n"
    ));
    server.stage("taken");
    let usage = until("it is charged", SOON, || Some(fixture.usage_pages(ALICE)).filter(|usage| *usage > 0));
    let charged = mebibytes(usage);
    // What it takes before the first tick that sees it is taken for inherited.
    assert!((30..=56).contains(&charged), "{charged} MiB");
    assert!(is_coarse(&fixture));
    server.tell("");
}

#[test]
fn who_asks_for_a_grant_has_each_event_looked_at_first() {
    let fixture = fixture!();
    if !has_room_for_a_far_line() {
        return;
    }
    fixture.limit(ALICE, "100%", &[]);
    wait_for_coarse(&fixture);
    let holder = takes(&fixture, ALICE, 1, SINGLE_PAGES);
    let mut grants = fixture.grants();
    wait_for("it is tracked", || fixture.space(holder.pid()).is_some());
    let space = space(&mut grants, holder.pid());
    // Usage is not known: the daemon asks again once it is.
    wait_for("each event is looked at", || {
        let _inexact = grants.reserve(&space, pages(4), pages(0)).unwrap();
        !is_coarse(&fixture)
    });
    granted(&grants, &space, pages(4096));
    thread::sleep(Duration::from_secs(6));
    assert!(!is_coarse(&fixture), "while a grant is to be touched each event counts");
}
