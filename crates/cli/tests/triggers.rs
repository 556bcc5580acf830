//! Each trigger alone: with the others switched off, the line holds all the same.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use support::{ALICE, SOON, exact, until};

/// A sleeper of 32 MiB and eight workers that cross a line of 64 MiB: who was killed, how, and how far past the line.
fn sleeper_and_workers(world: &support::World) -> (serde_json::Value, u32) {
    world.limit(ALICE, "64M", &[]);
    let mut sleeper = world.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    let mut workers: Vec<_> =
        (0..8).map(|_| world.workload(ALICE, "bloat", &["--mebibytes=5", "--rate=40", "--no-thp"])).collect();
    sleeper.killed();
    for worker in &mut workers {
        worker.fills();
    }
    let incidents = world.incidents(1);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert!(workers.iter_mut().all(support::program::Program::runs));
    (incidents[0].clone(), sleeper.pid())
}

#[test]
fn the_kernel_side_alone_takes_the_largest_though_it_sleeps() {
    let world = world!("[limits]\ntriggers = [\"kernel\"]\n");
    world.limit(ALICE, "64M", &[]);
    if !world.signals_others() {
        return support::skip("before Linux 6.13 it cannot");
    }
    let (incident, sleeper) = sleeper_and_workers(&world);
    assert_eq!(
        (&incident["trigger"], &incident["victims"][0]["pid"]),
        (&"in-kernel".into(), &sleeper.into())
    );
    assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 8 * (64 << 10), "{incident}");
}

#[test]
fn the_daemon_alone_takes_the_largest_though_it_sleeps() {
    let world = world!("[limits]\ntriggers = [\"daemon\"]\n");
    let (incident, sleeper) = sleeper_and_workers(&world);
    assert_eq!((&incident["trigger"], &incident["victims"][0]["pid"]), (&"daemon".into(), &sleeper.into()));
    assert_eq!(incident["reason"], "over-hard-limit-selected");
}

#[test]
fn with_no_daemon_alive_somebody_is_taken_at_once() {
    let mut world = world!("[limits]\ntriggers = [\"kernel\"]\n");
    world.limit(ALICE, "48M", &[]);
    let mut sleeper = world.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    world.end_daemon(Signal::KILL);
    let mut worker = world.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]);
    let signals_others = world.signals_others();
    if signals_others {
        sleeper.killed();
    }
    worker.killed();
    assert!(signals_others || sleeper.runs());
    let usage = until("the worker's memory is back", SOON, || {
        let usage = world.facts(ALICE).usage.0;
        (usage <= (33 << 20) / exact::page_bytes()).then_some(usage)
    });
    assert!(usage <= (33 << 20) / exact::page_bytes());
    world.launch();
    let incidents = world.incidents(if signals_others { 2 } else { 1 });
    for incident in &incidents {
        // Nobody was waited for: the overshoot is that of a kill in the event itself.
        assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{incident}");
        assert_eq!(incident["trigger"], "in-kernel");
    }
}
