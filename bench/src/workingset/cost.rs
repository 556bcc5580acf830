//! What protection costs while there is no pressure: small cached reads, and a stream larger than the memory.

use super::{DEFAULTS, OFF, Stage};
use crate::{
    child::{STEP, Workload},
    error::BenchError,
    pairing::{Figures, Rounds, interleave},
    report::BenchReport,
};
use std::time::{Duration, Instant};

/// Small reads in one go; many a second.
const BLOCKS: u64 = 20_000;

/// All is counted and planned, and nothing held: what that costs, without what it is good for.
const NOTHING_HELD: [(&str, u64); 2] = [("workingset_protection", 1), ("clean_min_ratio", 0)];

/// Off first: the ratios' base.
const WAYS: [(&str, &[(&str, u64)]); 3] =
    [("off", &OFF), ("on", &DEFAULTS), ("on, nothing held", &NOTHING_HELD)];

/// Runs both cases.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if stage.guard.is_none() {
        return Ok(());
    }
    let small = "cost, cached reads of 4 KiB";
    if stage.options.wants(small) {
        // What is done in turns must be seen both at work and at rest: seconds, not a moment.
        let lasting = Duration::from_millis(if stage.options.quick { 200 } else { 4_000 });
        let file = stage.data.timed.clone();
        let mut reader = stage.start_reader(&file)?;
        for _ in 0..3 {
            reader.tell("read")?;
            reader.expect("done")?;
        }
        measure(stage, report, (small, "ns"), |_, stretch| match stretch {
            Stretch::Settling => cached_ns(&mut reader, lasting / 4),
            Stretch::Measured => cached_ns(&mut reader, lasting),
        })?;
        reader.finish(STEP)?;
    }
    let streaming = "cost, stream";
    if stage.options.wants(streaming) {
        let file = stage.data.stream.clone();
        let mut reader = stage.start_reader(&file)?;
        measure(stage, report, (streaming, "s"), |stage, stretch| {
            // Each begins with nothing of it in the cache but what is held, and reads it twice: 4 GiB of a file of 2. What is
            // held of it is known when it comes the second time, and locked when it comes the third.
            let times = if stretch == Stretch::Settling { 3 } else { 2 };
            stage.data.forget()?;
            let mut seconds = 0.0;
            for _ in 0..times {
                reader.tell("read")?;
                let [took_ns, _, _] = reader.expect_numbers("done")?;
                seconds += took_ns as f64 / 1e9;
            }
            Ok(seconds)
        })?;
        reader.finish(STEP)?;
    }
    Ok(())
}

/// Nanoseconds a read, over that time.
fn cached_ns(reader: &mut Workload, lasting: Duration) -> Result<f64, BenchError> {
    let until = Instant::now() + lasting;
    let (mut ns, mut count) = (0, 0);
    while Instant::now() < until {
        reader.tell(&format!("blocks {BLOCKS}"))?;
        let [took_ns] = reader.expect_numbers("done")?;
        ns += took_ns;
        count += BLOCKS;
    }
    Ok(ns as f64 / (count.max(1)) as f64)
}

/// What is done once when protection begins is done in the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Settling,
    Measured,
}

fn measure(
    stage: &mut Stage<'_>,
    report: &mut BenchReport,
    (case, unit): (&str, &str),
    mut figure: impl FnMut(&Stage<'_>, Stretch) -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    let mut percent = [const { Vec::new() }; WAYS.len()];
    let rounds = stage.options.sized(8, 1);
    let all = interleave(WAYS.len(), rounds, |index| {
        let settings = WAYS.get(index).map_or(&OFF[..], |(_, settings)| settings);
        stage.protect(settings)?;
        figure(stage, Stretch::Settling)?;
        let daemon = stage.daemon_meter();
        let own = figure(stage, Stretch::Measured)?;
        if let Some(percent) = percent.get_mut(index) {
            percent.extend(daemon.percent());
        }
        Ok(Figures { own, cpu: own, kept_up: own })
    })?;
    stage.protect(&OFF)?;
    for ((name, _), Rounds { own, .. }) in WAYS.iter().zip(&all) {
        report.add_row(case, (name, own), unit);
    }
    for ((name, _), percent) in WAYS.iter().zip(&percent) {
        if !percent.is_empty() {
            let variant = format!("{name}, daemon");
            report.add_row(case, (&variant, percent), "% of a CPU");
        }
    }
    let mut ways = WAYS.iter().zip(&all);
    let Some((_, off)) = ways.next() else { return Ok(()) };
    for ((name, _), on) in ways {
        report.add_ratio(case, (name, &on.own), ("off", &off.own));
    }
    Ok(())
}
