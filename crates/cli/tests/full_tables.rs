//! Tables that one account fills: its own line and those of the others hold, and only its own processes pay.
#![cfg(test)]

mod support;

use plimsoll_policy::units::{Pages, Uid};
use plimsoll_sys::bpf::{Enforce, LineSet};
use support::{ALICE, BOB, CAROL, Fixture, exact, program::Program, wait_for};

/// So many more than the table has room for.
const MANY: usize = 70;

/// Starts `MANY` processes that sleep, each with a program of its own.
fn spawns(fixture: &Fixture, user: u32) -> Program {
    let script = format!(
        "for one in range({MANY}): os.posix_spawn('/bin/sleep', ['sleep', '60'], {{}})\nsay('full', {MANY})\ntime.sleep(60)\n"
    );
    fixture.python(user, &script)
}

/// Forks `MANY` processes that go on as what they are, or as many as it may.
fn forks(fixture: &Fixture, user: u32) -> Program {
    let script = format!(
        "started = 0\nfor one in range({MANY}):\n    try: child = os.fork()\n    except BlockingIOError: break\n\
         \x20   if not child:\n        block = bytearray(65536)\n        time.sleep(60)\n        os._exit(0)\n\
         \x20   started += 1\nsay('full', started)\ntime.sleep(60)\n"
    );
    fixture.python(user, &script)
}

fn hog(fixture: &Fixture, user: u32) -> Program {
    fixture.workload(user, "bloat", &["--mebibytes=200", "--no-thp"])
}

fn the_lines_hold(filler: fn(&Fixture, u32) -> Program) {
    let fixture = fixture!("[maps]\nmax_processes = 64\n");
    fixture.limit(ALICE, "64M", &[]);
    fixture.limit(BOB, "64M", &[]);
    fixture.limit(CAROL, "64M", &[]);
    let mut carols = fixture.workload(CAROL, "chill", &["--mebibytes=8"]).ready();
    let mut full = filler(&fixture, ALICE);
    let started: usize = full.stage("full").trim().parse().unwrap();
    let map = fixture.map("mms");
    assert!(map["full"].as_u64().unwrap() > 0, "{map}");
    // Each that was killed is counted, however few are told of.
    let killed = || started + 1 - exact::processes_of(ALICE).len();
    wait_for("all that were killed are counted", || fixture.facts(ALICE).kills as usize == killed());
    assert_eq!(fixture.map("families")["full"], 0);
    hog(&fixture, BOB).killed();
    hog(&fixture, ALICE).killed();
    assert!(carols.runs());
    for one in fixture.history() {
        let victim = one["victims"][0]["uid"].as_u64().unwrap();
        assert_ne!(victim, u64::from(CAROL), "{one}");
    }
    assert!(exact::processes_of(ALICE).len() < 64);
}

#[test]
fn who_fills_the_table_of_address_spaces_with_programs_frees_nobody() {
    the_lines_hold(spawns);
}

#[test]
fn who_fills_the_table_of_address_spaces_by_forks_frees_nobody() {
    the_lines_hold(forks);
}

/// Two that share the table evenly, and a third who needs more than is left: it is had of those who have most.
#[test]
fn who_needs_the_last_entries_gets_them_of_who_has_most() {
    let fixture = fixture!("[maps]\nmax_processes = 64\n");
    for user in [ALICE, BOB, CAROL] {
        fixture.limit(user, "64M", &[]);
    }
    if !fixture.signals_others() {
        return support::skip("before Linux 6.13 they are the last");
    }
    let mut first = spawns(&fixture, ALICE);
    first.stage("full");
    let mut second = spawns(&fixture, BOB);
    second.stage("full");
    let script = "for one in range(16): os.posix_spawn('/bin/sleep', ['sleep', '60'], {})\nsay('all')\ntime.sleep(60)\n";
    let mut third = fixture.python(CAROL, script);
    third.stage("all");
    hog(&fixture, CAROL).killed();
    // All of hers are there, and counted.
    assert_eq!(exact::processes_of(CAROL).len(), 17);
    wait_for("all that run are counted", || fixture.facts(CAROL).processes == 17);
    for one in fixture.history() {
        let of_carol = one["account"] == format!("user:{CAROL}");
        assert_eq!(one["reason"] != "table-full-most-processes", of_carol, "{one}");
    }
    for user in [ALICE, BOB] {
        hog(&fixture, user).killed();
    }
}

/// Each runs something for a moment only, one after the other.
#[test]
fn users_under_default_who_run_nothing_keep_no_account_from_those_who_do() {
    let fixture = fixture!("[limits]\nuid_max = 60999\n[maps]\nmax_accounts = 16\n");
    fixture.limit(CAROL, "64M", &[]);
    fixture.ok(&["limit", "set", "default", "64M"]);
    let mut stays = fixture.workload(BOB, "chill", &["--mebibytes=8"]).ready();
    for user in 60_110..60_160 {
        let status = fixture.as_user(user, "/bin/true").status().unwrap();
        assert!(status.success());
    }
    assert_eq!(fixture.map("accounts")["full"], 0);
    hog(&fixture, 60_170).killed();
    hog(&fixture, BOB).killed();
    hog(&fixture, CAROL).killed();
    hog(&fixture, 60_110).killed();
    // The first was the last's peer, and is counted as before.
    assert!(!stays.runs() || fixture.usage_pages(BOB) >= exact::process_pages(stays.pid()).unwrap());
    // A line by number always finds room.
    fixture.limit(60_171, "32M", &[]);
    hog(&fixture, 60_171).killed();
}

/// Nothing runs as any of them; one more, of whom something does, has a line by `default`.
#[test]
fn three_thousand_users_under_default_have_a_line_each() {
    let fixture = fixture!("[limits]\nuid_max = 60999\n");
    fixture.limit(ALICE, "64M", &[]);
    fixture.ok(&["limit", "set", "default", "64M"]);
    let maps = fixture.maps();
    for uid in 1_000_000..1_003_000 {
        let line = LineSet {
            whose: Uid(uid).into(),
            user: Some(Uid(uid)),
            hard: Pages(1 << 14),
            soft: Pages(1 << 13),
            signal: 9,
            enforce: Enforce::Now,
            from_default: true,
            above: [0; 4],
        };
        maps.set_line(&line).unwrap();
    }
    hog(&fixture, ALICE).killed();
    hog(&fixture, BOB).killed();
    assert_eq!(fixture.maps().accounts().unwrap().len(), 3002);
}
