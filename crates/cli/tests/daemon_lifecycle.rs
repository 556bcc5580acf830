//! A daemon's life: it starts once, reloads, ends with everything, crashes with nothing lost, and comes back.
#![cfg(test)]

mod starting;
mod support;

use rustix::process::Signal;
use serde_json::json;
use starting::{ALICE, BOB, Kept, Places, assert_one_line, assert_refused, refused};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    process::{Command, Stdio},
    time::Duration,
};
use support::{Fixture, SOON, assert_has, exact, until, wait_for};

/// A process of Alice's that crosses a line of 32 MiB.
#[track_caller]
fn assert_alices_line_holds(fixture: &Fixture) {
    fixture.workload(ALICE, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
}

/// Whether a process has this among its arguments.
fn is_running_with(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command_lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    command_lines
        .into_iter()
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

#[track_caller]
fn wait_for_log(fixture: &Fixture, text: &str) {
    wait_for(&format!("the log says '{text}'"), || fixture.log().contains(text));
}

#[test]
fn either_signal_ends_it_with_status_0_and_nothing_left() {
    let mut fixture = fixture!();
    for signal in [Signal::TERM, Signal::INT] {
        fixture.limit(ALICE, "32M", &[]);
        assert!(fixture.pin().join("links/on_rss_stat").exists());
        let status = fixture.end_daemon(signal);
        assert_eq!(status.code(), Some(0), "{}", fixture.log());
        assert!(!fixture.pin().exists() && !fixture.path("socket").exists());
        assert_eq!(fixture.run(&["status"]).0, 3);
        fixture.launch();
    }
    // Nothing stands in the way of another one, and the saved line is in force again.
    assert_alices_line_holds(&fixture);
}

#[test]
fn a_stop_in_the_middle_of_loading_leaves_nothing_behind() {
    let mut fixture = fixture!();
    // The programs take about half a second to load: before, in the middle of it, and at its end.
    for delay_ms in [30, 150, 400] {
        let mut setting = fixture.plimsoll(&["limit", "set", &ALICE.to_string(), "32M"]);
        let mut setting = setting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        assert_eq!(fixture.end_daemon(Signal::TERM).code(), Some(0), "{}", fixture.log());
        setting.wait().unwrap();
        let left = fs::read_dir(fixture.path("")).unwrap().flatten().map(|entry| entry.file_name());
        let ours = |name: &str| name.contains("sock");
        let left: Vec<_> =
            left.filter_map(|name| name.into_string().ok()).filter(|name| ours(name)).collect();
        assert!(left.is_empty(), "sockets and their locks: {left:?}");
        // A loader that had been left alone would be done within this.
        for _ in 0..40 {
            assert!(
                !fixture.pin().exists(),
                "stopped after {delay_ms} ms, and {} is there",
                fixture.pin().display()
            );
            std::thread::sleep(Duration::from_millis(25));
        }
        fs::remove_file(fixture.path("state/limits.json")).ok();
        fixture.launch();
    }
}

#[test]
fn a_reload_takes_what_is_good_and_a_bad_one_changes_nothing() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    fixture.configure(&format!("[limits]\nusers = {{ {BOB} = {{ hard = \"48M\", action = \"term\" }} }}\n"));
    fixture.signal(Signal::HUP);
    let bob = until("Bob's line is drawn", SOON, || fixture.account(BOB));
    assert_has(&bob, &json!({"hard_bytes": 48 << 20, "source": "config"}));
    let before = Kept::of(&fixture);
    for (bad, told) in [
        ("[limits]\nusrs = {}\n", "plimsoll.toml:4"),
        ("[limits\n", "plimsoll.toml:3"),
        ("[limits]\nusers = { nobody-of-that-name = { hard = \"1G\" } }\n", "nobody-of-that-name"),
        ("[limits]\ndefault = { hard = \"999T\" }\n", "RAM"),
    ] {
        fixture.configure(bad);
        fixture.signal(Signal::HUP);
        wait_for_log(&fixture, told);
        assert_eq!(Kept::of(&fixture), before, "{bad}");
    }
    assert_eq!(fixture.log().matches("the configuration stays as it was").count(), 4, "{}", fixture.log());
    fixture.configure("");
    fixture.signal(Signal::HUP);
    wait_for("Bob's line is gone", || fixture.account(BOB).is_none());
    assert_eq!(fixture.account(ALICE).unwrap()["hard_bytes"], 64 << 20);
}

#[test]
fn a_second_daemon_in_the_first_ones_places_is_turned_away_and_the_first_unharmed() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let before = Kept::of(&fixture);
    let (own, beside) = (Places::of(&fixture), Places::beside(&fixture));
    for (places, named) in [
        (own.clone(), "another plimsoll daemon"),
        (Places { pin: own.pin.clone(), ..beside.clone() }, "another plimsoll daemon guards with"),
        (Places { state: own.state.clone(), ..beside.clone() }, "state"),
        (Places { socket: own.socket.clone(), ..beside.clone() }, "socket"),
    ] {
        assert_refused(places.command(), named);
        assert_eq!(Kept::of(&fixture), before, "{places:?}");
        assert!(!beside.pin.exists(), "{places:?}");
    }
    assert_alices_line_holds(&fixture);
    assert_eq!(fixture.incidents(1).len(), 1);
}

