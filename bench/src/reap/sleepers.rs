//! Somebody else while a victim is freed: a program that sleeps 1 ms at a time on each CPU.

use crate::{cpus, error::BenchError};
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
        let over = Arc::new(AtomicBool::new(false));
        let sleep_on = |cpu| {
            let over = Arc::clone(&over);
            thread::spawn(move || longest_ns(cpu, &over))
        };
        Ok(Self { threads: cpus::allowed()?.into_iter().map(sleep_on).collect(), over })
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
    cpus::use_only(&[cpu])?;
    let mut longest_ns = 0;
    while !over.load(Ordering::Relaxed) {
        let before_ns = clock_monotonic_ns();
        thread::sleep(Duration::from_nanos(SLEEP_NS));
        let slept_ns = clock_monotonic_ns().saturating_sub(before_ns);
        longest_ns = longest_ns.max(slept_ns.saturating_sub(SLEEP_NS));
    }
    Ok(longest_ns)
}
