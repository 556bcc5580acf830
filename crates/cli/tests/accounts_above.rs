//! A line above others: what is charged to its members is charged to it as well, and it takes the largest of them all. The
//! programs alone do that here: the lines are drawn past the daemon, and it lives no more.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    account::Counted,
    units::{Gid, Pages, Uid},
};
use plimsoll_sys::bpf::{Enforce, Limits, LineSet};
use rustix::process::Signal;
use support::{ALICE, BOB, CAROL, Fixture, exact, program::Program, skip};

const GROUP: Counted = Counted::Group(Gid(60_900));

fn line(whose: Counted, mebibytes: u64, above: u32) -> LineSet {
    let hard = Pages((mebibytes << 20) / exact::page_bytes());
    LineSet {
        whose,
        user: whose.user(),
        hard,
        soft: Pages(hard.0 / 10 * 9),
        signal: 9,
        enforce: Enforce::Ratchet,
        from_default: false,
        above: [0, above, 0, 0],
    }
}

/// Alice and Bob are members of a group with a line of 64 MiB, below their own of 256 MiB; Carol is none. No daemon lives.
fn grouped() -> Option<(Fixture, Limits)> {
    let mut fixture = Fixture::start("", &[])?;
    for user in [ALICE, BOB, CAROL] {
        fixture.limit(user, "256M", &[]);
    }
    let maps = fixture.maps();
    fixture.end_daemon(Signal::KILL);
    let above = maps.set_line(&line(GROUP, 64, 0)).unwrap();
    for user in [ALICE, BOB] {
        maps.set_line(&line(Uid(user).into(), 256, above)).unwrap();
    }
    Some((fixture, maps))
}

fn chill(fixture: &Fixture, user: u32, mebibytes: u32) -> Program {
    fixture.workload(user, "chill", &[&format!("--mebibytes={mebibytes}")]).ready()
}

fn hog(fixture: &Fixture, user: u32) -> Program {
    fixture.workload(user, "bloat", &["--mebibytes=96", "--no-thp"])
}

#[test]
fn the_largest_of_all_members_goes_and_nobody_else() {
    let Some((fixture, _)) = grouped() else { return skip("it takes root") };
    if !fixture.signals_others() {
        return skip("before Linux 6.13 the programs take only who allocates");
    }
    let mut outside = chill(&fixture, CAROL, 60);
    let mut small = chill(&fixture, BOB, 8);
    let mut large = chill(&fixture, BOB, 40);
    // It crosses at 16 MiB, and has less than who goes first.
    let mut hog = hog(&fixture, ALICE);
    large.killed();
    hog.killed();
    assert!(small.runs() && outside.runs());
}

#[test]
fn who_allocates_goes_where_no_other_can_be_taken() {
    let Some((fixture, _)) = grouped() else { return skip("it takes root") };
    let mut others = chill(&fixture, BOB, 20);
    let mut outside = chill(&fixture, CAROL, 60);
    hog(&fixture, ALICE).killed();
    assert!(others.runs() && outside.runs());
}

/// What forks, execs and ends leave nothing behind that is counted above, nor take anything away.
#[test]
fn a_storm_leaves_the_members_what_they_had() {
    let Some((fixture, _)) = grouped() else { return skip("it takes root") };
    let mut both = [ALICE, BOB].map(|user| {
        let storm = "for i in range(60):\n\
            \x20   kept = bytearray(1 << 20)\n\
            \x20   pid = os.fork()\n\
            \x20   if pid == 0:\n\
            \x20       more = bytearray(2 << 20)\n\
            \x20       kept[::4096] = b'x' * 256\n\
            \x20       os.execv('/bin/true', ['true']) if i % 2 else os._exit(0)\n\
            \x20   os.waitpid(pid, 0)\n";
        fixture.python(user, &format!("{storm}say('done')\n"))
    });
    for one in &mut both {
        one.stage("done");
        assert!(one.end().success());
    }
    let mut fits = chill(&fixture, ALICE, 58);
    assert!(fits.runs());
    let mut too_much = fixture.workload(BOB, "chill", &["--mebibytes=8"]);
    // One of them has to go.
    support::wait_for("one is killed", || !fits.runs() || !too_much.runs());
}

/// Members that had something before come with it, and one whose line goes takes it away.
#[test]
fn what_was_there_before_comes_and_goes_with_its_member() {
    let Some(mut fixture) = Fixture::start("", &[]) else { return skip("it takes root") };
    for user in [ALICE, BOB] {
        fixture.limit(user, "256M", &[]);
    }
    let mut before = chill(&fixture, BOB, 40);
    let maps = fixture.maps();
    fixture.end_daemon(Signal::KILL);
    let above = maps.set_line(&line(GROUP, 64, 0)).unwrap();
    for user in [ALICE, BOB] {
        maps.set_line(&line(Uid(user).into(), 256, above)).unwrap();
    }
    let mut fits = chill(&fixture, ALICE, 16);
    assert!(fits.runs() && before.runs());
    // Bob's 40 MiB are nobody's from here on: there is room for more.
    assert!(maps.clear_line(Uid(BOB).into()).unwrap());
    let mut more = chill(&fixture, ALICE, 30);
    assert!(fits.runs() && more.runs() && before.runs());
    // And without its line nobody is held by it.
    assert!(maps.clear_line(GROUP).unwrap());
    let mut unheld = chill(&fixture, ALICE, 60);
    assert!(fits.runs() && more.runs() && unheld.runs());
}
