//! Strict jobs: memory past the line is refused when it is asked for, and nobody is ended. Where the kernel takes no program
//! that refuses anything (this machine's may not, those of the lab do), that they are refused, and why.
#![cfg(test)]

mod support;

use plimsoll_sys::probe::{Answer, function_hooks};
use serde_json::{Value, json};
use std::process::Command;
use support::{ALICE, BOB, Fixture, assert_has, program::Program, wait_for};

const ENOMEM: i32 = 12;

/// The line, in MiB; `run` is given it.
const LINE: u64 = 64;

/// As far below its line as a request of a MiB can be refused: what a program of the workloads has of its own is under 1 MiB.
const NEAR_KIB: u64 = LINE * 1024 - 3 * 1024;

/// Whether the kernel takes programs that refuse; else why not.
fn lacks() -> Option<String> {
    match function_hooks("security_vm_enough_memory_mm") {
        Answer::Present => None,
        Answer::Absent(why) | Answer::Unknown(why) => Some(why),
    }
}

/// A daemon, where strict jobs can be.
macro_rules! strict_fixture {
    () => {{
        if let Some(why) = lacks() {
            return support::skip(format_args!("no program can refuse memory here: {why}"));
        }
        fixture!()
    }};
}

/// `plimsoll run` of a workload.
fn command(fixture: &Fixture, user: u32, options: &[&str], workload: &[&str]) -> Command {
    let mut command = fixture.plimsoll_as(user);
    command.arg("run").args(options).arg("--").arg(fixture.workload_path("commits")).args(workload);
    command
}

fn strict(fixture: &Fixture, workload: &[&str]) -> Program {
    let line = format!("{LINE}M");
    Program::of(command(fixture, ALICE, &["--strict", "--limit", &line], workload))
}

/// What one was granted, in KiB, and the error that it met.
fn granted(program: &mut Program) -> (u64, i32) {
    let told = program.stage("granted");
    let (granted, error) = told.split_once(' ').unwrap();
    (granted.parse().unwrap(), error.parse().unwrap())
}

fn ends_well(program: &mut Program) {
    program.stage("done");
    let status = program.end();
    assert!(status.success(), "{status}");
}

/// Asks by one way until it is refused, writes to all it has, and ends by itself.
fn is_refused_near_the_line(fixture: &Fixture, way: &[&str]) {
    let mut one = strict(fixture, &[way, &["--count=200"]].concat()).ready();
    let (granted, error) = granted(&mut one);
    assert_eq!(error, ENOMEM, "{way:?}: {granted} KiB");
    assert!((NEAR_KIB..=LINE * 1024).contains(&granted), "{way:?}: {granted} KiB");
    one.stage("touched");
    ends_well(&mut one);
}

#[test]
fn a_job_is_not_strict_where_no_program_can_refuse() {
    let fixture = fixture!();
    let Some(why) = lacks() else { return support::skip("they can here") };
    let (code, stdout, stderr) = fixture.run_as(ALICE, &["run", "--strict", "--limit", "64M", "--", "true"]);
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (125, "", 1), "{stderr}");
    assert!(stderr.contains("no job can be strict here") && stderr.contains(&why), "{stderr}");
    assert_eq!(fixture.accounts(), [] as [Value; 0]);
    let late = ["run", "--action", "deny", "--limit", "64M", "--on-near", "true", "--", "--", "true"];
    let (code, _, stderr) = fixture.run_as(ALICE, &late);
    assert!(code == 125 && stderr.contains("leave out --on-near"), "{stderr}");
    // All else works as before.
    fixture.limit(BOB, "512M", &[]);
    assert_eq!(fixture.run_as(ALICE, &["run", "--limit", "64M", "--", "true"]).0, 0);
    let doctor = fixture.run(&["doctor"]).1;
    assert!(doctor.contains("strict programs"), "{doctor}");
}

