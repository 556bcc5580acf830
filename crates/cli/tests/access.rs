//! Each control call as another user, against a real daemon: their own account, lower, and nothing else.
#![cfg(test)]

mod starting;
mod support;

use serde_json::{Value, json};
use starting::{ALICE, BOB, CAROL, Kept, assert_one_line};
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};
use support::{Fixture, caller::Caller, program::Program, wait_for};

#[track_caller]
fn json_as(fixture: &Fixture, user: u32, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = fixture.run_as(user, &[arguments, &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&stdout).unwrap()
}

/// Refused to Alice with status 4 and one line, and nothing has changed.
#[track_caller]
fn assert_not_permitted(fixture: &Fixture, arguments: &[&str]) {
    let before = Kept::of(fixture);
    let (code, stdout, stderr) = fixture.run_as(ALICE, arguments);
    assert_eq!((code, stdout.as_str()), (4, ""), "{arguments:?}: {stderr}");
    assert_one_line(&stderr);
    assert_eq!(Kept::of(fixture), before, "{arguments:?}");
}

fn crossing(fixture: &Fixture, user: u32) -> u32 {
    let mut hog: Program = fixture.workload(user, "bloat", &["--mebibytes=96", "--no-thp"]);
    hog.killed();
    hog.pid()
}

#[test]
fn a_user_sees_the_own_account_and_no_other() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    fixture.limit(BOB, "65M", &[]);
    let own = json!([format!("user:{ALICE}")]);
    let accounts = |shown: &Value| -> Value {
        shown.as_array().unwrap().iter().map(|account| account["account"].clone()).collect()
    };
    assert_eq!(accounts(&json_as(&fixture, ALICE, &["limit", "show"])), own);
    assert_eq!(accounts(&json_as(&fixture, ALICE, &["limit", "show", "60150"])), own);
    assert_eq!(accounts(&json_as(&fixture, ALICE, &["status"])["accounts"]), own);
    assert_eq!(json_as(&fixture, CAROL, &["limit", "show"]), json!([]));
    assert_eq!(json_as(&fixture, CAROL, &["status"])["accounts"], json!([]));
    assert_not_permitted(&fixture, &["limit", "show", "60151"]);
    assert_not_permitted(&fixture, &["limit", "show", "0"]);
    // The default line is for everybody, so everybody may know it.
    fixture.ok(&["limit", "set", "default", "70M"]);
    let (code, shown, _) = fixture.run_as(CAROL, &["limit", "show", "default"]);
    assert!(code == 0 && shown.contains("70.0 MiB"), "{shown}");
}

#[test]
fn a_user_sees_the_own_processes_and_no_others() {
    let fixture = fixture!();
    let held = [ALICE, BOB].map(|user| {
        fixture.limit(user, "64M", &[]);
        fixture.workload(user, "chill", &["--mebibytes=8"]).ready()
    });
    fixture.ok(&["limit", "set", "system", "100%"]);
    let [alices, bobs] = held.each_ref().map(Program::pid);
    wait_for("processes are counted", || fixture.run(&["status", "--processes"]).0 == 0);
    let pids = |account: &Value| -> Vec<u32> {
        let listed = account["process_list"].as_array().unwrap();
        listed.iter().map(|process| process["pid"].as_u64().unwrap().try_into().unwrap()).collect()
    };
    let own = ["limit", "show", "60150", "--processes"];
    assert!(pids(&json_as(&fixture, ALICE, &own)[0]).contains(&alices));
    for machine in [["limit", "show", "system", "--processes"], ["limit", "show", "60150", "--processes"]] {
        let seen = pids(&json_as(&fixture, ALICE, &machine)[0]);
        assert!(seen.contains(&alices) && !seen.contains(&bobs), "{machine:?}: {seen:?}");
        assert!(!seen.contains(&fixture.daemon_pid()) && !seen.contains(&1), "{machine:?}: {seen:?}");
    }
    let accounts = json_as(&fixture, ALICE, &["status", "--processes"])["accounts"].clone();
    for account in accounts.as_array().unwrap() {
        assert!(!pids(account).contains(&bobs), "{account}");
    }
    assert_not_permitted(&fixture, &["limit", "show", "60151", "--processes"]);
    let all = fixture.json(&["limit", "show", "system", "--processes"]);
    assert!([alices, bobs, fixture.daemon_pid()].iter().all(|pid| pids(&all[0]).contains(pid)), "{all}");
    // The table has them too, each with what is charged for it.
    let (_, table, _) = fixture.run_as(ALICE, &own);
    assert!(table.lines().any(|line| line.contains(&alices.to_string()) && line.contains(" 8.")), "{table}");
}