#[test]
fn two_daemons_with_places_of_their_own_run_side_by_side() {
    let fixture = fixture!();
    let beside = Places::beside(&fixture);
    let mut second =
        beside.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = beside.socket.to_str().unwrap();
    wait_for("the second answers", || fixture.run(&["status", "--socket", socket]).0 == 0);
    fixture.ok(&["limit", "set", &BOB.to_string(), "32M", "--socket", socket]);
    fixture.limit(ALICE, "32M", &[]);
    assert!(fixture.account(BOB).is_none());
    fixture.workload(BOB, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    assert_alices_line_holds(&fixture);
    rustix::process::kill_process(rustix::process::Pid::from_child(&second), Signal::TERM).unwrap();
    assert_eq!(until("the second ends", SOON, || second.try_wait().unwrap()).code(), Some(0));
    assert!(!beside.pin.exists());
    assert_alices_line_holds(&fixture);
    assert_eq!(fixture.incidents(2).len(), 2);
}

#[test]
fn a_daemon_that_can_draw_no_lines_removes_nothing_of_one_that_can() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let places = Places { pin: fixture.pin().to_path_buf(), ..Places::beside(&fixture) };
    // In a pid namespace of its own it must not draw lines, and does not even ask whose pins these are. It is sent
    // SIGTERM when what started it ends.
    let mut contained = Command::new("unshare");
    contained.args(["--pid", "--mount", "--fork", "--kill-child=TERM", "--mount-proc"]);
    contained.arg(env!("CARGO_BIN_EXE_plimsoll"));
    places.add_to(&mut contained);
    let log = fs::File::create(fixture.path("other-log")).unwrap();
    let mut contained = contained.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let socket = places.socket.to_str().unwrap();
    wait_for("the contained daemon answers", || fixture.run(&["status", "--socket", socket]).0 == 0);
    contained.kill().unwrap();
    contained.wait().unwrap();
    wait_for("the contained daemon ends", || !is_running_with(socket));
    assert!(fixture.pin().join("links/on_rss_stat").exists());
    assert_alices_line_holds(&fixture);
}

#[test]
fn a_crash_changes_nothing_and_the_next_daemon_takes_over() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut calm = fixture.workload(ALICE, "chill", &["--mebibytes=8"]).ready();
    let link = || fs::metadata(fixture.pin().join("links/on_rss_stat")).unwrap().ino();
    let (before, attached, usage) = (Kept::of(&fixture), link(), fixture.usage_pages(ALICE));
    fixture.end_daemon(Signal::KILL);
    assert_eq!(fixture.run(&["limit", "show"]).0, 3);
    // Nobody but the kernel is left to hold the line now.
    assert_alices_line_holds(&fixture);
    fixture.launch();
    assert_eq!(
        fs::metadata(fixture.pin().join("links/on_rss_stat")).unwrap().ino(),
        attached,
        "attached anew"
    );
    // An account that was near stays so for a second.
    until("it is far again", SOON, || (fixture.account(ALICE)?["near"] == false).then_some(()));
    assert_eq!((Kept::of(&fixture), fixture.usage_pages(ALICE)), (before, usage));
    assert!(calm.runs());
    // What happened meanwhile is told now.
    let incidents = fixture.incidents(1);
    assert_has(&incidents[0], &json!({"trigger": "in-kernel", "action": "kill"}));
    assert_alices_line_holds(&fixture);
    assert_eq!(fixture.incidents(2).len(), 2);
}

