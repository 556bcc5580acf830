//! Jobs that wait until memory can be promised to them, `plimsoll run --reserve --wait`; and processes of a job that take
//! turns, `plimsoll run --jobserver`.
#![cfg(test)]

mod support;

use plimsoll_wire::text::ProcessState;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};
use support::{
    ALICE, BOB, Fixture, assert_has, exact,
    program::{PYTHON, Program, by_shell},
    until, wait_for,
};

/// Says that it has begun, and ends when it is told to.
const BEGINS: &str = "say('begun')\nhear()\n";

const A_WHILE: Duration = Duration::from_millis(500);

/// One that waits, or has begun.
fn job(fixture: &Fixture, user: u32, options: &[&str], script: &str) -> Program {
    Program::of(&mut fixture.job_command(user, options, script))
}

/// One of Alice's that has begun.
fn begun(fixture: &Fixture, options: &[&str], script: &str) -> Program {
    let mut program = job(fixture, ALICE, options, script);
    program.stage("begun");
    program
}

fn end(program: &mut Program) {
    program.tell("end");
    assert!(program.end().success());
}

fn jobs(fixture: &Fixture) -> Vec<Value> {
    fixture.json(&["jobs"]).as_array().unwrap().clone()
}

fn wait_until_waiting(fixture: &Fixture, count: usize) {
    let waits = |one: &Value| one["job"]["waits"] == true && one["job"]["pid"].is_u64();
    wait_for("they wait", || jobs(fixture).iter().filter(|one| waits(one)).count() == count);
}

/// Whether it has not begun, and does not for a while.
fn waits(program: &mut Program) -> bool {
    std::thread::sleep(A_WHILE);
    program.runs() && program.try_line().is_none()
}

#[test]
fn more_than_fit_take_turns_in_order_and_nobody_dies() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    // Begin, the end of each, and memory meanwhile.
    let script = "\
begun = time.monotonic()
kept = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept.madvise(15)
for at in range(0, 48 << 20, 4096): kept[at] = 1
time.sleep(0.3)
say('done', begun, time.monotonic())
";
    let options = ["--reserve", "60M", "--limit", "60M", "--wait"];
    let (mut all, mut any_waits) = (Vec::new(), false);
    for number in 1..=16 {
        all.push(job(&fixture, ALICE, &options, script));
        until("it is listed, or was", Duration::from_secs(10), || {
            let listed = jobs(&fixture);
            any_waits |= listed.iter().any(|one| one["job"]["waits"] == true);
            let numbers =
                listed.iter().filter_map(|one| one["account"].as_str()?.strip_prefix("job:")?.parse().ok());
            (numbers.max() >= Some(number)).then_some(())
        });
    }
    assert!(any_waits);
    let times: Vec<(f64, f64)> = all
        .iter_mut()
        .map(|one| {
            let told = one.stage("done");
            let (begun, done) = told.split_once(' ').unwrap();
            assert!(one.end().success());
            (begun.parse().unwrap(), done.parse().unwrap())
        })
        .collect();
    fixture.assert_nobody_killed();
    for (begun, _) in &times {
        let at_once = times.iter().filter(|(other, done)| other <= begun && begun < done).count();
        assert!(at_once <= 4, "{at_once} of 60 MiB have begun under a line of 256: {times:?}");
    }
    // In order, but for those that begin at one moment.
    let overtaken =
        |at: usize, begun: f64| times.iter().skip(at + 1).filter(|(later, _)| later + 0.2 < begun).count();
    let most = times.iter().enumerate().map(|(at, (begun, _))| overtaken(at, *begun)).max();
    assert_eq!(most, Some(0), "{times:?}");
}

#[test]
fn many_that_come_at_once_have_places_in_the_order_of_their_coming() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut holds = begun(&fixture, &["--reserve", "200M"], BEGINS);
    let options = ["--reserve", "100M", "--wait"];
    let began = Instant::now();
    let mut all: Vec<(Duration, Program)> =
        (0..60).map(|_| (began.elapsed(), job(&fixture, ALICE, &options, BEGINS))).collect();
    wait_until_waiting(&fixture, 60);
    let mut places: Vec<(u64, u64)> = jobs(&fixture)
        .iter()
        .filter(|one| one["job"]["waits"] == true)
        .map(|one| {
            let number = one["account"].as_str().unwrap().strip_prefix("job:").unwrap();
            (number.parse().unwrap(), one["job"]["pid"].as_u64().unwrap())
        })
        .collect();
    places.sort_unstable();
    let came = |pid: u64| all.iter().find(|(_, one)| u64::from(one.pid()) == pid).unwrap().0;
    let came: Vec<Duration> = places.iter().map(|(_, pid)| came(*pid)).collect();
    // Those that come at one moment reach the daemon as the kernel runs them.
    let moment = Duration::from_millis(300);
    let latest_before = |at: usize| came[..at].iter().copied().max().unwrap_or_default();
    let late: Vec<usize> = (0..came.len()).filter(|at| latest_before(*at) > came[*at] + moment).collect();
    assert!(late.is_empty(), "{late:?} of {came:?}");
    // The first has the first turn.
    end(&mut holds);
    let first = all.iter_mut().find(|(_, one)| u64::from(one.pid()) == places[0].1);
    first.unwrap().1.stage("begun");
    fixture.assert_nobody_killed();
}

