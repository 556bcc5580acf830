//! Who goes when a line is crossed, of those that asked for their memory and those that did not.
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this whole file is one test module, its helpers included"
)]

mod support;

use plimsoll_policy::units::Pages;
use plimsoll_sys::bpf::Grants;
use support::{
    ALICE, SOON, World, exact, fewer,
    grants::{granted, pages, space, toucher},
    program::Program,
    until,
};

/// A process that asked for so many MiB, has touched so many and sleeps.
fn one_that_asked(world: &World, grants: &mut Grants, asked: u64, touched: u64) -> Program {
    let mut program = toucher(world, touched);
    let space = space(grants, program.pid());
    granted(grants, &space, pages(asked << 10));
    program.tell("go");
    program.stage("touched");
    assert_eq!(grants.settle(&space).unwrap(), Pages(0));
    program
}

#[test]
fn who_keeps_to_its_grants_is_no_victim_while_somebody_else_lives() {
    let world = world!();
    world.limit(ALICE, "256M", &[]);
    let mut grants = world.grants();
    let mut asked = one_that_asked(&world, &mut grants, 200, 200);
    // The one that crosses, however small, then one that sleeps while another crosses.
    for round in 1..=fewer(3) as usize {
        let mut plain = world.workload(ALICE, "bloat", &["--mebibytes=128", "--no-thp"]);
        plain.killed();
        assert_eq!(world.incidents(round).len(), round);
    }
    assert!(asked.runs());
    assert_eq!(world.usage_pages(ALICE), exact::process_pages(asked.pid()).unwrap());
    // Alone, it goes like everybody else.
    world.limit(ALICE, "100M", &["--now"]);
    asked.tell("more");
    asked.end();
}

#[test]
fn a_sleeper_that_did_not_ask_goes_when_one_that_asked_crosses() {
    let world = world!();
    world.limit(ALICE, "128M", &[]);
    let mut grants = world.grants();
    let mut sleeper = world.workload(ALICE, "chill", &["--mebibytes=16"]);
    sleeper.stage("ready");
    let mut asked = one_that_asked(&world, &mut grants, 96, 96);
    // Its allowance, touched without asking, is what crosses: nobody was told of a grant for it.
    let mut second = one_that_asked(&world, &mut grants, 1, 3);
    let room = pages(128 << 10).0 - world.usage_pages(ALICE);
    let space = space(&mut grants, asked.pid());
    granted(&grants, &space, Pages(room));
    let mut drop_in = world.workload(ALICE, "chill", &["--mebibytes=1"]);
    // Whoever of the two that did not ask is larger goes: the sleeper.
    sleeper.killed();
    drop_in.stage("ready");
    assert!(asked.runs() && second.runs() && drop_in.runs());
    assert_eq!(world.incidents(1).len(), 1);
}

#[test]
fn who_asks_for_a_little_and_takes_a_lot_is_the_first_to_go() {
    let world = world!();
    world.limit(ALICE, "128M", &[]);
    let mut grants = world.grants();
    let mut honest = one_that_asked(&world, &mut grants, 24, 24);
    let mut liar = one_that_asked(&world, &mut grants, 1, 60);
    let mut plain = world.workload(ALICE, "bloat", &["--mebibytes=50", "--no-thp"]);
    liar.killed();
    plain.stage("ready");
    plain.stage("full");
    assert!(honest.runs() && plain.runs());
    plain.stop();
    // One that takes back its word: asked for much, gave it back untouched, and takes it without asking.
    let mut sly = toucher(&world, 80);
    let promised = space(&mut grants, sly.pid());
    granted(&grants, &promised, pages(80 << 10));
    assert!(grants.settle(&promised).unwrap() >= pages(79 << 10));
    sly.tell("go");
    sly.stage("touched");
    let mut plain = world.workload(ALICE, "bloat", &["--mebibytes=40", "--no-thp"]);
    sly.killed();
    plain.stage("ready");
    plain.stage("full");
    assert!(honest.runs());
    plain.stop();
    // And one that has given its pages up is like everybody else at once, without an event of its own.
    let mut asked = one_that_asked(&world, &mut grants, 80, 80);
    let space = space(&mut grants, honest.pid());
    grants.give_up(&space, pages(24 << 10)).unwrap();
    let mut plain = world.workload(ALICE, "bloat", &["--mebibytes=20", "--no-thp"]);
    honest.killed();
    plain.stage("ready");
    plain.stage("full");
    assert!(asked.runs() && plain.runs());
}

#[test]
fn a_grant_that_brings_the_account_near_makes_the_next_crossing_as_exact_as_any() {
    let world = world!();
    world.limit(ALICE, "64M", &[]);
    let mut grants = world.grants();
    let mut puppets = world.puppets(&[ALICE]);
    let pid = puppets.make(1, "start 60100");
    let space = space(&mut grants, pid);
    let used = exact::process_pages(pid).unwrap();
    granted(&grants, &space, Pages(pages(60 << 10).0 - used));
    let facts = world.facts(ALICE);
    assert!(facts.near && facts.exact, "{facts:?}");
    let mut plain = world.workload(ALICE, "bloat", &["--mebibytes=32", "--no-thp"]);
    plain.killed();
    let incident = world.incidents(1).remove(0);
    assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{incident}");
    assert_eq!(incident["victims"][0]["pid"], plain.pid());
    assert!(world.facts(ALICE).peak.0 >= pages(64 << 10).0);
    grants.settle(&space).unwrap();
    until("it is far again", SOON, || (!world.facts(ALICE).near).then_some(()));
}
