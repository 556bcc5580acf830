//! `seed`: the seed's run. Each process asks for 1 GB, piece by piece, under a line of 16 MiB for all of them together, and
//! touches all it gets; beside it, in turns, processes without a line touch as much by plain malloc.

use super::{
    MIB, Stage,
    allocators::{Contender, MALLOC},
};
use crate::{
    child::{STEP, Workload},
    error::BenchError,
    guarded::{Line, is_our_kill},
    report::{BenchReport, Series},
};
use plimsoll_policy::incident;
use plimsoll_sys::process::clock_monotonic_ns;

/// Under the line, and under none.
const ASKING: u32 = 60_401;
const FREE: u32 = 60_402;

const LINE: Line = Line { uid: ASKING, hard_bytes: 16 * MIB, soft_bytes: None };

/// What each one asks for, and how.
const WANTED_BYTES: u64 = 1_000_000_000;
const PIECE_BYTES: u64 = 4 << 10;

/// From the first `go` to the common start: all have heard theirs by then.
const START_IN_NS: u64 = 20_000_000;

/// What became of the processes of one run.
struct Ran {
    /// From the common start to the end of the last one, in nanoseconds.
    wall_ns: u64,
    /// What each one got.
    got_bytes: Vec<u64>,
    refused: usize,
    exited_well: usize,
}

/// What all runs of a case add up to.
#[derive(Default)]
struct Tally {
    processes: usize,
    refused: usize,
    exited_well: usize,
    peaks_bytes: Vec<f64>,
}

/// Runs the cases that are wanted.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    for processes in [1, 4, 8] {
        let case = format!("seed-{processes}");
        if stage.options.wants(&case) {
            compare(stage, &case, processes, report)?;
        }
    }
    Ok(())
}

fn compare(
    stage: &mut Stage<'_>,
    case: &str,
    processes: usize,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let of = |name: &str| stage.contenders.iter().find(|contender| contender.name == name).cloned();
    let (Some(tmalloc), Some(malloc)) = (stage.tmalloc().cloned(), of(MALLOC)) else { return Ok(()) };
    let before = stage.guard.incidents()?.len();
    let (mut asked_ms, mut plain_ms, mut got_mib) = (Vec::new(), Vec::new(), Vec::new());
    let mut tally = Tally::default();
    for _ in 0..stage.options.sized(20, 2) {
        // A fresh line: the account's peak is of this round.
        stage.guard.set_line(LINE)?;
        let asked = run_once(stage, &tmalloc, ASKING, &vec![WANTED_BYTES; processes])?;
        tally.add(processes, &asked, stage.guard.account(ASKING)?.peak_bytes);
        stage.guard.clear_line(ASKING)?;
        let plain = run_once(stage, &malloc, FREE, &asked.got_bytes)?;
        let millis = |ns: u64| ns as f64 / 1e6;
        asked_ms.push(millis(asked.wall_ns));
        plain_ms.push(millis(plain.wall_ns));
        got_mib.push(asked.got_bytes.iter().sum::<u64>() as f64 / MIB as f64);
    }
    let (asked, plain): (Series<'_>, Series<'_>) = (("tmalloc", &asked_ms), (MALLOC, &plain_ms));
    report.add_row(case, asked, "ms");
    report.add_row(case, plain, "ms");
    report.add_ratio(case, asked, plain);
    report.add_row(case, ("tmalloc, granted in all", &got_mib), "MiB");
    report.add_row(case, ("tmalloc, peak of the account", &tally.peaks_bytes), "bytes");
    tally.note(stage, case, before, report)
}

/// Starts the processes, lets them go at once, and waits for their ends.
fn run_once(
    stage: &Stage<'_>,
    contender: &Contender,
    uid: u32,
    wanted_bytes: &[u64],
) -> Result<Ran, BenchError> {
    let start = |_: &u64| stage.start(contender, "ask", uid, &[&PIECE_BYTES]);
    let mut processes: Vec<Workload> = wanted_bytes.iter().map(start).collect::<Result<_, _>>()?;
    let start_ns = clock_monotonic_ns() + START_IN_NS;
    for (process, bytes) in processes.iter_mut().zip(wanted_bytes) {
        process.tell(&format!("go {bytes} {start_ns}"))?;
    }
    let mut outcome = Ran { wall_ns: 0, got_bytes: Vec::new(), refused: 0, exited_well: 0 };
    for process in &mut processes {
        match process.expect_numbers("asked") {
            Ok([bytes, refused]) => {
                outcome.got_bytes.push(bytes);
                outcome.refused += usize::from(refused == 1);
            }
            // One that was killed is a finding, not a failure of the bench.
            Err(error) if process.wait_dead_ns(STEP / 60)?.is_none() => return Err(error),
            Err(_) => outcome.got_bytes.push(0),
        }
        outcome.exited_well += usize::from(process.exit_status(STEP)? == Some(0));
    }
    outcome.wall_ns = clock_monotonic_ns().saturating_sub(start_ns);
    Ok(outcome)
}

impl Tally {
    fn add(&mut self, processes: usize, asked: &Ran, peak_bytes: Option<u64>) {
        self.processes += processes;
        self.refused += asked.refused;
        self.exited_well += asked.exited_well;
        self.peaks_bytes.extend(peak_bytes.map(|bytes| bytes as f64));
    }

    /// Says whether anybody was killed, and whether the line held.
    fn note(
        &self,
        stage: &mut Stage<'_>,
        case: &str,
        before: usize,
        report: &mut BenchReport,
    ) -> Result<(), BenchError> {
        let fresh = stage.guard.incidents()?.split_off(before);
        let refusals = fresh.iter().filter(|incident| incident.action == incident::Outcome::Refuse).count();
        let above = self.peaks_bytes.iter().filter(|peak| **peak > LINE.hard_bytes as f64).count();
        report.note(format!(
            "{case}: {} of {} processes were refused, {} exited with 0; {} kills; the account was over its line of {} bytes in {above} of {} rounds; {} refusals are recorded",
            self.refused,
            self.processes,
            self.exited_well,
            fresh.iter().filter(|incident| is_our_kill(incident)).count(),
            LINE.hard_bytes,
            self.peaks_bytes.len(),
            refusals,
        ));
        Ok(())
    }
}
