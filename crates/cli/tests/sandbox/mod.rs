//! A pid namespace with a daemon in it that can see and signal nobody else, and a `/proc/meminfo` that tells what the test
//! wants.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

mod memory;

pub use memory::*;

use crate::support::{
    SOON, assert_has, exact,
    program::{PYTHON, Program},
    until,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The user whose processes are at stake: of no other suite, whose cleaning up ends all of a user.
pub const ALICE: u32 = 60_153;

/// The pid namespace, with a daemon in it.
pub struct Sandbox {
    pub folder: TempDir,
    pub init_pid: u32,
    _outside: Program,
    _daemon: Program,
}

/// Starts a sandbox, or returns from a test where there can be none, which is said.
macro_rules! sandbox {
    ($config:expr) => {
        sandbox!($config, &[])
    };
    ($config:expr, $options:expr) => {
        match $crate::sandbox::Sandbox::start($config, $options) {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"]);
    command
}

/// The only child of a process.
fn child_of(parent: u32) -> Option<u32> {
    exact::processes().find(|pid| exact::stat(*pid).is_some_and(|stat| stat.parent.0 == parent))
}

impl Sandbox {
    pub fn start(config: &str, options: &[&str]) -> Option<Self> {
        if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            crate::support::skip("no pid namespace can be made here, which needs root");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("plimsoll-test-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let meminfo = folder.path().join("meminfo");
        fs::write(&meminfo, PLENTY.text()).unwrap();
        fs::set_permissions(&meminfo, fs::Permissions::from_mode(0o666)).unwrap();
        fs::write(folder.path().join("zoneinfo"), waiting(0)).unwrap();
        // What a test tells is meant to last, but where it is about that.
        let lasting = if config.contains("spike_ms") { "[machine]\n" } else { "[machine]\nspike_ms = 0\n" };
        let config = config.replace("[machine]\n", lasting);
        fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        let mut init = unshare();
        let script = "mount --bind \"$1\" /proc/meminfo && mount --bind \"$2\" /proc/zoneinfo && echo ready && exec sleep 100";
        init.args(["sh", "-c", script, "sh"]).arg(&meminfo).arg(folder.path().join("zoneinfo"));
        let mut outside = Program::of(init);
        outside.stage("ready");
        let init_pid = child_of(outside.pid()).expect("the namespace has its first process");
        let daemon = Program::of(daemon(folder.path(), init_pid, options));
        let sandbox = Self { folder, init_pid, _outside: outside, _daemon: daemon };
        until("the daemon answers", SOON, || sandbox.json(&["status"]));
        Some(sandbox)
    }

    /// Makes the machine as short of memory as that.
    pub fn is(&self, memory: Memory) {
        self.tells(&memory.text());
    }

    /// So many pages wait in the lists of single CPUs.
    pub fn waits(&self, pages: u64) {
        self.write("zoneinfo", &waiting(pages));
    }

    pub fn tells(&self, meminfo: &str) {
        self.write("meminfo", meminfo);
    }

    /// Written over in place: the mount is of this very file.
    fn write(&self, name: &str, text: &str) {
        let mut file = fs::OpenOptions::new().write(true).open(self.folder.path().join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let end = file.stream_position().unwrap();
        file.set_len(end).unwrap();
    }

    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let output = command
            .args(arguments)
            .env("PLIMSOLL_SOCKET", self.folder.path().join("socket"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    pub fn json(&self, arguments: &[&str]) -> Option<Value> {
        let (code, stdout, _) = self.run(&[arguments, &["--json"]].concat());
        (code == 0).then(|| serde_json::from_str(&stdout).unwrap())
    }

    pub fn history(&self) -> Vec<Value> {
        self.json(&["history"]).unwrap().as_array().unwrap().clone()
    }

    #[track_caller]
    pub fn incidents(&self, at_least: usize) -> Vec<Value> {
        until(&format!("{at_least} incidents"), SOON, || {
            Some(self.history()).filter(|all| all.len() >= at_least)
        })
    }

    /// Has the daemon read its configuration again.
    pub fn reload(&self) {
        let daemon = child_of(self._daemon.pid()).unwrap_or(self._daemon.pid());
        let pid = i32::try_from(daemon).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A Python process inside that holds so much; `on_term` is what it does at SIGTERM. Gives its number there.
    pub fn process(&self, mebibytes: u32, on_term: &str) -> (Program, u64) {
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
        let mut program = Program::of(inside(self.init_pid).args([
            "setpriv",
            "--reuid",
            &ALICE.to_string(),
            "--clear-groups",
            "--",
            PYTHON,
            "-c",
            &script,
        ]));
        let pid = program.stage("holds").parse().unwrap();
        (program, pid)
    }

    /// Nothing happens for a while in which it would have.
    pub fn assert_quiet(&self, incidents: usize, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            assert_eq!(self.history().len(), incidents, "{:#?}", self.history());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Sandbox {
    /// Each decision of the guard comes out as it was when its trace is simulated: whom, why, and when.
    pub fn assert_replays(&self, incidents: &[Value]) {
        for incident in incidents.iter().filter(|one| one["guard"] == "pressure") {
            let (code, trace, said) = self.run(&["why", &incident["id"].to_string(), "--trace"]);
            assert_eq!(code, 0, "{said}");
            let path = self.folder.path().join("trace.jsonl");
            fs::write(&path, &trace).unwrap();
            let simulated = self.json(&["simulate", path.to_str().unwrap()]).expect("it is a trace");
            assert_eq!(simulated["exact"], true, "{simulated:#}\n{trace}");
            let last = simulated["decisions"].as_array().unwrap().last().expect("it was decided");
            assert_has(last, &json!({"as_recorded": true, "reason": incident["reason"]}));
            if let Some(victim) = incident["victims"].get(0) {
                for key in ["pid", "start_ns", "comm"] {
                    assert_eq!(last["victim"][key], victim[key], "{key}: {incident}");
                }
            }
            let parse = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
            let apart = parse(&last["time"]).duration_since(parse(&incident["time"])).abs();
            let most = if incident["reason"] == "machine-term-deadline-passed" { 100 } else { 2 };
            assert!(apart.as_millis() <= most, "{last} {incident}");
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the daemon's log:\n{}", self.log());
        } else if let Some(history) = self.json(&["history"]) {
            self.assert_replays(history.as_array().unwrap());
        }
        drop(fs::remove_dir(pin_of(self.folder.path())));
    }
}

/// A command inside the namespace whose first process is known outside by that number.
pub fn inside(init_pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &init_pid.to_string(), "--pid", "--mount", "--"]);
    command
}

/// Where programs would be pinned, if there were any.
pub fn pin_of(folder: &Path) -> PathBuf {
    Path::new("/sys/fs/bpf").join(folder.file_name().unwrap())
}

fn daemon(folder: &Path, init_pid: u32, options: &[&str]) -> Command {
    let place = |name: &str| -> PathBuf { folder.join(name) };
    let log = fs::File::create(place("log")).unwrap();
    let mut command = inside(init_pid);
    command.arg(env!("CARGO_BIN_EXE_plimsoll")).arg("daemon").arg("--config").arg(place("plimsoll.toml"));
    command.arg("--state").arg(place("state")).arg("--socket").arg(place("socket"));
    command.arg("--pin").arg(pin_of(folder)).args(options).stderr(log);
    command
}

#[track_caller]
pub fn assert_incident(incident: &Value, action: &str, reason: &str, victim: u64) {
    assert_has(incident, &json!({"guard": "pressure", "trigger": "daemon"}));
    assert_has(incident, &json!({"action": action, "reason": reason}));
    assert_eq!(
        (&incident["account"], &incident["victims"][0]["pid"]),
        (&Value::Null, &victim.into()),
        "{incident}"
    );
}
