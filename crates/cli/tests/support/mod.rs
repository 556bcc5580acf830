//! A daemon of a test's own on this machine, with real eBPF programs: started on a private socket, state and pin folder,
//! stopped and cleaned up when it is dropped, whatever the test did. One at a time on the machine: tests share their users,
//! and a line that one of them draws would hold for the processes of the others.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

pub mod apart;
pub mod caller;
pub mod cgroup;
pub mod disk;
pub mod exact;
pub mod grants;
pub mod guest;
pub mod program;
pub mod scripted;

use plimsoll_policy::{
    units::{Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::{
    bpf::{AccountFacts, AddressSpace, Grants, Killed, Limits, Looks, OomKills, Pins, Selector},
    process::{PidFd, ProcRoot},
};
use serde_json::Value;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt::Display,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long anything may take that should happen at once.
pub const SOON: Duration = Duration::from_secs(10);

/// The users of these tests; nothing of a real user's runs as one of them.
pub const ALICE: u32 = 60_100;
/// Another.
pub const BOB: u32 = 60_101;
/// A third, who has no line unless a test says so.
pub const CAROL: u32 = 60_102;

/// The machine guard would see other tests' memory.
const CONFIG: &str = "[machine]\nenabled = false\n";

/// Held by whoever has a fixture; where only root can be in the way.
const ONE_AT_A_TIME: &str = "/run/plimsoll-test.lock";

static STARTED: AtomicU32 = AtomicU32::new(0);

/// Starts a daemon, or returns from a test where it cannot run, which is said.
///
/// `fixture!()`, `fixture!(CONFIG)` or `fixture!(CONFIG; "--argument", ...)`.
#[macro_export]
macro_rules! fixture {
    () => { $crate::fixture!("";) };
    ($config:expr) => { $crate::fixture!($config;) };
    ($config:expr; $($argument:expr),*) => {
        match $crate::support::Fixture::start($config, &[$($argument),*]) {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

/// The running test's: its thread is called by it.
pub fn test_name() -> String {
    thread::current().name().expect("a test has a thread with its name").to_owned()
}

/// Says that the running test cannot run here, and why.
pub fn skip(why: impl Display) {
    println!("\nSKIPPED: {}: {why}", test_name());
}

/// Whether this is root; where it is not, that is said.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("it loads eBPF programs, which needs root");
    }
    root
}

/// How many times slower than a real machine this one is: an emulated one (`lab/`) says so.
pub fn slowness() -> u32 {
    std::env::var("PLIMSOLL_TEST_SLOWNESS").map_or(1, |times| times.parse::<u32>().unwrap().max(1))
}

/// How often to do what a test does often: fewer times where each takes longer.
pub fn fewer(times: u32) -> u32 {
    (times / slowness()).max(1)
}

/// Calls `look` until it gives something.
///
/// # Panics
/// After `deadline`, longer on a slow machine, with `what` was waited for.
#[track_caller]
pub fn until<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = deadline * slowness();
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {deadline:?} in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until something is so, which it must be soon.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, SOON, || is_so().then_some(()));
}

/// A JSON value has these members, with these values; one that is not there is null.
#[track_caller]
pub fn assert_has(actual: &Value, expected: &Value) {
    fn has(actual: &Value, expected: &Value) -> bool {
        let Value::Object(members) = expected else { return actual == expected };
        members.iter().all(|(name, value)| has(&actual[name], value))
    }
    assert!(has(actual, expected), "{expected} is not in {actual}");
}

/// A daemon and everything of its own.
#[derive(Debug)]
pub struct Fixture {
    folder: TempDir,
    pin: PathBuf,
    arguments: Vec<String>,
    daemon: Option<Child>,
    users: RefCell<BTreeSet<u32>>,
    _alone: File,
}

impl Fixture {
    /// `config` is added to a configuration without machine guard.
    pub fn start(config: &str, arguments: &[&str]) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let alone = File::create(ONE_AT_A_TIME).unwrap();
        alone.lock().unwrap();
        let folder = tempfile::Builder::new().prefix("plimsoll-test-").tempdir().unwrap();
        // Other users come in: to their programs, and to the socket.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        mount_bpffs();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let pin = PathBuf::from(format!("/sys/fs/bpf/plimsoll-test-{}-{number}", std::process::id()));
        let mut fixture = Self {
            folder,
            pin,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            daemon: None,
            users: RefCell::default(),
            _alone: alone,
        };
        fixture.configure(config);
        fixture.launch();
        Some(fixture)
    }

    /// Starts the daemon, which must not run, and waits until it answers.
    pub fn launch(&mut self) {
        self.start_daemon();
        self.wait_for_daemon(SOON);
    }

    /// Waits until the daemon, which was started, answers.
    pub fn wait_for_daemon(&mut self, patience: Duration) {
        until("the daemon answers", patience, || {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended with {ended:?}: {}", self.log());
            (self.run(&["status", "--json"]).0 == 0).then_some(())
        });
    }

    /// Starts the daemon, which must not run, and waits for nothing.
    pub fn start_daemon(&mut self) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let daemon = self
            .plimsoll(&["daemon"])
            .arg("--config")
            .arg(self.path("plimsoll.toml"))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--pin")
            .arg(&self.pin)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
    }

    /// A file or folder of this fixture's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where its programs and maps are pinned.
    pub fn pin(&self) -> &Path {
        &self.pin
    }

    /// The daemon's process number.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon runs").id()
    }

    /// How many descriptors the daemon has open.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.daemon_pid())).unwrap().count()
    }

    /// What all threads of the daemon have of a CPU in the next `time`, in percent.
    pub fn percent_of_a_cpu(&self, time: Duration) -> f64 {
        let ticks = || exact::stat(self.daemon_pid()).unwrap().cpu_ticks;
        let (before, began) = (ticks(), Instant::now());
        thread::sleep(time);
        // A hundred ticks a second, as everywhere.
        (ticks() - before) as f64 / began.elapsed().as_secs_f64()
    }

    /// The daemon's standard error so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("log")).unwrap_or_default()).into_owned()
    }

    /// `plimsoll`, told where this daemon is.
    pub fn plimsoll(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(arguments).env("PLIMSOLL_SOCKET", self.path("socket")).env("TZ", "UTC");
        command
    }

    /// Runs it to its end: status, standard output, standard error.
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut tries = slowness();
        loop {
            let Output { status, stdout, stderr } = self.plimsoll(arguments).output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            let told = (status.code().expect("it was not killed"), text(stdout), text(stderr));
            tries -= 1;
            // Clients, and who answers them, wait for ten seconds; an emulated machine that is busy besides can take longer to
            // load programs, or to end hundreds of processes.
            let late = ["gave no answer", "the guard did not answer within"];
            if told.0 != 1 || !late.iter().any(|words| told.2.contains(words)) || tries == 0 {
                return told;
            }
        }
    }

    /// Runs it; it must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "plimsoll {arguments:?}");
        stdout
    }

    /// Runs it with `--json`; it must succeed.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Draws a line for a user; `more` as `limit set` takes it.
    #[track_caller]
    pub fn limit(&self, user: u32, hard: &str, more: &[&str]) {
        self.ok(&[&["limit", "set", &user.to_string(), hard], more].concat());
    }

    /// What `limit show` says of a user, settled; `None`: no line, or none in force yet.
    #[track_caller]
    pub fn account(&self, user: u32) -> Option<Value> {
        let name = format!("user:{user}");
        self.accounts().into_iter().find(|account| account["account"] == *name)
    }

    /// What `limit show` says.
    #[track_caller]
    pub fn accounts(&self) -> Vec<Value> {
        self.json(&["limit", "show"]).as_array().unwrap().clone()
    }

    /// A user's usage in pages as `limit show` tells it, settled.
    #[track_caller]
    pub fn usage_pages(&self, user: u32) -> u64 {
        let account = self.account(user).unwrap_or_else(|| panic!("{user} has no account"));
        account["usage_bytes"].as_u64().unwrap() / exact::page_bytes()
    }

    /// All incidents, oldest first, but for those of the kernel's own OOM killer among other tests' users: it may be at work at
    /// the same time, and every daemon hears of it.
    #[track_caller]
    pub fn history(&self) -> Vec<Value> {
        let users = self.users.borrow();
        let others = |victim: &Value| {
            let uid = victim["uid"].as_u64().and_then(|uid| u32::try_from(uid).ok());
            uid.is_some_and(|uid| (60_000..61_000).contains(&uid) && !users.contains(&uid))
        };
        let foreign = |one: &Value| {
            let victims = one["victims"].as_array().unwrap();
            one["guard"] == "kernel" && !victims.is_empty() && victims.iter().all(others)
        };
        let mut all = self.json(&["history"]).as_array().unwrap().clone();
        all.retain(|one| !foreign(one));
        all
    }

    /// Waits until there are at least so many incidents, and gives all.
    #[track_caller]
    pub fn incidents(&self, at_least: usize) -> Vec<Value> {
        until(&format!("{at_least} incidents"), SOON, || {
            Some(self.history()).filter(|all| all.len() >= at_least)
        })
    }

    /// Writes its configuration, without a machine guard.
    pub fn configure(&self, config: &str) {
        fs::write(self.path("plimsoll.toml"), format!("{CONFIG}{config}")).unwrap();
    }

    /// Has the daemon read it again; returns when it has, or has said why not.
    pub fn reload(&self) {
        let times = || self.log().matches("configuration").count();
        let before = times();
        self.signal(rustix::process::Signal::HUP);
        wait_for("the configuration is read again", || times() > before);
    }

    /// `status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.json(&["status"])
    }

    /// The pinned maps as they are, past the daemon: nothing is settled by looking.
    pub fn maps(&self) -> Limits {
        Limits::open(&Pins::new(&self.pin)).unwrap()
    }

    /// The address spaces that they have.
    pub fn spaces(&self) -> Vec<AddressSpace> {
        let mut all = Vec::new();
        self.maps().address_spaces(|space| all.extend((!space.left).then_some(*space))).unwrap();
        all
    }

    /// That of a process.
    pub fn space(&self, pid: u32) -> Option<AddressSpace> {
        self.spaces().into_iter().find(|space| space.pid == Pid(pid))
    }

    /// What `status` says of one of them.
    pub fn map(&self, name: &str) -> Value {
        let status = self.status();
        let maps = status["kernel"]["maps"].as_array().unwrap();
        maps.iter().find(|map| map["name"] == name).unwrap().clone()
    }

    /// Bytes that are reserved for a user.
    pub fn reserved_bytes(&self, user: u32) -> u64 {
        self.account(user).unwrap()["reserved_bytes"].as_u64().unwrap()
    }

    #[track_caller]
    pub fn assert_nothing_reserved(&self, user: u32) {
        wait_for("nothing is reserved", || self.reserved_bytes(user) == 0);
    }

    #[track_caller]
    pub fn assert_nobody_killed(&self) {
        let killed: Vec<_> = self.history().into_iter().filter(|one| one["action"] == "kill").collect();
        assert!(killed.is_empty(), "{killed:#?}");
    }

    /// Who answers those that ask for memory, past the daemon.
    pub fn grants(&self) -> Grants {
        Grants::open(&Pins::new(&self.pin)).unwrap()
    }

    /// A user's account as the maps have it now.
    pub fn facts(&self, user: u32) -> AccountFacts {
        self.maps().account(Uid(user).into()).unwrap().unwrap_or_else(|| panic!("{user} has no account"))
    }

    /// Whether the kernel side can take a process other than the one that allocates (Linux 6.13).
    pub fn signals_others(&self) -> bool {
        self.maps().meta().signals_others
    }

    /// Trigger and reason when the largest process is not the one that allocates.
    pub fn for_another(&self) -> (&'static str, &'static str) {
        if self.signals_others() {
            ("in-kernel", "over-hard-limit-other")
        } else {
            ("daemon", "over-hard-limit-selected")
        }
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        // Ours and not waited for: the number can be nobody else's.
        let pid = rustix::process::Pid::from_child(self.daemon.as_ref().expect("the daemon runs"));
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops the daemon as a user would, or as a crash does: its exit status.
    pub fn end_daemon(&mut self, signal: rustix::process::Signal) -> ExitStatus {
        self.signal(signal);
        let mut daemon = self.daemon.take().unwrap();
        until("the daemon ends", SOON, || daemon.try_wait().unwrap())
    }

    /// Remembers that processes of this user are this test's, and are ended with it.
    pub fn owns(&self, user: u32) {
        assert!((60_000..61_000).contains(&user), "{user} is not a uid for tests");
        self.users.borrow_mut().insert(user);
    }

    /// Ends what still runs of this test's users.
    fn end_processes(&self) {
        let users = self.users.borrow();
        let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            let mut left = Vec::new();
            proc.processes(|process| {
                if users.contains(&process.uid.0) {
                    left.push(process.pid);
                }
            })
            .unwrap();
            left.retain(|pid| end_process(*pid, &users));
            if left.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        println!("processes of {users:?} do not end");
    }
}

