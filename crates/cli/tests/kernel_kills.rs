//! Kills of the kernel's own OOM killer come into the history: real ones, at limits of small cgroups.
#![cfg(test)]

mod support;

use plimsoll_policy::units::Pid;
use plimsoll_sys::kernel_log::KernelLog;
use plimsoll_wire::text::{ReportPart, find_report};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use support::{Fixture, SOON, assert_has, cgroup::Cgroup, program::Program, until, wait_for};

/// One user of these tests.
const FAY: u32 = 60_640;
/// Another.
const GUS: u32 = 60_641;

/// Takes more than any limit of these tests when it is told to, and no more than 64 MiB.
const HOG: &str = "say('ready')\nhear()\nmemory = bytearray(b'x') * (64 << 20)\nsay('alive')\nhear()\n";

/// Enough for the interpreter, and a kill costs the machine no more.
const LIMIT_MIB: u32 = 16;

fn hog(fixture: &Fixture, user: u32, cgroup: &Cgroup) -> Program {
    let hog = fixture.python(user, HOG).ready();
    cgroup.take(hog.pid());
    hog
}

/// The kernel's kills are heard of from then on.
#[track_caller]
fn hears(fixture: &Fixture) {
    wait_for("kills of the kernel are heard of", || {
        let words = fixture.status()["guards"]["others"]["kernel"].as_str().unwrap().to_owned();
        assert!(!words.starts_with("not heard"), "{words}");
        words.starts_with("on: ")
    });
}

fn of_pid(history: &[Value], pid: u32) -> Vec<Value> {
    let ours = |one: &&Value| one["victims"].as_array().unwrap().iter().any(|victim| victim["pid"] == pid);
    history.iter().filter(ours).cloned().collect()
}

/// The one incident of a process.
#[track_caller]
fn incident(fixture: &Fixture, pid: u32) -> Value {
    until("the kill is in the history", SOON, || {
        let found = of_pid(&fixture.history(), pid);
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    })
}

#[track_caller]
fn assert_told(one: &Value, pid: u32, user: u32, cgroup: &Cgroup) {
    assert_has(one, &json!({"guard": "kernel", "trigger": "kernel", "action": "kill"}));
    let victim = &one["victims"][0];
    assert_has(victim, &json!({"pid": pid, "uid": user}));
    assert_eq!(
        (victim["comm"].as_str(), victim["cgroup"].as_str()),
        (Some("python3"), Some(cgroup.path())),
        "{one}"
    );
    let usage = victim["usage_bytes"].as_u64().unwrap() >> 20;
    // What it had before it was moved there is charged where it was.
    assert!((4..=2 * u64::from(LIMIT_MIB)).contains(&usage), "{one}");
    assert!(victim["start_ns"].as_u64().unwrap() > 0, "{one}");
}

#[test]
fn a_kill_at_a_cgroup_s_limit_is_told_with_its_victim_and_why() {
    let fixture = fixture!();
    let Some(cgroup) = Cgroup::limited("one", LIMIT_MIB) else { return };
    hears(&fixture);
    let mut hog = hog(&fixture, FAY, &cgroup);
    let pid = hog.pid();
    hog.tell("now");
    hog.killed();
    let one = incident(&fixture, pid);
    assert_told(&one, pid, FAY, &cgroup);
    assert_eq!(one["account"], format!("user:{FAY}"));
    assert_eq!(one["origin"]["invoker"]["pid"], pid);
    if fixture.status()["guards"]["others"]["kernel"].as_str().unwrap().contains("own report") {
        assert_has(&one, &json!({"reason": "kernel-cgroup-limit", "origin": {"scope": "cgroup"}}));
        assert_has(&one, &json!({"origin": {"cgroup": cgroup.path(), "cause": "memcg-limit"}}));
        assert_eq!(one["origin"]["order"], 0);
        let story = fixture.ok(&["why", &format!("pid:{pid}")]);
        assert!(story.contains(&format!("the cgroup {} was at its memory limit", cgroup.path())), "{story}");
        assert!(story.contains("was killed; it held"), "{story}");
    }
    // One line for the journal, as for any kill.
    wait_for("the journal has it", || fixture.log().contains("the kernel's OOM killer ended process"));
}

