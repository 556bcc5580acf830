//! Somebody else while a victim is freed: a program that sleeps 1 ms at a time on each CPU.

use crate::error::BenchError;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use plimsoll_sys::process::clock_monotonic_ns;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const SLEEP_NS: u64 = 1_000_000;

/// One thread for each CPU that may be used.
#[derive(Debug)]
pub(super) struct Sleepers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, BenchError>>>,
}

impl Sleepers {
    pub(super) fn start() -> Result<Self, BenchError> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(BenchError::io("sched_getaffinity"))?;
        let cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        let over = Arc::new(AtomicBool::new(false));
        let sleep_on = |cpu| {
            let over = Arc::clone(&over);
            thread::spawn(move || longest_ns(cpu, &over))
        };
        Ok(Self { threads: cpus.map(sleep_on).collect(), over })
    }

    /// The longest that one of them waited for its CPU, in milliseconds.
    pub(super) fn longest_millis(self) -> Result<f64, BenchError> {
        self.over.store(true, Ordering::Relaxed);
        let mut longest_ns = 0;
        for thread in self.threads {
            let one = thread.join().map_err(|_panic| BenchError::malformed("a sleeper", "it panicked"))?;
            longest_ns = longest_ns.max(one?);
        }
        Ok(longest_ns as f64 / 1e6)
    }
}

fn longest_ns(cpu: usize, over: &AtomicBool) -> Result<u64, BenchError> {
    let mut own = CpuSet::new();
    own.set(cpu).map_err(BenchError::io("sched_setaffinity"))?;
    sched_setaffinity(Pid::from_raw(0), &own).map_err(BenchError::io("sched_setaffinity"))?;
    let mut longest_ns = 0;
    while !over.load(Ordering::Relaxed) {
        let before_ns = clock_monotonic_ns();
        thread::sleep(Duration::from_nanos(SLEEP_NS));
        let slept_ns = clock_monotonic_ns().saturating_sub(before_ns);
        longest_ns = longest_ns.max(slept_ns.saturating_sub(SLEEP_NS));
    }
    Ok(longest_ns)
}
