//! `churn UID NAMES`: blocks that come and go, in memory that is there.
//!
//! `pairs SIZE THREADS MILLISECONDS`, `batch ...` and `mixed ...` answer `done WALL_NS CPU_NS OPERATIONS PAGES`: the time from
//! the first thread's start to the last one's end, the processor time of all, how often a block was allocated and freed, and
//! how many pages came in meanwhile. The threads are ready and have done the same for a while before the time begins, until no
//! page came in any more: what is timed lies inside of what was leased, in an allocator that keeps what is freed. One that
//! does not is timed all the same, and its pages are told. The first byte of each block is written.

use super::{allocator, faults, refused};
use crate::{
    error::BenchError,
    workload::{Commands, random::Random, say, usage},
};
use plimsoll_sys::allocator::{Allocator, Block};
use plimsoll_sys::process::{clock_monotonic_ns, thread_cpu_time};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Blocks alive in a batch, and bytes of them at most: so that eight threads hold 64 MiB.
const BLOCKS_MAX: usize = 1000;
const LIVE_BYTES_MAX: usize = 8 << 20;

/// The sizes of `mixed`: spread evenly over the logarithm.
const SIZE_LOG2_MIN: usize = 4;
const SIZE_LOG2_MAX: usize = 16;

/// The warm-up is over when no page came in for a quarter of the time, or after so many quarters.
const WARM_QUARTERS_MAX: usize = 8;

/// Pairs, or changes in `mixed`, between two looks at the clock.
const CHUNK: usize = 64;

/// Steps of `mixed` after which it begins again.
const MIXED_STEPS: usize = 4096;

/// One command.
#[derive(Debug, Clone, Copy)]
struct Load {
    kind: Kind,
    size_bytes: usize,
    threads: usize,
    duration_ns: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pairs,
    Batch,
    Mixed,
}

/// What one thread did.
struct Lap {
    start_ns: u64,
    end_ns: u64,
    cpu: Duration,
    operations: u64,
    pages: u64,
}

/// Runs it.
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = crate::workload::number(arguments, 0)?;
    let allocator = allocator(arguments, 1)?;
    let mut commands = Commands::open_as(uid)?;
    while let Some((word, numbers)) = commands.next()? {
        let laps = run_threads(&allocator, load_of(&word, &numbers)?)?;
        let start_ns = laps.iter().map(|lap| lap.start_ns).min().unwrap_or(0);
        let end_ns = laps.iter().map(|lap| lap.end_ns).max().unwrap_or(0);
        let cpu: Duration = laps.iter().map(|lap| lap.cpu).sum();
        let operations: u64 = laps.iter().map(|lap| lap.operations).sum();
        let pages: u64 = laps.iter().map(|lap| lap.pages).sum();
        say(&format!("done {} {} {operations} {pages}", end_ns - start_ns, cpu.as_nanos()))?;
    }
    Ok(())
}

fn load_of(word: &str, numbers: &[u64]) -> Result<Load, BenchError> {
    let kind = match word {
        "pairs" => Kind::Pairs,
        "batch" => Kind::Batch,
        "mixed" => Kind::Mixed,
        _ => return Err(usage(word)),
    };
    let &[size_bytes, threads, milliseconds] = numbers else { return Err(usage(word)) };
    let bounded =
        |value: u64, bound: usize| usize::try_from(value).ok().filter(|value| (1..=bound).contains(value));
    match (bounded(size_bytes, LIVE_BYTES_MAX), bounded(threads, 64), bounded(milliseconds, 10_000)) {
        (Some(size_bytes), Some(threads), Some(_)) => {
            Ok(Load { kind, size_bytes, threads, duration_ns: milliseconds * 1_000_000 })
        }
        _ => Err(usage(&format!("{word} {numbers:?}"))),
    }
}

