//! earlyoom beside the line: how long its choice takes, and how long until it has chosen.
//!
//! It guards the machine's memory, not a user's, and its dry run kills nobody: the figures end with its line 'sending
//! SIGKILL', before signal, exit and freeing, and are therefore kinder to it than those of the ways above.

use crate::{
    child::Workload,
    comparator::earlyoom::{Earlyoom, find},
    error::BenchError,
    options::Options,
    proc::available_bytes,
    report::BenchReport,
};
use plimsoll_sys::process::clock_monotonic_ns;
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

const CASE: &str = "earlyoom --dryrun";

/// A hog that takes the machine's available memory past the threshold: 512 MiB further down, 768 MiB in all.
const THRESHOLD_BELOW_KIB: u64 = 256 << 10;
const HOG_BYTES: u64 = 768 << 20;
const HOG_UID: u32 = 60_013;

/// The hog is only let loose on a machine that has this much to spare.
const AVAILABLE_KIB_MIN: u64 = 3 << 20;

/// Measures both, or says why not.
pub(super) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let Some(binary) = find() else {
        report.note("earlyoom is not installed (apt install earlyoom): its rows are missing");
        return Ok(());
    };
    let choices = choices_micros(&binary, options.sized(100, 3))?;
    report.add_row(CASE, ("'low memory' to 'sending'", &choices), "us");
    if available_kib()? < AVAILABLE_KIB_MIN {
        report.note("earlyoom: under 3 GiB available: its reaction to a hog was not measured");
        return Ok(());
    }
    let mut reactions = Vec::new();
    for _ in 0..options.sized(10, 1) {
        reactions.extend(reaction_micros(options, &binary)?);
    }
    report.add_row(CASE, ("memory low to 'sending'", &reactions), "us");
    Ok(())
}

/// With thresholds that are always met it chooses once a cycle.
fn choices_micros(binary: &Path, count: usize) -> Result<Vec<f64>, BenchError> {
    let mut earlyoom = Earlyoom::start_always(binary)?;
    (0..count).map(|_| Ok(earlyoom.choice_ns()? as f64 / 1_000.0)).collect()
}

/// From the first reading of MemAvailable under the threshold to 'sending'; `None` where the rest of the machine freed
/// so much meanwhile that the threshold was not reached.
fn reaction_micros(options: &Options, binary: &Path) -> Result<Option<f64>, BenchError> {
    let threshold_kib = available_kib()?.saturating_sub(THRESHOLD_BELOW_KIB);
    let mut earlyoom = Earlyoom::start(binary, threshold_kib)?;
    earlyoom.wait_until_watching()?;
    thread::scope(|scope| {
        let hog = scope.spawn(|| {
            let hog = Workload::start(&options.workload, &[&"hold", &HOG_UID, &HOG_BYTES])?;
            // Holds it until earlyoom, which looks every second at most, has looked.
            thread::sleep(Duration::from_millis(1_200));
            hog.finish(Duration::from_secs(5))
        });
        let until = Instant::now() + Duration::from_secs(5);
        let mut low_ns = None;
        while low_ns.is_none() && Instant::now() < until {
            if available_kib()? <= threshold_kib {
                low_ns = Some(clock_monotonic_ns());
            }
        }
        let chosen_ns = low_ns.map(|_| earlyoom.chosen_at_ns()).transpose()?;
        match hog.join() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(BenchError::malformed("the hog's thread", "it panicked")),
        }
        Ok(low_ns.zip(chosen_ns).map(|(low_ns, chosen_ns)| chosen_ns.saturating_sub(low_ns) as f64 / 1_000.0))
    })
}

fn available_kib() -> Result<u64, BenchError> {
    available_bytes().map(|bytes| bytes / 1024)
}
