//! The machine guard with real processes: in a pid namespace of its own, so that it can see and signal nobody else, and
//! with a `/proc/meminfo` that tells what the test wants.
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "this whole file is one test module"
)]

mod support;

use serde_json::Value;
use std::{
    fs,
    io::{Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use support::{
    SOON,
    program::{PYTHON, Program, workloads},
    until,
};
use tempfile::TempDir;

/// The user whose processes are at stake: of no other suite, whose cleaning up ends all of a user.
const ALICE: u32 = 60_153;

/// Of a machine with 1 GiB in programs: plenty, at the SIGTERM threshold (10 %), at the SIGKILL threshold (5 %).
const PLENTY: Memory = Memory { available_mib: 6000, swap_free_mib: 0, swap_total_mib: 0 };
const SHORT: Memory = Memory { available_mib: 90, ..PLENTY };
const DIRE: Memory = Memory { available_mib: 30, ..PLENTY };

/// What `/proc/meminfo` is made to tell.
#[derive(Debug, Clone, Copy)]
struct Memory {
    available_mib: u64,
    swap_free_mib: u64,
    swap_total_mib: u64,
}

impl Memory {
    /// Always as many bytes, so that it can be written over in one go.
    fn text(self) -> String {
        let line = |name: &str, mib: u64| format!("{name}{:>12} kB\n", mib * 1024);
        line("MemTotal:    ", 8192)
            + &line("MemFree:     ", self.available_mib)
            + &line("MemAvailable:", self.available_mib)
            + &line("AnonPages:   ", 1024)
            + &line("SwapTotal:   ", self.swap_total_mib)
            + &line("SwapFree:    ", self.swap_free_mib)
    }
}

/// The pid namespace, with a daemon in it.
struct Cell {
    folder: TempDir,
    init_pid: u32,
    _outside: Program,
    _daemon: Program,
}

/// Starts a cell for the test it is written in, or returns with the reason why not.
macro_rules! cell {
    ($config:expr) => {{
        fn here() {}
        let name = core::any::type_name_of_val(&here).rsplit("::").nth(1).unwrap_or("unnamed");
        match Cell::start(name, $config) {
            Some(cell) => cell,
            None => return,
        }
    }};
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"]);
    command
}

/// The only child of a process.
fn child_of(parent: u32) -> Option<u32> {
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("PPid:").is_some_and(|ppid| ppid.trim() == parent.to_string()))
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != parent).find(is_child)
}

