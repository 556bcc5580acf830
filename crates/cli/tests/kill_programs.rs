//! Real programs under a line: each is ended at it, in one piece, and nothing stays behind.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use support::{ALICE, Fixture, exact, program::Program, slowness, until, wait_for};

/// A program's path, where it is installed or where the set-up of the tests unpacks it.
fn installed(name: &str) -> Option<String> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin");
    let folders = ["/usr/bin".into(), "/usr/local/bin".into(), unpacked];
    folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .map(|path| path.display().to_string())
}

/// The path of a program, or `None` when it was said that the test cannot run.
fn needed(name: &str) -> Option<String> {
    let path = installed(name);
    if path.is_none() {
        support::skip(format_args!("there is no {name} on this machine"));
    }
    path
}

/// Checks what every crossing must leave: usage at or under the line, every victim the user's, small overshoots.
#[track_caller]
fn assert_held(fixture: &Fixture, hard_bytes: u64) -> Vec<Value> {
    let incidents = fixture.incidents(1);
    // Those that came faster than they are told are one, with their number.
    for incident in incidents.iter().filter(|one| one["reason"] != "incidents-folded") {
        assert_eq!(incident["victims"][0]["uid"], ALICE, "{incident}");
        assert_eq!(incident["hard_bytes"], hard_bytes, "{incident}");
    }
    let usage = || fixture.usage_pages(ALICE) * exact::page_bytes();
    wait_for("usage is at or under the line", || usage() <= hard_bytes);
    incidents
}

#[test]
fn python_that_grows_a_list_is_killed_at_the_line() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut python =
        fixture.python(ALICE, "lost = []\nwhile True: lost.append('x' * 1000 + str(len(lost)))\n");
    python.killed();
    let incidents = assert_held(&fixture, 64 << 20);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0]["trigger"], "in-kernel");
    assert!(incidents[0]["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{}", incidents[0]);
    assert!(incidents[0]["victims"][0]["comm"].as_str().unwrap().starts_with("python3"), "{}", incidents[0]);
}

#[test]
fn a_pool_of_python_workers_loses_its_largest_and_the_others_go_on() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut pool = fixture.python(
        ALICE,
        "children = []\n\
         for size in (10, 10, 10, 10, 200):\n\
         \x20   child = os.fork()\n\
         \x20   if child == 0:\n\
         \x20       mine = []\n\
         \x20       for turn in range(size * 16): mine.append(bytearray(65536)); time.sleep(0.0005)\n\
         \x20       time.sleep(60)\n\
         \x20   children.append(child)\n\
         ended, status = os.wait()\n\
         say(children.index(ended), os.WTERMSIG(status))\n\
         hear()\n\
         for child in children[:4]: os.kill(child, signal.SIGKILL)\n",
    );
    assert_eq!(pool.line(), "4 9");
    assert_eq!(assert_held(&fixture, 128 << 20).len(), 1);
    pool.tell("");
    pool.end();
    assert_eq!(fixture.history().len(), 1);
    wait_for("all have ended", || fixture.usage_pages(ALICE) == 0);
}

#[test]
fn node_that_fills_buffers_is_killed_at_the_line() {
    let Some(node) = needed("node") else { return };
    let fixture = fixture!();
    fixture.limit(ALICE, "160M", &[]);
    let mut command = fixture.as_user(ALICE, node);
    command.args([
        "-e",
        "const all = []; setTimeout(() => process.exit(3), 60000);\
        (function grow() { all.push(Buffer.alloc(1 << 20, 1)); setImmediate(grow); })()",
    ]);
    Program::of(command).killed();
    let incidents = assert_held(&fixture, 160 << 20);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
}

#[test]
fn stress_ng_is_killed_at_the_line_as_often_as_it_comes_back() {
    let Some(stress) = needed("stress-ng") else { return };
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut command = fixture.as_user(ALICE, stress);
    command.args(["--vm", "2", "--vm-bytes", "256M", "--vm-keep", "--timeout", "5", "--temp-path"]);
    command.arg(own_folder(&fixture)).stderr(Stdio::null());
    Program::of(command).end_within(Duration::from_secs(30));
    let incidents = assert_held(&fixture, 64 << 20);
    assert!(incidents.iter().all(|incident| incident["action"] == "kill"));
    wait_for("all have ended", || fixture.usage_pages(ALICE) == 0);
}

