//! The guard under test, as a user sees it: lines are set, usage and incidents are read.
//!
//! [`PrivateDaemon`] is `plimsoll daemon` with a configuration, state, socket and pins of its own, so that it neither
//! disturbs nor is disturbed by the guard of the machine. Only its command line is used.

use crate::{
    child::{self, STEP},
    error::BenchError,
    options::Options,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    ffi::OsString,
    fmt::Debug,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

mod machine;
mod protection;
pub use machine::{EffortReading, SelectionReading};

/// The configuration's name in a daemon's folder.
const CONFIGURATION: &str = "plimsoll.toml";

/// Which triggers of a guard may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triggers {
    /// All that this kernel offers.
    All,
    /// The daemon alone: the kernel side only tells it.
    DaemonOnly,
    /// The guard of the machine's memory, which decides and sends nothing; no line can be drawn.
    MachineDryRun(Listing),
    /// The working-set protection of the bench's own memory cgroup, which is off until it is asked for.
    WorkingSet,
}

/// What the machine guard lists processes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// The selection programs, where this kernel takes them.
    Programs,
    /// `/proc`, as where there can be no programs.
    Proc,
}

/// How much memory a guard of the machine is made to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Far from a shortage.
    Plenty,
    /// About to run short: the guard gets ready.
    Near,
    /// Short: the guard selects.
    Short,
}

impl Triggers {
    /// What the daemon's configuration says about them.
    fn configuration(self) -> String {
        match self {
            Self::All => "[machine]\nenabled = false\n".to_owned(),
            Self::DaemonOnly => "[machine]\nenabled = false\n[limits]\ntriggers = [\"daemon\"]\n".to_owned(),
            Self::MachineDryRun(_) => machine::PLENTY.to_owned(),
            Self::WorkingSet => protection::configuration(),
        }
    }
}

/// A line to draw for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The user.
    pub uid: u32,
    /// The hard limit in bytes.
    pub hard_bytes: u64,
    /// The soft limit in bytes; the guard's default where `None`.
    pub soft_bytes: Option<u64>,
}

/// What the benches read of an incident (`history --json`, DESIGN section 6).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IncidentReading {
    /// Which trigger acted.
    pub trigger: String,
    /// What was done.
    pub action: String,
    /// Who was selected.
    pub victims: Vec<VictimReading>,
    /// Usage above the line in bytes.
    pub overshoot_bytes: u64,
    /// From the crossing event to the signal, in nanoseconds.
    pub cross_to_signal_ns: Option<u64>,
    /// From the signal to the victim's memory being returned, in nanoseconds; known a while after the rest.
    pub signal_to_freed_ns: Option<u64>,
}

impl IncidentReading {
    /// Whether the guard killed for it. What the kernel's own OOM killer did, in any cgroup of the machine, is recorded beside.
    #[must_use]
    pub fn is_our_kill(&self) -> bool {
        matches!(self.action.as_str(), "kill" | "term") && self.trigger != "kernel"
    }
}

/// What the benches read of a victim.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VictimReading {
    /// Its process number.
    pub pid: u32,
}

/// What the benches read of an account (`limit show --json`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AccountReading {
    /// Its name: `user:60010`.
    pub account: String,
    /// What it is charged, reservations included.
    pub usage_bytes: u64,
    /// The part of that which is granted and not yet touched.
    pub reserved_bytes: u64,
    /// The most that it was charged since its line was drawn; `None` where the guard does not know.
    #[serde(default)]
    pub peak_bytes: Option<u64>,
}

/// What the benches read of `status --json`.
#[derive(Debug, Deserialize)]
struct StatusReading {
    daemon: bool,
    pressure: machine::PressureReading,
}

