//! `scale`: what an account's usage costs on machines that are larger than this one. How often memory is written that other
//! CPUs write is counted in the model of the tree of counters, which a test holds to the programs; how long that takes is
//! worked out of one figure that is measured here.

use crate::{cpus, error::BenchError, options::Options, report::BenchReport, statistics::Summary};
use plimsoll_policy::counter::{FAN_OUT, Shape, Tree, kernel_batch};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

/// Possible CPUs of the machines.
const MACHINES: [u32; 4] = [16, 64, 256, 1024];
/// How far the soft limit is, in MiB.
const DISTANCES_MIB: [i64; 6] = [16, 64, 256, 1024, 8192, 65_536];
/// Pages of 4 KiB in a MiB.
const PAGES_PER_MIB: i64 = 256;
/// What an event takes without the write, in nanoseconds: about a page fault (`bench faults`).
const EVENT_NS: f64 = 1000.0;

/// Runs it.
pub(crate) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let transfer = transfers(options.sized(20, 1), if options.quick { 2_000 } else { 200_000 })?;
    if transfer.is_empty() {
        report.note("one CPU alone: how long a line takes from one CPU to another is not known here");
    }
    report.add_row("a line of memory", ("from CPU to CPU", &transfer), "ns");
    let line_ns = Summary::of(&transfer).map(|line| line.p50);
    for cpus in MACHINES {
        machine(cpus, line_ns, options, report);
    }
    report.note(
        "modelled: who writes a line waits for all others that write it, one after the other, at the figure above. Two CPUs \
         of one socket are a mild case: between sockets it is several times that",
    );
    Ok(())
}

/// Of a turn: the other side cannot play.
const GIVEN_UP: u64 = u64::MAX;

/// What each of so many took, round by round, in nanoseconds: two threads on two CPUs write the same line in turns.
fn transfers(rounds: usize, times: u64) -> Result<Vec<f64>, BenchError> {
    let allowed = cpus::allowed()?;
    let (Some(first), Some(second)) = (allowed.first().copied(), allowed.get(1).copied()) else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for _ in 0..rounds {
        let turn = AtomicU64::new(0);
        let play = |cpu: usize, side: u64| -> Result<(), BenchError> {
            cpus::use_only(&[cpu]).inspect_err(|_| turn.store(GIVEN_UP, Ordering::Release))?;
            for time in 0..times {
                let mut whose = turn.load(Ordering::Acquire);
                while whose != 2 * time + side && whose != GIVEN_UP {
                    std::hint::spin_loop();
                    whose = turn.load(Ordering::Acquire);
                }
                if whose == GIVEN_UP {
                    break;
                }
                turn.fetch_add(1, Ordering::AcqRel);
            }
            Ok(())
        };
        let begun = Instant::now();
        thread::scope(|scope| {
            let sides = [(first, 0), (second, 1)].map(|(cpu, side)| scope.spawn(move || play(cpu, side)));
            // Neither panics.
            sides.into_iter().filter_map(|side| side.join().ok()).collect::<Result<(), _>>()
        })?;
        all.push(begun.elapsed().as_nanos() as f64 / (2 * times) as f64);
    }
    Ok(all)
}

/// How often others' memory is written for 1,000 events: by all CPUs, and by those of one branch.
#[derive(Clone, Copy)]
struct Shared {
    total: f64,
    branches: f64,
}

fn machine(cpus: u32, line_ns: Option<f64>, options: &Options, report: &mut BenchReport) {
    let batch = f64::from(kernel_batch(cpus));
    let atomic = Shared { total: 1000.0, branches: 0.0 };
    let percpu = Shared { total: 1000.0 / batch, branches: 0.0 };
    let mib = |pages: f64| pages / PAGES_PER_MIB as f64;
    for distance in DISTANCES_MIB {
        let case = format!("{cpus} CPUs, {distance} MiB below the soft limit");
        if !options.wants(&case) {
            continue;
        }
        let (tree, bound) = tree(cpus, distance * PAGES_PER_MIB);
        let all = [
            ("one atomic", atomic, 0.0),
            ("percpu_counter", percpu, mib(f64::from(cpus) * batch)),
            ("tree", tree, mib(bound)),
        ];
        for (variant, shared, bound) in all {
            report.add_row(
                &case,
                (variant, &[shared.total + shared.branches]),
                "shared writes for 1,000 events",
            );
            report.add_row(&case, (&format!("{variant}, bound"), &[bound]), "MiB");
            if let Some(line_ns) = line_ns {
                let took = [event_ns(cpus, shared, line_ns)];
                report.add_row(&case, (&format!("{variant}, modelled"), &took), "ns/event");
            }
        }
    }
}

/// How long an event takes while all CPUs have them: no less than what its writes wait for, of all who write there.
fn event_ns(cpus: u32, shared: Shared, line_ns: f64) -> f64 {
    let wait = |writes: f64, writers: u32| writes / 1000.0 * f64::from(writers) * line_ns;
    EVENT_NS.max(wait(shared.total, cpus).max(wait(shared.branches, cpus.min(FAN_OUT))))
}

/// Each CPU takes pages one by one, and then gives back as many. Those of one branch do the same, and those of the next the
/// contrary: usage stays, and no branch makes up for what its own CPUs do. And the bound meanwhile.
fn tree(cpus: u32, distance: i64) -> (Shared, f64) {
    /// Three times the largest batch.
    const STRIDE: i64 = 3840;
    const STRIDES: i64 = 2;
    let side = |cpu: u32| i64::from(if cpus > FAN_OUT { cpu / FAN_OUT } else { cpu });
    let mut tree = Tree::new(Shape::of(cpus), distance);
    let mut sweep = |turned: i64, strides: i64| {
        for _ in 0..strides {
            (0..cpus).for_each(|cpu| tree.add(cpu, if (side(cpu) + turned) % 2 == 0 { 1 } else { -1 }));
        }
        (tree.writes(), tree.approximate().bound.0)
    };
    let (before, _) = sweep(0, 10);
    let (mut after, mut bound) = (before, 0);
    for turned in 0..STRIDES {
        (after, bound) = sweep(turned, STRIDE);
    }
    let events = (STRIDES * STRIDE * i64::from(cpus)) as f64;
    let for_1000 = |before: u64, after: u64| after.saturating_sub(before) as f64 * 1000.0 / events;
    let total = for_1000(before.total, after.total);
    (Shared { total, branches: for_1000(before.branches, after.branches) }, bound as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_from_the_limit_the_tree_writes_a_thousandth_of_what_one_atomic_does() {
        let (shared, bound) = tree(256, 8192 * PAGES_PER_MIB);
        assert!(shared.total + shared.branches <= 1.0, "{} and {}", shared.total, shared.branches);
        assert!(bound <= (8192 * PAGES_PER_MIB / 4) as f64);
        let (near, _) = tree(256, 16 * PAGES_PER_MIB);
        assert!(near.total >= 999.0);
    }

    #[test]
    fn a_line_that_all_write_is_waited_for_by_all() {
        let all = Shared { total: 1000.0, branches: 0.0 };
        assert!((event_ns(256, all, 100.0) - 25_600.0).abs() < 1.0);
        assert!((event_ns(2, all, 100.0) - EVENT_NS).abs() < 1.0);
        let of_branches = Shared { total: 0.0, branches: 1000.0 };
        assert!((event_ns(256, of_branches, 100.0) - 1600.0).abs() < 1.0);
    }
}