#[test]
fn a_fork_storm_is_held_at_its_line() {
    let fixture = fixture!();
    fixture.limit(ALICE, "24M", &[]);
    // Where a fork takes longer, so must a child's life, or never enough of them are alive.
    let mebibytes = if slowness() > 1 { "--mebibytes=8" } else { "--mebibytes=2" };
    let settings = ["--children=48", mebibytes, "--storm-seconds=3", "--wait"];
    let mut storm = fixture.workload(ALICE, "forkstorm", &settings).ready();
    storm.tell("");
    let mut peak = 0;
    let told = until("the storm is over", Duration::from_secs(30), || {
        assert!(storm.runs(), "the parent of the storm, its smallest process, ended");
        peak = peak.max(fixture.facts(ALICE).usage.0 * exact::page_bytes());
        storm.try_line()
    });
    let killed: u64 = told.split("killed=").nth(1).unwrap().trim().parse().unwrap();
    assert!(killed > 0, "{told}");
    println!("{told}; peak {peak} bytes; {} incidents", fixture.history().len());
    assert_held(&fixture, 24 << 20);
    // All children together would take 96 MiB.
    assert!(peak < 72 << 20, "{peak} bytes at a line of 24 MiB");
    storm.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

/// Processes that each start the next one and end are all gone soon after they are over the line. Returns the usage at most,
/// and for how long it was over.
fn hops_end(fixture: &Fixture, hard: u64, settings: &[&str]) -> (u64, Duration) {
    let common = ["--no-thp", "--wait"];
    let mut hops = fixture.workload(ALICE, "hop", &[&common, settings].concat()).ready();
    hops.tell("");
    let (mut peak, mut first_over) = (0, None);
    let began = Instant::now();
    until("they are all gone", Duration::from_secs(12), || {
        let usage = fixture.facts(ALICE).usage.0 * exact::page_bytes();
        peak = peak.max(usage);
        if usage > hard {
            first_over.get_or_insert_with(Instant::now);
        }
        hops.try_line()
    });
    let over = first_over.map_or(Duration::ZERO, |since| since.elapsed());
    println!("{settings:?}: {peak} bytes at most, over for {over:?}, all in {:?}", began.elapsed());
    hops.stop();
    (peak, over)
}

#[test]
fn processes_that_hop_in_one_address_space_end_at_the_line() {
    let mut fixture = fixture!();
    let hard = 32 << 20;
    fixture.limit(ALICE, "32M", &[]);
    let shapes: [&[&str]; 4] =
        [&["--chains=8"], &["--chains=1"], &["--chains=2", "--pages=64"], &["--chains=64"]];
    let forks: [&[&str]; 2] = [&["--chains=8", "--pages=64"], &["--chains=64"]];
    for daemon in [true, false] {
        if !daemon {
            fixture.end_daemon(Signal::KILL);
        }
        for settings in shapes {
            let kills = fixture.maps().counters().unwrap().kills;
            let (peak, over) = hops_end(&fixture, hard, &[settings, &["--hop-seconds=8"]].concat());
            let killed = fixture.maps().counters().unwrap().kills;
            assert!(
                killed > kills && peak <= hard + (16 << 20),
                "daemon: {daemon}, {settings:?}: {peak} bytes"
            );
            assert!(over < Duration::from_secs(1), "daemon: {daemon}, {settings:?}: over for {over:?}");
        }
        // Each with an address space of its own: its end leaves the next one, for as long as the chain lasts.
        for settings in forks {
            let (peak, _) = hops_end(&fixture, hard, &[settings, &["--forks", "--hop-seconds=1"]].concat());
            assert!(peak <= hard + (16 << 20), "daemon: {daemon}, {settings:?}, forked: {peak} bytes");
        }
    }
}

#[test]
fn a_compiler_is_killed_at_the_line_and_its_driver_tells() {
    let Some(gcc) = needed("gcc") else { return };
    let fixture = fixture!();
    let folder = own_folder(&fixture);
    // A table whose initialisers are all different: a syntax tree of some hundred megabytes.
    let rows: String =
        (0..400_000 / slowness().min(4)).map(|row| format!("{{ {row}, \"{row}\", {row}.5 }},\n")).collect();
    let source =
        format!("struct row {{ long a; const char *b; double c; }};\nstruct row rows[] = {{\n{rows}}};\n");
    fs::write(fixture.path("large.c"), source).unwrap();
    let compile = || {
        let mut command: Command = fixture.as_user(ALICE, &gcc);
        command.args(["-c", "-o", "/dev/null"]).arg(fixture.path("large.c"));
        command.env("TMPDIR", &folder).stderr(Stdio::null());
        Program::of(command).end_within(Duration::from_secs(60))
    };
    fixture.limit(ALICE, "48M", &[]);
    let status = compile();
    assert!(status.signal().is_none() && !status.success(), "{status}");
    let incidents = assert_held(&fixture, 48 << 20);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0]["victims"][0]["comm"], "cc1", "{}", incidents[0]);
    assert_eq!(fixture.usage_pages(ALICE), 0);
    // With room it compiles, and nobody is killed.
    fixture.limit(ALICE, "900M", &[]);
    assert!(compile().success());
    assert_eq!(fixture.history().len(), 1);
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

/// A folder that the user may write to.
fn own_folder(fixture: &Fixture) -> std::path::PathBuf {
    let folder = fixture.path("own");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(ALICE), Some(ALICE)).unwrap();
    folder
}