#[test]
fn a_user_lowers_the_own_line_and_raises_it_no_further_than_the_administrators() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &["--action", "term"]);
    let hard = || fixture.account(ALICE).unwrap()["hard_bytes"].as_u64().unwrap() >> 20;
    assert_eq!(json_as(&fixture, ALICE, &["limit", "set", "60150", "48M"])[0]["hard_bytes"], 48 << 20);
    assert_eq!(hard(), 48);
    // Up again to what root allows, and not a page more.
    assert_eq!(fixture.run_as(ALICE, &["limit", "set", "60150", "64M"]).0, 0);
    assert_not_permitted(&fixture, &["limit", "set", "60150", &((64_u64 << 20) + 65_536).to_string()]);
    assert_not_permitted(&fixture, &["limit", "set", "60150", "100%"]);
    // Nor with a milder end.
    assert_not_permitted(&fixture, &["limit", "set", "60150", "32M", "--action", "notify"]);
    assert_eq!(fixture.run_as(ALICE, &["limit", "set", "60150", "32M", "--action", "kill"]).0, 0);
    assert_eq!(hard(), 32);
    crossing(&fixture, ALICE);
    // Clearing takes the own line away, and never root's.
    assert_eq!(fixture.run_as(ALICE, &["limit", "clear", "60150"]).0, 0);
    assert_eq!(hard(), 64);
    assert_eq!(fixture.run_as(ALICE, &["limit", "clear", "60150"]).0, 1);
    assert_eq!(hard(), 64);
    // Root lowers below what the user has: the lower one counts.
    assert_eq!(fixture.run_as(ALICE, &["limit", "set", "60150", "60M", "--action", "term"]).0, 0);
    fixture.limit(ALICE, "40M", &[]);
    assert_eq!(hard(), 40);
}

#[test]
fn a_user_without_a_line_draws_none_and_is_told_what_to_do() {
    let fixture = fixture!();
    let before = Kept::of(&fixture);
    let (code, stdout, stderr) = fixture.run_as(CAROL, &["limit", "set", "60152", "32M"]);
    assert_eq!((code, stdout.as_str()), (4, ""), "{stderr}");
    assert_one_line(&stderr);
    assert!(
        stderr.contains("no line is drawn for you") && stderr.contains("limit set 60152 SIZE"),
        "{stderr}"
    );
    assert_eq!(Kept::of(&fixture), before);
    // Below the one for everybody, which is an administrator's too, and only while there is one.
    fixture.configure("[limits]\nuid_max = 60999\n");
    fixture.reload();
    fixture.ok(&["limit", "set", "default", "64M"]);
    assert_eq!(fixture.run_as(CAROL, &["limit", "set", "60152", "32M"]).0, 0);
    crossing(&fixture, CAROL);
    fixture.ok(&["limit", "clear", "default"]);
    assert!(fixture.account(CAROL).is_none());
    assert_eq!(fixture.status()["triggers"]["kernel"], "not attached: no line is set");
    assert_eq!(fixture.run_as(CAROL, &["limit", "clear", "60152"]).0, 0);
}

#[test]
fn a_user_touches_nobody_elses_line_and_not_the_default() {
    let fixture = fixture!();
    fixture.limit(BOB, "64M", &[]);
    fixture.ok(&["limit", "set", "default", "50%"]);
    for arguments in [
        &["limit", "set", "60151", "1M"][..],
        &["limit", "set", "60151", "1M", "--now"],
        &["limit", "set", "60153", "1M"],
        &["limit", "set", "0", "1M"],
        &["limit", "set", "root", "1M", "--now"],
        &["limit", "set", "default", "1M"],
        &["limit", "clear", "60151"],
        &["limit", "clear", "default"],
    ] {
        assert_not_permitted(&fixture, arguments);
    }
    assert_eq!(fixture.run(&["limit", "show", "0", "--json"]).1.trim(), "[]");
}

