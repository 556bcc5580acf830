//! One daemon after the other: what the one left undone the next one finishes, and another version takes over without a
//! gap.
#![cfg(test)]

mod forging;
mod support;

use plimsoll_sys::{bpf::Pins, process::clock_monotonic_ns};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use support::{Fixture, SOON, exact::page_bytes, until, wait_for};

const DORA: u32 = 60_156;
const EMIL: u32 = 60_157;

fn link(fixture: &Fixture) -> u64 {
    fs::metadata(fixture.pin().join("links/on_rss_stat")).unwrap().ino()
}

fn pages(mebibytes: u64) -> u64 {
    (mebibytes << 20) / page_bytes()
}

/// A process of Dora's that crosses a line of 32 MiB.
#[track_caller]
fn assert_the_line_holds(fixture: &Fixture) {
    fixture.workload(DORA, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
}

/// Starts the next daemon while one process after the other crosses; each is killed, and has one incident besides those
/// `before`. How many there are then.
#[track_caller]
fn start_in_a_storm(fixture: &mut Fixture, before: usize) -> usize {
    let over = AtomicBool::new(false);
    let mut calm = fixture.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).ready();
    let bloat = fixture.workload_path("bloat");
    let killed = std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let mut killed = 0;
            while !over.load(Ordering::Relaxed) {
                let status = std::process::Command::new("setpriv")
                    .args(["--reuid", &DORA.to_string(), "--regid", &DORA.to_string(), "--clear-groups"])
                    .args(["--pdeathsig", "KILL", "--"])
                    .arg(&bloat)
                    .args(["--mebibytes=48", "--no-thp", "--seconds=5"])
                    .stdin(std::process::Stdio::null())
                    .stdout(std::process::Stdio::null())
                    .status()
                    .unwrap();
                assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
                killed += 1;
            }
            killed
        });
        std::thread::sleep(Duration::from_millis(100));
        fixture.launch();
        std::thread::sleep(Duration::from_millis(100));
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap()
    });
    assert!(calm.runs());
    calm.stop();
    assert_eq!(fixture.incidents(before + killed).len(), before + killed);
    wait_for("nothing is left", || fixture.usage_pages(DORA) == 0);
    before + killed
}

#[test]
fn programs_of_another_build_are_replaced_in_a_storm_and_go_on_with_the_maps() {
    let mut fixture = fixture!(""; "--keep");
    fixture.limit(DORA, "32M", &[]);
    fixture.limit(EMIL, "1G", &[]);
    let _resident = fixture.workload(EMIL, "chill", &["--mebibytes=8", "--seconds=60"]).ready();
    let (before, usage) = (link(&fixture), fixture.usage_pages(EMIL));
    let map = || fs::metadata(fixture.pin().join("maps/mms")).unwrap().ino();
    let maps = map();
    assert_eq!(fixture.end_daemon(Signal::TERM).code(), Some(0));
    fixture.launch();
    assert_eq!(link(&fixture), before, "the same build was replaced");
    fixture.end_daemon(Signal::TERM);
    assert_eq!(fixture.facts(EMIL).usage.0, usage);
    forging::another_build(fixture.pin());
    start_in_a_storm(&mut fixture, 0);
    assert_ne!(link(&fixture), before);
    assert_eq!(fs::metadata(fixture.pin().join("maps/mms")).unwrap().ino(), maps);
    wait_for("the version before to be told", || fixture.log().contains("version before were replaced"));
    assert_eq!(fixture.usage_pages(EMIL), usage);
    assert_the_line_holds(&fixture);
    // Stopped to be upgraded: nothing of it is in the way of ending everything.
    fixture.end_daemon(Signal::TERM);
    fixture.ok(&["daemon", "--stop-guarding", "--pin", fixture.pin().to_str().unwrap()]);
    assert!(!fixture.pin().exists());
}

