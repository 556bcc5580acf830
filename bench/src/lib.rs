//! The benchmarks behind `plimsoll bench`: what being guarded costs, how soon and how exactly the line acts.
//!
//! Everything is paired in one run: variants are interleaved (A B B A ...), each round gives one ratio, and the
//! ratio's median is printed with its 95 % confidence interval. The guard is driven from outside, as a black box: a
//! private daemon and what everybody can ask of it. Workloads and comparators are processes of their own
//! ([`workload_main`]), of uids 60010 to 60040 and 60400 to 60449, bounded in size and under a watchdog; they are killed
//! by pidfd only.
//!
//! A bench fails where its guard, a workload or a comparator does; that is said here for all of them.
//!
//! Neighbours: the CLI calls [`run`] and [`workload_main`]; its demo uses the same guard and the same workloads. This crate
//! never looks inside the guard; `reap` uses the daemon's reaper by itself, `frag` the recorder, `tmalloc` the allocators' own
//! functions.
#![forbid(unsafe_code)]

mod accuracy;
mod child;
mod comparator;
mod cpus;
mod crowd;
mod error;
mod faults;
mod frag;
pub mod guarded;
mod latency;
mod machine;
mod options;
mod overshoot;
mod pairing;
mod pingpong;
pub mod plot;
mod proc;
mod reap;
pub mod report;
mod scale;
mod scope;
mod select;
mod sleepers;
mod stamps;
pub mod statistics;
mod suite;
mod tmalloc;
mod workingset;
mod workload;

pub use child::Workload;
pub use error::BenchError;
pub use guarded::{Guarded, PrivateDaemon, Starter, Triggers};
pub use options::{Options, QUIET, ROUNDS};
pub use report::BenchReport;
pub use workload::workload_main;

/// The benches that [`run`] knows, in the order of the documentation.
pub const NAMES: [&str; 12] = [
    "faults",
    "pingpong",
    "latency",
    "overshoot",
    "accuracy",
    "scale",
    "reap",
    "select",
    "tmalloc",
    "workingset",
    "frag",
    "suite",
];

/// Runs the bench called `name` (one of [`NAMES`]) against private daemons of [`Options::plimsoll`].
///
/// # Errors
/// An unknown name, no root, a guard that does not start, a workload that fails or runs over its deadline.
pub fn run(name: &str, options: &Options) -> Result<BenchReport, BenchError> {
    run_with(name, options, &|triggers| {
        Ok(Box::new(PrivateDaemon::start(scope::PREFIX, options, triggers)?) as Box<dyn Guarded>)
    })
}

/// [`run`] against any guard that `start` gives.
///
/// # Errors
/// As [`run`].
pub fn run_with(name: &str, options: &Options, start: Starter<'_>) -> Result<BenchReport, BenchError> {
    if !NAMES.contains(&name) {
        return Err(BenchError::UnknownBench { name: name.to_owned() });
    }
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotPermitted);
    }
    let mut report = BenchReport::new(name, machine::describe()?);
    match name {
        "faults" => faults::run(options, start, &mut report)?,
        "pingpong" => pingpong::run(options, start, &mut report)?,
        "latency" => latency::run(options, start, &mut report)?,
        "overshoot" => overshoot::run(options, start, &mut report)?,
        "scale" => scale::run(options, &mut report)?,
        "reap" => reap::run(options, &mut report)?,
        "select" => select::run(options, start, &mut report)?,
        "tmalloc" => tmalloc::run(options, start, &mut report)?,
        "workingset" => workingset::run(options, start, &mut report)?,
        "frag" => frag::run(options, &mut report)?,
        "suite" => suite::run(options, &mut report)?,
        _ => accuracy::run(options, start, &mut report)?,
    }
    Ok(report)
}
