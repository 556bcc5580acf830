//! Children for the tests: small, short-lived, killed and waited for whatever happens.

use super::{PidFd, ProcRoot};
use plimsoll_policy::units::Pid;
use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A uid of the range kept for tests.
pub(super) const TEST_UID: u32 = 60_001;

/// How long a child may take for what it does at once on an idle machine.
const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn proc_root() -> ProcRoot {
    ProcRoot::open(Path::new("/proc")).unwrap()
}

/// A child that is killed and waited for at the end of its test.
pub(super) struct Guest {
    child: Child,
}

impl Guest {
    pub(super) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")) }
    }

    /// Does nothing.
    pub(super) fn asleep() -> Self {
        Self::start(Command::new("sleep").arg("60"))
    }

    /// Runs a line of shell; `read line` in it waits for the end of the test.
    pub(super) fn shell(line: &str) -> Self {
        Self::start(Command::new("sh").args(["-c", line]))
    }

    /// Holds `mebibytes` of touched anonymous memory as [`TEST_UID`]: `dd` has read as much into its buffer, and waits
    /// for somebody to take it from a pipe.
    pub(super) fn holding(mebibytes: u64) -> Self {
        let mut command = Command::new("dd");
        command.arg("if=/dev/zero").arg(format!("bs={mebibytes}M")).arg("count=1").stderr(Stdio::null());
        let guest = Self::start(command.uid(TEST_UID).gid(TEST_UID));
        let pages = mebibytes * 1024 * 1024 / super::page_size().bytes().0;
        guest.wait_until("it holds its memory", |root, pid| {
            let process = root.process(pid).unwrap();
            process.usage().known().is_some_and(|usage| usage.0 >= pages)
        });
        guest
    }

    pub(super) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// When it started, in nanoseconds since boot; known to the clock tick.
    pub(super) fn start_ns(&self) -> u64 {
        proc_root().process(self.pid()).unwrap().start_ns
    }

    pub(super) fn pidfd(&self) -> PidFd {
        PidFd::open(self.pid()).unwrap()
    }

    pub(super) fn wait_until(&self, what: &str, reached: impl Fn(&mut ProcRoot, Pid) -> bool) {
        let mut root = proc_root();
        let start = Instant::now();
        while !reached(&mut root, self.pid()) {
            assert!(start.elapsed() < DEADLINE, "after {DEADLINE:?} still not true: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it and takes its exit status, so that its number is free.
    pub(super) fn bury(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only for a child that was waited for already, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits for the exit itself, not for its reaping by the parent.
pub(super) fn wait_for_exit(pidfd: &PidFd) {
    let start = Instant::now();
    while !pidfd.wait_exit(Duration::from_millis(100)).unwrap() {
        assert!(start.elapsed() < DEADLINE, "process {} is still there after {DEADLINE:?}", pidfd.pid());
    }
}