#[test]
fn a_daemon_that_is_ended_to_be_replaced_leaves_its_lines_in_force_and_a_later_stop_does_not() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "32M", &[]);
    let before = link(&fixture);
    assert_eq!(fixture.end_daemon(Signal::USR1).code(), Some(0));
    assert_the_line_holds(&fixture);
    fixture.launch();
    assert_eq!(link(&fixture), before);
    assert_eq!(fixture.incidents(1).len(), 1);
    fixture.end_daemon(Signal::TERM);
    assert!(!fixture.pin().exists());
}

#[test]
fn maps_of_other_sizes_or_another_layout_or_schema_are_replaced_in_a_storm_without_a_gap() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "32M", &[]);
    let changes: [fn(&Fixture); 3] = [
        |fixture| forging::another_layout(fixture.pin()),
        |fixture| {
            let more = "[machine]\nenabled = false\n[maps]\nmax_processes = 3000\n";
            fs::write(fixture.path("plimsoll.toml"), more).unwrap();
        },
        |fixture| forging::another_schema(fixture.pin()),
    ];
    let mut told = 0;
    for (number, change) in changes.into_iter().enumerate() {
        let before = link(&fixture);
        fixture.end_daemon(Signal::KILL);
        change(&fixture);
        if number == 2 {
            // What the programs of another schema did is not told; that they did it is what counts.
            assert_the_line_holds(&fixture);
            fixture.launch();
            // A lane writes it, when it comes to that.
            wait_for("the other schema to be told", || {
                fixture.log().contains("another version (schema 4711)")
            });
        } else {
            told = start_in_a_storm(&mut fixture, told);
        }
        assert_ne!(link(&fixture), before, "change {number}");
        assert!(!fixture.pin().join("loading").exists() && !fixture.pin().join("next").exists());
        assert_the_line_holds(&fixture);
        told = fixture.incidents(told + 1).len();
    }
    fixture.end_daemon(Signal::TERM);
    assert!(!fixture.pin().exists() && !fixture.path("socket").exists());
}

/// Moves what is pinned to where it was while it was being replaced.
fn set_back(pin: &Path, folder: &str, names: &[&str]) {
    fs::create_dir_all(pin.join(folder)).unwrap();
    for name in names {
        fs::rename(pin.join(name), pin.join(folder).join(name)).unwrap();
    }
}

#[test]
fn a_replacement_that_a_crash_interrupted_is_finished_or_undone() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "32M", &[]);
    for moved in [["links", "programs", "maps"].as_slice(), &["programs", "maps"], &["maps"]] {
        fixture.end_daemon(Signal::KILL);
        set_back(fixture.pin(), "next", moved);
        fixture.launch();
        assert_the_line_holds(&fixture);
        assert!(!fixture.pin().join("next").exists());
    }
    // Not complete: what was in force stays so.
    let before = link(&fixture);
    fixture.end_daemon(Signal::KILL);
    for name in ["links", "programs", "maps"] {
        fs::create_dir_all(fixture.pin().join("loading").join(name)).unwrap();
    }
    fixture.launch();
    assert_eq!(link(&fixture), before);
    assert!(!fixture.pin().join("loading").exists());
    assert_the_line_holds(&fixture);
}