/// One daemon for all that leaves it as it was: to start one takes half a minute where it is emulated.
#[test]
fn what_fits_below_the_line_is_granted_and_nothing_else() {
    let fixture = strict_fixture!();
    // Nothing was refused before these two.
    what_is_given_back_is_granted_again(&fixture);
    a_fork_is_refused_where_its_copies_would_not_fit_and_passes_where_they_do(&fixture);
    three_times_six_tenths_of_the_line_are_granted_once(&fixture);
    whichever_way_memory_is_asked_for_it_is_refused_near_the_line(&fixture);
    threads_with_arenas_of_their_own_are_refused_together(&fixture);
    the_line_holds_for_all_processes_of_a_job_together_and_for_nobody_else(&fixture);
    a_job_inside_a_strict_one_is_held_by_both(&fixture);
    processes_that_ask_at_once_have_all_of_the_line_and_no_more(&fixture);
}

fn three_times_six_tenths_of_the_line_are_granted_once(fixture: &Fixture) {
    let six_tenths = format!("--kibibytes={}", LINE * 1024 * 6 / 10);
    for way in ["--malloc", "--calloc", "--mmap", "--brk", "--noreserve", "--mprotect"] {
        let mut one = strict(fixture, &[way, &six_tenths]).ready();
        assert_eq!(granted(&mut one), (LINE * 1024 * 6 / 10, ENOMEM), "{way}");
        one.stage("touched");
        ends_well(&mut one);
    }
    let incidents = fixture.incidents(1);
    for incident in &incidents {
        let told =
            json!({"action": "deny", "guard": "limits", "trigger": "in-kernel", "hard_bytes": LINE << 20});
        assert_has(incident, &told);
        assert_eq!(incident["victims"][0]["comm"], "commits", "{incident:#}");
    }
    let why = fixture.run_as(ALICE, &["why"]).1;
    assert!(why.contains("was refused (ENOMEM); nobody was ended"), "{why}");
}

fn whichever_way_memory_is_asked_for_it_is_refused_near_the_line(fixture: &Fixture) {
    for way in ["--malloc", "--mmap", "--brk", "--noreserve", "--mprotect", "--grows-down", "--small"] {
        is_refused_near_the_line(fixture, &[way]);
    }
    is_refused_near_the_line(fixture, &["--mremap"]);
    is_refused_near_the_line(fixture, &["--moved-away"]);
    is_refused_near_the_line(fixture, &["--stacks"]);
    assert!(fixture.history().iter().all(|incident| incident["action"] == "deny"));
}

fn processes_that_ask_at_once_have_all_of_the_line_and_no_more(fixture: &Fixture) {
    const PROCESSES: usize = 8;
    let line = format!("{LINE}M");
    let script =
        format!("for i in $(seq {PROCESSES}); do \"$0\" --count=40 --gated --holds <&3 & done 3<&0; wait");
    let mut shell = fixture.plimsoll_as(ALICE);
    shell.args(["run", "--strict", "--limit", &line, "--", "sh", "-c", &script]);
    let mut all = Program::of(shell.arg(fixture.workload_path("commits")));
    // All are there before the first asks: who comes when all is given away cannot begin.
    (0..PROCESSES).for_each(|_| drop(all.stage("ready")));
    (0..PROCESSES).for_each(|_| all.tell(""));
    let together: u64 = (0..PROCESSES).map(|_| granted(&mut all).0).sum();
    assert!((LINE * 1024 * 3 / 4..=LINE * 1024).contains(&together), "{together} KiB");
}

fn threads_with_arenas_of_their_own_are_refused_together(fixture: &Fixture) {
    for threads in ["--threads=2", "--threads=5"] {
        let mut one = strict(fixture, &[threads, "--count=100"]).ready();
        let (granted, error) = granted(&mut one);
        assert_eq!(error, ENOMEM, "{granted} KiB");
        assert!(granted <= LINE * 1024, "{granted} KiB");
        one.stage("touched");
        ends_well(&mut one);
    }
}

