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
mod stage;
mod storm;

use crate::{
    error::BenchError,
    guarded::{Starter, Triggers},
    options::Options,
    report::BenchReport,
};
use stage::NOBODY;
use stage::{FAR_BYTES, MIB, Stage, USER};
use std::{fs, os::unix::fs::PermissionsExt};

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
