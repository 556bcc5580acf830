//! The guard under test, as a user sees it: lines are set, usage and incidents are read.
//!
//! [`PrivateDaemon`] is `plimsoll daemon` with a configuration, state, socket and pins of its own, so that it neither
//! disturbs nor is disturbed by the guard of the machine. It is spoken to as everybody does, by its control socket.

use crate::{
    child::{self, STEP, Workload, look_until, wait_for},
    error::BenchError,
    options::Options,
    scope,
};
use plimsoll_api::{
    TMALLOC_SOCKET_NAME,
    client::{CallError, Client},
    message::{HistoryCall, SetLimitCall},
    status::{Pressure, Selection},
};
use plimsoll_policy::{
    account::Account,
    incident::{Incident, Outcome, Trigger},
    lines::Target,
    size::Size,
    units::{Bytes, Uid},
    victim::Signal,
};
use plimsoll_sys::process::{BPFFS_PATH, PidFd, clock_monotonic_ns};
use std::{
    env,
    ffi::OsString,
    fmt::Debug,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

mod machine;

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
    /// As the daemon comes: the machine is guarded.
    Machine,
    /// The working-set protection of the bench's own memory cgroup, which is off until it is asked for.
    WorkingSet,
    /// None. The guard of large blocks is on or off; working-set protection of the whole machine is off until it is asked for.
    Blocks {
        /// It is on.
        guarded: bool,
    },
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
            Self::Machine => String::new(),
            Self::WorkingSet => format!(
                "[machine]\nenabled = false\n[workingset]\nworkingset_protection = 0\ncgroup = \"{}\"\n",
                scope::path()
            ),
            Self::Blocks { guarded } => format!(
                "[machine]\nenabled = false\n[fragmentation]\nenabled = {guarded}\n[workingset]\nworkingset_protection = 0\n"
            ),
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

/// What the benches read of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountReading {
    /// What it is charged, reservations included.
    pub usage_bytes: u64,
    /// The part of that which is granted and not yet touched.
    pub reserved_bytes: u64,
    /// The most that it was charged since its line was drawn; `None` where the guard does not know.
    pub peak_bytes: Option<u64>,
}

/// Whether the guard killed for it. What the kernel's own OOM killer did, in any cgroup of the machine, is recorded beside.
pub(crate) fn is_our_kill(incident: &Incident) -> bool {
    matches!(incident.action, Outcome::Kill | Outcome::Term) && incident.trigger != Trigger::Kernel
}

/// A guard that draws lines for users.
///
/// # Errors
/// Each call fails where the guard refuses or does not answer, and where it has nothing of the kind: no daemon, no coordinator,
/// no guard of the machine, no working set to protect.
pub trait Guarded: Debug {
    /// Draws the line; returns when it is in force.
    fn set_line(&mut self, line: Line) -> Result<(), BenchError>;
    /// Takes the user's line away; returns when it is gone.
    fn clear_line(&mut self, uid: u32) -> Result<(), BenchError>;
    /// The user's account.
    fn account(&mut self, uid: u32) -> Result<AccountReading, BenchError>;
    /// All incidents of this guard, oldest first.
    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError>;
    /// The daemon's process number, where there is one.
    fn pid(&self) -> Option<u32> {
        None
    }
    /// Where those who ask for memory connect; `None` where nobody answers them.
    fn coordinator(&self) -> Option<PathBuf> {
        None
    }
    /// Kills the daemon with SIGKILL: what is pinned stays.
    fn crash(&mut self) -> Result<(), BenchError> {
        Err(cannot("be killed"))
    }
    /// Starts it again, and waits until it answers.
    fn restart(&mut self) -> Result<(), BenchError> {
        Err(cannot("be started again"))
    }
    /// Has grants leave so much free under each line, from the next start of the daemon on.
    fn leave_free(&mut self, bytes: u64) -> Result<(), BenchError> {
        Err(cannot(&format!("leave {bytes} bytes free")))
    }
    /// Makes a guard of the machine see so much memory; returns when it has.
    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        Err(no_machine_guard(&format!("see memory: {memory:?}")))
    }
    /// Sets tunables of the working-set protection; returns when they are in force.
    fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        Err(cannot(&format!("protect a working set: {settings:?}")))
    }
    /// How a guard of the machine knows whom to select.
    fn selection(&mut self) -> Result<Selection, BenchError> {
        Err(no_machine_guard("tell how it selects"))
    }
}

/// Starts a private guard with these triggers; called anew for each daemon that a bench needs.
pub type Starter<'a> = &'a dyn Fn(Triggers) -> Result<Box<dyn Guarded>, BenchError>;

