//! The last defence with a real daemon: whom the kernel's own OOM killer would take, and that it is put back. What needs
//! systemd and cgroup v2 is tested with made ones in the daemon's unit tests, and in the lab.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use std::fs;
use support::{Fixture, SOON, exact, program::Program, until, wait_for};

/// One user of these tests.
const DORA: u32 = 60_140;
/// Another.
const EMIL: u32 = 60_141;

/// Holds so many mebibytes until it hears a line, then gives them back.
fn holder(fixture: &Fixture, user: u32, mebibytes: u32) -> Program {
    let script = format!(
        "memory = bytearray(b'x') * ({mebibytes} << 20)\nsay('holds')\nhear()\ndel memory\nsay('freed')\nhear()\n"
    );
    let mut program = fixture.python(user, &script);
    program.stage("holds");
    program
}

fn free(program: &mut Program) {
    program.tell("free");
    program.stage("freed");
}

fn adjustment(program: &Program) -> i32 {
    exact::oom_score_adj(program.pid()).unwrap()
}

/// What the programs of this test have by themselves.
fn own() -> i32 {
    exact::oom_score_adj(std::process::id()).unwrap()
}

fn limit(fixture: &Fixture, user: u32) {
    fixture.limit(user, "200M", &["--soft", "60M"]);
}

/// Waits until a program is raised.
#[track_caller]
fn raised(program: &Program) -> i32 {
    until("the process is raised", SOON, || Some(adjustment(program)).filter(|now| *now > own()))
}

#[track_caller]
fn put_back(program: &Program) {
    wait_for("the process is put back", || adjustment(program) == own());
}

fn said(fixture: &Fixture) -> String {
    fixture.status()["triggers"]["last-defence"].as_str().unwrap().to_owned()
}

#[test]
fn the_largest_process_of_a_near_account_is_raised_and_put_back_when_it_is_far() {
    let fixture = fixture!();
    limit(&fixture, DORA);
    assert!(said(&fixture).contains("nobody is raised"), "{}", said(&fixture));
    let small = holder(&fixture, DORA, 10);
    let mut large = holder(&fixture, DORA, 70);
    raised(&large);
    assert_eq!(adjustment(&small), own());
    wait_for("status tells", || said(&fixture).contains("1 process is raised"));
    free(&mut large);
    put_back(&large);
    wait_for("status tells", || said(&fixture).contains("nobody is raised"));
}

/// Who becomes the largest takes the place of who was.
#[track_caller]
fn assert_it_points_to_the_largest(fixture: &Fixture) {
    limit(fixture, DORA);
    let first = holder(fixture, DORA, 70);
    raised(&first);
    let second = holder(fixture, DORA, 100);
    raised(&second);
    put_back(&first);
}

#[test]
fn who_becomes_the_largest_takes_the_place_of_who_was() {
    assert_it_points_to_the_largest(&fixture!());
}

#[test]
fn a_user_under_the_default_line_is_looked_after_too() {
    let fixture = fixture!(
        "[limits]\nuid_min = 60141\nuid_max = 60141\n\
        default = { hard = \"200M\", soft = \"60M\" }\n"
    );
    let outside = holder(&fixture, DORA, 70);
    let under = holder(&fixture, EMIL, 70);
    raised(&under);
    assert_eq!(adjustment(&outside), own());
}

#[test]
fn what_somebody_changed_meanwhile_is_left_as_it_is() {
    let mut fixture = fixture!();
    limit(&fixture, DORA);
    let mut large = holder(&fixture, DORA, 70);
    let theirs = raised(&large) + 77;
    fs::write(format!("/proc/{}/oom_score_adj", large.pid()), theirs.to_string()).unwrap();
    // Two looks later it is still theirs.
    wait_for("the daemon has looked again", || {
        fixture.account(DORA).unwrap();
        fixture.status()["guards"]["own"]["wake_ups"].as_u64().unwrap() > 10
    });
    assert_eq!(adjustment(&large), theirs);
    free(&mut large);
    fixture.end_daemon(Signal::TERM);
    assert_eq!(adjustment(&large), theirs);
}

#[test]
fn a_clean_stop_puts_everything_back() {
    let mut fixture = fixture!();
    limit(&fixture, DORA);
    let large = holder(&fixture, DORA, 70);
    raised(&large);
    assert!(fixture.end_daemon(Signal::TERM).success());
    assert_eq!(adjustment(&large), own());
    assert!(!fixture.path("state/last-defence.json").exists());
}

#[test]
fn the_next_daemon_puts_back_what_a_killed_one_had_raised() {
    let mut fixture = fixture!();
    limit(&fixture, DORA);
    let mut large = holder(&fixture, DORA, 70);
    let set = raised(&large);
    fixture.end_daemon(Signal::KILL);
    assert_eq!(adjustment(&large), set);
    free(&mut large);
    assert_eq!(adjustment(&large), set);
    fixture.launch();
    put_back(&large);
}

#[test]
fn the_next_daemon_goes_on_where_the_account_is_still_near() {
    let mut fixture = fixture!();
    limit(&fixture, DORA);
    let mut large = holder(&fixture, DORA, 70);
    let set = raised(&large);
    fixture.end_daemon(Signal::KILL);
    fixture.launch();
    wait_for("it is raised again, by as much", || {
        adjustment(&large) == set && said(&fixture).contains("1 process is raised")
    });
    free(&mut large);
    put_back(&large);
}

#[test]
fn stop_guarding_puts_back_what_a_killed_daemon_had_raised() {
    let mut fixture = fixture!();
    limit(&fixture, DORA);
    let large = holder(&fixture, DORA, 70);
    raised(&large);
    fixture.end_daemon(Signal::KILL);
    let state = fixture.path("state").display().to_string();
    let pin = fixture.pin().display().to_string();
    fixture.ok(&["daemon", "--stop-guarding", "--pin", &pin, "--state", &state]);
    assert_eq!(adjustment(&large), own());
    assert!(!fixture.path("state/last-defence.json").exists());
}

#[test]
fn what_is_switched_off_is_not_done_and_status_says_so() {
    let fixture = fixture!("[last_defence]\noom_score_adj = false\nmemory_max = false\n");
    limit(&fixture, DORA);
    let large = holder(&fixture, DORA, 70);
    until("the account is near", SOON, || {
        let near = fixture.account(DORA)?.get("near")?.as_bool()?;
        near.then_some(())
    });
    wait_for("the daemon has looked at it", || {
        fixture.status()["guards"]["own"]["wake_ups"].as_u64().unwrap() > 8
    });
    assert_eq!(adjustment(&large), own());
    assert!(said(&fixture).starts_with("off: "), "{}", said(&fixture));
}

#[test]
fn with_the_other_triggers_switched_off_it_still_points_to_the_largest() {
    assert_it_points_to_the_largest(&fixture!("[limits]\ntriggers = [\"last-defence\"]\n"));
}

#[test]
fn switched_off_as_a_trigger_it_does_nothing() {
    let fixture = fixture!("[limits]\ntriggers = [\"daemon\"]\n");
    limit(&fixture, DORA);
    assert!(said(&fixture).starts_with("off: "), "{}", said(&fixture));
}