#[test]
fn a_user_sees_their_own_and_nobody_else_s() {
    let fixture = fixture!();
    let Some(cgroup) = Cgroup::limited("two", LIMIT_MIB) else { return };
    hears(&fixture);
    let mut hog = hog(&fixture, FAY, &cgroup);
    let pid = hog.pid();
    hog.tell("now");
    hog.killed();
    incident(&fixture, pid);
    let seen = |user: u32| {
        let (code, told, error) = fixture.run_as(user, &["history", "--json"]);
        assert_eq!(code, 0, "{error}");
        of_pid(serde_json::from_str::<Value>(&told).unwrap().as_array().unwrap(), pid)
    };
    assert_eq!(seen(FAY)[0]["origin"]["cgroup"], incident(&fixture, pid)["origin"]["cgroup"]);
    assert!(seen(GUS).is_empty());
}

/// What the kernel's log has of these processes since it was opened: whether there is a whole report, or only the line that
/// names each. Empty where it cannot be read.
fn reported(log: Option<KernelLog>, pids: &[u32]) -> Vec<(u32, bool)> {
    let mut parts = Vec::new();
    if let Some(mut log) = log {
        log.read(|record| parts.extend(record.by_kernel.then(|| ReportPart::of(record.text)))).unwrap();
    }
    let find =
        |pid: u32| find_report(parts.iter().copied(), Pid(pid)).map(|span| (pid, span.first.is_some()));
    pids.iter().filter_map(|pid| find(*pid)).collect()
}

/// Each has scope and cause as far as the kernel wrote them, whichever others died at the same time.
#[track_caller]
fn assert_reasons(history: &[Value], reported: &[(u32, bool)]) {
    for (pid, whole) in reported {
        let found = of_pid(history, *pid);
        let origin = &found[0]["origin"];
        assert_eq!(
            (&found[0]["reason"], &origin["scope"]),
            (&"kernel-cgroup-limit".into(), &"cgroup".into())
        );
        // What this test read too late may have been overwritten for it alone.
        if *whole {
            assert_eq!(origin["cause"], "memcg-limit", "{origin}");
            assert_eq!(origin["cgroup"], found[0]["victims"][0]["cgroup"], "the report of another");
        }
    }
}

