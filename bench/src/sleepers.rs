//! Somebody else meanwhile: a program that sleeps a little at a time on each CPU, and how long it waits to go on.

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

/// One thread for each CPU that may be used.
#[derive(Debug)]
pub(crate) struct Sleepers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, BenchError>>>,
}

impl Sleepers {
    /// Each sleeps so long at a time.
    pub(crate) fn start(time: Duration) -> Result<Self, BenchError> {
        let over = Arc::new(AtomicBool::new(false));
        let sleep_on = |cpu| {
            let over = Arc::clone(&over);
            thread::spawn(move || longest_ns(cpu, time, &over))
        };
        Ok(Self { threads: cpus::allowed()?.into_iter().map(sleep_on).collect(), over })
    }

    /// The longest that one of them waited for its CPU, in milliseconds.
    pub(crate) fn longest_millis(self) -> Result<f64, BenchError> {
        self.over.store(true, Ordering::Relaxed);
        let mut longest_ns = 0;
        for thread in self.threads {
            let one = thread.join().map_err(|_panic| BenchError::malformed("a sleeper", "it panicked"))?;
            longest_ns = longest_ns.max(one?);
        }
        Ok(longest_ns as f64 / 1e6)
    }
}

fn longest_ns(cpu: usize, time: Duration, over: &AtomicBool) -> Result<u64, BenchError> {
    cpus::use_only(&[cpu])?;
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut longest_ns = 0;
    while !over.load(Ordering::Relaxed) {
        let before_ns = clock_monotonic_ns();
        thread::sleep(time);
        let slept_ns = clock_monotonic_ns().saturating_sub(before_ns);
        longest_ns = longest_ns.max(slept_ns.saturating_sub(time_ns));
    }
    Ok(longest_ns)
}
