//! `overshoot`: how far past its line a user is when the kill comes, as the guard recorded it and as the victim did.
//!
//! `sleeper` is apart: those who cross are not the one who pays.

mod sleeper;

use crate::{
    child::{STEP, Workload},
    error::BenchError,
    guarded::{Guarded, Line, Starter, Triggers, wait_for_kills},
    options::Options,
    proc,
    report::BenchReport,
    stamps::Stamps,
    workload::{HUGE_PAGE_BYTES, UNITS_MAX},
};
use std::fmt::Display;

const MIB: u64 = 1 << 20;
const UID: u32 = 60_010;

/// One way to allocate.
struct Case {
    name: &'static str,
    kills: (usize, usize),
    hard_bytes: u64,
    /// Where the victim stops before it is let go.
    approach_bytes: u64,
    threads: usize,
    huge: bool,
}

const SMALL: Case = Case {
    name: "4KiB",
    kills: (500, 5),
    hard_bytes: 8 * MIB,
    approach_bytes: 7 * MIB,
    threads: 1,
    huge: false,
};

const HUGE: Case = Case {
    name: "huge",
    kills: (100, 2),
    hard_bytes: 32 * MIB,
    approach_bytes: 24 * MIB,
    huge: true,
    ..SMALL
};

const THREADS: Case =
    Case { name: "8-threads", kills: (100, 2), approach_bytes: 4 * MIB, threads: 8, ..SMALL };

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut guard = start(Triggers::All)?;
    for case in [SMALL, HUGE, THREADS].iter().filter(|case| options.wants(case.name)) {
        kill_often(options, guard.as_mut(), case, report)?;
    }
    if options.wants(sleeper::CASE) {
        sleeper::run(options, guard.as_mut(), report)?;
    }
    Ok(())
}

fn kill_often(
    options: &Options,
    guard: &mut dyn Guarded,
    case: &Case,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    guard.set_line(Line { uid: UID, hard_bytes: case.hard_bytes, soft_bytes: None })?;
    let before = guard.incidents()?.len();
    let stamps = Stamps::create(UNITS_MAX * case.threads)?;
    let kills = options.sized(case.kills.0, case.kills.1);
    let mut counted = Vec::with_capacity(kills);
    for _ in 0..kills {
        counted.push(kill_once(options, &stamps, case)?);
    }
    let incidents = wait_for_kills(guard, before, kills)?;
    let recorded: Vec<f64> = incidents.iter().map(|incident| incident.overshoot_bytes as f64).collect();
    report.add_row(case.name, ("plimsoll's record", &recorded), "bytes");
    report.add_row(case.name, ("victim's own count", &counted), "bytes");
    guard.clear_line(UID)
}

/// Lets one victim run into the line; bytes above the line by its own count: what it had when it was let go, by the
/// kernel's page tables, and the pages it began to touch since. A touch that was stopped counts as if it had happened.
fn kill_once(options: &Options, stamps: &Stamps, case: &Case) -> Result<f64, BenchError> {
    stamps.clear()?;
    let size = if case.huge { "huge" } else { "small" };
    let path = stamps.path();
    let words: [&dyn Display; 6] = [&"victim", &UID, &path, &case.approach_bytes, &case.threads, &size];
    let mut victim = Workload::start(&options.workload, &words)?;
    let had_bytes = proc::charged_bytes(victim.pid())?;
    victim.tell(&format!("go {UNITS_MAX}"))?;
    victim.death_ns(STEP / 6)?;
    let unit_bytes = if case.huge { HUGE_PAGE_BYTES as u64 } else { proc::page_size_bytes() };
    let touched_bytes = stamps.read()?.len() as u64 * unit_bytes;
    Ok((had_bytes + touched_bytes) as f64 - case.hard_bytes as f64)
}