/// A guard that draws lines for users.
pub trait Guarded: Debug {
    /// Draws the line; returns when it is in force.
    ///
    /// # Errors
    /// The guard refuses.
    fn set_line(&mut self, line: Line) -> Result<(), BenchError>;
    /// Takes the user's line away; returns when it is gone.
    ///
    /// # Errors
    /// The guard refuses.
    fn clear_line(&mut self, uid: u32) -> Result<(), BenchError>;
    /// The user's usage in bytes; `None` where the guard knows no such account.
    ///
    /// # Errors
    /// The guard does not answer.
    fn usage_bytes(&mut self, uid: u32) -> Result<Option<u64>, BenchError>;
    /// The user's account; `None` where the guard knows no such account.
    ///
    /// # Errors
    /// The guard does not answer, or keeps no such accounts.
    fn account(&mut self, uid: u32) -> Result<Option<AccountReading>, BenchError> {
        Err(no_coordinator(&format!("show the account of {uid}")))
    }
    /// All incidents of this guard, oldest first.
    ///
    /// # Errors
    /// The guard does not answer.
    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError>;
    /// The daemon's process number, where there is one.
    fn pid(&self) -> Option<u32>;
    /// Where those who ask for memory connect; `None` where nobody answers them.
    fn coordinator(&self) -> Option<PathBuf> {
        None
    }
    /// Kills the daemon with SIGKILL: what is pinned stays.
    ///
    /// # Errors
    /// There is none, or it does not end.
    fn crash(&mut self) -> Result<(), BenchError> {
        Err(no_coordinator("be killed"))
    }
    /// Starts it again, and waits until it answers.
    ///
    /// # Errors
    /// As [`PrivateDaemon::start`].
    fn restart(&mut self) -> Result<(), BenchError> {
        Err(no_coordinator("be started again"))
    }
    /// Has grants leave so much free under each line, from the next start of the daemon on.
    ///
    /// # Errors
    /// There is no coordinator, or its configuration cannot be written.
    fn leave_free(&mut self, bytes: u64) -> Result<(), BenchError> {
        Err(no_coordinator(&format!("leave {bytes} bytes free")))
    }
    /// Makes a guard of the machine see so much memory; returns when it has.
    ///
    /// # Errors
    /// The guard refuses, or is none of the machine.
    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        Err(no_machine_guard(&format!("see memory: {memory:?}")))
    }
    /// Sets tunables of the working-set protection (`protect set`); returns when they are in force.
    ///
    /// # Errors
    /// The guard refuses, or protects no working set.
    fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        let command = format!("protect set {}", protection::words(settings).join(" "));
        Err(BenchError::Guard { command, problem: "this guard protects no working set".to_owned() })
    }
    /// Whom the working-set protection killed within the last `within`, and perhaps somewhat before: process numbers.
    ///
    /// # Errors
    /// The guard does not answer.
    fn floor_victims(&mut self, within: Duration) -> Result<Vec<u32>, BenchError> {
        let _nobody_ever = within;
        Ok(Vec::new())
    }
    /// How a guard of the machine knows whom to select.
    ///
    /// # Errors
    /// The guard does not answer, or is none of the machine.
    fn selection(&mut self) -> Result<SelectionReading, BenchError> {
        Err(no_machine_guard("tell how it selects"))
    }
}

/// Starts a private guard with these triggers; called anew for each daemon that a bench needs.
pub type Starter<'a> = &'a dyn Fn(Triggers) -> Result<Box<dyn Guarded>, BenchError>;

fn no_machine_guard(what: &str) -> BenchError {
    let problem = "this guard does not guard the machine".to_owned();
    BenchError::Guard { command: what.to_owned(), problem }
}

fn no_coordinator(what: &str) -> BenchError {
    let problem = "this guard has no coordinator".to_owned();
    BenchError::Guard { command: what.to_owned(), problem }
}

/// What a private daemon is started with.
#[derive(Debug, Clone)]
struct Programs {
    plimsoll: PathBuf,
    /// Has it end when the bench is killed.
    workload: PathBuf,
}

/// A private `plimsoll daemon`; stopped when dropped, with nothing left behind.
#[derive(Debug)]
pub struct PrivateDaemon {
    programs: Programs,
    folder: TempDir,
    pin: PathBuf,
    dry_run: bool,
    child: Child,
    pidfd: OwnedFd,
}