#[test]
fn one_in_a_job_waits_for_nobody_outside_of_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let plimsoll = fixture.path("plimsoll");
    let run = format!("[{plimsoll:?}, 'run', '--reserve', '150M', '--wait=20', '--', '/bin/true']");
    let starts = format!(
        "import subprocess\nsay('begun')\nhear()\nsay('inner', subprocess.run({run}).returncode)\nhear()\n"
    );
    let mut outer = begun(&fixture, &["--reserve", "200M"], &starts);
    let mut behind = job(&fixture, ALICE, &["--reserve", "100M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 1);
    outer.tell("go");
    assert_eq!(outer.stage("inner"), "0", "it is a part of what the outer one was promised");
    assert!(waits(&mut behind));
    end(&mut outer);
    behind.stage("begun");
    fixture.assert_nobody_killed();
}

#[test]
fn what_cannot_be_promised_is_refused_and_no_job_is_left() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut holds = begun(&fixture, &["--reserve", "200M"], BEGINS);
    for (options, status, says) in [
        (
            &["--reserve", "300M", "--wait"][..],
            125,
            "can never be promised: it is more than the line of user:",
        ),
        (
            &["--reserve", "64M", "--limit", "32M", "--wait"],
            125,
            "can never be promised: it is more than the job's line",
        ),
        (&["--reserve", "1000G"], 125, "it is more than this machine's memory"),
        (&["--reserve", "0", "--wait"], 125, "nothing is no promise"),
        (&["--reserve", "100M"], 125, "so much cannot be promised now"),
        (&["--reserve", "100M", "--wait=1"], 125, "had no turn within 1 s"),
        (&["--wait"], 2, "--reserve"),
        (&["--reserve", "many"], 125, "many"),
    ] {
        let began = Instant::now();
        let (code, _, said) = fixture.run_as(ALICE, &[&["run"], options, &["--", "/bin/true"]].concat());
        assert!(code == status && said.contains(says), "{options:?}: {code} {said}");
        assert!(began.elapsed() < Duration::from_secs(8), "{options:?}");
    }
    wait_for("none is left of them", || jobs(&fixture).len() == 1);
    // What is left is promised at once, and to others what is theirs.
    assert_eq!(fixture.run_as(ALICE, &["run", "--reserve", "40M", "--", "/bin/true"]).0, 0);
    assert_eq!(fixture.run_as(BOB, &["run", "--reserve", "200M", "--", "/bin/true"]).0, 0);
    end(&mut holds);
    assert_eq!(
        fixture.run_as(ALICE, &["run", "--reserve", "250M", "--", "/bin/true"]).0,
        0,
        "whoever had it has ended"
    );
}

#[test]
fn places_are_kept_over_a_restart_and_lost_by_whoever_ends() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut holds = begun(&fixture, &["--reserve", "200M", "--name", "holds"], BEGINS);
    let options = ["--reserve", "200M", "--wait"];
    let [mut first, mut second, mut third] = [1, 2, 3].map(|count| {
        let one = job(&fixture, ALICE, &options, BEGINS);
        wait_until_waiting(&fixture, count);
        one
    });
    let listed = jobs(&fixture);
    assert_has(&listed[0], &json!({"name": "holds", "job": {"promised_bytes": 200 << 20, "waits": false}}));
    assert_has(&listed[3], &json!({"account": "job:4", "job": {"promised_bytes": 200 << 20, "waits": true}}));
    let text = fixture.run_as(ALICE, &["jobs"]).1;
    assert!(text.contains("PROMISED") && text.contains("waits"), "{text}");
    // By a signal as any program, and by its number.
    first.signal(Signal::TERM);
    assert!(!first.end().success());
    fixture.end_daemon(Signal::KILL);
    assert!(waits(&mut second) && waits(&mut third));
    fixture.launch();
    assert!(waits(&mut second) && waits(&mut third));
    assert_eq!(fixture.run_as(ALICE, &["jobs", "end", "3", "--now"]).0, 0);
    assert!(!second.end().success());
    end(&mut holds);
    third.stage("begun");
    // A daemon that is stopped leaves no line in force, and no job: who waits begins below the next one's, and is in theirs.
    let mut fourth = job(&fixture, ALICE, &[&options[..], &["--limit", "200M"]].concat(), BEGINS);
    wait_until_waiting(&fixture, 1);
    fixture.end_daemon(Signal::TERM);
    fixture.launch();
    fourth.stage("begun");
    let listed = until("it is in its job", Duration::from_secs(10), || {
        jobs(&fixture).into_iter().find(|one| one["account"] == "job:5" && one["processes"] == 1)
    });
    assert_has(&listed, &json!({"hard_bytes": 200 << 20, "job": {"waits": false}}));
    fixture.assert_nobody_killed();
}

