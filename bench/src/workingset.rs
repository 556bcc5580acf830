//! `workingset`: what stays in memory under a hog and a stream, with and without protection.
//!
//! A memory cgroup of the bench's own stands for the machine. In it run the seed's three workers: a hog that takes all
//! memory until it is killed, again and again, a stream that reads a file larger than the memory, and a reader that reads a
//! file of a tenth of it every two seconds and is timed. The daemon protects that cgroup; what it is set to changes from
//! stretch to stretch, in turns.

mod cases;
mod cost;
pub(crate) mod data;
mod fits;
mod quiet;
pub(crate) mod segment;
mod stage;
mod timeline;

use crate::{error::BenchError, guarded::Starter, options::Options, report::BenchReport};
pub(crate) use stage::DEFAULTS;
use stage::{MIB, OFF, SLOW_BYTES_A_SECOND, Sizes, Stage, tunables};

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut stage = Stage::open(options, start, report)?;
    cases::run(&mut stage, report)?;
    timeline::run(&mut stage, report)?;
    fits::run(&mut stage, report)?;
    cost::run(&mut stage, report)?;
    quiet::run(&mut stage, report)
}