impl PrivateDaemon {
    /// Starts the daemon of these options with these triggers, the machine guard off unless it is the one, and waits until it
    /// answers.
    ///
    /// # Errors
    /// It does not start, or does not answer within ten seconds; its last line is in the error.
    pub fn start(options: &Options, triggers: Triggers) -> Result<Self, BenchError> {
        let programs = Programs { plimsoll: options.plimsoll.clone(), workload: options.workload.clone() };
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-bench-")
            .tempdir()
            .map_err(BenchError::io("temporary folder"))?;
        // Whoever asks for memory is no root, and finds the socket in here.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))
            .map_err(BenchError::io("open the temporary folder to its users"))?;
        fs::write(folder.path().join(CONFIGURATION), triggers.configuration())
            .map_err(BenchError::io("write the daemon's configuration"))?;
        let pin = match triggers {
            // Nothing can be pinned below a file.
            Triggers::MachineDryRun(Listing::Proc) => folder.path().join("log").join("pin"),
            Triggers::All
            | Triggers::DaemonOnly
            | Triggers::WorkingSet
            | Triggers::MachineDryRun(Listing::Programs) => {
                Path::new("/sys/fs/bpf").join(folder.path().file_name().unwrap_or_default())
            }
        };
        let dry_run = matches!(triggers, Triggers::MachineDryRun(_));
        let (child, pidfd) = spawn(&programs, folder.path(), &pin, dry_run)?;
        let daemon = Self { programs, folder, pin, dry_run, child, pidfd };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&self) -> Result<(), BenchError> {
        let within = Duration::from_secs(10);
        let until = Instant::now() + within;
        loop {
            if self.read::<StatusReading>(&["status"]).is_ok_and(|status| status.daemon) {
                return Ok(());
            }
            let ended = child::wait_readable(self.pidfd.as_fd(), Duration::from_millis(20))?;
            if ended || Instant::now() > until {
                let said = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let last = said.lines().last().unwrap_or("said nothing and does not answer");
                // It may not have been started at all.
                let problem = last.strip_prefix("error ").unwrap_or(last).to_owned();
                return Err(BenchError::Guard { command: "daemon".to_owned(), problem });
            }
        }
    }

    /// Runs one of its commands against this daemon.
    fn command(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let mut command = Command::new(&self.programs.plimsoll);
        child::run(command.env("PLIMSOLL_SOCKET", socket_of(self.folder.path())), arguments)
    }

    fn read<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T, BenchError> {
        let text = self.command(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| {
            BenchError::malformed(format!("'{} --json' ({error})", arguments.join(" ")), &text)
        })
    }
}

/// Starts the daemon of that folder, which ends with the thread that does so.
fn spawn(
    programs: &Programs,
    folder: &Path,
    pin: &Path,
    dry_run: bool,
) -> Result<(Child, OwnedFd), BenchError> {
    let log = fs::File::create(folder.join("log")).map_err(BenchError::io("create the daemon's log"))?;
    let errors = log.try_clone().map_err(BenchError::io("share the daemon's log"))?;
    let child = Command::new(&programs.workload)
        .args(["bench-workload", "leash", &std::process::id().to_string()])
        .arg(&programs.plimsoll)
        .arg("daemon")
        .args(dry_run.then_some("--dry-run"))
        .arg("--config")
        .arg(folder.join(CONFIGURATION))
        .arg("--state")
        .arg(folder.join("state"))
        .arg("--socket")
        .arg(socket_of(folder))
        .arg("--tmalloc-socket")
        .arg(coordinator_of(folder))
        .arg("--pin")
        .arg(pin)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(BenchError::io(format!("start {} daemon", programs.plimsoll.display())))?;
    let pidfd = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| BenchError::malformed("a process number", &child.id().to_string()))
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(BenchError::io("pidfd_open")))?;
    Ok((child, pidfd))
}

fn coordinator_of(folder: &Path) -> PathBuf {
    folder.join("tmalloc.sock")
}

fn socket_of(folder: &Path) -> PathBuf {
    folder.join("socket")
}

