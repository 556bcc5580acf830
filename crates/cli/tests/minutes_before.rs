//! What came before a kill and after it, as `why` and `report` tell it: on this machine, with real programs.
#![cfg(test)]

mod browser;
mod support;

use browser::Browser;
use serde_json::Value;
use std::time::Duration;
use support::{ALICE, BOB, Fixture, SOON, until};

/// Longer than an incident's course goes on.
const TAIL: Duration = Duration::from_secs(40);

/// Takes a MiB whenever it hears a line, and says so.
const HOG: &str = "held = []\n\
    while hear():\n\
    \x20   held.append(bytearray(b'x') * (1 << 20))\n\
    \x20   say('took', len(held))\n";

fn wake_ups(fixture: &Fixture) -> u64 {
    fixture.status()["guards"]["own"]["wake_ups"].as_u64().unwrap()
}

/// Whether the guard wakes up for nothing but questions: two times for each, which has all tasks walked. A timer of a second
/// would come three times as well.
/// The machine's count of shared memory is looked at once a second while a CPU works, and here others work.
const IGNORED: &str = "[limits]\nshared = \"ignore\"\n";

fn sleeps(fixture: &Fixture) -> Option<()> {
    let before = wake_ups(fixture);
    std::thread::sleep(Duration::from_millis(3200));
    let times = wake_ups(fixture) - before;
    (times <= 2).then_some(())
}

fn samples(incident: &Value, of: &str) -> Vec<(i64, u64)> {
    let size = if of == "account" { "usage_bytes" } else { "mem_available_bytes" };
    let all = incident["course"][of].as_array().unwrap();
    all.iter().map(|one| (one["at_ms"].as_i64().unwrap(), one[size].as_u64().unwrap())).collect()
}

/// A kill of a program that grew past a line of 64 MiB over some seconds, near it from 8 MiB on.
fn grown(fixture: &Fixture) {
    grown_by(fixture, HOG);
}

fn grown_by(fixture: &Fixture, hog: &str) {
    fixture.limit(ALICE, "64M", &["--soft", "8M"]);
    let mut hog = fixture.python(ALICE, hog);
    hog.tell("go");
    hog.stage("took");
    // As slowly as the samples come: two of them lie between its beginning and its end.
    let pause = Duration::from_millis(80);
    for _ in 0..62 {
        until("it takes one more", SOON, || {
            std::thread::sleep(pause);
            hog.tell("go");
            Some(())
        });
        if !hog.runs() {
            break;
        }
    }
    hog.killed();
    fixture.incidents(1);
}

#[test]
fn growth_before_a_kill_and_what_came_after_it_are_told() {
    let fixture = fixture!(IGNORED);
    grown(&fixture);
    let incident = fixture.json(&["why", "last"]);
    let account = samples(&incident, "account");
    let before: Vec<_> = account.iter().filter(|(at, _)| *at < 0).collect();
    assert!(before.len() >= 3, "{incident}");
    assert!(before.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1), "{incident}");
    assert!(before.iter().all(|(_, usage)| *usage <= 64 << 20), "{incident}");
    assert!(!samples(&incident, "machine").is_empty(), "{incident}");
    let text = fixture.ok(&["why", "last"]);
    assert!(text.contains("Usage grew from ") && text.contains(" to 64.0 MiB in the last "), "{text}");
    // A list is told without.
    assert_eq!(fixture.history()[0]["course"], Value::Null);
    let told = until("what came after is known", TAIL, || {
        let told = fixture.json(&["why", "last"]);
        samples(&told, "account").iter().any(|(at, _)| *at > 8000).then_some(told)
    });
    let account = samples(&told, "account");
    assert!(account.last().unwrap().1 < 16 << 20, "{told}");
    assert!(account.windows(2).all(|two| two[0].0 < two[1].0), "{told}");
    assert!(told["story"]["after"].as_array().unwrap().iter().any(|one| {
        let text = one.as_str().unwrap();
        text.starts_with("After ") && text.contains(" usage was ")
    }));
    // Then nothing is near, and nobody looks any more.
    until("it sleeps again", SOON, || sleeps(&fixture));
}

#[test]
fn a_report_shows_growth_and_belongs_to_who_asked() {
    let fixture = fixture!();
    grown(&fixture);
    let page = fixture.ok(&["report", "last", "-o", "-"]);
    for part in [
        "<!DOCTYPE html>",
        "was killed",
        "Usage grew from ",
        "Usage and the line",
        "class=\"row first\"",
        "taken",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let path = fixture.path("a.html");
    let name = path.to_str().unwrap();
    fixture.ok(&["report", "1", "-o", name]);
    let (code, _, error) = fixture.run(&["report", "1", "--output", name]);
    assert_eq!((code, error.contains("is there already")), (1, true), "{error}");
    fixture.ok(&["report", "1", "-o", name, "--force"]);
    let (code, _, error) = fixture.run(&["report", "99", "-o", "-"]);
    assert_eq!((code, error.contains("there is no incident 99")), (1, true), "{error}");
    // Its owner may see it, another may not.
    let (code, own, error) = fixture.run_as(ALICE, &["report", "1", "-o", "-"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(own.contains("Usage and the line"), "{own}");
    fixture.owns(BOB);
    for arguments in [["report", "1", "-o", "-"].as_slice(), &["why", "1"], &["why", "last"]] {
        let (code, told, error) = fixture.run_as(BOB, arguments);
        assert_eq!((code, told.as_str()), (1, ""), "{arguments:?}: {error}");
    }
}

/// By a program that would have a page ask others, if it could.
#[test]
fn a_browser_shows_a_report_to_everybody_and_asks_nobody_for_more() {
    let Some(mut browser) = Browser::start() else { return };
    let fixture = fixture!();
    grown_by(&fixture, &format!("open('/proc/self/comm', 'w').write('<img src=//x/y>')\n{HOG}"));
    let path = fixture.path("report.html");
    fixture.ok(&["report", "last", "-o", path.to_str().unwrap()]);
    for width in [400, 1280] {
        browser.open(&path, width);
        let title = browser.evaluate("document.title");
        assert!(title.as_str().unwrap().starts_with("<img src=//x/y> (process "), "{title}");
        assert_eq!(
            browser.evaluate("document.documentElement.scrollWidth"),
            width,
            "it is wider than the window"
        );
        for (medium, scheme) in [("", "light"), ("", "dark"), ("print", "light"), ("print", "dark")] {
            browser.show(medium, scheme);
            let (contrast, text) = browser.worst_contrast();
            assert!(contrast >= 4.5, "'{text}' has a contrast of {contrast} ({medium} {scheme}, {width})");
        }
        // %PDF-
        assert!(browser.print().starts_with("JVBERi0"));
    }
    assert_eq!(browser.requests, vec![format!("file://{}", path.display()); 2]);
}

#[test]
fn an_idle_line_wakes_nobody_up_and_samples_nothing() {
    let fixture = fixture!(IGNORED);
    fixture.limit(ALICE, "64M", &[]);
    let mut idle = fixture.python(ALICE, "say('ready')\nhear()\n").ready();
    until("it sleeps", SOON, || sleeps(&fixture));
    idle.tell("end");
    // What comes all at once has no minutes before.
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=128", "--no-thp"]);
    hog.killed();
    let incident = fixture.incidents(1).remove(0);
    let told = fixture.json(&["why", &incident["id"].to_string()]);
    let before = told["course"]["account"]
        .as_array()
        .map_or(0, |all| all.iter().filter(|one| one["at_ms"].as_i64() < Some(-1000)).count());
    assert_eq!(before, 0, "{told}");
}
