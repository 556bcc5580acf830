//! The short-lived child that loads the programs: loading takes tens of megabytes for a moment, which the daemon shall
//! not keep.

use crate::{
    config::{Charge, Config},
    foreign_kills::Link,
    guard::{Caller, Request},
    journal::Journal,
};
use plimsoll_policy::{lines::Jobs, units::Bytes};
use plimsoll_sys::{
    bpf::{
        Killed, LoadOptions, Looks, Members, Meta, OomKills, PinState, Pins, Selector, Strict, WorkingSet,
        load, load_beside,
    },
    probe::in_initial_pid_namespace,
    process::{ProcessError, possible_cpus},
};
use serde::{Deserialize, Serialize};
use std::{
    io::Write as _,
    ops::RangeInclusive,
    path::PathBuf,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
};

/// The hidden subcommand of the binary that calls [`main`].
pub const SUBCOMMAND: &str = "load-programs";

/// Address spaces tracked where the configuration leaves it to us, at least and at most. A search for the largest goes through
/// the whole table, in the event that needs it: 12 ns for each place (6.18), in use or not, so 0.2 to 0.8 ms.
const PROCESSES: RangeInclusive<u32> = 16_384..=65_536;

/// So many for this machine: one for each MiB of its memory, and up to the next power of two, which the kernel makes of it
/// anyway, so that a little memory more or less makes no other table.
fn processes_for(mem_total: Bytes) -> u32 {
    let mebibytes = u32::try_from(mem_total.0 >> 20).unwrap_or(u32::MAX);
    mebibytes.clamp(*PROCESSES.start(), *PROCESSES.end()).next_power_of_two()
}

/// Where the programs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Placement {
    /// Where nothing is in force.
    InPlace,
    /// Beside those in force, with maps of their own.
    Beside,
    /// Beside those in force, with their maps.
    BesideWithTheirMaps,
    /// The selection programs, which are in nobody's way.
    Selection,
    /// The program that tells of the kernel's own kills, likewise.
    Kills,
    /// The programs that tell when to look at memory, likewise.
    Looks,
    /// The programs that count the use of files, likewise.
    WorkingSet,
    /// The program that tells whom anybody kills, likewise.
    Killed,
    /// The programs that refuse memory past a strict job's line, likewise.
    Strict,
}

/// What the child is told, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LoadRequest {
    pin: PathBuf,
    placement: Placement,
    /// Whom it is for.
    daemon: u32,
    processes_max: u32,
    accounts_max: u32,
    rss: bool,
    first_user_uid: u32,
}

/// How the programs are to be loaded.
#[derive(Debug, Clone)]
pub(crate) struct Loader {
    job: LoadRequest,
}

impl Loader {
    pub(crate) fn new(pins: &Pins, config: &Config, mem_total: Bytes) -> Self {
        let processes_max = match config.maps.max_processes {
            0 => processes_for(mem_total),
            some => some,
        };
        Self {
            job: LoadRequest {
                pin: pins.root().to_path_buf(),
                placement: Placement::InPlace,
                daemon: std::process::id(),
                processes_max,
                // Account 0 is nobody's.
                accounts_max: config.maps.max_accounts.saturating_add(1),
                rss: config.limits.charge == Charge::Rss,
                first_user_uid: config.limits.uids.min.0,
            },
        }
    }

    /// How many accounts there can be.
    pub(crate) const fn accounts_max(&self) -> u32 {
        self.job.accounts_max
    }

    fn members(&self) -> Members {
        if self.job.rss { Members::Rss } else { Members::Anon }
    }

