//! `accuracy`: after a storm of more than a million events, is the guard's usage what the kernel's page tables say?

use crate::{
    child::{STEP, Workload},
    error::BenchError,
    guarded::{Guarded, Line, Starter, Triggers},
    options::Options,
    proc,
    report::BenchReport,
};
use plimsoll_wire::text::parse_statm;
use std::{fmt::Display, fs, thread, time::Duration};

/// The users that the storms move between.
const UIDS: [u32; 3] = [60_010, 60_011, 60_012];
const STORMS: usize = 3;
const THREADS: u64 = 2;

/// Pages that all storms together touch in a round: each is one event when it comes and part of one when it goes.
const PAGES: u64 = 1_050_000;
const PAGES_QUICK: u64 = 30_000;

/// No storm comes near it.
const HARD_BYTES: u64 = 2 << 30;

/// All figures of the bench.
#[derive(Default)]
struct Differences {
    guard_pages: Vec<f64>,
    statm_pages: Vec<f64>,
    after_exit_pages: Vec<f64>,
    totals: [u64; 4],
    /// One line for each user that was not exact.
    findings: Vec<String>,
}

/// Runs it.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut guard = start(Triggers::All)?;
    let mut differences = Differences::default();
    for round in 0..options.sized(10, 1) {
        storm(options, guard.as_mut(), round, &mut differences)?;
    }
    let Differences { guard_pages, statm_pages, after_exit_pages, totals, findings } = &differences;
    report.add_row("stopped", ("plimsoll", guard_pages), "pages off");
    report.add_row("stopped", ("statm", statm_pages), "pages off");
    report.add_row("after exit", ("plimsoll", after_exit_pages), "pages off");
    let [pages, forks, execs, setuids] = totals;
    report.note(format!(
        "in all {pages} pages touched, {forks} forks without exec, {execs} execs, {setuids} changes of user"
    ));
    report.notes.extend(findings.iter().cloned());
    Ok(())
}

fn storm(
    options: &Options,
    guard: &mut dyn Guarded,
    round: usize,
    differences: &mut Differences,
) -> Result<(), BenchError> {
    let start = |seed: usize| {
        let mut words: Vec<&dyn Display> = vec![&"storm", &THREADS, &seed];
        // Each begins as another user.
        words.extend(
            UIDS.iter().cycle().skip(seed % UIDS.len()).take(UIDS.len()).map(|uid| uid as &dyn Display),
        );
        Workload::start(&options.workload, &words)
    };
    // The first one runs, and holds memory, before there is a line.
    let pages_each = if options.quick { PAGES_QUICK } else { PAGES } / STORMS as u64;
    let mut first = start(round * STORMS)?;
    go(&mut [&mut first], pages_each / 10, differences)?;
    for uid in UIDS {
        guard.set_line(Line { uid, hard_bytes: HARD_BYTES, soft_bytes: None })?;
    }
    let mut storms = vec![first];
    for seed in 1..STORMS {
        storms.push(start(round * STORMS + seed)?);
    }
    go(&mut storms.iter_mut().collect::<Vec<_>>(), pages_each, differences)?;
    compare(guard, differences)?;
    for storm in storms {
        storm.finish(STEP)?;
    }
    // Death is seen before the last of the process's memory is accounted for.
    thread::sleep(Duration::from_millis(200));
    let page_bytes = proc::page_size_bytes();
    for uid in UIDS {
        let usage_bytes = guard.account(uid)?.usage_bytes;
        differences.after_exit_pages.push((usage_bytes / page_bytes) as f64);
        guard.clear_line(uid)?;
    }
    Ok(())
}

/// Lets them storm, all at once, until all stand still.
fn go(
    storms: &mut [&mut Workload],
    pages_each: u64,
    differences: &mut Differences,
) -> Result<(), BenchError> {
    for storm in storms.iter_mut() {
        storm.tell(&format!("go {pages_each}"))?;
    }
    for storm in storms.iter_mut() {
        let counts = storm.expect_numbers::<4>("stopped")?;
        for (total, count) in differences.totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    Ok(())
}

/// Compares while everything stands still. All living processes of these users have executed, so that nothing of theirs
/// is inherited from a fork: page tables and usage must agree to the page.
fn compare(guard: &mut dyn Guarded, differences: &mut Differences) -> Result<(), BenchError> {
    let page_bytes = proc::page_size_bytes();
    for uid in UIDS {
        let (mut exact_pages, mut statm_pages) = (0, 0);
        let pids = proc::pids_of_user(uid)?;
        for pid in pids.iter().copied() {
            exact_pages += proc::charged_bytes(pid)? / page_bytes;
            let path = format!("/proc/{pid}/statm");
            let statm = fs::read(&path).map_err(BenchError::io(format!("read {path}")))?;
            statm_pages += parse_statm(&statm)?.anonymous().0;
        }
        let usage_pages = guard.account(uid)?.usage_bytes / page_bytes;
        if usage_pages != exact_pages {
            differences.findings.push(format!(
                "uid {uid}: plimsoll says {usage_pages} pages, the page tables of its processes {pids:?} {exact_pages}"
            ));
        }
        differences.guard_pages.push(usage_pages.abs_diff(exact_pages) as f64);
        differences.statm_pages.push(statm_pages.abs_diff(exact_pages) as f64);
    }
    Ok(())
}
