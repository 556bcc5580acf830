//! Who goes when a line is crossed, of those that asked for their memory and those that did not.
#![cfg(test)]

mod support;

use plimsoll_policy::units::Pages;
use plimsoll_sys::bpf::{Grants, VictimMark};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{
    ALICE, BOB, Fixture, exact, fewer,
    grants::{asking, granted, pages, space, toucher},
    program::Program,
    wait_for,
};

/// A process that asked for so many MiB, has touched so many and sleeps.
fn one_that_asked(fixture: &Fixture, grants: &mut Grants, asked: u64, touched: u64) -> Program {
    let mut program = toucher(fixture, touched);
    let space = space(grants, program.pid());
    granted(grants, &space, pages(asked << 10));
    program.tell("go");
    program.stage("touched");
    assert_eq!(grants.settle(&space).unwrap(), Pages(0));
    program
}

#[test]
fn who_keeps_to_its_grants_is_no_victim_while_somebody_else_lives() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut grants = fixture.grants();
    let mut asked = one_that_asked(&fixture, &mut grants, 200, 200);
    // The one that crosses, however small, then one that sleeps while another crosses.
    for round in 1..=fewer(3) as usize {
        let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=128", "--no-thp"]);
        plain.killed();
        assert_eq!(fixture.incidents(round).len(), round);
    }
    assert!(asked.runs());
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(asked.pid()).unwrap());
    // Alone, it goes like everybody else.
    fixture.limit(ALICE, "100M", &["--now"]);
    asked.tell("more");
    asked.end();
}

#[test]
fn a_sleeper_that_did_not_ask_goes_when_one_that_asked_crosses() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=16"]).ready();
    let mut asked = one_that_asked(&fixture, &mut grants, 96, 96);
    // Its allowance, touched without asking, is what crosses: nobody was told of a grant for it.
    let mut second = one_that_asked(&fixture, &mut grants, 1, 3);
    let room = pages(128 << 10).0 - fixture.usage_pages(ALICE);
    let space = space(&mut grants, asked.pid());
    granted(&grants, &space, Pages(room));
    let mut drop_in = fixture.workload(ALICE, "chill", &["--mebibytes=1"]);
    // Whoever of the two that did not ask is larger goes: the sleeper.
    sleeper.killed();
    drop_in.stage("ready");
    assert!(asked.runs() && second.runs() && drop_in.runs());
    assert_eq!(fixture.incidents(1).len(), 1);
}

#[test]
fn who_asks_for_a_little_and_takes_a_lot_is_the_first_to_go() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    let mut honest = one_that_asked(&fixture, &mut grants, 24, 24);
    let mut liar = one_that_asked(&fixture, &mut grants, 1, 60);
    let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=50", "--no-thp"]);
    liar.killed();
    plain.fills();
    assert!(honest.runs() && plain.runs());
    plain.stop();
    // One that takes back its word: asked for much, gave it back untouched, and takes it without asking.
    let mut sly = toucher(&fixture, 80);
    let promised = space(&mut grants, sly.pid());
    granted(&grants, &promised, pages(80 << 10));
    assert!(grants.settle(&promised).unwrap() >= pages(79 << 10));
    sly.tell("go");
    sly.stage("touched");
    let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=40", "--no-thp"]);
    sly.killed();
    plain.fills();
    assert!(honest.runs());
    plain.stop();
    // And one that has given its pages up is like everybody else at once, without an event of its own.
    let mut asked = one_that_asked(&fixture, &mut grants, 80, 80);
    let space = space(&mut grants, honest.pid());
    grants.give_up(&space, pages(24 << 10)).unwrap();
    let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=20", "--no-thp"]);
    honest.killed();
    plain.fills();
    assert!(asked.runs() && plain.runs());
}

/// A process that asked for so many MiB, touched and freed them without a word, and has as much again by `malloc`.
fn silent_one(fixture: &Fixture, grants: &mut Grants, mebibytes: u64) -> Program {
    let script = format!(
        "def area():\n\
         \x20   m = mmap.mmap(-1, {mebibytes} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         \x20   m.madvise(15)\n\x20   return m\n\
         def touch(m): ctypes.memset((ctypes.c_char * len(m)).from_buffer(m), 1, len(m))\n\
         m = area()\nsay('ready')\nhear()\ntouch(m)\nsay('touched')\nhear()\n\
         m.madvise(mmap.MADV_DONTNEED)\nn = area()\ntouch(n)\nsay('again')\nhear()\n"
    );
    let mut program = fixture.python(ALICE, &script).ready();
    let space = space(grants, program.pid());
    granted(grants, &space, pages(mebibytes << 10));
    program.tell("go");
    program.stage("touched");
    grants.settle(&space).unwrap();
    program.tell("free");
    program.stage("again");
    program
}

#[test]
fn who_frees_what_it_was_granted_and_says_nothing_is_like_everybody_else() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    let mut honest = one_that_asked(&fixture, &mut grants, 40, 40);
    let mut silent = silent_one(&fixture, &mut grants, 48);
    let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=40", "--no-thp"]).ready();
    silent.killed();
    plain.stage("full");
    assert!(honest.runs() && plain.runs());
}