/// Has so many killed at once; how long after its kill each was seen in the history, and of how many the kernel wrote a
/// report.
fn at_once(fixture: &Fixture, count: usize, names: &str) -> Option<(Vec<Duration>, usize)> {
    let cgroups: Option<Vec<Cgroup>> =
        (0..count).map(|index| Cgroup::limited(&format!("{names}{index}"), LIMIT_MIB)).collect();
    let cgroups = cgroups?;
    let mut hogs: Vec<Program> = cgroups.iter().map(|cgroup| hog(fixture, FAY, cgroup)).collect();
    let kernel_log = KernelLog::open().ok();
    for hog in &mut hogs {
        hog.tell("now");
    }
    let mut delays: Vec<Option<Duration>> = vec![None; count];
    // Reading the store itself costs the daemon no time.
    until("all are in the store", SOON * 3, || {
        let stored = stored(&fixture.path("state/incidents.sqlite"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for (hog, delay) in hogs.iter().zip(&mut delays) {
            let mark = format!("\"victims\":[{{\"pid\":{},", hog.pid());
            if let (Some(body), None) = (stored.iter().find(|body| body.contains(&mark)), &delay) {
                *delay = Some(now.saturating_sub(written(&serde_json::from_str(body).unwrap())));
            }
        }
        delays.iter().all(Option::is_some).then_some(())
    });
    let pids: Vec<u32> = hogs.iter().map(Program::pid).collect();
    // Who else died meanwhile is in there, too.
    let history = until("all are in the history", SOON, || {
        Some(fixture.history()).filter(|history| pids.iter().all(|pid| !of_pid(history, *pid).is_empty()))
    });
    let mut whole = 0;
    if fixture.status()["guards"]["others"]["kernel"].as_str().unwrap().contains("own report") {
        let reported = reported(kernel_log, &pids);
        assert_reasons(&history, &reported);
        whole = reported.iter().filter(|(_, whole)| *whole).count();
    }
    for (hog, cgroup) in hogs.iter_mut().zip(&cgroups) {
        hog.killed();
        let found = of_pid(&history, hog.pid());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_told(&found[0], hog.pid(), FAY, cgroup);
    }
    Some((delays.into_iter().collect::<Option<_>>()?, whole))
}

/// The incidents of a store, as JSON.
fn stored(path: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.busy_timeout(SOON).unwrap();
    let mut statement = connection.prepare("SELECT body FROM incident").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn written(incident: &Value) -> Duration {
    let time: jiff::Timestamp = incident["time"].as_str().unwrap().parse().unwrap();
    Duration::from_nanos(time.as_nanosecond().try_into().unwrap())
}

#[test]
fn twenty_kills_at_once_are_all_told() {
    let fixture = fixture!();
    hears(&fixture);
    let (mut delays, mut reports) = (Vec::new(), 0);
    for round in 0..support::fewer(5) {
        let Some((these, whole)) = at_once(&fixture, 20, &format!("r{round}-")) else { return };
        delays.extend(these);
        reports += whole;
    }
    delays.sort();
    println!(
        "{} kills, {reports} with a report of the kernel's: in the history after {:?} (median), {:?} (longest)",
        delays.len(),
        delays[delays.len() / 2],
        delays[delays.len() - 1]
    );
}

#[test]
fn kills_made_while_no_daemon_lived_are_told_once_by_the_next_one() {
    let mut fixture = fixture!();
    let Some(cgroup) = Cgroup::limited("dead", LIMIT_MIB) else { return };
    hears(&fixture);
    let mut before = hog(&fixture, FAY, &cgroup);
    before.tell("now");
    before.killed();
    incident(&fixture, before.pid());
    fixture.end_daemon(Signal::KILL);
    let mut meanwhile = hog(&fixture, GUS, &cgroup);
    let pid = meanwhile.pid();
    meanwhile.tell("now");
    meanwhile.killed();
    fixture.launch();
    assert_told(&incident(&fixture, pid), pid, GUS, &cgroup);
    // And again: neither is told a second time.
    fixture.end_daemon(Signal::KILL);
    fixture.launch();
    hears(&fixture);
    let mut after = hog(&fixture, FAY, &cgroup);
    after.tell("now");
    after.killed();
    incident(&fixture, after.pid());
    assert_eq!(fixture.history().len(), 3, "{:?}", fixture.history());
}

/// More than there is room for while nobody reads: those that found room are told one by one, the others by their number.
#[test]
fn kills_that_found_no_room_are_told_by_their_number() {
    const KILLS: u64 = 230;
    if support::slowness() > 1 {
        return support::skip("it takes a minute in an emulated guest, and nothing of it is the kernel's");
    }
    let mut fixture = fixture!();
    let Some(cgroup) = Cgroup::limited("many", LIMIT_MIB) else { return };
    hears(&fixture);
    fixture.end_daemon(Signal::KILL);
    let mut shell = fixture.as_user(FAY, "sh");
    let script =
        "read -r go; for i in $(seq $1); do dd if=/dev/zero of=/dev/null bs=64M count=1; done; echo over";
    shell.args(["-c", script, "sh", &KILLS.to_string()]).stderr(Stdio::null());
    let mut shell = Program::of(shell);
    cgroup.take(shell.pid());
    shell.tell("go");
    shell.stage("over");
    fixture.launch();
    let told = until("all are told", SOON, || {
        let history = fixture.history();
        let victims =
            history.iter().filter(|one| one["victims"].as_array().is_some_and(|all| !all.is_empty()));
        let unrecorded: Vec<u64> = history.iter().filter_map(|one| one["unrecorded"].as_u64()).collect();
        let one_by_one = victims.count() as u64;
        (one_by_one + unrecorded.iter().sum::<u64>() >= KILLS).then_some((one_by_one, unrecorded))
    });
    // As many as there is room for in 256 KiB.
    assert_eq!(told, (217, vec![KILLS - 217]));
}

#[test]
fn a_clean_stop_leaves_no_program_behind() {
    let mut fixture = fixture!();
    hears(&fixture);
    assert!(fixture.pin().join("oom").exists());
    assert!(fixture.end_daemon(Signal::TERM).success());
    assert!(!fixture.pin().exists());
}
