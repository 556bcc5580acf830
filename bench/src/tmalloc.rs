//! `tmalloc`: what asking first costs beside other allocators, and whether it keeps its promises.
//!
//! - `pairs`, `batch`, `mixed`: blocks that come and go within what was granted, beside malloc, jemalloc and mimalloc.
//! - `refill`: calls that need a new grant.
//! - `seed`: the seed's run. Processes ask for more than there is until they are refused.
//! - `storm`: processes that ask are killed by chance, the daemon too; nothing may stay reserved.
//! - `soak`: the same for ten minutes, at a line, with a look at each refusal; only when it is asked for by name.

mod allocators;
mod churn;
mod refill;
mod seed;
mod soak;
mod storm;

use crate::{
    child::Workload,
    error::BenchError,
    guarded::{Guarded, Line, Starter, Triggers},
    options::Options,
    report::BenchReport,
};
use allocators::{Contender, TMALLOC};
use std::{
    ffi::OsString,
    fmt::Display,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

const MIB: u64 = 1 << 20;

/// Whose processes measure allocators, all under the same line.
const USER: u32 = 60_400;

/// Far from what they hold together.
const FAR_BYTES: u64 = 4 << 30;

/// A user without a process, whose line keeps the guard's programs in the kernel while others come and go: the first line
/// waits until they are loaded.
const NOBODY: Line = Line { uid: 60_449, hard_bytes: FAR_BYTES, soft_bytes: None };

/// Which variable of the library says where the coordinator is, and which what to do without one.
const SOCKET_VARIABLE: &str = "PLIMSOLL_TMALLOC_SOCKET";
const WITHOUT_DAEMON_VARIABLE: &str = "TMALLOC_WITHOUT_DAEMON";

/// What the cases share.
#[derive(Debug)]
struct Stage<'a> {
    options: &'a Options,
    guard: Box<dyn Guarded>,
    contenders: Vec<Contender>,
}

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let shelf = tempfile::Builder::new()
        .prefix("plimsoll-bench-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .map_err(BenchError::io("temporary folder"))?;
    let (contenders, missing) = allocators::find(options.libraries.as_deref(), shelf.path())?;
    for name in missing {
        report.note(format!("{name} is not installed: it is left out"));
    }
    let mut stage = Stage { options, guard: start(Triggers::All)?, contenders };
    stage.guard.set_line(NOBODY)?;
    churn::run(&mut stage, report)?;
    if stage.tmalloc().is_none() {
        return Ok(());
    }
    refill::run(&mut stage, report)?;
    if stage.guard.coordinator().is_none() {
        report.note("nobody answers tmalloc here: it was measured as it is without a daemon, and seed and storm are left out");
        return Ok(());
    }
    seed::run(&mut stage, report)?;
    storm::run(&mut stage, report)?;
    soak::run(&mut stage, report)
}

impl Stage<'_> {
    fn tmalloc(&self) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == TMALLOC)
    }

    /// What a process that uses tmalloc needs to know.
    fn environment(&self) -> (&'static str, OsString) {
        match self.guard.coordinator() {
            Some(socket) => (SOCKET_VARIABLE, socket.into()),
            None => (WITHOUT_DAEMON_VARIABLE, "pass".into()),
        }
    }

    /// Starts the workload `name` as the user, with this contender loaded before all other libraries.
    fn start(
        &self,
        contender: &Contender,
        name: &str,
        uid: u32,
        more: &[&dyn Display],
    ) -> Result<Workload, BenchError> {
        let mut command = self.command(uid);
        command.envs(contender.environment());
        let names = contender.names();
        let words: Vec<&dyn Display> =
            [&name as &dyn Display, &uid, &names].into_iter().chain(more.iter().copied()).collect();
        contender.verified(Workload::start_prepared(command, &words)?)
    }

    /// The workloads' program, as a process of that user that knows where to ask for memory.
    fn command(&self, uid: u32) -> Command {
        let (name, value) = self.environment();
        let mut command = Command::new(&self.options.workload);
        command.uid(uid).gid(uid).env(name, value);
        command
    }
}
