//! The machine guard with real processes: in a pid namespace of its own, so that it can see and signal nobody else, and
//! with a `/proc/meminfo` that tells what the test wants.
#![cfg(test)]

#[macro_use]
mod sandbox;
mod support;

use sandbox::{DIRE, Memory, PLENTY, SHORT, assert_incident, inside, pin_of};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant},
};
use support::{
    SOON, assert_has,
    program::{Program, workloads},
    until, wait_for,
};

#[test]
fn when_memory_is_short_the_largest_is_asked_to_end_and_nobody_else() {
    let sandbox = sandbox!("[machine]\n");
    let (mut small, _) = sandbox.process(16, "leave");
    let (mut large, large_pid) = sandbox.process(64, "leave");
    let (mut middle, _) = sandbox.process(32, "leave");
    sandbox.is(SHORT);
    large.stage("asked");
    let incident = &sandbox.incidents(1)[0];
    assert_incident(incident, "term", "machine-low-memory-term", large_pid);
    assert!(incident["victims"][0]["usage_bytes"].as_u64().unwrap() >= 64 << 20, "{incident}");
    assert!(incident["peers"].as_array().unwrap().len() >= 2, "{incident}");
    // Who was asked made room, so that is all.
    sandbox.assert_quiet(1, Duration::from_millis(1500));
    assert!(small.runs() && middle.runs());
    let told = sandbox.run(&["why"]).1;
    assert!(told.contains("the machine was short of memory") && told.contains("asked to end"), "{told}");
    assert!(sandbox.log().contains(&format!("sent SIGTERM to process {large_pid}")), "{}", sandbox.log());
}

#[test]
fn who_does_not_listen_is_killed_after_the_grace_period_and_only_then_is_there_another() {
    let sandbox = sandbox!("[machine]\nterm_grace_ms = 800\n");
    let (_stubborn, stubborn_pid) = sandbox.process(64, "signal.SIG_IGN");
    let (mut next, next_pid) = sandbox.process(32, "leave");
    let began = Instant::now();
    sandbox.is(SHORT);
    assert_incident(&sandbox.incidents(1)[0], "term", "machine-low-memory-term", stubborn_pid);
    let first = sandbox.incidents(2)[1].clone();
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
    assert_incident(&first, "kill", "machine-term-deadline-passed", stubborn_pid);
    next.stage("asked");
    let all = sandbox.incidents(3);
    assert_incident(&all[2], "term", "machine-low-memory-term", next_pid);
    sandbox.assert_quiet(3, Duration::from_millis(500));
}

#[test]
fn when_memory_is_nearly_gone_nobody_is_asked_first() {
    let sandbox = sandbox!("[machine]\n");
    let (_large, large_pid) = sandbox.process(48, "leave");
    let (_small, small_pid) = sandbox.process(16, "leave");
    sandbox.is(DIRE);
    let all = sandbox.incidents(3);
    assert_incident(&all[0], "kill", "machine-low-memory-kill", large_pid);
    assert_incident(&all[1], "kill", "machine-low-memory-kill", small_pid);
    // Then nobody is left but the daemon and the namespace's first process, and that is said once and not again at once.
    assert_has(&all[2], &json!({"reason": "machine-only-protected-left", "victims": []}));
    sandbox.assert_quiet(3, Duration::from_secs(1));
    assert!(sandbox.json(&["status"]).is_some());
}

#[test]
fn a_shortage_that_gets_worse_ends_the_grace_period() {
    let sandbox = sandbox!("[machine]\nterm_grace_ms = 30000\n");
    let (_stubborn, pid) = sandbox.process(48, "signal.SIG_IGN");
    sandbox.is(SHORT);
    assert_incident(&sandbox.incidents(1)[0], "term", "machine-low-memory-term", pid);
    sandbox.is(DIRE);
    assert_incident(&sandbox.incidents(2)[1], "kill", "machine-low-memory-kill", pid);
    sandbox.is(PLENTY);
    until("nobody is dying", SOON, || {
        (sandbox.json(&["status"])?["guards"]["pressure"]["dying"] == 0).then_some(())
    });
}

#[test]
fn neither_memory_that_comes_back_nor_free_swap_ends_anybody() {
    let sandbox = sandbox!("[machine]\nnotice = false\nreclaim = false\n");
    let (mut process, _) = sandbox.process(48, "leave");
    for available_mib in [130, 200, 900, 4000] {
        sandbox.is(Memory { available_mib, ..PLENTY });
        sandbox.assert_quiet(0, Duration::from_millis(300));
    }
    // Available memory is gone, and swap is there.
    sandbox.is(Memory { swap_total_mib: 2048, swap_free_mib: 1024, ..DIRE });
    sandbox.assert_quiet(0, Duration::from_millis(1500));
    assert!(process.runs());
    sandbox.is(Memory { swap_total_mib: 2048, swap_free_mib: 150, ..SHORT });
    process.stage("asked");
    assert_eq!(sandbox.incidents(1)[0]["action"], "term");
}

