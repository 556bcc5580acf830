//! `pairs`, `batch` and `mixed`: what a block costs whose memory is there, from malloc to free, in turns. That it was
//! there is shown: how many pages came in for a million blocks while they were timed. A lease that had to be opened is
//! [`super::refill`]'s.

use super::{
    FAR_BYTES, Stage, USER,
    allocators::{MALLOC, TMALLOC, UNTRIMMED},
};
use crate::{
    child::Workload,
    error::BenchError,
    guarded::Line,
    pairing::{Figures, Rounds, interleave},
    report::{BenchReport, Series},
    statistics::mean,
};
use std::{num::NonZero, thread::available_parallelism};

/// 16 B to 64 KiB, evenly over the logarithm; the quick form has a few of them.
const SIZES_BYTES: [usize; 7] = [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
const QUICK_SIZES_BYTES: [usize; 3] = [16, 4 << 10, 64 << 10];

/// How long a thread works in one segment: long enough for eight threads to take turns on two processors.
const SEGMENTS_MS: [(usize, u64); 2] = [(1, 20), (8, 60)];

const UNIT: &str = "ns/block";

/// Runs all cases that are wanted.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let options = stage.options;
    if !["pairs", "batch", "mixed"].iter().any(|cases| options.may_want(cases)) {
        return Ok(());
    }
    stage.guard.set_line(Line { uid: USER, hard_bytes: FAR_BYTES, soft_bytes: None })?;
    let mut processes: Vec<Workload> = stage
        .contenders
        .iter()
        .map(|contender| stage.start(contender, "churn", USER, &[]))
        .collect::<Result<_, _>>()?;
    let names: Vec<&str> = stage.contenders.iter().map(|contender| contender.name).collect();
    let rounds = options.sized(10, 1);
    let sizes: &[usize] = if options.quick { &QUICK_SIZES_BYTES } else { &SIZES_BYTES };
    let mut compare = |report: &mut BenchReport, case: &str, command: &str, threads: usize| {
        let mut pages = vec![Vec::new(); names.len()];
        let measured = interleave(names.len(), rounds, |index| {
            measure(&mut processes, index, command, threads, &mut pages)
        })?;
        add(report, case, &names, &measured);
        add_pages(report, case, &names, &pages);
        Ok::<_, BenchError>(measured)
    };
    for (threads, milliseconds) in SEGMENTS_MS {
        for kind in ["pairs", "batch"] {
            let mut all = Vec::new();
            for size in sizes {
                let case = format!("{kind} {}, {}", size_name(*size), threads_name(threads));
                if options.wants(&case) {
                    let command = format!("{kind} {size} {threads} {milliseconds}");
                    all.push(compare(report, &case, &command, threads)?);
                }
            }
            if all.len() == sizes.len() {
                add(report, &format!("{kind} all sizes, {}", threads_name(threads)), &names, &over_all(&all));
            }
        }
        let case = format!("mixed, {}", threads_name(threads));
        if options.wants(&case) {
            compare(report, &case, &format!("mixed 16 {threads} {milliseconds}"), threads)?;
        }
    }
    for process in processes {
        process.finish(crate::child::STEP)?;
    }
    stage.guard.clear_line(USER)
}

/// One segment of one contender: nanoseconds a block, times the processors that its threads can use. Adds how many pages came
/// in for a million blocks to the contender's `pages`.
fn measure(
    processes: &mut [Workload],
    index: usize,
    command: &str,
    threads: usize,
    pages: &mut [Vec<f64>],
) -> Result<Figures, BenchError> {
    let process =
        processes.get_mut(index).ok_or_else(|| BenchError::malformed("a contender", &index.to_string()))?;
    process.tell(command)?;
    let [wall_ns, cpu_ns, operations, came_in] = process.expect_numbers("done")?;
    if let Some(pages) = pages.get_mut(index) {
        pages.push(came_in as f64 * 1e6 / operations as f64);
    }
    let processors = threads.min(available_parallelism().map_or(1, NonZero::get));
    let each = |ns: u64| ns as f64 / operations as f64;
    let own = each(wall_ns) * processors as f64;
    Ok(Figures { own, cpu: each(cpu_ns), kept_up: own })
}

fn add_pages(report: &mut BenchReport, case: &str, names: &[&str], pages: &[Vec<f64>]) {
    for (name, figures) in names.iter().zip(pages) {
        let variant = format!("{name}, brought in");
        report.add_row(case, (&variant, figures), "pages/1e6 blocks");
    }
}

fn add(report: &mut BenchReport, case: &str, names: &[&str], measured: &[Rounds]) {
    for (name, rounds) in names.iter().zip(measured) {
        report.add_row(case, (name, &rounds.own), UNIT);
        let variant = format!("{name}, processor time");
        report.add_row(case, (&variant, &rounds.cpu), UNIT);
    }
    let of = |wanted: &str| names.iter().zip(measured).find(|(name, _)| **name == wanted);
    if let Some((tmalloc, rounds)) = of(TMALLOC) {
        for (name, other) in names.iter().zip(measured).filter(|(name, _)| **name != TMALLOC) {
            report.add_ratio(case, (tmalloc, &rounds.own), (name, &other.own));
        }
    }
    for against in [MALLOC, UNTRIMMED] {
        if let (Some((_, tmalloc)), Some((_, malloc))) = (of(TMALLOC), of(against)) {
            let of: Series<'_> = ("tmalloc, processor time", &tmalloc.cpu);
            let variant = format!("{against}, processor time");
            report.add_ratio(case, of, (&variant, &malloc.cpu));
        }
    }
}

/// The geometric mean over the sizes, round by round: each size counts alike, however long its blocks take.
fn over_all(sizes: &[Vec<Rounds>]) -> Vec<Rounds> {
    let contenders = sizes.iter().map(Vec::len).min().unwrap_or(0);
    (0..contenders)
        .map(|contender| {
            let of = |figures: fn(&Rounds) -> &Vec<f64>| {
                let series: Vec<&Vec<f64>> =
                    sizes.iter().filter_map(|measured| measured.get(contender)).map(figures).collect();
                let rounds = series.iter().map(|figures| figures.len()).min().unwrap_or(0);
                (0..rounds)
                    .filter_map(|round| {
                        let logs: Vec<f64> = series
                            .iter()
                            .filter_map(|figures| figures.get(round))
                            .map(|figure| figure.ln())
                            .collect();
                        mean(&logs).map(f64::exp)
                    })
                    .collect()
            };
            Rounds {
                own: of(|rounds| &rounds.own),
                cpu: of(|rounds| &rounds.cpu),
                kept_up: of(|rounds| &rounds.kept_up),
            }
        })
        .collect()
}

fn size_name(bytes: usize) -> String {
    if bytes < 1 << 10 { format!("{bytes}B") } else { format!("{}KiB", bytes >> 10) }
}

fn threads_name(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

#[cfg(test)]
mod tests;