fn cannot(what: &str) -> BenchError {
    BenchError::Guard { command: what.to_owned(), problem: "this guard cannot do it".to_owned() }
}

fn no_machine_guard(what: &str) -> BenchError {
    let problem = "this guard does not guard the machine".to_owned();
    BenchError::Guard { command: what.to_owned(), problem }
}

/// A private `plimsoll daemon`; stopped when dropped, with nothing left behind.
#[derive(Debug)]
pub struct PrivateDaemon {
    options: Options,
    folder: PathBuf,
    /// Removes the folder, should whoever started it be ended from outside.
    _broom: Workload,
    pin: PathBuf,
    dry_run: bool,
    child: Child,
    pidfd: PidFd,
}

impl PrivateDaemon {
    /// Starts the daemon of these options with these triggers, the machine guard off unless it is the one, and waits until it
    /// answers. Its folder has a name that begins with `prefix`, one of those that `bench-workload broom` removes.
    ///
    /// # Errors
    /// It does not start, or does not answer within ten seconds; its last line is in the error.
    pub fn start(prefix: &str, options: &Options, triggers: Triggers) -> Result<Self, BenchError> {
        let name = format!("{prefix}{}-{}", std::process::id(), clock_monotonic_ns());
        let temporary =
            env::temp_dir().canonicalize().map_err(BenchError::io("find the temporary folder"))?;
        let folder = temporary.join(&name);
        // First the one that removes it: whenever this process is killed, nothing stays.
        let broom = Workload::start(&options.workload, &[&"broom", &"-", &folder.display()])?;
        // Whoever asks for memory is no root, and finds the socket in here.
        fs::create_dir(&folder)
            .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)))
            .map_err(BenchError::io(format!("make {}", folder.display())))?;
        let pin = match triggers {
            // Nothing can be pinned below a file.
            Triggers::MachineDryRun(Listing::Proc) => folder.join("log").join("pin"),
            Triggers::All
            | Triggers::DaemonOnly
            | Triggers::Machine
            | Triggers::WorkingSet
            | Triggers::Blocks { .. }
            | Triggers::MachineDryRun(Listing::Programs) => Path::new(BPFFS_PATH).join(name),
        };
        let dry_run = matches!(triggers, Triggers::MachineDryRun(_));
        configure(&folder, &triggers.configuration())?;
        let (child, pidfd) = spawn(options, &folder, &pin, dry_run)?;
        let daemon = Self { options: options.clone(), folder, _broom: broom, pin, dry_run, child, pidfd };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&self) -> Result<(), BenchError> {
        let look = Duration::from_millis(20);
        let answered = look_until(STEP / 6, Duration::ZERO, || {
            let answers = self.client().and_then(|mut client| client.status()).is_ok();
            Ok((answers || self.pidfd.wait_exit(look)?).then_some(answers))
        })?;
        if answered == Some(true) {
            return Ok(());
        }
        let said = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let last = said.lines().last().unwrap_or("said nothing and does not answer");
        // It may not have been started at all.
        let problem = last.trim_start_matches("plimsoll: ").trim_start_matches("error ").to_owned();
        Err(BenchError::Guard { command: "daemon".to_owned(), problem })
    }

    /// A connection to it.
    ///
    /// # Errors
    /// It has ended.
    pub fn client(&self) -> Result<Client, CallError> {
        Client::connect(&socket_of(&self.folder))
    }

    /// Stops it.
    ///
    /// # Errors
    /// Something of it is left.
    pub fn stop(self) -> Result<(), BenchError> {
        let places = [self.folder.clone(), self.pin.clone()];
        drop(self);
        match places.iter().find(|place| place.exists()) {
            Some(place) => {
                Err(BenchError::Unfit { problem: format!("'{}' is left; remove it", place.display()) })
            }
            None => Ok(()),
        }
    }
}

fn configure(folder: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(folder.join(CONFIGURATION), text).map_err(BenchError::io("write the daemon's configuration"))
}

/// Starts the daemon of that folder, which ends with the thread that does so.
fn spawn(options: &Options, folder: &Path, pin: &Path, dry_run: bool) -> Result<(Child, PidFd), BenchError> {
    let log = fs::File::create(folder.join("log")).map_err(BenchError::io("create the daemon's log"))?;
    let errors = log.try_clone().map_err(BenchError::io("share the daemon's log"))?;
    let mut child = Command::new(&options.workload)
        .args(["bench-workload", "leash", &std::process::id().to_string()])
        .arg(&options.plimsoll)
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
        // A Ctrl-C is for whoever started it, whose end it is told of.
        .process_group(0)
        .spawn()
        .map_err(BenchError::io(format!("start {} daemon", options.plimsoll.display())))?;
    let pidfd = child::hold(&mut child)?;
    Ok((child, pidfd))
}

