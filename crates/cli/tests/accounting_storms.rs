//! Usage against the kernel's own exact sums when very much happens, or very many are there.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};
use support::{ALICE, Fixture, exact, fewer, program::Program, slowness, until, wait_for};

/// Two children a turn, which execute at once, execute late, or end without.
const SHORT_LIVES: &str = "for turn in range(turns):\n\
    \x20   child = os.posix_spawn('/bin/true', ['true'], {})\n\
    \x20   other = os.fork()\n\
    \x20   if other == 0:\n\
    \x20       if turn % 3 == 0: os.execv('/bin/true', ['true'])\n\
    \x20       mine = bytearray(200000)\n\
    \x20       os._exit(0)\n\
    \x20   os.waitpid(child, 0)\n\
    \x20   os.waitpid(other, 0)\n\
    say('done')\n\
    hear()\n";

/// What a storm told at one of its stops: pages of each process, itself first.
fn stop_of(storm: &mut Program) -> Vec<(u32, u64)> {
    let mut told = Vec::new();
    loop {
        let line = storm.line();
        if line.starts_with("stopped") {
            return told;
        }
        let words: BTreeMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| words[name].parse::<u64>().unwrap();
        let pages = exact::pages_of_kib(number("anonymous_kib") + number("swap_kib"));
        told.push((number("pid").try_into().unwrap(), pages));
    }
}

fn storm(fixture: &Fixture, events: u32, settings: &[&str]) -> Program {
    let events = format!("--events={}", fewer(events));
    fixture.workload(ALICE, "storm", &[settings, &[&events, "--wait", "--seconds=60"]].concat()).ready()
}

#[test]
fn a_storm_on_all_cpus_near_the_line_is_charged_exactly_by_its_events_alone() {
    let fixture = fixture!();
    fixture.limit(ALICE, "512M", &["--soft", "64K"]);
    let mut storm = storm(&fixture, 400_000, &["--threads=8", "--children=0", "--stops=8"]);
    fixture.signal(Signal::STOP);
    for stop in 0..8 {
        storm.tell("");
        let told = stop_of(&mut storm);
        assert_eq!(fixture.facts(ALICE).usage.0, told[0].1, "stop {stop}");
    }
    storm.tell("");
    storm.stage("done");
    storm.stop();
    wait_for("nothing is left", || fixture.facts(ALICE).usage.0 == 0);
    let counters = fixture.maps().counters().unwrap();
    assert_eq!((counters.phantoms, counters.unsettled, counters.deletes_failed), (0, 0, 0), "{counters:?}");
}