#[test]
fn what_was_seen_to_go_is_not_taken_once_more_when_it_is_told() {
    let fixture = fixture!();
    let (grants, mut scripted, pid, space) = asking(&fixture, "128M");
    for _ in 0..2 {
        granted(&grants, &space, pages(32 << 10));
        scripted.tell(1, &format!("touch {}", 32 << 10));
        grants.settle(&space).unwrap();
    }
    let held = || fixture.space(pid).unwrap().granted;
    assert_eq!(held(), pages(64 << 10));
    scripted.tell(1, "drop");
    let seen = held();
    let most = exact::process_pages(pid).unwrap() + pages(4 << 10).0;
    assert!((pages(32 << 10).0..=most + 256).contains(&seen.0), "{seen} of {most}");
    grants.give_up(&space, pages(32 << 10)).unwrap();
    assert_eq!(held(), pages(32 << 10));
    // Told first, gone then: the same.
    grants.give_up(&space, pages(16 << 10)).unwrap();
    assert_eq!(held(), pages(16 << 10));
}

#[test]
fn a_victim_that_could_not_be_signalled_holds_no_more_than_it_had_touched() {
    let fixture = fixture!();
    let (grants, mut scripted, pid, space) = asking(&fixture, "128M");
    granted(&grants, &space, pages(64 << 10));
    scripted.tell(1, &format!("touch {}", 16 << 10));
    let index = fixture.facts(ALICE).index;
    let claim = VictimMark::Dying { account: index };
    // Over its line, or nobody is to be a victim; but without a signal from the programs.
    fixture.limit(ALICE, "32M", &["--action", "notify", "--now"]);
    assert!(fixture.maps().mark(space.mm, space.pid, claim).unwrap());
    assert_eq!(fixture.facts(ALICE).reserved, Pages(0));
    assert!(fixture.maps().mark(space.mm, space.pid, VictimMark::Spared).unwrap());
    assert_eq!(grants.settle(&space).unwrap(), Pages(0));
    let held = fixture.space(pid).unwrap().granted;
    assert!((pages(16 << 10).0..=pages(16 << 10).0 + 4).contains(&held.0), "{held}");
    let facts = fixture.facts(ALICE);
    assert_eq!((facts.usage.0, facts.dying), (exact::process_pages(pid).unwrap(), Pages(0)));
}

#[test]
fn what_is_dying_of_a_process_follows_it_to_another_user() {
    let fixture = fixture!();
    for user in [ALICE, BOB] {
        fixture.limit(user, "8M", &["--action", "notify", "--now"]);
    }
    let mut grants = fixture.grants();
    let mut scripted = fixture.scripted(&[ALICE, BOB]);
    let pid = scripted.make(1, "hop 60100");
    scripted.tell(1, "touch 16384");
    let space = space(&mut grants, pid);
    let over = AtomicBool::new(false);
    let [alice, bob] = [ALICE, BOB].map(|user| fixture.facts(user).index);
    let maps = fixture.maps();
    let claimed: u32 = std::thread::scope(|scope| {
        let claiming = scope.spawn(|| {
            let mut claimed = 0;
            while !over.load(Ordering::Relaxed) {
                for account in [alice, bob] {
                    claimed +=
                        u32::from(maps.mark(space.mm, space.pid, VictimMark::Dying { account }).unwrap());
                    maps.mark(space.mm, space.pid, VictimMark::Spared).unwrap();
                }
            }
            claimed
        });
        for turn in 0..fewer(2000) {
            scripted.tell(1, &format!("setuid {}", if turn % 2 == 0 { BOB } else { ALICE }));
            scripted.tell(1, "touch 64");
            scripted.tell(1, "free");
        }
        over.store(true, Ordering::Relaxed);
        claiming.join().unwrap()
    });
    assert!(claimed > 0);
    for user in [ALICE, BOB] {
        assert_eq!(fixture.facts(user).dying, Pages(0), "{user}");
    }
}

#[test]
fn a_grant_that_brings_the_account_near_makes_the_next_crossing_as_exact_as_any() {
    let fixture = fixture!();
    let (grants, _puppets, pid, space) = asking(&fixture, "64M");
    let used = exact::process_pages(pid).unwrap();
    granted(&grants, &space, Pages(pages(60 << 10).0 - used));
    let facts = fixture.facts(ALICE);
    assert!(facts.near && facts.exact, "{facts:?}");
    let mut plain = fixture.workload(ALICE, "bloat", &["--mebibytes=32", "--no-thp"]);
    plain.killed();
    let incident = fixture.incidents(1).remove(0);
    assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{incident}");
    assert_eq!(incident["victims"][0]["pid"], plain.pid());
    assert!(fixture.facts(ALICE).peak.0 >= pages(64 << 10).0);
    grants.settle(&space).unwrap();
    wait_for("it is far again", || !fixture.facts(ALICE).near);
}