impl Guarded for PrivateDaemon {
    fn set_line(&mut self, line: Line) -> Result<(), BenchError> {
        let (uid, hard) = (line.uid.to_string(), line.hard_bytes.to_string());
        let soft = line.soft_bytes.map(|bytes| bytes.to_string());
        let mut arguments = vec!["limit", "set", &uid, &hard];
        if let Some(soft) = &soft {
            arguments.extend(["--soft", soft]);
        }
        self.command(&arguments).map(drop)
    }

    fn clear_line(&mut self, uid: u32) -> Result<(), BenchError> {
        self.command(&["limit", "clear", &uid.to_string()]).map(drop)
    }

    fn usage_bytes(&mut self, uid: u32) -> Result<Option<u64>, BenchError> {
        Ok(self.account(uid)?.map(|account| account.usage_bytes))
    }

    fn account(&mut self, uid: u32) -> Result<Option<AccountReading>, BenchError> {
        let accounts: Vec<AccountReading> = self.read(&["limit", "show"])?;
        let name = format!("user:{uid}");
        Ok(accounts.into_iter().find(|account| account.account == name))
    }

    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError> {
        self.read(&["history"])
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn coordinator(&self) -> Option<PathBuf> {
        Some(coordinator_of(self.folder.path()))
    }

    fn crash(&mut self) -> Result<(), BenchError> {
        child::signal_if_alive(&self.pidfd, Signal::KILL);
        self.child.wait().map(drop).map_err(BenchError::io("wait for the daemon"))
    }

    fn restart(&mut self) -> Result<(), BenchError> {
        (self.child, self.pidfd) = spawn(&self.programs, self.folder.path(), &self.pin, self.dry_run)?;
        self.wait_until_it_answers()
    }

    fn leave_free(&mut self, bytes: u64) -> Result<(), BenchError> {
        let text = format!("{}[tmalloc]\nheadroom = \"{bytes}\"\n", Triggers::All.configuration());
        fs::write(self.folder.path().join(CONFIGURATION), text)
            .map_err(BenchError::io("write the daemon's configuration"))
    }

    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        machine::make(self, memory)
    }

    fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        protection::set(self, settings)
    }

    fn floor_victims(&mut self, within: Duration) -> Result<Vec<u32>, BenchError> {
        protection::victims(self, within)
    }

    fn selection(&mut self) -> Result<SelectionReading, BenchError> {
        machine::selection(self)
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        child::signal_if_alive(&self.pidfd, Signal::TERM);
        if !matches!(child::wait_readable(self.pidfd.as_fd(), STEP / 4), Ok(true)) {
            child::signal_if_alive(&self.pidfd, Signal::KILL);
        }
        drop(self.child.wait());
        if self.pin.exists() {
            // It did not stop cleanly: take down what it left pinned. Where that fails, the pins show it.
            let arguments =
                [OsString::from("daemon"), "--stop-guarding".into(), "--pin".into(), self.pin.clone().into()];
            drop(child::run(&mut Command::new(&self.programs.plimsoll), &arguments));
        }
    }
}

/// Reads the history until it holds at least `kills` kills behind its first `before` incidents, and gives those: they
/// are written by a thread of their own.
///
/// # Errors
/// Fewer after ten seconds, or the guard does not answer.
pub(crate) fn wait_for_kills(
    guard: &mut dyn Guarded,
    before: usize,
    kills: usize,
) -> Result<Vec<IncidentReading>, BenchError> {
    let within = Duration::from_secs(10);
    let until = Instant::now() + within;
    loop {
        let incidents = guard.incidents()?;
        let fresh: Vec<_> =
            incidents.into_iter().skip(before).filter(|incident| incident.action == "kill").collect();
        if fresh.len() >= kills {
            return Ok(fresh);
        }
        if Instant::now() > until {
            let awaited = format!("{kills} kills in the history (it has {})", fresh.len());
            return Err(BenchError::Deadline { awaited, within });
        }
        thread::sleep(Duration::from_millis(50));
    }
}
