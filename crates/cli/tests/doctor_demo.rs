//! `plimsoll doctor` and `plimsoll demo`, as a stranger meets them.
#![cfg(test)]

mod starting;
mod support;

use plimsoll_policy::units::Uid;
use plimsoll_wire::text::ProcessState;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use starting::{ALICE, assert_one_line};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use support::{SOON, exact, is_root, program::PYTHON, slowness, until, wait_for};

/// The demo's user.
const DEMO: u32 = 60_999;

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments);
    command
}

/// As another user, from a copy that every user can reach.
fn as_alice(folder: &Path, arguments: &[&str]) -> Output {
    let copy = folder.join("plimsoll");
    fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &copy).unwrap();
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &ALICE.to_string(), "--regid", &ALICE.to_string(), "--clear-groups", "--"]);
    command.arg(copy).args(arguments).output().unwrap()
}

fn feature<'a>(report: &'a Value, name: &str) -> &'a Value {
    let features = report["features"].as_array().unwrap();
    features.iter().find(|feature| feature["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// The fields that scripts rely on.
#[track_caller]
fn assert_report(report: &Value) {
    let top: BTreeSet<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert!(top.is_superset(&BTreeSet::from(["kernel", "features", "verdict"])), "{report}");
    assert!(report["kernel"].is_string() && report["verdict"].as_str().unwrap().ends_with('.'), "{report}");
    let mut names = BTreeSet::new();
    for feature in report["features"].as_array().unwrap() {
        assert!(names.insert(feature["name"].as_str().unwrap()), "{feature} is told twice");
        assert!(!feature["used_for"].as_str().unwrap().is_empty(), "{feature}");
        match &feature["present"] {
            Value::Bool(true) => {
                assert!(feature["fallback"].is_null() && feature["detail"].is_null(), "{feature}")
            }
            Value::Bool(false) => {
                assert!(feature["fallback"].is_string() && feature["detail"].is_string(), "{feature}")
            }
            // Could not be found out, and why.
            Value::Null => {
                assert!(feature["fallback"].is_null() && feature["detail"].is_string(), "{feature}")
            }
            Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => panic!("{feature}"),
        }
    }
}

#[test]
fn doctor_tells_every_feature_with_its_use_and_a_verdict() {
    let output = plimsoll(&["doctor", "--json"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_report(&report);
    assert_eq!(feature(&report, "pidfd")["present"], true);
    for name in ["BTF", "limits programs", "process_mrelease", "CAP_KILL", "swap"] {
        feature(&report, name);
    }
    let text = plimsoll(&["doctor"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("Kernel ") && text.contains("\nFEATURE "), "{text}");
    assert!(text.trim_end().ends_with(report["verdict"].as_str().unwrap()), "{text}");
}

#[test]
fn doctor_without_root_tells_what_it_can_and_says_what_it_cannot() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = as_alice(folder.path(), &["doctor", "--json"]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_report(&report);
    for name in ["limits programs", "selection programs", "working-set programs"] {
        assert_eq!(
            feature(&report, name)["present"],
            Value::Null,
            "{name}: what root would get is not known"
        );
    }
    let root: Value =
        serde_json::from_slice(&plimsoll(&["doctor", "--json"]).output().unwrap().stdout).unwrap();
    for name in ["BTF", "per-CPU page counters", "pidfd", "process_mrelease", "swap"] {
        assert_eq!(feature(&report, name)["present"], feature(&root, name)["present"], "{name}");
    }
    if feature(&root, "limits programs")["present"] == true {
        assert!(report["verdict"].as_str().unwrap().contains("sudo plimsoll doctor"), "{report}");
    }
}

/// Everything a demo could leave.
fn left_over() -> Vec<String> {
    let named = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries
            .map(|entry| entry.path().display().to_string())
            .filter(|path| path.contains("plimsoll-demo"))
            .collect()
    };
    let temporary = std::env::temp_dir();
    let mut left = [named("/sys/fs/bpf"), named(temporary.to_str().unwrap())].concat();
    for pid in exact::processes() {
        let of_demo = exact::status(pid)
            .is_some_and(|status| [status.real_uid, status.effective_uid].contains(&Some(Uid(DEMO))));
        let part = fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("plimsoll-demo"));
        if (of_demo || part) && exact::state(pid) != Some(ProcessState::Zombie) {
            left.push(format!("process {pid}"));
        }
    }
    left
}

#[track_caller]
fn assert_nothing_left() {
    // Who was killed with it may be a moment behind.
    wait_for("nothing is left of the demo", || left_over().is_empty());
}

#[test]
fn demo_shows_the_whole_story_in_time_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let began = Instant::now();
    let output = plimsoll(&["demo"]).output().unwrap();
    let (took, story) = (began.elapsed(), String::from_utf8(output.stdout).unwrap());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{story}");
    assert!(took < Duration::from_secs(15) * slowness(), "{took:?}: {story}");
    for part in [
        "The line is drawn at 256.0 MiB",
        "near: the soft limit is noticed",
        "(\"demo-hog\") was killed; it was using 256.",
        "the crosser lives",
        "Nothing is left",
    ] {
        assert!(story.contains(part), "'{part}' is not in: {story}");
    }
    let largest: Vec<_> = story.lines().filter(|line| line.contains("was killed;")).collect();
    let mib_after = |what: &str| -> f64 {
        let rest = story.split(what).nth(1).unwrap_or_else(|| panic!("'{what}' is not in: {story}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    // What the program has of its own, which depends on how it was built, is as much of the sleeper's as it was of the hog's.
    let own = mib_after(" 32 MiB [####............................] the guard counts") - 32.0;
    let sleeper = mib_after("(\"demo-sleeper\") was killed; it was using");
    assert!((sleeper - 160.0 - own).abs() < 0.15 && own < 2.0, "{sleeper} of 160 and {own}: {story}");
    assert!(
        largest[0].contains("in that very event")
            && (largest[1].contains("largest, so it was killed in that very event")
                || largest[1].contains("largest process was selected")),
        "{story}"
    );
    assert!(left_over().is_empty(), "{:?}", left_over());
    assert_drawn(&story);
}

/// The picture of README.md can be drawn from it.
#[track_caller]
fn assert_drawn(story: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/picture.awk");
    let mut draw = Command::new("awk");
    draw.args(["-f", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut draw = draw.spawn().unwrap();
    draw.stdin.take().unwrap().write_all(story.as_bytes()).unwrap();
    let drawn = draw.wait_with_output().unwrap();
    let picture = String::from_utf8(drawn.stdout).unwrap();
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    for part in [
        "demo-hog crosses: killed after ",
        " MiB were back ",
        "the largest, demo-sleeper, is killed",
        "</svg>",
    ] {
        assert!(picture.contains(part), "'{part}' is not in: {picture}");
    }
}

#[test]
fn demo_runs_beside_a_guarding_daemon_and_touches_nothing_of_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let before = starting::Kept::of(&fixture);
    let output = fixture.plimsoll(&["demo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(starting::Kept::of(&fixture), before);
    assert!(fixture.history().is_empty());
    fixture.workload(ALICE, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
}

/// A demo that has said something with this in it.
fn started(until_it_says: &str) -> Child {
    let mut demo = plimsoll(&["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let heard = lines.by_ref().map_while(Result::ok).any(|line| line.contains(until_it_says));
    assert!(heard, "the demo never says '{until_it_says}'");
    // Read on, so that it does not stop at a full or a closed pipe.
    std::thread::spawn(move || lines.count());
    demo
}

#[test]
fn a_demo_that_is_ended_early_cleans_up_wherever_it_is() {
    if !is_root() {
        return;
    }
    for (signal, moment) in [
        (Signal::INT, "Plimsoll demo"),
        (Signal::INT, "64 MiB"),
        (Signal::TERM, "demo-crosser"),
        (Signal::HUP, "A guard of its own"),
    ] {
        let mut demo = started(moment);
        kill_process(Pid::from_child(&demo), signal).unwrap();
        let status = until("the demo ends", SOON, || demo.try_wait().unwrap());
        let mut said = String::new();
        demo.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{signal:?} at '{moment}': {said}");
        assert_one_line(&said);
        assert!(left_over().is_empty(), "{signal:?} at '{moment}': {:?}", left_over());
    }
}

#[test]
fn a_demo_that_is_killed_leaves_nothing_either() {
    if !is_root() {
        return;
    }
    for moment in ["Plimsoll demo", "A guard of its own", "64 MiB", "demo-crosser"] {
        let mut demo = started(moment);
        demo.kill().unwrap();
        demo.wait().unwrap();
        assert_nothing_left();
    }
}

#[test]
fn a_reader_that_leaves_early_ends_the_demo_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    let mut demo = plimsoll(&["demo"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("Plimsoll demo"), "{first}");
    assert_eq!(until("the demo ends", SOON, || demo.try_wait().unwrap()).code(), Some(0));
    assert!(left_over().is_empty(), "{:?}", left_over());
}

#[test]
fn demo_wants_root_and_a_user_that_nobody_else_uses() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = as_alice(folder.path(), &["demo"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), &b""[..]));
    assert_one_line(&String::from_utf8(output.stderr).unwrap());
    let mut somebody = Command::new("setpriv");
    somebody.args(["--reuid", &DEMO.to_string(), "--clear-groups", "--pdeathsig", "KILL", "--"]);
    let mut somebody = somebody.args([PYTHON, "-c", "import time; time.sleep(60)"]).spawn().unwrap();
    wait_for("somebody uses the demo's user", || exact::uid_of(somebody.id()) == Some(DEMO));
    let output = plimsoll(&["demo"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{said}");
    assert_one_line(&said);
    assert!(said.contains(&somebody.id().to_string()), "{said}");
    assert!(somebody.try_wait().unwrap().is_none(), "it has been left alone");
    somebody.kill().unwrap();
    somebody.wait().unwrap();
}
