//! `victim UID STAMPS APPROACH_BYTES THREADS small|huge`: a process that is meant to be killed at its line.
//!
//! It touches memory until its own anonymous memory is `APPROACH_BYTES`, says `ready`, and on `go UNITS` touches that
//! many pages (huge pages for `huge`) in each thread, each one stamped before it is touched; then it says `touched`.
//! `go UNITS MOMENT_NS` waits for that moment of the monotonic clock first, so that several victims begin as one.
//! Thread t stamps from index t x [`UNITS_MAX`]. What `go` touches is bounded, so that an unguarded victim ends.

use super::{Commands, become_user, forbid_huge_pages, memory, number, say, sleep_until_ns, usage};
use crate::{error::BenchError, proc, stamps::Stamper};
use memmap2::MmapMut;
use plimsoll_wire::text::parse_smaps_rollup;
use std::{fs, sync::Barrier, thread};

/// A thread touches at most this many units over all its `go`.
pub(crate) const UNITS_MAX: usize = 4096;

/// As [`UNITS_MAX`], for huge pages: 128 MiB.
pub(crate) const HUGE_UNITS_MAX: usize = 64;

/// The memory of one thread: its next unit and its stamps.
struct Lane {
    mapping: MmapMut,
    unit_length: usize,
    first_index: u64,
    next: usize,
}

impl Lane {
    fn new(index: usize, huge: bool) -> Result<Self, BenchError> {
        let unit_length = if huge { memory::HUGE_PAGE_BYTES } else { memory::page_length() };
        let units = if huge { HUGE_UNITS_MAX + 1 } else { UNITS_MAX };
        let bytes = (unit_length * units) as u64;
        let mapping = if huge { memory::map_huge(bytes)? } else { memory::map(bytes)? };
        // Huge pages lie on their own boundaries: begin at the first one, so that each touch is one huge page.
        Ok(Self { mapping, unit_length, first_index: (index * UNITS_MAX) as u64, next: 0 })
    }

    /// Touches up to `units` further units.
    fn touch(&mut self, units: usize, stamper: &Stamper) -> Result<(), BenchError> {
        let skip = self.mapping.as_ptr().align_offset(self.unit_length);
        let fresh = self.mapping.get_mut(skip..).unwrap_or_default();
        for unit in fresh.chunks_exact_mut(self.unit_length).skip(self.next).take(units) {
            if let Some(byte) = unit.first_mut() {
                stamper.stamp(self.first_index + self.next as u64)?;
                *byte = 1;
                self.next += 1;
            }
        }
        std::hint::black_box(&self.mapping);
        Ok(())
    }
}

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let stamper = Stamper::open(arguments.get(1).ok_or_else(|| usage("victim"))?)?;
    let approach_bytes: u64 = number(arguments, 2)?;
    let threads: usize = number(arguments, 3)?;
    let huge = match arguments.get(4).map(String::as_str) {
        Some("small") => false,
        Some("huge") => true,
        _ => return Err(usage(&arguments.join(" "))),
    };
    if threads == 0 || threads > 64 {
        return Err(usage(&format!("{threads} threads")));
    }
    if !huge {
        forbid_huge_pages()?;
    }
    let mut lanes: Vec<Lane> = (0..threads).map(|index| Lane::new(index, huge)).collect::<Result<_, _>>()?;
    let commands = Commands::open();
    become_user(uid)?;
    let _ballast = approach(approach_bytes)?;
    if let [lane] = lanes.as_mut_slice() {
        alone(lane, &stamper, commands)
    } else {
        together(lanes, &stamper, commands)
    }
}

/// Touches memory until this process's anonymous memory is `bytes`, within a few pages.
fn approach(bytes: u64) -> Result<Option<MmapMut>, BenchError> {
    let page_length = memory::page_length();
    // Read with as little memory as can be: what the reading itself takes is not in it.
    let text = fs::read("/proc/self/smaps_rollup").map_err(BenchError::io("read /proc/self/smaps_rollup"))?;
    let own = proc::charged_of(&parse_smaps_rollup(&text)?)?;
    let Some(missing) = bytes.checked_sub(own).filter(|missing| *missing > 0) else { return Ok(None) };
    let mut ballast = memory::map(missing)?;
    ballast.advise(memmap2::Advice::NoHugePage).map_err(BenchError::io("madvise MADV_NOHUGEPAGE"))?;
    memory::touch(&mut ballast, page_length);
    Ok(Some(ballast))
}

fn alone(lane: &mut Lane, stamper: &Stamper, mut commands: Commands) -> Result<(), BenchError> {
    say("ready")?;
    while let Some((word, numbers)) = commands.next()? {
        let (units, moment_ns) = go_of(&word, &numbers)?;
        if let Some(moment_ns) = moment_ns {
            sleep_until_ns(moment_ns)?;
        }
        lane.touch(units, stamper)?;
        say("touched")?;
    }
    Ok(())
}

/// The threads are there, with their stacks touched, before `ready`; the `go` sets them off at once.
fn together(lanes: Vec<Lane>, stamper: &Stamper, mut commands: Commands) -> Result<(), BenchError> {
    let barrier = Barrier::new(lanes.len() + 1);
    let outcomes: Vec<Result<(), BenchError>> = thread::scope(|scope| {
        let workers: Vec<_> = lanes
            .into_iter()
            .map(|mut lane| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    barrier.wait();
                    lane.touch(UNITS_MAX, stamper)
                })
            })
            .collect();
        barrier.wait();
        let told = say("ready").and_then(|()| commands.next()).map(|_| ());
        barrier.wait();
        let mut outcomes = vec![told];
        outcomes.extend(workers.into_iter().filter_map(|worker| worker.join().ok()));
        outcomes
    });
    outcomes.into_iter().collect::<Result<(), _>>()?;
    say("touched")?;
    while commands.next()?.is_some() {}
    Ok(())
}

/// How many units to touch, and from which moment on.
fn go_of(word: &str, numbers: &[u64]) -> Result<(usize, Option<u64>), BenchError> {
    let (units, moment_ns) = match (word, numbers) {
        ("go", &[units]) => (units, None),
        ("go", &[units, moment_ns]) => (units, Some(moment_ns)),
        _ => return Err(usage(word)),
    };
    let units = usize::try_from(units).map_err(|error| usage(&error.to_string()))?;
    Ok((units, moment_ns))
}