#[test]
fn a_storm_on_all_cpus_far_from_the_line_is_exact_whenever_it_is_asked_for() {
    let fixture = fixture!();
    fixture.limit(ALICE, "1G", &[]);
    let mut storm = storm(&fixture, 400_000, &["--threads=8", "--children=0", "--stops=8", "--seed=2"]);
    for stop in 0..8 {
        storm.tell("");
        let told = stop_of(&mut storm);
        assert_eq!(fixture.usage_pages(ALICE), told[0].1, "stop {stop}");
    }
    storm.tell("");
    storm.stage("done");
    storm.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

/// What is shown of each of Alice's processes: anonymous pages in memory and in swap, and how far that may be off.
fn shown(fixture: &Fixture) -> BTreeMap<u32, (u64, u64)> {
    let account = &fixture.json(&["limit", "show", "60100", "--processes"])[0];
    let number = |process: &Value, name: &str| process[name].as_u64().unwrap();
    let process = |process: &Value| {
        let pages = (number(process, "anon_bytes") + number(process, "swap_bytes")) / exact::page_bytes();
        (number(process, "pid").try_into().unwrap(), (pages, number(process, "error_bytes")))
    };
    account["process_list"].as_array().unwrap().iter().map(process).collect()
}

#[test]
fn each_process_of_a_storm_on_all_cpus_is_shown_exactly_near_a_line_and_far() {
    let fixture = fixture!();
    fixture.limit(ALICE, "1G", &[]);
    wait_for("processes are counted", || fixture.run(&["status", "--processes"]).0 == 0);
    for soft in ["900M", "64K"] {
        fixture.limit(ALICE, "1G", &["--soft", soft]);
        let mut storm = storm(&fixture, 200_000, &["--threads=6", "--children=4", "--stops=6", "--seed=5"]);
        for stop in 0..6 {
            storm.tell("");
            let told = stop_of(&mut storm);
            let exactly = told.into_iter().map(|(pid, pages)| (pid, (pages, 0))).collect();
            assert_eq!(shown(&fixture), exactly, "stop {stop}, soft limit {soft}");
        }
        storm.tell("");
        storm.stage("done");
        storm.stop();
        assert_eq!(shown(&fixture), BTreeMap::new());
    }
}

#[test]
fn a_storm_that_forks_is_never_charged_more_than_its_processes_count_and_leaves_nothing() {
    let fixture = fixture!();
    fixture.limit(ALICE, "1G", &["--soft", "64K"]);
    let mut storm = storm(&fixture, 300_000, &["--threads=6", "--children=8", "--stops=6", "--seed=3"]);
    for stop in 0..6 {
        storm.tell("");
        let told = stop_of(&mut storm);
        let (largest, all) =
            (told.iter().map(|one| one.1).max().unwrap(), told.iter().map(|one| one.1).sum::<u64>());
        let usage = fixture.usage_pages(ALICE);
        assert!((largest..=all).contains(&usage), "stop {stop}: {usage} pages of {told:?}");
    }
    storm.tell("");
    storm.stage("done");
    storm.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
    assert_eq!(fixture.status()["kernel"]["records_dropped"], 0);
    assert!(fixture.history().is_empty());
}

#[test]
fn threads_that_fork_at_the_same_moment_share_one_family_and_leave_the_parent_what_is_its_own() {
    let fixture = fixture!();
    fixture.limit(ALICE, "1G", &["--soft", "64K"]);
    for threads in [2, 8] {
        let settings = [
            &format!("--threads={threads}"),
            "--children=4",
            "--mebibytes=1",
            "--inherited-mebibytes=8",
            "--storm-seconds=1",
            "--wait",
        ];
        let mut storm = fixture.workload(ALICE, "forkstorm", &settings).ready();
        storm.tell("");
        let done = storm.stage("done");
        // All of its children have gone, and nobody shares anything with it any more.
        let counted = exact::process_pages(storm.pid()).unwrap();
        assert_eq!(fixture.usage_pages(ALICE), counted, "{threads} threads, {done}");
        storm.tell("");
        storm.stop();
        assert_eq!(fixture.usage_pages(ALICE), 0);
    }
    let counters = fixture.maps().counters().unwrap();
    assert_eq!((counters.phantoms, counters.unsettled, counters.deletes_failed), (0, 0, 0), "{counters:?}");
    assert_eq!(counters.families_full, 0);
    assert!(fixture.history().is_empty());
}

#[test]
fn a_line_drawn_in_the_middle_of_a_fork_storm_counts_everything_once() {
    let fixture = fixture!();
    // Loading takes a second, and longer beside a storm.
    let seconds = if slowness() > 1 { 24_u32 } else { 16 };
    let storm_seconds = format!("--storm-seconds={}", seconds + 1);
    // Enough of the machine is left to load programs within the time that a client waits.
    let children = if slowness() > 1 { "--children=2" } else { "--children=6" };
    let settings = [children, "--mebibytes=1", &storm_seconds, "--wait"];
    let mut storm = fixture.workload(ALICE, "forkstorm", &settings).ready();
    storm.tell("");
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut drawn = 0;
    // The last thing done is always to draw: what is asked below needs a line.
    while Instant::now() < end && drawn < 4 {
        if drawn > 0 {
            fixture.ok(&["limit", "clear", "60100"]);
        }
        fixture.limit(ALICE, "2G", &[]);
        // Children that come and go meanwhile: no more than all of them could have.
        assert!(fixture.usage_pages(ALICE) < exact::pages_of_kib(40 << 10));
        drawn += 1;
    }
    assert!(drawn >= 2, "{drawn}");
    storm.stage("done");
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(storm.pid()).unwrap());
    storm.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn thousands_of_short_lives_leave_nothing_behind() {
    let fixture = fixture!();
    fixture.limit(ALICE, "512M", &[]);
    let turns = fewer(1500);
    let mut script = fixture.python(ALICE, &format!("turns = {turns}\n{SHORT_LIVES}"));
    script.stage("done");
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(script.pid()).unwrap());
    let account = fixture.account(ALICE).unwrap();
    assert_eq!(account["processes"], 1, "{account}");
    script.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
    let counters = fixture.maps().counters().unwrap();
    assert_eq!((counters.phantoms, counters.deletes_failed, counters.mms_full), (0, 0, 0), "{counters:?}");
    assert!(counters.tracked >= 2 * u64::from(turns), "{counters:?}");
}

