//! A daemon without a limit: does it sleep, and how large is it?

use super::FAR;
use crate::{
    error::BenchError,
    guarded::{Starter, Triggers},
    options::Options,
    proc::number_field,
    report::BenchReport,
};
use std::{collections::BTreeMap, fs, thread, time::Duration};

/// Counts how often the daemon's threads are woken in a minute while no limit is set (after one was set and cleared),
/// and weighs it with a limit set.
pub(super) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut guard = start(Triggers::All)?;
    let Some(pid) = guard.pid() else {
        report.note("idle: the guard has no daemon to look at");
        return Ok(());
    };
    guard.set_line(FAR)?;
    let resident_kib = number_in(&format!("/proc/{pid}/status"), "VmRSS:")?;
    let maps_bytes = bpf_map_bytes(pid)?;
    guard.clear_line(FAR.uid)?;
    let window = Duration::from_secs(if options.quick { 3 } else { 60 });
    // What the clearing itself set off is over by then.
    thread::sleep(Duration::from_secs(1));
    let before = voluntary_switches(pid)?;
    thread::sleep(window);
    let woken = voluntary_switches(pid)?.saturating_sub(before);
    let single = |variant, figure: u64, unit: &str, report: &mut BenchReport| {
        report.add_row("idle", (variant, &[figure as f64]), unit);
    };
    single("plimsoll", woken, &format!("wake-ups in {} s", window.as_secs()), report);
    single("plimsoll resident, one line set", resident_kib * 1024, "bytes", report);
    single("plimsoll maps held open, one line set", maps_bytes, "bytes", report);
    Ok(())
}

fn number_in(path: &str, name: &str) -> Result<u64, BenchError> {
    let text = fs::read_to_string(path).map_err(BenchError::io(format!("read {path}")))?;
    number_field(&text, name).ok_or_else(|| BenchError::malformed(format!("{name} of {path}"), &text))
}

/// How often all threads of a process together went to sleep and were woken.
fn voluntary_switches(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&path).map_err(BenchError::io(format!("list {path}")))?;
    // A thread that ends while the list is read is woken no more.
    let texts = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    texts
        .map(|text| {
            number_field(&text, "voluntary_ctxt_switches:").ok_or_else(|| BenchError::malformed(&path, &text))
        })
        .sum()
}

/// Memory of the BPF maps that a process holds open, from the `memlock` of its fdinfo.
fn bpf_map_bytes(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&path).map_err(BenchError::io(format!("list {path}")))?;
    // A descriptor that is closed while the list is read holds no map any more.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let maps: BTreeMap<u64, u64> = texts
        .filter_map(|text| Some((number_field(&text, "map_id:")?, number_field(&text, "memlock:")?)))
        .collect();
    Ok(maps.values().sum())
}