fn coordinator_of(folder: &Path) -> PathBuf {
    folder.join(TMALLOC_SOCKET_NAME)
}

fn socket_of(folder: &Path) -> PathBuf {
    folder.join("socket")
}

impl Guarded for PrivateDaemon {
    fn set_line(&mut self, line: Line) -> Result<(), BenchError> {
        let size = |bytes| Size::Bytes(Bytes(bytes));
        let who = Target::User(Uid(line.uid));
        let (hard, soft) = (size(line.hard_bytes), line.soft_bytes.map(size));
        self.client()?.set_limit(&SetLimitCall { who, hard, soft, action: None, now: None })?;
        Ok(())
    }

    fn clear_line(&mut self, uid: u32) -> Result<(), BenchError> {
        self.client()?.clear_limit(Target::User(Uid(uid)))?;
        Ok(())
    }

    fn account(&mut self, uid: u32) -> Result<AccountReading, BenchError> {
        let accounts = self.client()?.show_limits(None)?.accounts;
        let account = accounts.into_iter().find(|account| account.account == Account::User(Uid(uid)));
        let account = account
            .ok_or_else(|| BenchError::malformed(format!("the account of uid {uid}"), "no such account"))?;
        Ok(AccountReading {
            usage_bytes: account.usage_bytes,
            reserved_bytes: account.reserved_bytes,
            peak_bytes: account.peak_bytes,
        })
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        Ok(self.client()?.history(HistoryCall { since: None, before_id: None, limit: None })?)
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn coordinator(&self) -> Option<PathBuf> {
        Some(coordinator_of(&self.folder))
    }

    fn crash(&mut self) -> Result<(), BenchError> {
        self.pidfd.send_signal(Signal::Kill).ok();
        self.child.wait().map(drop).map_err(BenchError::io("wait for the daemon"))
    }

    fn restart(&mut self) -> Result<(), BenchError> {
        (self.child, self.pidfd) = spawn(&self.options, &self.folder, &self.pin, self.dry_run)?;
        self.wait_until_it_answers()
    }

    fn leave_free(&mut self, bytes: u64) -> Result<(), BenchError> {
        let text = format!("{}[tmalloc]\nheadroom = \"{bytes}\"\n", Triggers::All.configuration());
        configure(&self.folder, &text)
    }

    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        machine::make(self, memory)
    }

    fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        let change = |(name, value): &(&str, u64)| {
            let text = format!("{name}={value}");
            text.parse().map_err(|_refused| BenchError::malformed("a tunable", &text))
        };
        let changes = settings.iter().map(change).collect::<Result<_, _>>()?;
        self.client()?.set_protection(changes)?;
        Ok(())
    }

    fn selection(&mut self) -> Result<Selection, BenchError> {
        pressure(self)?.selection.ok_or_else(|| {
            BenchError::malformed("how the machine guard selects", "it does not guard the machine")
        })
    }
}

fn pressure(daemon: &PrivateDaemon) -> Result<Pressure, BenchError> {
    Ok(daemon.client()?.status()?.pressure)
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        self.pidfd.send_signal(Signal::Term).ok();
        child::end(&mut self.child, &self.pidfd, STEP / 4);
        if self.pin.exists() {
            // It did not stop cleanly: take down what it left pinned. Where that fails, the pins show it.
            let arguments =
                [OsString::from("daemon"), "--stop-guarding".into(), "--pin".into(), self.pin.clone().into()];
            drop(child::run(&mut Command::new(&self.options.plimsoll), &arguments));
        }
        // Where that fails, the one that is there for it goes on trying.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Reads the history until it holds at least `kills` kills behind its first `before` incidents, and gives those: they
/// are written by a thread of their own.
pub(crate) fn wait_for_kills(
    guard: &mut dyn Guarded,
    before: usize,
    kills: usize,
) -> Result<Vec<Incident>, BenchError> {
    wait_for(&format!("{kills} kills in the history"), Duration::from_millis(50), || {
        let incidents = guard.incidents()?.into_iter().skip(before);
        let fresh: Vec<_> = incidents.filter(|incident| incident.action == Outcome::Kill).collect();
        Ok((fresh.len() >= kills).then_some(fresh))
    })
}
