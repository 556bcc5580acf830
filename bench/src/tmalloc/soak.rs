//! `soak`: ten minutes of what [`super::storm`] does, at a lower line and with processes that ask the coordinator in its
//! own words and look whether its refusals are so. Runs only when it is asked for by its name; some seconds of it in the
//! quick form.

use super::{
    MIB, Stage,
    storm::{self, Crowd, Findings},
};
use crate::{
    child::{STEP, Workload},
    error::BenchError,
    guarded::{Line, is_our_kill},
    report::BenchReport,
};
use std::time::{Duration, Instant};

pub(super) const CASE: &str = "soak";

const PROCESSES: usize = 24;
const PROBES: usize = 3;
/// Much less than the processes would like to have.
const LINE_BYTES: u64 = 80 * MIB;
/// For what they have without asking: each begins with half a MiB or so of its own, and those that are killed are replaced.
const FREE_BYTES: u64 = 16 * MIB;

const LASTS: Duration = Duration::from_secs(600);
const QUICK_LASTS: Duration = Duration::from_secs(3);

/// Requests of each probe in a round: about as long as a round takes.
const REQUESTS: u64 = 400;

/// What all rounds showed, beside [`Findings`].
#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    granted: u64,
    refused: u64,
    false_refusals: u64,
    lost: u64,
    /// The account's peak after each round, in bytes.
    peaks_bytes: Vec<f64>,
}

/// Runs it.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if stage.options.only.as_deref() != Some(CASE) {
        return Ok(());
    }
    stage.guard.leave_free(FREE_BYTES)?;
    stage.guard.crash()?;
    stage.guard.restart()?;
    let before = stage.guard.incidents()?.len();
    stage.guard.set_line(Line { uid: storm::UID, hard_bytes: LINE_BYTES, soft_bytes: None })?;
    let mut crowd = Crowd::seeded(7);
    let mut probes = (0..PROBES).map(|seed| probe(stage, seed)).collect::<Result<Vec<_>, _>>()?;
    let (mut findings, mut tally) = (Findings::default(), Tally::default());
    let lasts = if stage.options.quick { QUICK_LASTS } else { LASTS };
    let began = Instant::now();
    while began.elapsed() < lasts {
        for probe in &mut probes {
            probe.tell(&format!("probe {REQUESTS}"))?;
        }
        crowd.fill(stage, PROCESSES)?;
        storm::disturb(stage, &mut crowd, &mut findings)?;
        tally.hear(&mut probes)?;
        storm::rest(stage, &mut crowd, &mut findings)?;
        let peak_bytes = stage.guard.account(storm::UID)?.peak_bytes;
        tally.peaks_bytes.extend(peak_bytes.map(|bytes| bytes as f64));
    }
    drop(crowd);
    for probe in probes {
        probe.finish(STEP)?;
    }
    findings.add_rows(CASE, report);
    report.add_row(CASE, ("peak of the account", &tally.peaks_bytes), "bytes");
    let fresh = stage.guard.incidents()?.split_off(before);
    let kills = fresh.iter().filter(|incident| is_our_kill(incident)).count();
    report.note(tally.words(&findings, kills));
    stage.guard.clear_line(storm::UID)
}

fn probe(stage: &Stage<'_>, seed: usize) -> Result<Workload, BenchError> {
    Workload::start_prepared(stage.command(storm::UID), &[&"probe", &storm::UID, &(seed + 1)])
}

impl Tally {
    fn hear(&mut self, probes: &mut [Workload]) -> Result<(), BenchError> {
        self.rounds += 1;
        for probe in probes {
            let [granted, refused, false_refusals, lost] = probe.expect_numbers("probed")?;
            self.granted += granted;
            self.refused += refused;
            self.false_refusals += false_refusals;
            self.lost += lost;
        }
        Ok(())
    }

    fn words(&self, findings: &Findings, kills: usize) -> String {
        let (grants, refusals) = findings.answers();
        let above = self.peaks_bytes.iter().filter(|peak| **peak > LINE_BYTES as f64).count();
        format!(
            "{CASE}: {} rounds; {} processes and the daemon {} times were killed by the bench, {kills} processes by the guard; {grants} grants and {refusals} refusals of the library; of the probes {} grants, {} refusals, {} of them false, {} connections lost; the account's peak was over its line of {LINE_BYTES} bytes after {above} rounds; {} rounds left something reserved at rest",
            self.rounds,
            findings.killed(),
            self.rounds,
            self.granted,
            self.refused,
            self.false_refusals,
            self.lost,
            findings.unrested(),
        )
    }
}