    /// Loads unless these very programs are in force, made for the same. Others stay in force until they are replaced:
    /// at once, where these can go on with their maps, otherwise when [`crate::guard::Guard::draw`] has drawn the lines.
    /// What comes back is to be said.
    ///
    /// # Errors
    /// One line: what [`may_draw`], the kernel or the child said.
    pub(crate) fn ensure(&self) -> Result<Option<String>, String> {
        may_draw()?;
        let pins = Pins::new(&self.job.pin);
        match pins.state().map_err(|error| error.to_string())? {
            PinState::Ours(meta) if self.is_made_for_this(&meta) => {
                if meta.is_this_build() {
                    return Ok(None);
                }
                let replaced = self
                    .spawn(Placement::BesideWithTheirMaps)
                    .and_then(|()| pins.replace().map_err(|error| error.to_string()));
                Ok(Some(replaced.map_or_else(
                    |error| format!("the programs of the version before go on: {error}"),
                    |()| "the programs of the version before were replaced".to_owned(),
                )))
            }
            PinState::Ours(_) => self.spawn(Placement::Beside).map(|()| None),
            PinState::Foreign(schema) => self.spawn(Placement::Beside).map(|()| {
                Some(format!(
                    "replacing the programs of another version (schema {schema}); \
                     what they did while no daemon ran is not in the history"
                ))
            }),
            PinState::Absent | PinState::Partial => self.spawn(Placement::InPlace).map(|()| None),
        }
    }

    /// Has the selection programs, and the one that tells of the kernel's own kills, loaded while guarding has begun: until
    /// they are there, and where they cannot be, processes are listed from `/proc`. `None`: there can be no pins (`may_pin`),
    /// or the thread for it could not be started, and that was said.
    pub(crate) fn equip(
        self,
        may_pin: bool,
        caller: Caller,
        foreign_kills: Link,
        journal: Journal,
    ) -> Option<JoinHandle<()>> {
        if !may_pin {
            foreign_kills.cannot("there can be no pins here; the journal says why");
            return None;
        }
        let told = journal.clone();
        let work = move || {
            match self.selector() {
                // A guard that takes nothing any more is stopping.
                Ok(selector) => drop(caller.send(Request::Equip(Box::new(selector)))),
                Err(error) => {
                    journal.line(format!(
                        "the machine's processes are listed from /proc, which takes longer, and shared memory is not charged: \
                         {error}"
                    ));
                }
            }
            match self.looks() {
                Ok(looks) => drop(caller.send(Request::Looks(Box::new(looks)))),
                Err(error) => {
                    journal.line(format!("the machine's memory is looked at by a timer: {error}"));
                }
            }
            match self.kills() {
                Ok(kills) => foreign_kills.equip(kills),
                Err(error) => {
                    foreign_kills.cannot(&error);
                    journal.line(format!("kills of the kernel are not heard of: {error}"));
                }
            }
        };
        let started = thread::Builder::new().name("loader".into()).spawn(work);
        started.map_err(|error| told.line(format!("the selection programs were not loaded: {error}"))).ok()
    }

    /// Loads the selection programs, unless they are there, and opens them.
    fn selector(&self) -> Result<Selector, String> {
        may_draw()?;
        self.spawn(Placement::Selection)?;
        let mut selector = Selector::open(&self.job.pin).map_err(|error| error.to_string())?;
        // What it takes is to be known before somebody urgent waits for it.
        selector.sweep(|_| ()).map_err(|error| error.to_string())?;
        Ok(selector)
    }

    /// Loads the program that tells of the kernel's own kills, unless it is there, and opens it.
    fn kills(&self) -> Result<OomKills, String> {
        may_draw()?;
        self.spawn(Placement::Kills)?;
        OomKills::open(&self.job.pin).map_err(|error| error.to_string())
    }

    /// Loads the programs that tell when to look at memory, unless they are there, and attaches them.
    fn looks(&self) -> Result<Looks, String> {
        may_draw()?;
        self.spawn(Placement::Looks)?;
        Looks::open(&self.job.pin).map_err(|error| error.to_string())
    }

    /// Has the programs of working-set protection loaded, unless they are there.
    ///
    /// # Errors
    /// As [`Loader::ensure`].
    pub(crate) fn prepare_working_set(&self) -> Result<(), String> {
        may_draw()?;
        self.spawn(Placement::WorkingSet)
    }

    /// Has the program that tells whom anybody kills loaded, unless it is there.
    ///
    /// # Errors
    /// As [`Loader::ensure`].
    pub(crate) fn prepare_killed(&self) -> Result<(), String> {
        may_draw()?;
        self.spawn(Placement::Killed)
    }