#[test]
fn ten_thousand_processes_of_one_user_are_charged_exactly() {
    // The workload's processes count each other in a page that they share.
    let fixture = fixture!("[limits]\nshared = \"ignore\"\n");
    let room = |path: &str| fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let available = exact::number("/proc/meminfo", "MemAvailable");
    // Each takes about 130 KiB of the kernel's.
    if room("/proc/sys/kernel/pid_max") < 12_000 || available < 4 << 20 {
        return support::skip("it needs 12000 process numbers and 4 GiB of memory");
    }
    fixture.limit(ALICE, "2G", &[]);
    let mut crowd = fixture
        .workload(ALICE, "crowd", &["--children=10100", "--kibibytes=16", "--seconds=120", "--wait"])
        .ready();
    let inherited = exact::process_pages(crowd.pid()).unwrap();
    crowd.tell("");
    assert_eq!(crowd.stage("full children="), "10100");
    let account = fixture.account(ALICE).unwrap();
    assert_eq!(account["processes"], 10_101, "{account}");
    let all = exact::processes_of(ALICE);
    assert_eq!(all.len(), 10_101);
    let own: u64 = all
        .iter()
        .filter(|pid| **pid != crowd.pid())
        .map(|pid| exact::process_pages(*pid).unwrap() - inherited)
        .sum();
    let parent = exact::process_pages(crowd.pid()).unwrap();
    assert_eq!(fixture.usage_pages(ALICE), own + parent);
    let began = Instant::now();
    crowd.stop();
    until("all have ended", Duration::from_secs(30), || (fixture.facts(ALICE).processes == 0).then_some(()));
    println!("10100 ended within {:?}", began.elapsed());
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn a_full_map_is_counted_and_shown_and_right_again_when_there_is_room() {
    let fixture = fixture!("[maps]\nmax_processes = 64\n");
    fixture.limit(ALICE, "256M", &[]);
    let mut crowd = fixture.workload(ALICE, "crowd", &["--children=400", "--kibibytes=64"]).ready();
    // The last eighth is for others.
    assert_eq!(crowd.stage("full children="), "55");
    let map = fixture.map("mms");
    assert_eq!(map["max"], 64, "{map}");
    assert!(map["full"].as_u64().unwrap() >= 300, "{map}");
    assert!(fixture.history().iter().all(|one| one["reason"] == "table-full-most-processes"));
    crowd.stop();
    wait_for("all have ended", || exact::processes_of(ALICE).is_empty());
    assert_eq!(fixture.usage_pages(ALICE), 0);
    let chill = fixture.workload(ALICE, "chill", &["--mebibytes=16"]).ready();
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(chill.pid()).unwrap());
}

#[test]
fn many_small_processes_do_not_pass_the_line_unseen() {
    let fixture = fixture!();
    fixture.limit(ALICE, "10M", &[]);
    // Each touches less than a CPU keeps to itself before it tells the others.
    let mut crowd = fixture.workload(ALICE, "crowd", &["--children=800", "--kibibytes=16"]).ready();
    fixture.incidents(1);
    let left: u64 = crowd.stage("full children=").parse().unwrap();
    assert!(left < 800, "{left} are left");
    wait_for("usage is under the line", || fixture.usage_pages(ALICE) <= exact::pages_of_kib(10 << 10));
}
