//! Each trigger alone: with the others switched off, the line holds all the same.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use support::{ALICE, SOON, exact, until};

/// A sleeper of 32 MiB and eight workers that cross a line of 64 MiB: who was killed, how, and how far past the line.
fn sleeper_and_workers(fixture: &support::Fixture) -> (serde_json::Value, u32) {
    fixture.limit(ALICE, "64M", &[]);
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    let mut workers: Vec<_> = (0..8)
        .map(|_| fixture.workload(ALICE, "bloat", &["--mebibytes=5", "--rate=40", "--no-thp"]))
        .collect();
    sleeper.killed();
    for worker in &mut workers {
        worker.fills();
    }
    let incidents = fixture.incidents(1);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert!(workers.iter_mut().all(support::program::Program::runs));
    (incidents[0].clone(), sleeper.pid())
}

#[test]
fn the_kernel_side_alone_takes_the_largest_though_it_sleeps() {
    let fixture = fixture!("[limits]\ntriggers = [\"kernel\"]\n");
    fixture.limit(ALICE, "64M", &[]);
    if !fixture.signals_others() {
        return support::skip("before Linux 6.13 it cannot");
    }
    let (incident, sleeper) = sleeper_and_workers(&fixture);
    assert_eq!(
        (&incident["trigger"], &incident["victims"][0]["pid"]),
        (&"in-kernel".into(), &sleeper.into())
    );
    assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 8 * (64 << 10), "{incident}");
}

#[test]
fn the_daemon_alone_takes_the_largest_though_it_sleeps() {
    let fixture = fixture!("[limits]\ntriggers = [\"daemon\"]\n");
    let (incident, sleeper) = sleeper_and_workers(&fixture);
    assert_eq!((&incident["trigger"], &incident["victims"][0]["pid"]), (&"daemon".into(), &sleeper.into()));
    assert_eq!(incident["reason"], "over-hard-limit-selected");
}

#[test]
fn with_no_daemon_alive_somebody_is_taken_at_once() {
    let mut fixture = fixture!("[limits]\ntriggers = [\"kernel\"]\n");
    fixture.limit(ALICE, "48M", &[]);
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    fixture.end_daemon(Signal::KILL);
    let mut worker = fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]);
    let signals_others = fixture.signals_others();
    if signals_others {
        sleeper.killed();
    }
    worker.killed();
    assert!(signals_others || sleeper.runs());
    let usage = until("the worker's memory is back", SOON, || {
        let usage = fixture.facts(ALICE).usage.0;
        (usage <= (33 << 20) / exact::page_bytes()).then_some(usage)
    });
    assert!(usage <= (33 << 20) / exact::page_bytes());
    fixture.launch();
    let incidents = fixture.incidents(if signals_others { 2 } else { 1 });
    for incident in &incidents {
        // Nobody was waited for: the overshoot is that of a kill in the event itself.
        assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{incident}");
        assert_eq!(incident["trigger"], "in-kernel");
    }
}
