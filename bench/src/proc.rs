//! What the benches read of processes and of the machine, by the readers of `plimsoll-sys`.

use crate::error::BenchError;
use plimsoll_policy::units::{Bytes, Pid, Uid};
use plimsoll_sys::process::{ProcRoot, Process, ProcessError, cpu_time_of, page_size};
use plimsoll_wire::text::{Meminfo, SmapsRollup};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// The machine's page size in bytes.
pub(crate) fn page_size_bytes() -> u64 {
    page_size().bytes().0
}

fn root() -> Result<ProcRoot, BenchError> {
    Ok(ProcRoot::open(Path::new("/proc"))?)
}

/// `/proc/meminfo`.
pub(crate) fn meminfo() -> Result<Meminfo, BenchError> {
    Ok(root()?.read_meminfo()?)
}

/// A value of it, in bytes; an error where this kernel does not tell it.
pub(crate) fn told(name: &str, value: Option<Bytes>) -> Result<u64, BenchError> {
    value
        .map(|bytes| bytes.0)
        .ok_or_else(|| BenchError::malformed(format!("{name} of /proc/meminfo"), "absent"))
}

/// `MemAvailable`, in bytes.
pub(crate) fn available_bytes() -> Result<u64, BenchError> {
    told("MemAvailable", meminfo()?.mem_available)
}

/// `Mlocked`, in bytes.
pub(crate) fn locked_bytes() -> Result<u64, BenchError> {
    let text = fs::read_to_string("/proc/meminfo").map_err(BenchError::io("read /proc/meminfo"))?;
    let kib = number_field(&text, "Mlocked:")
        .ok_or_else(|| BenchError::malformed("Mlocked of /proc/meminfo", "absent"))?;
    Ok(kib.saturating_mul(1024))
}

/// The first number of the line that begins with `name`.
pub(crate) fn number_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Anonymous plus swapped bytes of a process by the kernel's walk of its page tables, which is exact; `None` where it is
/// gone, or has no memory any more.
pub(crate) fn charged_bytes_if_alive(pid: u32) -> Result<Option<u64>, BenchError> {
    let rollup = match root()?.smaps_rollup(Pid(pid)) {
        Err(ProcessError::Vanished(_)) => None,
        rollup => rollup?,
    };
    rollup.as_ref().map(charged_of).transpose()
}

/// Anonymous plus swapped bytes.
pub(crate) fn charged_of(rollup: &SmapsRollup) -> Result<u64, BenchError> {
    let (Some(anonymous), Some(swap)) = (rollup.anonymous, rollup.swap) else {
        return Err(BenchError::malformed("smaps_rollup", "Anonymous or Swap is absent"));
    };
    Ok(anonymous.0 + swap.0)
}

/// [`charged_bytes_if_alive`] of a process that has to be there.
pub(crate) fn charged_bytes(pid: u32) -> Result<u64, BenchError> {
    charged_bytes_if_alive(pid)?
        .ok_or_else(|| BenchError::malformed(format!("smaps_rollup of {pid}"), "it is gone"))
}

/// The living processes of the machine for which `wanted` holds.
fn processes(wanted: impl Fn(&Process) -> bool) -> Result<Vec<u32>, BenchError> {
    let mut found = Vec::new();
    root()?.processes(|process| found.extend(wanted(process).then_some(process.pid.0)))?;
    Ok(found)
}

/// How many processes have memory of their own: kernel threads and those that are exiting have none.
pub(crate) fn count_with_memory() -> Result<usize, BenchError> {
    Ok(processes(|process| process.memory.known().is_some())?.len())
}

/// The living processes whose real uid is `uid`.
pub(crate) fn pids_of_user(uid: u32) -> Result<Vec<u32>, BenchError> {
    processes(|process| process.uid == Uid(uid))
}

/// What a process uses of the processors from now on.
#[derive(Debug)]
pub(crate) struct ProcessorMeter {
    pid: Option<Pid>,
    before: Option<Duration>,
    began: Instant,
}

impl ProcessorMeter {
    /// Begins to measure that process.
    pub(crate) fn start(pid: Option<u32>) -> Self {
        let pid = pid.map(Pid);
        Self { pid, before: pid.and_then(cpu_time_of), began: Instant::now() }
    }

    /// So much of it; `None` where there is no such process (any more).
    pub(crate) fn used(&self) -> Option<Duration> {
        Some(self.pid.and_then(cpu_time_of)?.saturating_sub(self.before?))
    }

    /// In per cent of one processor so far; `None` where there is no such process (any more).
    pub(crate) fn percent(&self) -> Option<f64> {
        Some(self.used()?.as_secs_f64() * 100.0 / self.began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
