//! Jobs as users start them: `plimsoll run`, under a real daemon.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use support::{ALICE, BOB, Fixture, assert_has, program::Program, wait_for};

/// Takes memory when it is told to: `take MEBIBYTES`.
const TAKES: &str = "\
kept = []
def take(mebibytes):
    kept.append(mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    kept[-1].madvise(15)
    for at in range(0, mebibytes << 20, 4096): kept[-1][at] = 1
    say('has', mebibytes)
say('ready')
while (word := hear()): exec(word)
";

fn job(fixture: &Fixture, user: u32, options: &[&str]) -> Program {
    fixture.job(user, options, TAKES).ready()
}

fn take(program: &mut Program, mebibytes: u32) {
    program.tell(&format!("take({mebibytes})"));
}

/// The jobs that `limit show` lists.
fn jobs(fixture: &Fixture) -> Vec<Value> {
    let is_job = |one: &Value| one["account"].as_str().unwrap().starts_with("job:");
    fixture.accounts().into_iter().filter(is_job).collect()
}

fn listed(fixture: &Fixture, job: &str) -> Value {
    jobs(fixture).into_iter().find(|one| one["account"] == job).unwrap_or_else(|| panic!("there is no {job}"))
}

fn no_job_is_left(fixture: &Fixture) {
    wait_for("no job is left", || jobs(fixture).is_empty());
}

#[test]
fn a_jobs_line_holds_for_all_that_it_starts_and_for_nobody_else() {
    let fixture = fixture!();
    let mut outside = fixture.workload(ALICE, "chill", &["--mebibytes=100"]).ready();
    let mut small = job(&fixture, ALICE, &["--limit", "64M", "--name", "build"]);
    take(&mut small, 40);
    small.stage("has");
    let listed = jobs(&fixture);
    assert_eq!(listed.len(), 1, "{listed:#?}");
    let told = json!({"account": "job:1", "name": "build", "hard_bytes": 64 << 20, "action": "kill", "processes": 1});
    assert_has(&listed[0], &told);
    // Counted for its jobs, and without a line.
    assert_has(&fixture.account(ALICE).unwrap(), &json!({"hard_bytes": null, "processes": 2}));
    let hog =
        "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.setsid()\n  take(100)\n os._exit(0)";
    small.tell(&format!("exec({hog:?})"));
    let incident = &fixture.incidents(1)[0];
    assert_has(incident, &json!({"account": "job:1", "guard": "limits", "action": "kill"}));
    assert_ne!(incident["victims"][0]["pid"], small.pid(), "the largest of the job goes");
    assert!(small.runs() && outside.runs());
    let why = || [ALICE, BOB].map(|user| fixture.run_as(user, &["why"]).1.contains("Job 1 was using"));
    assert_eq!(why(), [true, false]);
    small.stop();
    no_job_is_left(&fixture);
    wait_for("nobody is counted any more", || fixture.maps().accounts().unwrap().is_empty());
    assert_eq!(fixture.history().len(), 1);
    // Its number says nothing of whose it was.
    assert_eq!(why(), [true, false]);
}

#[test]
fn what_was_a_job_before_a_stop_is_none_after_the_next_start() {
    let mut fixture = fixture!();
    let mut one = job(&fixture, ALICE, &["--limit", "64M"]);
    fixture.end_daemon(Signal::TERM);
    fixture.launch();
    no_job_is_left(&fixture);
    take(&mut one, 100);
    one.stage("has");
    assert_eq!(fixture.log().matches("no line").count(), 0, "{}", fixture.log());
    assert_has(&fixture.json(&["status"])["accounts"], &json!([]));
}

#[test]
fn a_job_outlives_its_daemon_and_the_next_one_knows_it() {
    let mut fixture = fixture!();
    let mut one = job(&fixture, ALICE, &["--limit", "64M", "--name", "one"]);
    let mut counted = job(&fixture, ALICE, &["--name", "counted"]);
    fixture.end_daemon(Signal::KILL);
    take(&mut one, 100);
    one.killed();
    take(&mut counted, 100);
    counted.stage("has");
    fixture.launch();
    assert_has(&listed(&fixture, "job:2"), &json!({"name": "counted", "hard_bytes": null, "processes": 1}));
    assert_has(&fixture.incidents(1)[0], &json!({"account": "job:1", "action": "kill"}));
    // No number is given twice.
    let mut three = job(&fixture, ALICE, &["--limit", "32M"]);
    assert_has(&listed(&fixture, "job:3"), &json!({"name": null}));
    take(&mut three, 64);
    three.killed();
    counted.stop();
    no_job_is_left(&fixture);
}

#[test]
fn who_started_a_job_changes_its_line_and_nobody_else_sees_it() {
    let fixture = fixture!();
    let mut one = job(&fixture, ALICE, &["--limit", "256M"]);
    take(&mut one, 48);
    one.stage("has");
    for arguments in
        [&["limit", "show", "job:1"][..], &["limit", "set", "job:1", "64M"], &["limit", "clear", "job:1"]]
    {
        let (code, _, said) = fixture.run_as(BOB, arguments);
        assert_eq!(code, 4, "{arguments:?}: {said}");
        assert!(said.contains("no job 1 of yours"), "{said}");
    }
    assert!(!fixture.run_as(BOB, &["limit", "show"]).1.contains("job:1"));
    assert_eq!(fixture.run_as(ALICE, &["limit", "clear", "job:1"]).0, 0);
    assert_has(&jobs(&fixture)[0], &json!({"hard_bytes": null}));
    let (code, said, error) = fixture.run_as(ALICE, &["limit", "set", "job:1", "64M", "--action", "notify"]);
    assert_eq!(code, 0, "{said}{error}");
    assert_has(&jobs(&fixture)[0], &json!({"hard_bytes": 64 << 20, "action": "notify"}));
    assert_eq!(fixture.run(&["limit", "set", "job:1", "32M", "--now"]).0, 0);
    one.killed();
    assert_eq!(fixture.run(&["limit", "set", "job:9", "32M"]).0, 1);
}

#[test]
fn a_job_in_a_job_stays_under_the_lines_of_both() {
    let fixture = fixture!();
    let inner = |limit: &str| {
        let plimsoll = fixture.path("plimsoll");
        format!(
            "os.execv({plimsoll:?}, ['plimsoll', 'run', '--limit', '{limit}', '--', '/usr/bin/python3', '-c', SOURCE])"
        )
    };
    let source = format!(
        "import os, sys, mmap\ndef say(*words): print(*words, flush=True)\n\
                          def hear(): return sys.stdin.readline().strip()\n{TAKES}"
    );
    let nest = |program: &mut Program, limit: &str| {
        program.tell(&format!("SOURCE = {source:?}"));
        program.tell(&inner(limit));
        program.stage("ready");
    };
    let mut outer = job(&fixture, ALICE, &["--limit", "64M"]);
    nest(&mut outer, "256M");
    assert_eq!(jobs(&fixture).len(), 2);
    take(&mut outer, 100);
    outer.killed();
    assert_has(&fixture.incidents(1)[0], &json!({"account": "job:1"}));
    // With the account of the user above, three jobs around: a line more is none that anybody could hide below.
    let mut deep = job(&fixture, ALICE, &["--limit", "64M"]);
    for _ in 0..3 {
        nest(&mut deep, "1G");
    }
    deep.tell(&format!("SOURCE = {source:?}"));
    deep.tell(&inner("1G"));
    assert_eq!(deep.end().code(), Some(125));
    no_job_is_left(&fixture);
}

#[test]
fn one_user_leaves_room_for_others_and_what_cannot_be_started_is_not() {
    let fixture = fixture!("[maps]\nmax_accounts = 16\n");
    let mut two = [job(&fixture, ALICE, &[]), job(&fixture, ALICE, &[])];
    let (code, _, said) = fixture.run_as(ALICE, &["run", "--", "true"]);
    assert!(code == 125 && said.contains("as many jobs"), "{code} {said}");
    job(&fixture, BOB, &["--limit", "64M"]).stop();
    two[0].stop();
    wait_for("there is room again", || fixture.run_as(ALICE, &["run", "--", "true"]).0 == 0);
    let refused = [
        (&["--limit", "1K"][..], "larger"),
        (&["--limit", "64M", "--soft", "80M"], "soft"),
        (&["--name", "a\tb"], "control"),
    ];
    for (options, why) in refused {
        let (code, _, said) = fixture.run_as(BOB, &[&["run"], options, &["--", "true"]].concat());
        assert!(code == 125 && said.contains(why), "{options:?}: {code} {said}");
    }
    let kept: Value = serde_json::from_slice(&fs::read(fixture.path("state/jobs.json")).unwrap()).unwrap();
    assert!(kept["last"].as_u64().unwrap() >= 4, "{kept}");
}

#[test]
fn a_job_is_under_its_users_line_as_well() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut outside = fixture.workload(ALICE, "chill", &["--mebibytes=30"]).ready();
    let mut one = job(&fixture, ALICE, &["--limit", "512M"]);
    take(&mut one, 200);
    one.killed();
    assert_has(&fixture.incidents(1)[0], &json!({"account": format!("user:{ALICE}")}));
    assert!(outside.runs());
    no_job_is_left(&fixture);
    assert_has(&fixture.account(ALICE).unwrap(), &json!({"hard_bytes": 128 << 20}));
}

