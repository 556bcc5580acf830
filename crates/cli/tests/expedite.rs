//! Whoever is killed by others is freed as the daemon's own victims are: those that a client names, and by configuration
//! everybody large. Nobody loses anything for it.
#![cfg(test)]

mod support;

use plimsoll_sys::process::online_cpus;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    process::{Child, Command},
    time::{Duration, Instant},
};
use support::{
    Fixture, SOON, assert_has, caller::Caller, cgroup::Cgroup, exact, fewer, program::Program, slowness,
    until, wait_for,
};

/// Users of no other suite.
const ALICE: u32 = 60_180;
const BOB: u32 = 60_181;

/// Above what others on this machine are killed with, as a rule.
const ANY: &str = "[reaping]\nexpedite = \"any\"\nexpedite_from = \"100M\"\n";

const FILL: &str = r"
def fill(mebibytes):
    block = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mebibytes << 20, 4096): block[at] = 1
    return block
";

/// Has the daemon free everybody's victims.
fn any(fixture: &Fixture) {
    wait_for("anybody's victims are freed", || {
        let state = fixture.status()["reaping"]["state"].clone();
        assert!(!state.as_str().unwrap().contains("not anybody's"), "{state}");
        state.as_str().unwrap().starts_with("victims of anybody's kill")
    });
}

fn freed(fixture: &Fixture) -> u64 {
    fixture.status()["reaping"]["victims"].as_u64().unwrap()
}

fn holding(fixture: &Fixture, user: u32, mebibytes: u32, more: &str) -> Program {
    let script = format!("{FILL}\nblock = fill({mebibytes})\n{more}\nsay('ready')\ntime.sleep(100)\n");
    fixture.python(user, &script).ready()
}