/// Kills a process if it is one of `users`'; false when it is gone.
fn end_process(pid: Pid, users: &BTreeSet<u32>) -> bool {
    let Ok(pidfd) = PidFd::open(pid) else {
        return false;
    };
    // Looked at while it is held: the number cannot have become another's.
    let ours = exact::uid_of(pid.0).is_some_and(|uid| users.contains(&uid));
    ours && pidfd.send_signal(Signal::Kill).is_ok()
}

/// Removes what a daemon left pinned there.
pub fn remove_pins(pin: &Path) {
    if pin.exists() {
        drop(Selector::remove(pin));
        drop(OomKills::remove(pin));
        drop(Killed::remove(pin));
        drop(Looks::remove(pin));
        drop(Pins::new(pin).remove());
        drop(fs::remove_dir(pin));
    }
}

fn mount_bpffs() {
    if fs::read_to_string("/proc/mounts").unwrap().lines().any(|line| line.contains(" /sys/fs/bpf bpf ")) {
        return;
    }
    let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
    assert!(mounted.success(), "a bpffs cannot be mounted on /sys/fs/bpf");
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the daemon's log:\n{}", self.log());
        }
        self.end_processes();
        if let Some(mut daemon) = self.daemon.take() {
            let pid = rustix::process::Pid::from_child(&daemon);
            // A stopped one would not hear of its end.
            for signal in [rustix::process::Signal::TERM, rustix::process::Signal::CONT] {
                rustix::process::kill_process(pid, signal).ok();
            }
            let end = Instant::now() + SOON;
            while daemon.try_wait().is_ok_and(|ended| ended.is_none()) {
                if Instant::now() > end {
                    drop(daemon.kill());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        remove_pins(&self.pin);
    }
}