fn run_threads(allocator: &Allocator, load: Load) -> Result<Vec<Lap>, BenchError> {
    let (barrier, deadline_ns) = (Barrier::new(load.threads), AtomicU64::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..load.threads as u64)
            .map(|seed| {
                let (barrier, deadline_ns) = (&barrier, &deadline_ns);
                scope.spawn(move || {
                    let mut thread = Thread::new(allocator, load, seed);
                    let warm = thread.warm_up();
                    // Everybody goes through the barrier, whatever happened, or the others wait for ever.
                    if barrier.wait().is_leader() {
                        deadline_ns.store(clock_monotonic_ns() + load.duration_ns, Ordering::Relaxed);
                    }
                    barrier.wait();
                    warm.and_then(|()| thread.timed(deadline_ns.load(Ordering::Relaxed)))
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    })
}

/// One thread's blocks, and what it will do with them.
struct Thread<'a> {
    allocator: &'a Allocator,
    load: Load,
    blocks: Vec<Option<Block<'a>>>,
    /// In which order a batch is freed.
    order: Vec<usize>,
    /// Which block `mixed` replaces, by how many bytes.
    steps: Vec<(usize, usize)>,
}

impl<'a> Thread<'a> {
    fn new(allocator: &'a Allocator, load: Load, seed: u64) -> Self {
        let mut random = Random::seeded(seed + 1);
        let live = match load.kind {
            Kind::Pairs => 1,
            Kind::Batch => BLOCKS_MAX.min(LIVE_BYTES_MAX / load.size_bytes).max(1),
            Kind::Mixed => BLOCKS_MAX,
        };
        let mut order: Vec<usize> = (0..live).collect();
        for end in (1..live).rev() {
            order.swap(end, random.below(end + 1));
        }
        let steps = (0..MIXED_STEPS).map(|_| (random.below(live), any_size(&mut random))).collect();
        Self { allocator, load, blocks: (0..live).map(|_| None).collect(), order, steps }
    }

    /// Works until its memory is there.
    fn warm_up(&mut self) -> Result<(), BenchError> {
        for _ in 0..WARM_QUARTERS_MAX {
            let before = faults()?;
            self.work_until(clock_monotonic_ns() + self.load.duration_ns / 4)?;
            if faults()? == before {
                break;
            }
        }
        Ok(())
    }

    fn timed(&mut self, deadline_ns: u64) -> Result<Lap, BenchError> {
        let (start_ns, start_cpu, start_faults) = (clock_monotonic_ns(), thread_cpu_time(), faults()?);
        let operations = self.work_until(deadline_ns)?;
        let (end_ns, cpu) = (clock_monotonic_ns(), thread_cpu_time() - start_cpu);
        Ok(Lap { start_ns, end_ns, cpu, operations, pages: faults()?.saturating_sub(start_faults) })
    }

    /// Works in whole chunks until that moment, at least one; gives the number of blocks that came and went.
    fn work_until(&mut self, deadline_ns: u64) -> Result<u64, BenchError> {
        let mut operations = 0;
        loop {
            operations += match self.load.kind {
                Kind::Pairs => self.pairs()?,
                Kind::Batch => self.batch()?,
                Kind::Mixed => self.mixed()?,
            };
            if clock_monotonic_ns() >= deadline_ns {
                return Ok(operations);
            }
        }
    }

    fn pairs(&mut self) -> Result<u64, BenchError> {
        for _ in 0..CHUNK {
            drop(fresh(self.allocator, self.load.size_bytes)?);
        }
        Ok(CHUNK as u64)
    }

    fn batch(&mut self) -> Result<u64, BenchError> {
        for slot in &mut self.blocks {
            *slot = Some(fresh(self.allocator, self.load.size_bytes)?);
        }
        for index in &self.order {
            if let Some(slot) = self.blocks.get_mut(*index) {
                *slot = None;
            }
        }
        Ok(self.order.len() as u64)
    }

    fn mixed(&mut self) -> Result<u64, BenchError> {
        for (index, size_bytes) in &self.steps {
            if let Some(slot) = self.blocks.get_mut(*index) {
                *slot = None;
                *slot = Some(fresh(self.allocator, *size_bytes)?);
            }
        }
        Ok(self.steps.len() as u64)
    }
}

#[inline]
fn fresh(allocator: &Allocator, size_bytes: usize) -> Result<Block<'_>, BenchError> {
    let Some(mut block) = allocator.allocate(size_bytes) else { return Err(refused(size_bytes)) };
    block.touch(usize::MAX);
    Ok(block)
}

/// From 16 B to 64 KiB, as often between 16 and 32 bytes as between 32 and 64 KiB.
pub(super) fn any_size(random: &mut Random) -> usize {
    let base = 1 << (SIZE_LOG2_MIN + random.below(SIZE_LOG2_MAX - SIZE_LOG2_MIN));
    base + random.below(base + 1)
}