/// Programs that keep every CPU busy twice over.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let script = "import signal\nsignal.alarm(120)\nwhile True: pass";
        let count = online_cpus().unwrap() * 2;
        Self((0..count).map(|_| Command::new("python3").args(["-c", script]).spawn().unwrap()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// From `kill -9` to the end of one that was throttled by this command.
fn time_to_end(fixture: &Fixture, throttle: &[&str]) -> Duration {
    let mut victim = holding(fixture, ALICE, 128, "");
    let pid = victim.pid().to_string();
    let status =
        Command::new(throttle[0]).args(&throttle[1..]).arg(&pid).stdout(std::process::Stdio::null()).status();
    assert!(status.unwrap().success());
    let began = Instant::now();
    victim.signal(Signal::KILL);
    victim.end_within(Duration::from_secs(60));
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_plain_kill_of_a_throttled_process_gives_its_memory_back_many_times_as_fast() {
    let fixture = fixture!();
    let _busy = Busy::start();
    let cases: [(&str, &[&str]); 2] =
        [("nice 19", &["renice", "-n", "19", "-p"]), ("SCHED_IDLE", &["chrt", "--idle", "--pid", "0"])];
    // Of those that take longest one each: no machine ends it sooner by chance.
    let without = cases.map(|(_, throttle)| time_to_end(&fixture, throttle));
    fixture.configure(ANY);
    fixture.reload();
    any(&fixture);
    let rounds = fewer(3);
    let with =
        cases.map(|(_, throttle)| median((0..rounds).map(|_| time_to_end(&fixture, throttle)).collect()));
    for ((name, _), (without, with)) in cases.iter().zip(without.iter().zip(with)) {
        let ratio = without.as_secs_f64() / with.as_secs_f64();
        println!("{name}: {without:?} without us, {with:?} with: {ratio:.0} times as fast");
        // Some fifty times and more; a machine that is busy with something else is no fault of ours.
        assert!(ratio >= 5.0, "{name}: {ratio:.1} times as fast");
    }
    // Throttled, they did not come to free it themselves.
    assert!(fixture.status()["reaping"]["freed_bytes"].as_u64().unwrap() >= 128 << 20);
    assert!(freed(&fixture) >= u64::from(rounds) * 2);
    fixture.assert_nobody_killed();
}

#[test]
fn each_victim_is_told_once_whoever_kills_it_and_nobody_else() {
    let fixture = fixture!(ANY);
    any(&fixture);
    let threads = "import threading\nfor _ in range(8): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()";
    // Small; ended by another signal; by itself, with threads; by exec, which ends the other threads.
    let mut small = holding(&fixture, ALICE, 8, threads);
    small.signal(Signal::KILL);
    small.end();
    let mut asked = holding(&fixture, ALICE, 128, threads);
    asked.signal(Signal::TERM);
    asked.end();
    let mut dumped = holding(&fixture, ALICE, 128, threads);
    dumped.signal(Signal::SEGV);
    dumped.end();
    for end in ["os._exit(0)", "os.execv('/bin/true', ['true'])"] {
        let script = format!("{FILL}\nblock = fill(128)\n{threads}\n{end}\n");
        fixture.python(ALICE, &script).end();
    }
    assert_eq!(freed(&fixture), 0);
    let mut killed = 0;
    let mut is_told = |what: &str, count: u64| {
        killed += count;
        until(what, SOON, || (freed(&fixture) >= killed).then_some(()));
        assert_eq!(freed(&fixture), killed, "{what}");
    };
    let mut process = holding(&fixture, ALICE, 128, threads);
    process.signal(Signal::KILL);
    process.end();
    is_told("kill(2), of a process with threads", 1);
    let mut one_thread = holding(&fixture, ALICE, 128, threads);
    let thread = fs::read_dir(format!("/proc/{}/task", one_thread.pid())).unwrap().last().unwrap().unwrap();
    let tgkill = format!(
        "import os, ctypes; ctypes.CDLL(None).syscall({}, {}, {}, 9)",
        libc_tgkill(),
        one_thread.pid(),
        thread.file_name().to_str().unwrap()
    );
    assert!(Command::new("python3").args(["-c", &tgkill]).status().unwrap().success());
    one_thread.end();
    is_told("tgkill(2), of one thread", 1);
    let mut named = holding(&fixture, ALICE, 128, "");
    fixture.ok(&["kill", &named.pid().to_string()]);
    named.end();
    is_told("a pidfd", 1);
    if let Some(cgroup) = Cgroup::of("expedite") {
        let mut members = [holding(&fixture, ALICE, 128, threads), holding(&fixture, ALICE, 128, "")];
        members.iter().for_each(|member| cgroup.take(member.pid()));
        cgroup.set("cgroup.kill", "1");
        members.iter_mut().for_each(Program::killed);
        is_told("cgroup.kill", 2);
    }
    fixture.assert_nobody_killed();
    // Off again, nothing runs at signals any more.
    fixture.configure("");
    fixture.reload();
    holding(&fixture, ALICE, 128, "").signal(Signal::KILL);
    fixture.ok(&["kill", &holding(&fixture, ALICE, 128, "").pid().to_string()]);
    assert_eq!(freed(&fixture), killed);
}

/// `tgkill` on x86-64; a test of another machine has its own number.
fn libc_tgkill() -> u32 {
    if cfg!(target_arch = "x86_64") { 234 } else { 131 }
}

#[test]
fn what_a_line_ends_is_told_once() {
    let fixture = fixture!(ANY);
    any(&fixture);
    fixture.limit(ALICE, "150M", &[]);
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=200", "--no-thp"]);
    hog.killed();
    assert_eq!(fixture.incidents(1).len(), 1);
    // Told after it, and so counted after it.
    let mut other = holding(&fixture, BOB, 128, "");
    other.signal(Signal::KILL);
    other.end();
    wait_for("the other's victim is counted", || freed(&fixture) > 0);
    // Told by two ways, ours is counted too where the one that it is known by comes second.
    assert!(freed(&fixture) <= 2);
}

#[test]
fn a_storm_of_one_users_kills_takes_nothing_from_anothers() {
    let fixture = fixture!(ANY);
    any(&fixture);
    let count = fewer(200).max(100);
    // Forked, each holds what the first one touched, and costs nothing.
    let script = format!(
        "{FILL}\nblock = fill(128)\nfor _ in range({count}):\n    if os.fork() == 0: time.sleep(100)\nsay('ready')\n\
         hear()\nos.kill(-1, 9)\n"
    );
    let mut storm = fixture.python(ALICE, &script).ready();
    let _busy = Busy::start();
    let mut bobs = holding(&fixture, BOB, 128, "");
    assert!(
        Command::new("chrt")
            .args(["--idle", "--pid", "0", &bobs.pid().to_string()])
            .status()
            .unwrap()
            .success()
    );
    storm.tell("go");
    storm.end();
    let began = Instant::now();
    bobs.signal(Signal::KILL);
    bobs.end();
    let took = began.elapsed();
    let reaping = fixture.status()["reaping"].clone();
    println!("beside {count} kills of another's: {took:?}; {reaping}");
    // Alone it takes five seconds.
    assert!(took < Duration::from_secs(2) * slowness(), "{took:?}");
    assert!(reaping["refused"].as_u64().unwrap() > 0, "{reaping}");
}

#[test]
fn one_ends_and_expedites_ones_own_and_nobody_elses() {
    let fixture = fixture!();
    let mut alices = holding(&fixture, ALICE, 64, "");
    let mut bobs = holding(&fixture, BOB, 64, "");
    let (own, others) = (alices.pid().to_string(), bobs.pid().to_string());
    let (code, _, stderr) = fixture.run_as(ALICE, &["kill", "--expedite", &others]);
    assert_eq!(code, 4, "{stderr}");
    assert!(bobs.runs());
    // Named to the daemon without a signal: theirs or not, a living process stays as it is.
    let start_ns = |program: &Program| exact::stat(program.pid()).unwrap().start_ticks * 10_000_000;
    let mut alice = Caller::of(&fixture, ALICE);
    let named = |program: &Program| json!({"pid": program.pid(), "start_ns": start_ns(program)});
    let refused = alice.call("Expedite", &named(&bobs)).unwrap_err();
    assert!(refused.contains("NotPermitted"), "{refused}");
    assert_has(&alice.call("Expedite", &named(&alices)).unwrap(), &json!({"taken": false}));
    let later = json!({"pid": alices.pid(), "start_ns": start_ns(&alices) + 10_000_000});
    let refused = alice.call("Expedite", &later).unwrap_err();
    assert!(refused.contains("NotFound"), "{refused}");
    assert!(alices.runs() && bobs.runs());
    assert_eq!(freed(&fixture), 0);
    let (code, stdout, stderr) = fixture.run_as(ALICE, &["kill", "--expedite", "--json", &own]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_has(
        &told[0],
        &json!({"pid": alices.pid(), "comm": "python3", "result": "gone", "expedited": true}),
    );
    assert!(told[0]["freed_bytes"].as_u64().unwrap() >= 64 << 20 && told[0]["took_ns"].is_u64(), "{told}");
    alices.killed();
    fixture.ok(&["kill", "--expedite", &others]);
    bobs.killed();
    let daemon = fixture.daemon_pid().to_string();
    let (code, _, stderr) = fixture.run(&["kill", &daemon]);
    assert!(code == 2 && stderr.contains("plimsoll daemon"), "{stderr}");
    wait_for("all are counted", || freed(&fixture) == 2);
    fixture.assert_nobody_killed();
}
