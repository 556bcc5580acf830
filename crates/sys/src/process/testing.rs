//! Children for the tests: small, short-lived, killed and waited for whatever happens.

use super::{PidFd, ProcRoot, cpu_tree::CPU, freezer::FREEZER, v1_tree::mounted};
use plimsoll_policy::units::Pid;
use std::{
    fmt::Display,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A uid of the range kept for tests.
pub(crate) const TEST_UID: u32 = 60_001;

/// How long a child may take for what it does at once on an idle machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// Says that the running test cannot run here, and why: its thread is called by it.
pub(crate) fn skip(why: impl Display) {
    let thread = thread::current();
    let name = thread.name().and_then(|name| name.rsplit("::").next()).unwrap();
    println!("\nSKIPPED: {name}: {why}");
}

/// A name that nothing else has.
pub(crate) fn own_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("plimsoll-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn proc_root() -> ProcRoot {
    ProcRoot::open(Path::new("/proc")).unwrap()
}

/// A child that is killed and waited for at the end of its test.
pub(crate) struct Guest {
    child: Child,
}

impl Guest {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")) }
    }

    /// Does nothing.
    pub(crate) fn asleep() -> Self {
        Self::start(Command::new("sleep").arg("60"))
    }

    /// Runs a line of shell; `read line` in it waits for the end of the test.
    pub(crate) fn shell(line: &str) -> Self {
        Self::start(Command::new("sh").args(["-c", line]))
    }

    /// Holds `mebibytes` of touched anonymous memory as [`TEST_UID`]: `dd` has read as much into its buffer, and waits
    /// for somebody to take it from a pipe.
    pub(crate) fn holding(mebibytes: u64) -> Self {
        let mut command = Command::new("dd");
        // Before Linux 6.2 a thread keeps up to 64 pages to itself before they are counted.
        let kibibytes = mebibytes * 1024 + 512;
        command.arg("if=/dev/zero").arg(format!("bs={kibibytes}K")).arg("count=1").stderr(Stdio::null());
        let guest = Self::start(command.uid(TEST_UID).gid(TEST_UID));
        let pages = mebibytes * 1024 * 1024 / super::page_size().bytes().0;
        guest.wait_until("it holds its memory", |root, pid| {
            let process = root.process(pid).unwrap();
            process.usage().known().is_some_and(|usage| usage.0 >= pages)
        });
        guest
    }

    /// Where it reads from.
    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    /// Where what it prints is read.
    pub(crate) fn stdout(&mut self) -> &mut ChildStdout {
        self.child.stdout.as_mut().unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// When it started, in nanoseconds since boot; known to the clock tick.
    pub(crate) fn start_ns(&self) -> u64 {
        proc_root().process(self.pid()).unwrap().start_ns
    }

    pub(crate) fn pidfd(&self) -> PidFd {
        PidFd::open(self.pid()).unwrap()
    }

    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&mut ProcRoot, Pid) -> bool) {
        let mut root = proc_root();
        let start = Instant::now();
        while !reached(&mut root, self.pid()) {
            assert!(start.elapsed() < DEADLINE, "after {DEADLINE:?} still not true: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it and takes its exit status, so that its number is free.
    pub(crate) fn bury(&mut self) {
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
pub(crate) fn wait_for_exit(pidfd: &PidFd) {
    let start = Instant::now();
    while !pidfd.wait_exit(Duration::from_millis(100)).unwrap() {
        assert!(start.elapsed() < DEADLINE, "process {} is still there after {DEADLINE:?}", pidfd.pid());
    }
}

/// A cgroup of the v1 freezer, thawed and removed at the end of its test.
pub(super) struct Freezer {
    folder: PathBuf,
}

impl Freezer {
    /// `None`, which is said, where there is no such freezer, or it cannot be written.
    pub(super) fn make() -> Option<Self> {
        let folder = mounted(FREEZER).join(own_name());
        let made = folder.parent()?.join("cgroup.procs").exists() && fs::create_dir(&folder).is_ok();
        if !made {
            skip("no v1 freezer that can be written");
        }
        made.then_some(Self { folder })
    }

    pub(super) fn freeze(&self, pids: &[Pid]) {
        for pid in pids {
            fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        self.harden();
    }

    /// One thread alone; its process goes on.
    pub(super) fn freeze_thread(&self, thread: Pid) {
        fs::write(self.folder.join("tasks"), thread.to_string()).unwrap();
        self.harden();
    }

    fn harden(&self) {
        let state = self.folder.join("freezer.state");
        let start = Instant::now();
        // Again and again: who goes to sleep at the very moment is not frozen by one try (seen on 7.2).
        while fs::write(&state, "FROZEN").is_err() || fs::read_to_string(&state).unwrap().trim() != "FROZEN" {
            assert!(start.elapsed() < DEADLINE, "these do not freeze: {:#?}", self.states());
        }
    }

    /// What each thread in it does, as the kernel says.
    fn states(&self) -> Vec<String> {
        let tasks = fs::read_to_string(self.folder.join("tasks")).unwrap_or_default();
        let read = |task: &str, name: &str| {
            fs::read_to_string(format!("/proc/{task}/{name}")).unwrap_or_else(|error| error.to_string())
        };
        tasks.lines().map(|task| ["stat", "wchan", "stack"].map(|name| read(task, name)).join(" ")).collect()
    }

    /// Whether the process is in it, and it is frozen.
    pub(super) fn holds(&self, pid: Pid) -> bool {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap();
        let inside = read("cgroup.procs").lines().any(|line| line == pid.to_string());
        inside && read("freezer.state").trim() == "FROZEN"
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // Whoever is still in it goes to the root, so that it can be removed and nobody stays frozen.
        drop(fs::write(self.folder.join("freezer.state"), "THAWED"));
        let left = fs::read_to_string(self.folder.join("tasks")).unwrap_or_default();
        for pid in left.lines() {
            drop(fs::write(mounted(FREEZER).join("cgroup.procs"), pid));
        }
        drop(fs::remove_dir(&self.folder));
    }
}

/// A cgroup of the v1 cpu controller in which nobody may be real-time, of 1 % of a CPU; emptied and removed at the end of its
/// test.
pub(super) struct CpuGroup {
    folder: PathBuf,
}

impl CpuGroup {
    /// `None`, which is said, where there is no such controller, it cannot be written, or refuses nobody.
    pub(super) fn make() -> Option<Self> {
        let tree = mounted(CPU);
        if !tree.join("cpu.rt_runtime_us").exists() {
            skip("no v1 cpu controller with CONFIG_RT_GROUP_SCHED");
            return None;
        }
        let folder = tree.join(own_name());
        if let Err(error) = fs::create_dir(&folder) {
            skip(format_args!("{}: {error}", folder.display()));
            return None;
        }
        let group = Self { folder };
        fs::write(group.folder.join("cpu.cfs_quota_us"), "1000").unwrap();
        Some(group)
    }

    pub(super) fn take(&self, pid: Pid) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Under no quota, but after everybody else.
    pub(super) fn take_with_least_share(&self, pid: Pid) {
        fs::write(self.folder.join("cpu.cfs_quota_us"), "-1").unwrap();
        fs::write(self.folder.join("cpu.shares"), "2").unwrap();
        self.take(pid);
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            drop(fs::write(mounted(CPU).join("cgroup.procs"), pid));
        }
        drop(fs::remove_dir(&self.folder));
    }
}
