//! Tables that one account fills: its own line and those of the others hold, and only its own processes pay.
#![cfg(test)]

mod support;

use plimsoll_policy::units::{Pages, Uid};
use plimsoll_sys::bpf::{Enforce, LineSet};
use support::{ALICE, BOB, CAROL, World, exact, program::Program, wait_for};

/// So many more than the table has room for.
const MANY: usize = 70;

/// Starts `MANY` processes that sleep, each with a program of its own.
fn spawns(world: &World, user: u32) -> Program {
    let script = format!(
        "for one in range({MANY}): os.posix_spawn('/bin/sleep', ['sleep', '60'], {{}})\nsay('full', {MANY})\ntime.sleep(60)\n"
    );
    world.python(user, &script)
}

/// Forks `MANY` processes that go on as what they are, or as many as it may.
fn forks(world: &World, user: u32) -> Program {
    let script = format!(
        "started = 0\nfor one in range({MANY}):\n    try: child = os.fork()\n    except BlockingIOError: break\n\
         \x20   if not child:\n        block = bytearray(65536)\n        time.sleep(60)\n        os._exit(0)\n\
         \x20   started += 1\nsay('full', started)\ntime.sleep(60)\n"
    );
    world.python(user, &script)
}

fn hog(world: &World, user: u32) -> Program {
    world.workload(user, "bloat", &["--mebibytes=200", "--no-thp"])
}

fn the_lines_hold(filler: fn(&World, u32) -> Program) {
    let world = world!("[maps]\nmax_processes = 64\n");
    world.limit(ALICE, "64M", &[]);
    world.limit(BOB, "64M", &[]);
    world.limit(CAROL, "64M", &[]);
    let mut carols = world.workload(CAROL, "chill", &["--mebibytes=8"]).ready();
    let mut full = filler(&world, ALICE);
    let started: usize = full.stage("full").trim().parse().unwrap();
    let map = world.map("mms");
    assert!(map["full"].as_u64().unwrap() > 0, "{map}");
    // Each that was killed is counted, however few are told of.
    let killed = || started + 1 - exact::processes_of(ALICE).len();
    wait_for("all that were killed are counted", || world.facts(ALICE).kills as usize == killed());
    assert_eq!(world.map("families")["full"], 0);
    hog(&world, BOB).killed();
    hog(&world, ALICE).killed();
    assert!(carols.runs());
    for one in world.history() {
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
    let world = world!("[maps]\nmax_processes = 64\n");
    for user in [ALICE, BOB, CAROL] {
        world.limit(user, "64M", &[]);
    }
    if !world.signals_others() {
        return support::skip("before Linux 6.13 they are the last");
    }
    let mut first = spawns(&world, ALICE);
    first.stage("full");
    let mut second = spawns(&world, BOB);
    second.stage("full");
    let script = "for one in range(16): os.posix_spawn('/bin/sleep', ['sleep', '60'], {})\nsay('all')\ntime.sleep(60)\n";
    let mut third = world.python(CAROL, script);
    third.stage("all");
    hog(&world, CAROL).killed();
    // All of hers are there, and counted.
    assert_eq!(exact::processes_of(CAROL).len(), 17);
    wait_for("all that run are counted", || world.facts(CAROL).processes == 17);
    for one in world.history() {
        let of_carol = one["account"] == format!("user:{CAROL}");
        assert_eq!(one["reason"] != "table-full-most-processes", of_carol, "{one}");
    }
    for user in [ALICE, BOB] {
        hog(&world, user).killed();
    }
}

/// Each runs something for a moment only, one after the other.
#[test]
fn users_under_default_who_run_nothing_keep_no_account_from_those_who_do() {
    let world = world!("[limits]\nuid_max = 60999\n[maps]\nmax_accounts = 16\n");
    world.limit(CAROL, "64M", &[]);
    world.ok(&["limit", "set", "default", "64M"]);
    let mut stays = world.workload(BOB, "chill", &["--mebibytes=8"]).ready();
    for user in 60_110..60_160 {
        let status = world.as_user(user, "/bin/true").status().unwrap();
        assert!(status.success());
    }
    assert_eq!(world.map("accounts")["full"], 0);
    hog(&world, 60_170).killed();
    hog(&world, BOB).killed();
    hog(&world, CAROL).killed();
    hog(&world, 60_110).killed();
    // The first was the last's peer, and is counted as before.
    assert!(!stays.runs() || world.usage_pages(BOB) >= exact::process_pages(stays.pid()).unwrap());
    // A line by number always finds room.
    world.limit(60_171, "32M", &[]);
    hog(&world, 60_171).killed();
}

/// Nothing runs as any of them; one more, of whom something does, has a line by `default`.
#[test]
fn three_thousand_users_under_default_have_a_line_each() {
    let world = world!("[limits]\nuid_max = 60999\n");
    world.limit(ALICE, "64M", &[]);
    world.ok(&["limit", "set", "default", "64M"]);
    let maps = world.maps();
    for uid in 1_000_000..1_003_000 {
        let line = LineSet {
            uid: Uid(uid),
            hard: Pages(1 << 14),
            soft: Pages(1 << 13),
            signal: 9,
            enforce: Enforce::Now,
            from_default: true,
        };
        maps.set_line(&line).unwrap();
    }
    hog(&world, ALICE).killed();
    hog(&world, BOB).killed();
    assert_eq!(world.maps().accounts().unwrap().len(), 3002);
}