    /// Loads the programs of strict jobs, unless they are there. `others`: there are strict jobs already.
    ///
    /// # Errors
    /// As [`Loader::ensure`]; also where those jobs are held by programs of another version, with what they know of them.
    pub(crate) fn ensure_strict(&self, others: bool) -> Result<(), String> {
        may_draw()?;
        if self.has_strict() {
            return Ok(());
        }
        if others && Strict::is_another_there(&self.job.pin) {
            return Err(
                "those that run are held by programs of another version; try again when they have ended"
                    .to_owned(),
            );
        }
        self.spawn(Placement::Strict)
    }

    /// The same for jobs that an earlier daemon left.
    ///
    /// # Errors
    /// One line to be said: they are not strict, or as their programs have them.
    pub(crate) fn ensure_strict_of(&self, jobs: &Jobs) -> Result<(), String> {
        let any = jobs.strict().next().is_some();
        if any { self.ensure_strict(true).map_err(|why| format!("strict jobs: {why}")) } else { Ok(()) }
    }

    /// Whether they are there.
    pub(crate) fn has_strict(&self) -> bool {
        Strict::is_there(&self.job.pin)
    }

    fn is_made_for_this(&self, meta: &Meta) -> bool {
        meta.is_this_layout()
            && meta.charged_members == self.members().mask()
            && meta.processes_max == self.job.processes_max
            && meta.accounts_max == self.job.accounts_max
    }

    fn spawn(&self, placement: Placement) -> Result<(), String> {
        let told = serde_json::to_vec(&LoadRequest { placement, ..self.job.clone() })
            .map_err(|error| error.to_string())?;
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
    let job: LoadRequest = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("loader: bad job: {error}"))?;
    // What it loads for a daemon that has died would be in the next one's way.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|errno| format!("loader: cannot ask to end with the daemon: {errno}"))?;
    if std::os::unix::process::parent_id() != job.daemon {
        return Err("loader: the daemon has gone".to_owned());
    }
    // Before what it is to guard against: half a second of work became ten in a storm of hogs.
    // Without the right to it, it takes its turn.
    rustix::process::setpriority_process(None, -20).ok();
    let cpus = possible_cpus().map_err(|error: ProcessError| error.to_string())?;
    match job.placement {
        Placement::Selection => {
            return Selector::load(&job.pin, cpus).map(drop).map_err(|error| error.to_string());
        }
        Placement::Kills => return OomKills::load(&job.pin, cpus).map_err(|error| error.to_string()),
        Placement::Looks => return Looks::load(&job.pin).map_err(|error| error.to_string()),
        Placement::Strict => return Strict::load(&job.pin).map_err(|error| error.to_string()),
        Placement::Killed => return Killed::load(&job.pin, cpus).map_err(|error| error.to_string()),
        Placement::WorkingSet => {
            return WorkingSet::load(&job.pin).map(drop).map_err(|error| error.to_string());
        }
        Placement::InPlace | Placement::Beside | Placement::BesideWithTheirMaps => {}
    }
    let pins = Pins::new(&job.pin);
    let options = LoadOptions {
        pins: if job.placement == Placement::Beside { pins.beside() } else { pins },
        cpus,
        processes_max: job.processes_max,
        accounts_max: job.accounts_max,
        members: if job.rss { Members::Rss } else { Members::Anon },
        first_user_uid: job.first_user_uid,
    };
    let loaded = match job.placement {
        Placement::InPlace | Placement::Beside => load(&options),
        Placement::BesideWithTheirMaps => load_beside(&options),
        Placement::Selection
        | Placement::Kills
        | Placement::Looks
        | Placement::WorkingSet
        | Placement::Killed
        | Placement::Strict => Ok(()),
    };
    loaded.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_address_spaces_follows_the_machines_memory_within_bounds() {
        let sizes = [0, 512 << 20, 16 << 30, 23 << 30, 31 << 30, 62 << 30, 4 << 40, u64::MAX]
            .map(|bytes| processes_for(Bytes(bytes)));
        assert_eq!(sizes, [16_384, 16_384, 16_384, 32_768, 32_768, 65_536, 65_536, 65_536]);
    }
}
