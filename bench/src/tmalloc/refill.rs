//! `refill`: how long the calls take that need memory which is not there yet. Each process is a fresh one and keeps all
//! that it gets, so that its leases grow as in a program that begins.

use super::{
    FAR_BYTES, MIB, Stage, USER,
    allocators::{Contender, MALLOC},
};
use crate::{child::STEP, error::BenchError, guarded::Line, report::BenchReport, statistics::Summary};

/// What each process allocates, in pieces of so many bytes.
const GROWN_BYTES: u64 = 32 * MIB;
const PIECES_BYTES: [(&str, u64); 2] = [("refill 4KiB", 4 << 10), ("refill 128KiB", 128 << 10)];

/// A call in which fewer pages came in did not populate a lease: it touched some page of the allocator's own.
const LEASE_PAGES_MIN: u64 = 8;

/// What the processes of one contender showed, in microseconds and pages.
#[derive(Debug, Default)]
struct Grown {
    refills_us: Vec<f64>,
    pages: Vec<f64>,
    first_touch_us: Vec<f64>,
    /// The median of each process.
    refill_medians_us: Vec<f64>,
    first_touch_medians_us: Vec<f64>,
}

/// Runs the cases that are wanted.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    for (case, piece_bytes) in PIECES_BYTES {
        if stage.options.wants(case) {
            stage.guard.set_line(Line { uid: USER, hard_bytes: FAR_BYTES, soft_bytes: None })?;
            compare(stage, case, piece_bytes, report)?;
            stage.guard.clear_line(USER)?;
        }
    }
    Ok(())
}

fn compare(
    stage: &Stage<'_>,
    case: &str,
    piece_bytes: u64,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let of = |name: &str| stage.contenders.iter().find(|contender| contender.name == name);
    let (Some(tmalloc), Some(malloc)) = (stage.tmalloc(), of(MALLOC)) else { return Ok(()) };
    let (mut asked, mut plain) = (Grown::default(), Grown::default());
    for _ in 0..stage.options.sized(40, 2) {
        asked.grow(stage, tmalloc, piece_bytes)?;
        plain.grow(stage, malloc, piece_bytes)?;
    }
    report.add_row(case, ("tmalloc", &asked.refills_us), "us");
    report.add_row(case, ("tmalloc, brought in at once", &asked.pages), "pages");
    // A page at a time is no counterpart of a lease of many.
    if piece_bytes > 4 << 10 {
        report.add_row(case, ("malloc and first touch", &plain.first_touch_us), "us");
        report.add_ratio(
            case,
            ("tmalloc", &asked.refill_medians_us),
            ("malloc and first touch", &plain.first_touch_medians_us),
        );
    }
    Ok(())
}

impl Grown {
    fn grow(&mut self, stage: &Stage<'_>, contender: &Contender, piece_bytes: u64) -> Result<(), BenchError> {
        let mut process = stage.start(contender, "grow", USER, &[])?;
        process.tell(&format!("grow {GROWN_BYTES} {piece_bytes}"))?;
        let numbers = process.expect("grew")?;
        process.finish(STEP)?;
        let (calls, rest) = numbers.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(BenchError::malformed("the calls of a process that grows", &format!("{numbers:?}")));
        }
        let micros = |ns: u64| ns as f64 / 1_000.0;
        let refills = || calls.iter().filter(|[_, _, pages]| *pages >= LEASE_PAGES_MIN);
        let refills_us: Vec<f64> = refills().map(|[call_ns, ..]| micros(*call_ns)).collect();
        let first_touch_us: Vec<f64> = calls.iter().map(|[_, touched_ns, _]| micros(*touched_ns)).collect();
        self.pages.extend(refills().map(|[.., pages]| *pages as f64));
        self.refill_medians_us.extend(Summary::of(&refills_us).map(|summary| summary.p50));
        self.first_touch_medians_us.extend(Summary::of(&first_touch_us).map(|summary| summary.p50));
        self.refills_us.extend(refills_us);
        self.first_touch_us.extend(first_touch_us);
        Ok(())
    }
}