fn a_fork_is_refused_where_its_copies_would_not_fit_and_passes_where_they_do(fixture: &Fixture) {
    // Twice a third of the line fits, one after the other.
    let mut fits = strict(fixture, &["--count=20", "--forks=3"]).ready();
    assert_eq!(granted(&mut fits), (20 << 10, 0));
    fits.stage("touched");
    for _ in 0..3 {
        assert_eq!(fits.stage("forked"), "0");
    }
    ends_well(&mut fits);
    assert_eq!(fixture.history(), [] as [Value; 0]);
    let mut does_not = strict(fixture, &["--count=40", "--forks=2"]).ready();
    assert_eq!(granted(&mut does_not), (40 << 10, 0));
    does_not.stage("touched");
    for _ in 0..2 {
        assert_eq!(does_not.stage("forked"), ENOMEM.to_string());
    }
    ends_well(&mut does_not);
    assert!(fixture.incidents(1)[0]["reason"].as_str().unwrap().ends_with("by a fork"));
}

fn what_is_given_back_is_granted_again(fixture: &Fixture) {
    for way in ["--mmap", "--noreserve", "--mprotect"] {
        let mut one = strict(fixture, &[way, "--count=5", "--kibibytes=10240", "--again=7"]).ready();
        for _ in 0..=7 {
            assert_eq!(granted(&mut one), (50 << 10, 0), "{way}");
            one.stage("touched");
        }
        ends_well(&mut one);
    }
    assert_eq!(fixture.history(), [] as [Value; 0]);
}

fn the_line_holds_for_all_processes_of_a_job_together_and_for_nobody_else(fixture: &Fixture) {
    wait_for("the jobs before have ended", || fixture.accounts().is_empty());
    let path = fixture.workload_path("commits");
    let script = format!(
        "kept = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         child = os.posix_spawn({path:?}, ['commits', '--count=200'], os.environ)\n\
         os.waitpid(child, 0)\nsay('ended')\nhear()"
    );
    let line = format!("{LINE}M");
    let mut job = fixture.job(ALICE, &["--strict", "--limit", &line], &script).ready();
    let (granted, error) = granted(&mut job);
    assert_eq!(error, ENOMEM);
    // Python has some MiB of its own.
    assert!((8 << 10..=24 << 10).contains(&granted), "{granted} KiB");
    for stage in ["touched", "done", "ended"] {
        job.stage(stage);
    }
    let jobs: Vec<_> = fixture.accounts().into_iter().filter(|one| !one["job"].is_null()).collect();
    let [listed] = &jobs[..] else { panic!("it alone is there: {jobs:#?}") };
    assert_has(listed, &json!({"action": "deny", "hard_bytes": LINE << 20, "soft_bytes": null}));
    assert!(listed["strict"]["refused"].as_u64().unwrap() >= 1, "{listed:#}");
    for user in [ALICE, BOB] {
        let mut other = fixture.workload(user, "commits", &["--count=200"]).ready();
        assert_eq!(self::granted(&mut other), (200 << 10, 0), "user {user}, outside of the job");
        other.stage("touched");
        ends_well(&mut other);
    }
    job.tell("");
    assert!(job.end().success());
    wait_for("the job has ended", || fixture.accounts().is_empty());
}

#[test]
fn a_strict_job_outlives_its_daemon_and_the_next_one_tells_of_it() {
    let mut fixture = strict_fixture!();
    let line = format!("{LINE}M");
    let script = "kept = []\nsay('ready')\nwhile (size := hear()):\n try: kept.append(mmap.mmap(-1, int(size) << 20, \
                  flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)); say('has')\n except OSError as e: say('none', e.errno)\n";
    let mut job = fixture.job(ALICE, &["--strict", "--limit", &line], script).ready();
    let mut asks = |size: &str| {
        job.tell(size);
        job.line()
    };
    assert_eq!(asks("30"), "has");
    fixture.end_daemon(rustix::process::Signal::KILL);
    let refused = format!("none {ENOMEM}");
    assert_eq!(asks("40"), refused);
    fixture.launch();
    assert_eq!(asks("40"), refused);
    assert_eq!(asks("10"), "has");
    let incidents = fixture.incidents(1);
    assert!(
        incidents.iter().all(|one| one["action"] == "deny" && one["account"] == "job:1"),
        "{incidents:#?}"
    );
    // Higher for itself, and it stays strict.
    assert_eq!(fixture.run_as(ALICE, &["limit", "set", "job:1", "128M"]).0, 0);
    assert_eq!(asks("40"), "has");
    assert_eq!(asks("80"), refused);
    for other in [&["set", "job:1", "128M", "--action", "kill"][..], &["clear", "job:1"]] {
        let (code, _, stderr) = fixture.run_as(ALICE, &[&["limit"], other].concat());
        assert_eq!(code, 2, "{stderr}");
    }
    assert_eq!(asks("80"), refused);
    // Those that run are in no job after a stop. The kernel lets go of programs a moment after their pins have gone.
    fixture.end_daemon(rustix::process::Signal::TERM);
    assert!(!fixture.pin().join("strict").exists());
    wait_for("nothing is left that could refuse", || asks("200") == "has");
}

