//! A daemon without a limit: does it sleep, and how large is it?

use super::FAR;
use crate::{
    BenchError, Options, Starter, Triggers,
    proc::{kib_field, read_bpf_map_bytes, read_of, read_voluntary_switches},
    report::{BenchReport, Series},
};
use std::{thread, time::Duration};

/// Counts how often the daemon's threads are woken in a minute while no limit is set (after one was set and cleared),
/// and weighs it with a limit set.
///
/// # Errors
/// The guard fails or cannot be read.
pub(super) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut guard = start(Triggers::All)?;
    let Some(pid) = guard.pid() else {
        report.note("idle: the guard has no daemon to look at");
        return Ok(());
    };
    guard.set_line(FAR)?;
    let resident = read_of(pid, "status")?
        .as_deref()
        .and_then(|status| kib_field(status, "VmRSS:"))
        .ok_or_else(|| BenchError::malformed(format!("VmRSS of /proc/{pid}/status"), ""))?;
    let maps_bytes = read_bpf_map_bytes(pid)?;
    guard.clear_line(FAR.uid)?;
    let window = Duration::from_secs(if options.quick { 3 } else { 60 });
    // What the clearing itself set off is over by then.
    thread::sleep(Duration::from_secs(1));
    let before = read_voluntary_switches(pid)?;
    thread::sleep(window);
    let woken = read_voluntary_switches(pid)?.saturating_sub(before);
    let single = |variant, figure: u64, unit: &str, report: &mut BenchReport| {
        report.add_row("idle", Series { variant, figures: &[figure as f64] }, unit);
    };
    single("plimsoll", woken, &format!("wake-ups in {} s", window.as_secs()), report);
    single("plimsoll resident, one line set", resident * 1024, "bytes", report);
    single("plimsoll maps held open, one line set", maps_bytes, "bytes", report);
    Ok(())
}
