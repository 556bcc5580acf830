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
use support::{SOON, World, exact::page_bytes, until, wait_for};

const DORA: u32 = 60_156;
const EMIL: u32 = 60_157;

fn link(world: &World) -> u64 {
    fs::metadata(world.pin().join("links/on_rss_stat")).unwrap().ino()
}

fn pages(mebibytes: u64) -> u64 {
    (mebibytes << 20) / page_bytes()
}

/// A process of Dora's that crosses a line of 32 MiB.
#[track_caller]
fn assert_the_line_holds(world: &World) {
    world.workload(DORA, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
}

/// Starts the next daemon while one process after the other crosses; each is killed, and has one incident besides those
/// `before`. How many there are then.
#[track_caller]
fn start_in_a_storm(world: &mut World, before: usize) -> usize {
    let over = AtomicBool::new(false);
    let mut calm = world.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).ready();
    let bloat = world.workload_path("bloat");
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
        world.launch();
        std::thread::sleep(Duration::from_millis(100));
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap()
    });
    assert!(calm.runs());
    calm.stop();
    assert_eq!(world.incidents(before + killed).len(), before + killed);
    wait_for("nothing is left", || world.usage_pages(DORA) == 0);
    before + killed
}

#[test]
fn programs_of_another_build_are_replaced_in_a_storm_and_go_on_with_the_maps() {
    let mut world = world!(""; "--keep");
    world.limit(DORA, "32M", &[]);
    world.limit(EMIL, "1G", &[]);
    let _resident = world.workload(EMIL, "chill", &["--mebibytes=8", "--seconds=60"]).ready();
    let (before, usage) = (link(&world), world.usage_pages(EMIL));
    let map = || fs::metadata(world.pin().join("maps/mms")).unwrap().ino();
    let maps = map();
    assert_eq!(world.end_daemon(Signal::TERM).code(), Some(0));
    world.launch();
    assert_eq!(link(&world), before, "the same build was replaced");
    world.end_daemon(Signal::TERM);
    assert_eq!(world.facts(EMIL).usage.0, usage);
    forging::another_build(world.pin());
    start_in_a_storm(&mut world, 0);
    assert_ne!(link(&world), before);
    assert_eq!(fs::metadata(world.pin().join("maps/mms")).unwrap().ino(), maps);
    assert!(world.log().contains("version before were replaced"), "{}", world.log());
    assert_eq!(world.usage_pages(EMIL), usage);
    assert_the_line_holds(&world);
    // Stopped to be upgraded: nothing of it is in the way of ending everything.
    world.end_daemon(Signal::TERM);
    world.ok(&["daemon", "--stop-guarding", "--pin", world.pin().to_str().unwrap()]);
    assert!(!world.pin().exists());
}

#[test]
fn maps_of_other_sizes_or_another_layout_or_schema_are_replaced_in_a_storm_without_a_gap() {
    let mut world = world!();
    world.limit(DORA, "32M", &[]);
    let changes: [fn(&World); 3] = [
        |world| forging::another_layout(world.pin()),
        |world| {
            let more = "[machine]\nenabled = false\n[maps]\nmax_processes = 3000\n";
            fs::write(world.path("plimsoll.toml"), more).unwrap();
        },
        |world| forging::another_schema(world.pin()),
    ];
    let mut told = 0;
    for (number, change) in changes.into_iter().enumerate() {
        let before = link(&world);
        world.end_daemon(Signal::KILL);
        change(&world);
        if number == 2 {
            // What the programs of another schema did is not told; that they did it is what counts.
            assert_the_line_holds(&world);
            world.launch();
            assert!(world.log().contains("another version (schema 4711)"), "{}", world.log());
        } else {
            told = start_in_a_storm(&mut world, told);
        }
        assert_ne!(link(&world), before, "change {number}");
        assert!(!world.pin().join("loading").exists() && !world.pin().join("next").exists());
        assert_the_line_holds(&world);
        told = world.incidents(told + 1).len();
    }
    world.end_daemon(Signal::TERM);
    assert!(!world.pin().exists() && !world.path("socket").exists());
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
    let mut world = world!();
    world.limit(DORA, "32M", &[]);
    for moved in [["links", "programs", "maps"].as_slice(), &["programs", "maps"], &["maps"]] {
        world.end_daemon(Signal::KILL);
        set_back(world.pin(), "next", moved);
        world.launch();
        assert_the_line_holds(&world);
        assert!(!world.pin().join("next").exists());
    }
    // Not complete: what was in force stays so.
    let before = link(&world);
    world.end_daemon(Signal::KILL);
    for name in ["links", "programs", "maps"] {
        fs::create_dir_all(world.pin().join("loading").join(name)).unwrap();
    }
    world.launch();
    assert_eq!(link(&world), before);
    assert!(!world.pin().join("loading").exists());
    assert_the_line_holds(&world);
}