#[test]
fn who_was_asked_to_end_by_a_daemon_that_died_is_ended_by_the_next_one() {
    let mut fixture = fixture!("[limits]\nterm_grace_ms = 60000\n");
    fixture.limit(DORA, "32M", &["--action", "term"]);
    let mut stubborn = fixture.python(
        DORA,
        "signal.signal(15, lambda *_: say('asked'))\nheld = bytearray(30 << 20)\nsay('grown')\n\
         while True: time.sleep(1)\n",
    );
    stubborn.stage("asked");
    fixture.incidents(1);
    fixture.end_daemon(Signal::KILL);
    assert!(stubborn.runs());
    fixture.launch();
    stubborn.killed();
    let incidents = fixture.incidents(2);
    let told: Vec<_> = incidents.iter().map(|one| (&one["action"], &one["reason"])).collect();
    assert_eq!(told[1], (&"kill".into(), &"term-deadline-passed".into()), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn who_was_claimed_and_never_signalled_lives_and_holds_nobody_up() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "64M", &[]);
    let mut claimed = fixture.workload(DORA, "chill", &["--mebibytes=20", "--seconds=60"]).ready();
    let account = fixture.facts(DORA).index;
    // The next daemon lets it live.
    fixture.end_daemon(Signal::KILL);
    forging::claimed(fixture.pin(), account, claimed.pid(), clock_monotonic_ns());
    // Of an account that is far some pages of each process are not settled.
    assert!(fixture.facts(DORA).dying.0 >= pages(19));
    fixture.launch();
    wait_for("nobody is dying", || fixture.facts(DORA).dying.0 == 0);
    assert!(claimed.runs() && fixture.history().is_empty());
    // Without one, the programs find out themselves: the line would be 20 MiB further otherwise.
    fixture.end_daemon(Signal::KILL);
    forging::claimed(fixture.pin(), account, claimed.pid(), clock_monotonic_ns());
    fixture.workload(DORA, "bloat", &["--mebibytes=56", "--rate=100", "--no-thp"]).killed();
    assert!(claimed.runs());
    fixture.launch();
    assert_eq!(fixture.incidents(1).len(), 1);
    assert!(claimed.runs());
}

#[test]
fn more_kills_than_are_told_one_by_one_while_no_daemon_runs_are_counted_and_told() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "8M", &[]);
    fixture.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).stage("ready");
    fixture.end_daemon(Signal::KILL);
    // Of one account a hundred are told at once, so that it does not fill the ring, which is everybody's.
    let arguments = ["--children=8", "--mebibytes=16", "--storm-seconds=40", "--seconds=60"];
    let mut storm = fixture.workload(DORA, "forkstorm", &arguments).ready();
    until("many are killed", Duration::from_secs(40), || (fixture.facts(DORA).folded > 900).then_some(()));
    storm.stop();
    wait_for("all have ended", || fixture.facts(DORA).processes == 0);
    let (counters, counted) = (fixture.maps().counters().unwrap(), u64::from(fixture.facts(DORA).folded));
    assert_eq!(counters.records_dropped, 0, "{counters:?}");
    fixture.launch();
    let told = |incidents: &[serde_json::Value]| {
        incidents.iter().filter_map(|one| one["unrecorded"].as_u64()).sum::<u64>()
    };
    let kills = |incidents: &[serde_json::Value]| {
        u64::try_from(incidents.iter().filter(|one| one["unrecorded"].is_null()).count()).unwrap()
    };
    // What is missing may be told before the last of the others is in the history.
    let incidents = until("all is told", SOON, || {
        let all = fixture.history();
        (told(&all) > 0 && kills(&all) + counted >= counters.kills).then_some(all)
    });
    assert_eq!(told(&incidents), counted);
    assert_eq!(kills(&incidents) + counted, counters.kills);
    // Once is enough.
    fixture.end_daemon(Signal::KILL);
    fixture.launch();
    assert_eq!(told(&fixture.history()), counted);
}

#[test]
fn a_charge_that_a_lost_exit_left_behind_kills_nobody() {
    let mut fixture = fixture!();
    fixture.limit(DORA, "64M", &[]);
    // Its account is there to be charged.
    fixture.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).stage("ready");
    let account = fixture.facts(DORA).index;
    for number in 0..2 {
        // With a daemon, and without.
        if number == 1 {
            fixture.end_daemon(Signal::KILL);
        }
        forging::lost_exit(fixture.pin(), number, account, DORA, pages(30));
        let mut innocent = fixture.workload(DORA, "bloat", &["--mebibytes=48", "--no-thp"]).filled();
        assert!(innocent.runs());
        innocent.stop();
    }
    fixture.launch();
    assert!(fixture.history().is_empty(), "{:?}", fixture.history());
    wait_for("the charge is gone", || fixture.usage_pages(DORA) == 0);
    assert_the_line_holds(&fixture);
    assert!(matches!(Pins::new(fixture.pin()).state(), Ok(plimsoll_sys::bpf::PinState::Ours(_))));
}