#[test]
fn a_user_reads_the_own_story_and_nothing_of_anybody_elses() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    fixture.limit(BOB, "33M", &[]);
    let (alices, bobs) = (crossing(&fixture, ALICE), crossing(&fixture, BOB));
    let all = fixture.incidents(2);
    let id_of = |pid: u32| {
        let found = all.iter().find(|incident| incident["victims"][0]["pid"] == pid);
        found.unwrap_or_else(|| panic!("{pid} in {all:?}"))["id"].to_string()
    };
    let seen = json_as(&fixture, ALICE, &["history"]);
    assert_eq!(seen.as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen[0]["victims"][0]["pid"], alices);
    assert!(seen[0]["victims"][0]["cmdline"].as_str().unwrap().contains("bloat"), "{seen}");
    assert_eq!(json_as(&fixture, CAROL, &["history"]), json!([]));
    assert_eq!(json_as(&fixture, ALICE, &["why"])["victims"][0]["pid"], alices);
    let (pid_of_bobs, id_of_bobs) = (format!("pid:{bobs}"), id_of(bobs));
    for which in [pid_of_bobs.as_str(), id_of_bobs.as_str(), "9999"] {
        let (code, stdout, stderr) = fixture.run_as(ALICE, &["why", which]);
        // What is not theirs looks like what is not there.
        assert_eq!((code, stdout.as_str()), (1, ""), "{which}: {stderr}");
        assert_one_line(&stderr);
        assert!(!stderr.contains("bloat"), "{stderr}");
    }
    let (code, _, stderr) = fixture.run_as(CAROL, &["why"]);
    assert_eq!(code, 1, "{stderr}");
}

#[test]
fn who_calls_is_what_the_kernel_says_and_not_the_message() {
    let fixture = fixture!();
    fixture.limit(BOB, "64M", &[]);
    let before = Kept::of(&fixture);
    for parameters in [
        json!({"who": "user:60151", "hard": "1M"}),
        json!({"who": "user:60151", "hard": "1M", "now": true}),
        json!({"who": "user:60151", "hard": "1M", "set_by": 0}),
        json!({"who": "user:60151", "hard": "1M", "peer": {"uid": 0}, "uid": 0}),
        json!({"who": "default", "hard": "1M"}),
    ] {
        let refused = Caller::of(&fixture, ALICE).call("SetLimit", &parameters);
        assert!(refused.is_err(), "{parameters}: {refused:?}");
        assert_eq!(Kept::of(&fixture), before, "{parameters}");
    }
    let mut caller = Caller::of(&fixture, ALICE);
    let refused = caller.call("SetLimit", &json!({"who": "user:60151", "hard": "1M"})).unwrap_err();
    assert!(refused.starts_with("io.plimsoll.NotPermitted"), "{refused}");
    caller.send(&json!({"method": "org.varlink.service.GetInfo"}));
    let answer = caller.hear();
    assert!(answer.to_string().contains("io.plimsoll"), "{answer}");
}

#[test]
fn rubbish_on_the_socket_harms_nobody() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    for rubbish in
        [&b"\0"[..], b"GET / HTTP/1.1\r\n\r\n\0", b"{\"method\":1}\0", b"\xff\xfe\0", &[b'x'; 200_000], b"{"]
    {
        let mut stream = UnixStream::connect(fixture.path("socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // It may close before all of it is written, and may answer or not: it must go on.
        if stream.write_all(rubbish).is_ok() {
            stream.shutdown(std::net::Shutdown::Write).ok();
            stream.read_exact(&mut [0]).ok();
        }
        assert_eq!(fixture.account(ALICE).unwrap()["hard_bytes"], 32 << 20);
    }
    crossing(&fixture, ALICE);
}