impl Cell {
    fn start(test: &str, config: &str) -> Option<Self> {
        if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            println!("\nSKIPPED: {test}: no pid namespace can be made here, which needs root");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("plimsoll-test-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let meminfo = folder.path().join("meminfo");
        fs::write(&meminfo, PLENTY.text()).unwrap();
        fs::set_permissions(&meminfo, fs::Permissions::from_mode(0o666)).unwrap();
        fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        let mut init = unshare();
        init.args(["sh", "-c", "mount --bind \"$1\" /proc/meminfo && echo ready && exec sleep 100", "sh"])
            .arg(&meminfo);
        let mut outside = Program::of(init);
        outside.stage("ready");
        let init_pid = child_of(outside.pid()).expect("the namespace has its first process");
        let daemon = Program::of(daemon(folder.path(), init_pid));
        let cell = Self { folder, init_pid, _outside: outside, _daemon: daemon };
        until("the daemon answers", SOON, || cell.json(&["status"]));
        Some(cell)
    }

    /// Makes the machine as short of memory as that.
    fn is(&self, memory: Memory) {
        self.tells(&memory.text());
    }

    /// Written over in place: the mount is of this very file.
    fn tells(&self, meminfo: &str) {
        let mut file = fs::OpenOptions::new().write(true).open(self.folder.path().join("meminfo")).unwrap();
        file.write_all(meminfo.as_bytes()).unwrap();
        let end = file.stream_position().unwrap();
        file.set_len(end).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command
            .args(arguments)
            .env("PLIMSOLL_SOCKET", self.folder.path().join("socket"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, arguments: &[&str]) -> Option<Value> {
        let (code, stdout, _) = self.run(&[arguments, &["--json"]].concat());
        (code == 0).then(|| serde_json::from_str(&stdout).unwrap())
    }

    fn history(&self) -> Vec<Value> {
        self.json(&["history"]).unwrap().as_array().unwrap().clone()
    }

    #[track_caller]
    fn incidents(&self, at_least: usize) -> Vec<Value> {
        until(&format!("{at_least} incidents"), SOON, || {
            Some(self.history()).filter(|all| all.len() >= at_least)
        })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A Python process inside that holds so much; `on_term` is what it does at SIGTERM. Gives its number there.
    fn process(&self, mebibytes: u32, on_term: &str) -> (Program, u64) {
        let script = format!(
            "import os, signal, sys, time\nsignal.alarm(60)\n\
             def relieve():\n    f = os.open({meminfo:?}, os.O_WRONLY)\n    os.write(f, {plenty:?}.encode())\n\
             def leave(*_):\n    relieve()\n    print('asked', flush=True)\n    os._exit(7)\n\
             signal.signal(signal.SIGTERM, {on_term})\n\
             memory = bytearray(b'x') * ({mebibytes} << 20)\nprint('holds', os.getpid(), flush=True)\n\
             while True: time.sleep(1)\n",
            meminfo = self.folder.path().join("meminfo"),
            plenty = PLENTY.text(),
        );
        let mut command = inside(self.init_pid);
        command.args([
            "setpriv",
            "--reuid",
            &ALICE.to_string(),
            "--clear-groups",
            "--",
            PYTHON,
            "-c",
            &script,
        ]);
        let mut program = Program::of(command);
        let pid = program.stage("holds").parse().unwrap();
        (program, pid)
    }

    /// Nothing happens for a while in which it would have.
    fn assert_quiet(&self, incidents: usize, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            assert_eq!(self.history().len(), incidents, "{:#?}", self.history());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the daemon's log:\n{}", self.log());
        }
        drop(fs::remove_dir(pin_of(self.folder.path())));
    }
}

/// A command inside the namespace whose first process is known outside by that number.
fn inside(init_pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &init_pid.to_string(), "--pid", "--mount", "--"]);
    command
}

/// Where programs would be pinned, if there were any.
fn pin_of(folder: &Path) -> PathBuf {
    Path::new("/sys/fs/bpf").join(folder.file_name().unwrap())
}

fn daemon(folder: &Path, init_pid: u32) -> Command {
    let place = |name: &str| -> PathBuf { folder.join(name) };
    let log = fs::File::create(place("log")).unwrap();
    let mut command = inside(init_pid);
    command.arg(env!("CARGO_BIN_EXE_plimsoll")).arg("daemon").arg("--config").arg(place("plimsoll.toml"));
    command.arg("--state").arg(place("state")).arg("--socket").arg(place("socket"));
    command.arg("--pin").arg(pin_of(folder)).stderr(log);
    command
}

#[track_caller]
fn assert_incident(incident: &Value, action: &str, reason: &str, victim: u64) {
    assert_eq!(
        (&incident["guard"], &incident["trigger"]),
        (&"pressure".into(), &"daemon".into()),
        "{incident}"
    );
    assert_eq!((&incident["action"], &incident["reason"]), (&action.into(), &reason.into()), "{incident}");
    assert_eq!(
        (&incident["account"], &incident["victims"][0]["pid"]),
        (&Value::Null, &victim.into()),
        "{incident}"
    );
}

#[test]
fn when_memory_is_short_the_largest_is_asked_to_end_and_nobody_else() {
    let cell = cell!("[machine]\n");
    let (mut small, _) = cell.process(16, "leave");
    let (mut large, large_pid) = cell.process(64, "leave");
    let (mut middle, _) = cell.process(32, "leave");
    cell.is(SHORT);
    large.stage("asked");
    let incident = &cell.incidents(1)[0];
    assert_incident(incident, "term", "machine-low-memory-term", large_pid);
    assert!(incident["victims"][0]["usage_bytes"].as_u64().unwrap() >= 64 << 20, "{incident}");
    assert!(incident["peers"].as_array().unwrap().len() >= 2, "{incident}");
    // Who was asked made room, so that is all.
    cell.assert_quiet(1, Duration::from_millis(1500));
    assert!(small.runs() && middle.runs());
    let told = cell.run(&["why"]).1;
    assert!(told.contains("the machine was short of memory") && told.contains("asked to end"), "{told}");
    assert!(cell.log().contains(&format!("sent SIGTERM to process {large_pid}")), "{}", cell.log());
}

#[test]
fn who_does_not_listen_is_killed_after_the_grace_period_and_only_then_is_there_another() {
    let cell = cell!("[machine]\nterm_grace_ms = 800\n");
    let (_stubborn, stubborn_pid) = cell.process(64, "signal.SIG_IGN");
    let (mut next, next_pid) = cell.process(32, "leave");
    let began = Instant::now();
    cell.is(SHORT);
    assert_incident(&cell.incidents(1)[0], "term", "machine-low-memory-term", stubborn_pid);
    let first = cell.incidents(2)[1].clone();
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
    assert_incident(&first, "kill", "machine-term-deadline-passed", stubborn_pid);
    next.stage("asked");
    let all = cell.incidents(3);
    assert_incident(&all[2], "term", "machine-low-memory-term", next_pid);
    cell.assert_quiet(3, Duration::from_millis(500));
}

#[test]
fn when_memory_is_nearly_gone_nobody_is_asked_first() {
    let cell = cell!("[machine]\n");
    let (_large, large_pid) = cell.process(48, "leave");
    let (_small, small_pid) = cell.process(16, "leave");
    cell.is(DIRE);
    let all = cell.incidents(3);
    assert_incident(&all[0], "kill", "machine-low-memory-kill", large_pid);
    assert_incident(&all[1], "kill", "machine-low-memory-kill", small_pid);
    // Then nobody is left but the daemon and the namespace's first process, and that is said once and not again at once.
    assert_eq!(
        (&all[2]["reason"], &all[2]["victims"]),
        (&"machine-only-protected-left".into(), &Value::Array(vec![]))
    );
    cell.assert_quiet(3, Duration::from_secs(1));
    assert!(cell.json(&["status"]).is_some());
}

#[test]
fn a_shortage_that_gets_worse_ends_the_grace_period() {
    let cell = cell!("[machine]\nterm_grace_ms = 30000\n");
    let (_stubborn, pid) = cell.process(48, "signal.SIG_IGN");
    cell.is(SHORT);
    assert_incident(&cell.incidents(1)[0], "term", "machine-low-memory-term", pid);
    cell.is(DIRE);
    assert_incident(&cell.incidents(2)[1], "kill", "machine-low-memory-kill", pid);
    cell.is(PLENTY);
    until("nobody is dying", SOON, || {
        (cell.json(&["status"])?["guards"]["pressure"]["dying"] == 0).then_some(())
    });
}

#[test]
fn neither_memory_that_comes_back_nor_free_swap_ends_anybody() {
    let cell = cell!("[machine]\n");
    let (mut process, _) = cell.process(48, "leave");
    for available_mib in [130, 200, 900, 4000] {
        cell.is(Memory { available_mib, ..PLENTY });
        cell.assert_quiet(0, Duration::from_millis(300));
    }
    // Available memory is gone, and swap is there.
    cell.is(Memory { swap_total_mib: 2048, swap_free_mib: 1024, ..DIRE });
    cell.assert_quiet(0, Duration::from_millis(1500));
    assert!(process.runs());
    cell.is(Memory { swap_total_mib: 2048, swap_free_mib: 150, ..SHORT });
    process.stage("asked");
    assert_eq!(cell.incidents(1)[0]["action"], "term");
}

#[test]
fn what_meminfo_does_not_tell_is_said_and_ends_nobody() {
    let cell = cell!("[machine]\n");
    let (mut process, pid) = cell.process(48, "leave");
    let without = |name: &str| -> String {
        SHORT.text().lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect()
    };
    for (meminfo, told) in [
        (without("MemAvailable:"), "MemAvailable"),
        (without("AnonPages:"), "AnonPages"),
        (without("SwapTotal:"), "SwapTotal"),
        ("MemTotal: lots\nMemAvailable: none\n".to_owned(), "meminfo"),
        (String::new(), "meminfo"),
    ] {
        cell.tells(&meminfo);
        until(&format!("'{told}' is said to be missing"), SOON, || cell.log().contains(told).then_some(()));
        cell.assert_quiet(0, Duration::from_millis(1200));
    }
    assert!(process.runs());
    // It guards again as soon as it can tell again.
    cell.is(SHORT);
    process.stage("asked");
    assert_incident(&cell.incidents(1)[0], "term", "machine-low-memory-term", pid);
}

#[test]
fn a_protected_executable_is_passed_over_and_said_to_be() {
    let chill = workloads().join("chill");
    let folder = tempfile::tempdir().unwrap();
    let protected = folder.path().join("chill");
    fs::copy(chill, &protected).unwrap();
    let cell = cell!(&format!("[machine]\n[protect]\nexe = [{protected:?}]\n"));
    let mut command = inside(cell.init_pid);
    command.arg(&protected).arg("--mebibytes=64");
    let mut large = Program::of(command);
    large.stage("ready");
    let (mut small, small_pid) = cell.process(16, "leave");
    cell.is(SHORT);
    small.stage("asked");
    assert_incident(&cell.incidents(1)[0], "term", "machine-low-memory-term", small_pid);
    cell.assert_quiet(1, Duration::from_millis(500));
    assert!(large.runs());
}

#[test]
fn it_sleeps_longer_the_more_memory_there_is() {
    let cell = cell!("[machine]\n");
    let looks_in_3_s = || {
        let wake_ups = || cell.json(&["status"]).unwrap()["guards"]["own"]["wake_ups"].as_u64().unwrap();
        let before = wake_ups();
        std::thread::sleep(Duration::from_secs(3));
        wake_ups() - before
    };
    // At 6 GB/s (how fast memory fills at worst) 6 GB last a second; the two questions wake it too.
    let far = looks_in_3_s();
    assert!((2..=7).contains(&far), "woken {far} times in 3 s with plenty of memory");
    // Just above the threshold it looks every 100 ms.
    cell.is(Memory { available_mib: 130, ..PLENTY });
    let near = looks_in_3_s();
    assert!((15..=40).contains(&near), "woken {near} times in 3 s close to the threshold");
    assert!(cell.history().is_empty());
}

#[test]
fn in_a_pid_namespace_lines_are_refused_in_one_line_and_the_machine_is_guarded() {
    let cell = cell!("[machine]\n");
    assert_eq!(cell.log().matches("no lines can be drawn").count(), 1, "{}", cell.log());
    let (code, _, said) = cell.run(&["limit", "set", "60153", "64M"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("initial pid namespace") && said.matches('\n').count() == 1, "{said}");
    assert_eq!(cell.json(&["limit", "show"]).unwrap(), serde_json::json!([]));
    assert!(!cell.folder.path().join("state/limits.json").exists());
    assert!(!pin_of(cell.folder.path()).exists());
    let status = cell.json(&["status"]).unwrap();
    assert_eq!(
        (&status["kernel"]["attached"], &status["guards"]["pressure"]["state"]),
        (&false.into(), &"on".into())
    );
}