#[test]
fn a_daemon_that_does_not_get_to_run_leaves_what_a_crashed_one_left_in_force() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    fixture.end_daemon(Signal::KILL);
    let own = Places::of(&fixture);
    let nowhere = Places { socket: fixture.path("log").join("socket"), ..own.clone() };
    assert_refused(nowhere.command(), "/log");
    fs::write(fixture.path("state/limits.json"), "{").unwrap();
    assert_refused(own.command(), "limits.json");
    assert!(fixture.pin().join("links/on_rss_stat").exists());
    assert_alices_line_holds(&fixture);
}

#[test]
fn stop_guarding_removes_what_a_crash_left_and_nothing_of_a_running_daemons() {
    let mut fixture = fixture!();
    let pin = fixture.pin().to_str().unwrap().to_owned();
    let stop = ["daemon", "--stop-guarding", "--pin", pin.as_str()];
    fixture.limit(ALICE, "32M", &[]);
    let (code, _, said) = fixture.run(&stop);
    assert_eq!(code, 1);
    assert_one_line(&said);
    assert_alices_line_holds(&fixture);
    fixture.end_daemon(Signal::KILL);
    assert!(fixture.pin().join("links").exists());
    assert_eq!(fixture.run(&stop).0, 0);
    assert!(!fixture.pin().exists());
    // Nothing holds Alice now, and a second time there is nothing to do.
    let mut free = fixture.workload(ALICE, "bloat", &["--mebibytes=48", "--no-thp"]).filled();
    free.stop();
    assert_eq!(fixture.run(&stop), (0, String::new(), String::new()));
    fixture.launch();
    assert_alices_line_holds(&fixture);
}

#[test]
fn saved_lines_come_back_and_percentages_stay_percentages() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "10%", &["--soft", "50%", "--action", "term"]);
    fixture.limit(BOB, "1.5G", &[]);
    fixture.ok(&["limit", "set", "default", "25%"]);
    let before = Kept::of(&fixture);
    let saved = fs::read_to_string(fixture.path("state/limits.json")).unwrap();
    assert!(saved.contains("10%") && saved.contains("25%"), "{saved}");
    fixture.end_daemon(Signal::TERM);
    fixture.launch();
    assert_eq!(Kept::of(&fixture), before);
    let total = exact::number("/proc/meminfo", "MemTotal");
    let hard = fixture.account(ALICE).unwrap()["hard_bytes"].as_u64().unwrap();
    assert!((total * 1024 / 10).abs_diff(hard) < 4096, "{hard} of {total} KiB");
    fixture.ok(&["limit", "clear", &BOB.to_string()]);
    fixture.end_daemon(Signal::KILL);
    fixture.launch();
    assert!(fixture.account(BOB).is_none() && fixture.account(ALICE).is_some());
}

#[test]
fn whoever_is_not_root_is_told_so_and_nothing_is_made() {
    let fixture = fixture!();
    let plimsoll = fixture.path("plimsoll");
    fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &plimsoll).unwrap();
    let beside = Places::beside(&fixture);
    let mut start = fixture.as_user(ALICE, &plimsoll);
    beside.add_to(&mut start);
    let mut stop = fixture.as_user(ALICE, &plimsoll);
    stop.args(["daemon", "--stop-guarding", "--pin"]).arg(fixture.pin());
    for command in [start, stop] {
        let (code, said) = refused(command);
        assert_eq!(code, 4, "{said}");
        assert_one_line(&said);
        assert!(said.contains("not permitted"), "{said}");
    }
    assert!(!beside.state.exists() && !beside.pin.exists() && !beside.socket.exists());
}