#[test]
fn one_that_waits_for_its_turn_is_strict_when_it_has_it_also_after_a_stop() {
    let mut fixture = strict_fixture!();
    let line = format!("{LINE}M");
    fixture.limit(ALICE, "512M", &[]);
    let mut first = fixture.job(ALICE, &["--reserve", "400M"], "say('ready')\nhear()").ready();
    let waits = ["--strict", "--limit", &line, "--reserve", "64M", "--wait"];
    fixture.limit(ALICE, "420M", &[]);
    let mut second = Program::of(command(&fixture, ALICE, &waits, &["--count=200"]));
    let waiting = |fixture: &Fixture| fixture.accounts().iter().any(|one| one["job"]["waits"] == true);
    wait_for("it waits", || waiting(&fixture));
    fixture.end_daemon(rustix::process::Signal::TERM);
    first.tell("");
    fixture.launch();
    second.stage("ready");
    let (granted, error) = granted(&mut second);
    assert!((NEAR_KIB..=LINE * 1024).contains(&granted) && error == ENOMEM, "{granted} KiB");
    second.stage("touched");
    ends_well(&mut second);
}

#[test]
fn whoever_starts_a_strict_job_is_told_of_each_refusal() {
    let fixture = strict_fixture!();
    let commits = fixture.workload_path("commits");
    let mut shell = fixture.plimsoll_as(ALICE);
    shell.args(["run", "--action", "deny", "--limit", "32M", "--status-fd", "1", "--", "sh", "-c"]);
    let mut told = Program::of(shell.args(["\"$0\" --count=100; read told"]).arg(commits));
    let mut events = Vec::new();
    loop {
        let line = told.line();
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        events.push(event["event"].as_str().unwrap().to_owned());
        if event["event"] == "refused" {
            assert_eq!(event["processes"][0]["comm"], "commits", "{event}");
            told.tell("");
        }
        if event["event"] == "ended" {
            // What was refused is not what was used.
            assert!(event["peak_bytes"].as_u64().is_none_or(|peak| peak <= 32 << 20), "{event}");
            break;
        }
    }
    assert_eq!(events, ["started", "refused", "ended"]);
}

fn a_job_inside_a_strict_one_is_held_by_both(fixture: &Fixture) {
    let (plimsoll, commits) = (fixture.path("plimsoll"), fixture.workload_path("commits"));
    let inner = |options: &str, count: u64| {
        let script = format!(
            "kept = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
             words = ['plimsoll', 'run', *{options:?}.split(), '--', {commits:?}, '--count={count}']\n\
             child = os.posix_spawn({plimsoll:?}, words, \
             os.environ)\nos.waitpid(child, 0)\nsay('ended')"
        );
        let line = format!("{LINE}M");
        let mut job = fixture.job(ALICE, &["--strict", "--limit", &line], &script).ready();
        let granted = granted(&mut job);
        for stage in ["touched", "done", "ended"] {
            job.stage(stage);
        }
        granted
    };
    // By its own, and by the one around it: also where the inner one is not strict, or allows more.
    let own = inner("--strict --limit 16M", 100);
    assert!((12 << 10..=16 << 10).contains(&own.0) && own.1 == ENOMEM, "{own:?}");
    for options in ["--strict --limit 200M", "--limit 200M", ""] {
        let outer = inner(options, 100);
        assert!((24 << 10..=44 << 10).contains(&outer.0) && outer.1 == ENOMEM, "{options}: {outer:?}");
    }
}
