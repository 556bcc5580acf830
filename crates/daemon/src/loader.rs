//! The short-lived child that loads the programs: loading takes tens of megabytes for a moment, which the daemon shall
//! not keep.

use crate::config::{Charge, Config, login_path::LOGIN_PATH};
use plimsoll_sys::{
    bpf::{ExeKey, LoadOptions, Members, PinState, Pins, load},
    probe::in_initial_pid_namespace,
    process::{ProcessError, possible_cpus},
};
use serde::{Deserialize, Serialize};
use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The hidden subcommand of the binary that calls [`main`].
pub const SUBCOMMAND: &str = "load-programs";

/// Address spaces tracked where the configuration leaves it to us: DESIGN's 10,000 processes with room to spare.
/// About 180 bytes each on a machine of 2 CPUs.
const PROCESSES_DEFAULT: u32 = 16_384;

/// What the child is told, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    pin: PathBuf,
    processes_max: u32,
    accounts_max: u32,
    rss: bool,
    protected: Vec<PathBuf>,
    protected_of_system: Vec<PathBuf>,
    first_user_uid: u32,
}

/// How the programs are to be loaded.
#[derive(Debug, Clone)]
pub(crate) struct Loader {
    job: Job,
}

impl Loader {
    pub(crate) fn new(pins: &Pins, config: &Config) -> Self {
        let processes_max = match config.maps.max_processes {
            0 => PROCESSES_DEFAULT,
            some => some,
        };
        Self {
            job: Job {
                pin: pins.root().to_path_buf(),
                processes_max,
                // Account 0 is nobody's.
                accounts_max: config.maps.max_accounts.saturating_add(1),
                rss: config.limits.charge == Charge::Rss,
                protected: paths(config, |of_login| !of_login),
                protected_of_system: paths(config, |of_login| of_login),
                first_user_uid: config.limits.uids.min.0,
            },
        }
    }

    fn members(&self) -> Members {
        if self.job.rss { Members::Rss } else { Members::Anon }
    }

    /// Loads unless programs made for the same are in force already.
    ///
    /// # Errors
    /// One line: what [`may_draw`], the kernel or the child said.
    pub(crate) fn ensure(&self) -> Result<(), String> {
        may_draw()?;
        let pins = Pins::new(&self.job.pin);
        match pins.state().map_err(|error| error.to_string())? {
            PinState::Ours(meta)
                if meta.charged_members == self.members().mask()
                    && meta.processes_max == self.job.processes_max
                    && meta.accounts_max == self.job.accounts_max =>
            {
                Ok(())
            }
            // Made for another configuration: begin anew, the scan enters everyone again.
            PinState::Ours(_) => {
                pins.remove().map_err(|error| error.to_string())?;
                self.spawn()
            }
            PinState::Absent | PinState::Partial | PinState::Foreign(_) => self.spawn(),
        }
    }

    fn spawn(&self) -> Result<(), String> {
        let told = serde_json::to_vec(&self.job).map_err(|error| error.to_string())?;
        let failed = |error: std::io::Error| format!("cannot start the loader: {error}");
        let mut child = Command::new("/proc/self/exe")
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&told).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(said
            .lines()
            .last()
            .map_or_else(|| format!("the loader ended with {}", output.status), str::to_owned))
    }
}

/// Whether lines can be drawn from where this process runs.
///
/// # Errors
/// One line: the process numbers that the programs tell are those of another pid namespace.
pub(crate) fn may_draw() -> Result<(), String> {
    match in_initial_pid_namespace() {
        Ok(true) => Ok(()),
        Ok(false) => Err("this is not the machine's initial pid namespace, whose process numbers the kernel's records have; \
                          start the daemon on the host, outside the container"
            .to_owned()),
        Err(error) => Err(format!("cannot tell the pid namespace: /proc/self/ns/pid: {error}")),
    }
}

/// The child: reads its job from standard input, loads and pins. The error is one line.
///
/// # Errors
/// What was wrong with the job or with loading.
pub fn main() -> Result<(), String> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("loader: bad job: {error}"))?;
    let cpus = possible_cpus().map_err(|error: ProcessError| error.to_string())?;
    load(&LoadOptions {
        pins: Pins::new(&job.pin),
        cpus,
        processes_max: job.processes_max,
        accounts_max: job.accounts_max,
        members: if job.rss { Members::Rss } else { Members::Anon },
        protected: keys(&job.protected),
        protected_of_system: keys(&job.protected_of_system),
        first_user_uid: job.first_user_uid,
    })
    .map_err(|error| error.to_string())
}

/// The protected executables that are, or are not, of the login path.
fn paths(config: &Config, wanted: impl Fn(bool) -> bool) -> Vec<PathBuf> {
    let of_login = |path: &str| LOGIN_PATH.contains(&path);
    config.protect.exe.iter().filter(|path| wanted(of_login(path))).map(PathBuf::from).collect()
}

fn keys(paths: &[PathBuf]) -> Vec<ExeKey> {
    paths.iter().filter_map(|path| ExeKey::of(path)).collect()
}