#[test]
fn who_was_asked_to_end_by_a_daemon_that_died_is_ended_by_the_next_one() {
    let mut world = world!("[limits]\nterm_grace_ms = 60000\n");
    world.limit(DORA, "32M", &["--action", "term"]);
    let mut stubborn = world.python(
        DORA,
        "signal.signal(15, lambda *_: say('asked'))\nheld = bytearray(30 << 20)\nsay('grown')\n\
         while True: time.sleep(1)\n",
    );
    stubborn.stage("asked");
    world.incidents(1);
    world.end_daemon(Signal::KILL);
    assert!(stubborn.runs());
    world.launch();
    stubborn.killed();
    let incidents = world.incidents(2);
    let told: Vec<_> = incidents.iter().map(|one| (&one["action"], &one["reason"])).collect();
    assert_eq!(told[1], (&"kill".into(), &"term-deadline-passed".into()), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn who_was_claimed_and_never_signalled_lives_and_holds_nobody_up() {
    let mut world = world!();
    world.limit(DORA, "64M", &[]);
    let mut claimed = world.workload(DORA, "chill", &["--mebibytes=20", "--seconds=60"]).ready();
    let account = world.facts(DORA).index;
    // The next daemon lets it live.
    world.end_daemon(Signal::KILL);
    forging::claimed(world.pin(), account, claimed.pid(), clock_monotonic_ns());
    assert!(world.facts(DORA).dying.0 >= pages(20));
    world.launch();
    wait_for("nobody is dying", || world.facts(DORA).dying.0 == 0);
    assert!(claimed.runs() && world.history().is_empty());
    // Without one, the programs find out themselves: the line would be 20 MiB further otherwise.
    world.end_daemon(Signal::KILL);
    forging::claimed(world.pin(), account, claimed.pid(), clock_monotonic_ns());
    world.workload(DORA, "bloat", &["--mebibytes=56", "--rate=100", "--no-thp"]).killed();
    assert!(claimed.runs());
    world.launch();
    assert_eq!(world.incidents(1).len(), 1);
    assert!(claimed.runs());
}

#[test]
fn more_kills_than_are_told_one_by_one_while_no_daemon_runs_are_counted_and_told() {
    let mut world = world!();
    world.limit(DORA, "8M", &[]);
    world.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).stage("ready");
    world.end_daemon(Signal::KILL);
    // Of one account a hundred are told at once, so that it does not fill the ring, which is everybody's.
    let arguments = ["--children=8", "--mebibytes=16", "--storm-seconds=40", "--seconds=60"];
    let mut storm = world.workload(DORA, "forkstorm", &arguments).ready();
    until("many are killed", Duration::from_secs(40), || (world.facts(DORA).folded > 900).then_some(()));
    storm.stop();
    wait_for("all have ended", || world.facts(DORA).processes == 0);
    let (counters, counted) = (world.maps().counters().unwrap(), u64::from(world.facts(DORA).folded));
    assert_eq!(counters.records_dropped, 0, "{counters:?}");
    world.launch();
    let told = |incidents: &[serde_json::Value]| {
        incidents.iter().filter_map(|one| one["unrecorded"].as_u64()).sum::<u64>()
    };
    let kills = |incidents: &[serde_json::Value]| {
        u64::try_from(incidents.iter().filter(|one| one["unrecorded"].is_null()).count()).unwrap()
    };
    // What is missing may be told before the last of the others is in the history.
    let incidents = until("all is told", SOON, || {
        let all = world.history();
        (told(&all) > 0 && kills(&all) + counted >= counters.kills).then_some(all)
    });
    assert_eq!(told(&incidents), counted);
    assert_eq!(kills(&incidents) + counted, counters.kills);
    // Once is enough.
    world.end_daemon(Signal::KILL);
    world.launch();
    assert_eq!(told(&world.history()), counted);
}

#[test]
fn a_charge_that_a_lost_exit_left_behind_kills_nobody() {
    let mut world = world!();
    world.limit(DORA, "64M", &[]);
    // Its account is there to be charged.
    world.workload(DORA, "chill", &["--mebibytes=1", "--seconds=60"]).stage("ready");
    let account = world.facts(DORA).index;
    for number in 0..2 {
        // With a daemon, and without.
        if number == 1 {
            world.end_daemon(Signal::KILL);
        }
        forging::lost_exit(world.pin(), number, account, DORA, pages(30));
        let mut innocent = world.workload(DORA, "bloat", &["--mebibytes=48", "--no-thp"]).filled();
        assert!(innocent.runs());
        innocent.stop();
    }
    world.launch();
    assert!(world.history().is_empty(), "{:?}", world.history());
    wait_for("the charge is gone", || world.usage_pages(DORA) == 0);
    assert_the_line_holds(&world);
    assert!(matches!(Pins::new(world.pin()).state(), Ok(plimsoll_sys::bpf::PinState::Ours(_))));
}