#[test]
fn what_meminfo_does_not_tell_is_said_and_ends_nobody() {
    let sandbox = sandbox!("[machine]\n");
    let (mut process, pid) = sandbox.process(48, "leave");
    let without = |name: &str| -> String {
        SHORT.text().lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect()
    };
    for (meminfo, told) in [
        (without("MemAvailable:"), "MemAvailable"),
        (without("AnonPages:"), "AnonPages"),
        (without("SwapTotal:"), "SwapTotal"),
        ("MemTotal: lots\nMemAvailable: none\n".to_owned(), "meminfo"),
        (String::new(), "meminfo"),
    ] {
        sandbox.tells(&meminfo);
        wait_for(&format!("'{told}' is said to be missing"), || sandbox.log().contains(told));
        sandbox.assert_quiet(0, Duration::from_millis(1200));
    }
    assert!(process.runs());
    // It guards again as soon as it can tell again.
    sandbox.is(SHORT);
    process.stage("asked");
    assert_incident(&sandbox.incidents(1)[0], "term", "machine-low-memory-term", pid);
}

#[test]
fn a_protected_executable_is_passed_over_and_said_to_be() {
    let chill = workloads().join("chill");
    let folder = tempfile::tempdir().unwrap();
    let protected = folder.path().join("chill");
    fs::copy(chill, &protected).unwrap();
    let sandbox = sandbox!(&format!("[machine]\n[protect]\nexe = [{protected:?}]\n"));
    let mut large = Program::of(inside(sandbox.init_pid).arg(&protected).arg("--mebibytes=64")).ready();
    let (mut small, small_pid) = sandbox.process(16, "leave");
    sandbox.is(SHORT);
    small.stage("asked");
    assert_incident(&sandbox.incidents(1)[0], "term", "machine-low-memory-term", small_pid);
    sandbox.assert_quiet(1, Duration::from_millis(500));
    assert!(large.runs());
}

#[test]
fn a_spike_that_ends_in_time_ends_nobody_and_one_that_lasts_does() {
    let sandbox = sandbox!("[machine]\nnotice = false\nspike_ms = 1500\n");
    let (mut large, large_pid) = sandbox.process(64, "leave");
    sandbox.is(SHORT);
    std::thread::sleep(Duration::from_millis(700));
    sandbox.is(PLENTY);
    sandbox.assert_quiet(0, Duration::from_millis(2000));
    let began = Instant::now();
    sandbox.is(SHORT);
    large.stage("asked");
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    assert_incident(&sandbox.incidents(1)[0], "term", "machine-low-memory-term", large_pid);
}

#[test]
fn it_sleeps_longer_the_more_memory_there_is() {
    let sandbox = sandbox!("[machine]\nnotice = false\n");
    let looks_in_3_s = || {
        let wake_ups = || sandbox.json(&["status"]).unwrap()["guards"]["own"]["wake_ups"].as_u64().unwrap();
        let before = wake_ups();
        std::thread::sleep(Duration::from_secs(3));
        wake_ups() - before
    };
    // More than 16 CPUs fill in a second; the two questions wake it too.
    sandbox.is(Memory { available_mib: 200_000, ..PLENTY });
    let far = looks_in_3_s();
    assert!((2..=7).contains(&far), "woken {far} times in 3 s with plenty of memory");
    // Just above the threshold it looks every 100 ms.
    sandbox.is(Memory { available_mib: 130, ..PLENTY });
    let near = looks_in_3_s();
    assert!((15..=40).contains(&near), "woken {near} times in 3 s close to the threshold");
    assert!(sandbox.history().is_empty());
}

#[test]
fn in_a_pid_namespace_lines_are_refused_in_one_line_and_the_machine_is_guarded() {
    let sandbox = sandbox!("[machine]\n");
    assert_eq!(sandbox.log().matches("no lines can be drawn").count(), 1, "{}", sandbox.log());
    let (code, _, said) = sandbox.run(&["limit", "set", "60153", "64M"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("initial pid namespace") && said.matches('\n').count() == 1, "{said}");
    assert_eq!(sandbox.json(&["limit", "show"]).unwrap(), serde_json::json!([]));
    assert!(!sandbox.folder.path().join("state/limits.json").exists());
    assert!(!pin_of(sandbox.folder.path()).exists());
    let status = sandbox.json(&["status"]).unwrap();
    assert_has(&status, &json!({"kernel": {"attached": false}, "guards": {"pressure": {"state": "on"}}}));
}