#[test]
fn who_asks_for_memory_in_a_job_is_told_no_at_the_jobs_line() {
    let fixture = fixture!();
    let library = fixture.path("libtmalloc.so");
    fs::copy(std::env::current_exe().unwrap().parent().unwrap().join("libtmalloc.so"), &library).unwrap();
    let asks = format!(
        "lib = ctypes.CDLL({library:?})\nlib.tmalloc.restype = ctypes.c_void_p\nlib.tmalloc.argtypes = [ctypes.c_size_t]\n\
         got = 0\nwhile (p := lib.tmalloc(1 << 20)) is not None:\n ctypes.memset(p, 1, 1 << 20)\n got += 1\nsay(got)\nhear()\n"
    );
    let mut one = fixture.job(ALICE, &["--limit", "64M"], &asks);
    let got: u32 = one.line().parse().unwrap();
    assert!((30..64).contains(&got), "{got}");
    assert!(one.runs());
    let preload = fixture.path("libtmalloc_preload.so");
    fs::copy(std::env::current_exe().unwrap().with_file_name("libtmalloc_preload.so"), &preload).unwrap();
    let grows = "kept = []\ntry:\n while True: kept.append(bytearray(b'x') * (1 << 20))\n\
                 except MemoryError: say(len(kept))\nhear()\n";
    let options = ["--limit", "64M", "--tmalloc", "--library", preload.to_str().unwrap()];
    let mut other = fixture.job(ALICE, &options, grows);
    let got: u32 = other.line().parse().unwrap();
    assert!((20..64).contains(&got), "{got}");
    assert!(other.runs() && one.runs());
    fixture.assert_nobody_killed();
}