#[test]
fn who_has_ended_or_can_never_begin_holds_up_nobody() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let _holds = begun(&fixture, &["--reserve", "100M"], BEGINS);
    let mut large = job(&fixture, ALICE, &["--reserve", "200M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 1);
    let mut small = job(&fixture, ALICE, &["--reserve", "50M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 2);
    assert!(waits(&mut small));
    assert_has(
        &fixture.json(&["status"])["jobs"],
        &json!({"running": 1, "waiting": 2, "promised_bytes": 100 << 20}),
    );
    let text = fixture.ok(&["status"]);
    assert!(text.contains("Jobs: 1 runs, 2 wait, 100.0 MiB promised."), "{text}");
    large.signal(Signal::KILL);
    large.killed();
    small.stage("begun");
    let mut large = job(&fixture, ALICE, &["--reserve", "200M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 1);
    let mut small = job(&fixture, ALICE, &["--reserve", "20M", "--wait"], BEGINS);
    assert!(waits(&mut small) && waits(&mut large));
    fixture.limit(ALICE, "190M", &[]);
    small.stage("begun");
    assert!(waits(&mut large));
    fixture.limit(ALICE, "1G", &[]);
    large.stage("begun");
    fixture.assert_nobody_killed();
}

#[test]
fn one_that_is_stopped_has_its_turn_and_is_ended_by_its_number() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut holds = begun(&fixture, &["--reserve", "200M"], BEGINS);
    let mut stopped = job(&fixture, ALICE, &["--reserve", "200M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 1);
    stopped.signal(Signal::STOP);
    end(&mut holds);
    wait_until_waiting(&fixture, 0);
    let mut behind = job(&fixture, ALICE, &["--reserve", "200M", "--wait"], BEGINS);
    wait_until_waiting(&fixture, 1);
    let (code, said, error) = fixture.run_as(ALICE, &["jobs", "end", "2", "--now"]);
    assert!(code == 0 && said.contains("1 process ended"), "{code} {said} {error}");
    stopped.killed();
    behind.stage("begun");
}

#[test]
fn one_that_is_watched_begins_when_it_has_its_turn() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut holds = begun(&fixture, &["--reserve", "200M"], BEGINS);
    let events = fixture.path("events");
    let to_file = "exec \"$@\" 9>\"$0\"";
    let watched = fixture.job_command(ALICE, &["--reserve", "200M", "--wait", "--status-fd", "9"], BEGINS);
    let mut watched = Program::of(by_shell(to_file, &[&events], &watched));
    wait_until_waiting(&fixture, 1);
    assert!(waits(&mut watched));
    let told = std::fs::read_to_string(&events).unwrap();
    assert!(told.contains("{\"event\":\"waiting\"") && told.lines().count() == 1, "{told}");
    // One whose turn does not come has ended, and was never started.
    let late = fixture.path("late");
    let mut in_vain = fixture.plimsoll_as(ALICE);
    in_vain.args([
        "run",
        "--reserve",
        "200M",
        "--wait=1",
        "--status-fd",
        "9",
        "--end-orphans",
        "--",
        "/bin/true",
    ]);
    assert_eq!(by_shell(to_file, &[&late], &in_vain).status().unwrap().code(), Some(125));
    let told = std::fs::read_to_string(&late).unwrap();
    let kinds: Vec<&str> = told.lines().filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!(kinds, ["waiting", "ended"], "{told}");
    end(&mut holds);
    watched.stage("begun");
    wait_for("it is told", || std::fs::read_to_string(&events).unwrap().contains("\"started\""));
}

/// Takes so many MiB, one after the other, keeps them for a moment, and ends.
const STEP: &str = "\
import mmap, sys, time
size = int(sys.argv[1]) << 20
kept = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 4096):
    kept[at] = 1
    if at % (1 << 20) == 0: time.sleep(0.01)
time.sleep(0.2)
";

/// A folder with a makefile that compiles twelve objects and then links them, all at once.
fn project(fixture: &Fixture) -> PathBuf {
    let folder = fixture.path("project");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("step.py"), STEP).unwrap();
    let steps: Vec<String> = (1..=12).map(|number| format!("link{number}")).collect();
    let makefile = format!(
        "all: {}\nlink%: object%\n\t@{PYTHON} -IS step.py 60\nobject%:\n\t@{PYTHON} -IS step.py 2\n",
        steps.join(" ")
    );
    fs::write(folder.join("Makefile"), makefile).unwrap();
    folder
}

#[test]
fn steps_of_a_build_that_do_not_fit_together_take_turns_by_a_jobserver() {
    let fixture = fixture!();
    let folder = project(&fixture);
    let make = |options: &[&str], own: &[&str]| {
        let mut command = fixture.plimsoll_as(ALICE);
        command.args(["run", "--limit", "256M"]).args(options).args(["--", "make", "-s"]).args(own);
        command.current_dir(&folder).stderr(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(make(&[], &["-j12"]), Some(2));
    let killed = fixture.incidents(1).len();
    assert_eq!(make(&["--jobserver=12"], &[]), Some(0));
    assert_eq!(fixture.history().len(), killed);
}

/// Two steps at once that would not fit, as far as is known; each leaves a file when it is done. Comes back with the one
/// that is held.
fn two_steps(fixture: &Fixture, first: &str) -> (Program, u32, PathBuf) {
    let folder = project(fixture);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let step = |name: &str| format!("({PYTHON} -IS step.py 24 && touch {name}) &");
    let script = format!("{first} {} {} wait", step("one"), step("two"));
    let mut command = fixture.plimsoll_as(ALICE);
    command.args(["run", "--limit", "64M", "--jobserver", "--", "sh", "-c", &script]);
    let run = Program::of(command.current_dir(&folder));
    let stopped = |pid: &u32| {
        let stat = exact::stat(*pid);
        stat.is_some_and(|stat| stat.state == ProcessState::Stopped && stat.comm.to_string() == "python3")
    };
    let held = || exact::processes_of(ALICE).into_iter().find(stopped);
    let held = until("one is held", Duration::from_secs(20), held);
    (run, held, folder)
}

#[test]
fn who_is_held_goes_on_when_whoever_holds_it_is_killed() {
    let fixture = fixture!();
    let (mut run, held, folder) = two_steps(&fixture, "");
    run.signal(Signal::KILL);
    run.killed();
    wait_for("it goes on", || exact::state(held) != Some(ProcessState::Stopped));
    wait_for("both are done", || folder.join("one").exists() && folder.join("two").exists());
    wait_for("nobody is left", || exact::processes_of(ALICE).is_empty());
}

#[test]
fn who_was_stopped_by_its_user_stays_so() {
    let fixture = fixture!();
    let (mut run, _, folder) = two_steps(&fixture, "sleep 600 & kill -STOP $!;");
    wait_for("both are done", || folder.join("one").exists() && folder.join("two").exists());
    let stopped = exact::processes_of(ALICE)
        .into_iter()
        .filter(|pid| exact::state(*pid) == Some(ProcessState::Stopped));
    let stopped: Vec<u32> = stopped.collect();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    run.signal(Signal::TERM);
    run.end();
    assert_eq!(exact::state(stopped[0]), Some(ProcessState::Stopped));
    fixture.run_as(ALICE, &["jobs", "end", "1", "--now"]);
    wait_for("nobody is left", || exact::processes_of(ALICE).is_empty());
}

#[test]
fn a_jobserver_is_told_as_make_can_take_it_and_goes_with_the_program() {
    let fixture = fixture!();
    let flags = |version: &str| {
        let folder = fixture.path(version);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("make"), format!("#!/bin/sh\necho 'GNU Make {version}'\n")).unwrap();
        fs::set_permissions(folder.join("make"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = fixture.plimsoll_as(ALICE);
        let script = "echo $MAKEFLAGS; test -p \"${MAKEFLAGS#*fifo:}\" && ls -ld \"$(dirname \"${MAKEFLAGS#*fifo:}\")\"; true";
        command.args(["run", "--jobserver=3", "--", "sh", "-c", script]);
        command.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("MAKEFLAGS", "k -j9");
        let told = command.output().unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };
    let (named, numbered) = (flags("4.4.1"), flags("4.3"));
    let path = named.lines().next().and_then(|line| line.strip_prefix("k -j3 --jobserver-auth=fifo:"));
    let path = Path::new(path.unwrap_or_else(|| panic!("{named}")));
    // Nobody else takes tokens, and nothing stays; also of a job that does not begin.
    assert!(named.contains("\ndrwx------"), "{named}");
    assert!(!path.exists() && !path.parent().unwrap().exists());
    let folder = fixture.path("empty");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = fixture.plimsoll_as(ALICE);
    command.args(["run", "--jobserver", "--reserve", "999G", "--", "true"]).env("TMPDIR", &folder);
    assert_eq!(command.stderr(Stdio::null()).status().unwrap().code(), Some(125));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert!(numbered.starts_with("k -j3 --jobserver-auth=") && !numbered.contains("fifo"), "{numbered}");
}
