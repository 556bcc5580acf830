//! The CPUs that freeing runs on: the fastest of those that this process may use.

use plimsoll_wire::text::CPUS_MAX;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::{fs, path::Path};

/// Where the kernel tells how fast each CPU is.
const CPUS_FOLDER: &str = "/sys/devices/system/cpu";

/// Of the CPUs that the calling thread may use, the fastest; all of them where no capacity is told, or all are alike.
/// `None` when the kernel does not say which may be used (more CPUs than a set can hold, 1,024).
pub(super) fn fastest_allowed() -> Option<CpuSet> {
    let allowed = sched_getaffinity(None).ok()?;
    Some(fastest_of(&allowed, Path::new(CPUS_FOLDER)))
}

/// `cpu_capacity` is 1024 for the fastest core at its highest frequency, and less for others (arm64, riscv,
/// and since 6.13 hybrid x86; the file is missing or everywhere 1024 elsewhere).
fn fastest_of(allowed: &CpuSet, folder: &Path) -> CpuSet {
    let capacities: Vec<(usize, u32)> = members(allowed)
        .filter_map(|cpu| {
            let text = fs::read_to_string(folder.join(format!("cpu{cpu}/cpu_capacity"))).ok()?;
            Some((cpu, text.trim_end().parse().ok()?))
        })
        .collect();
    // A CPU that is offline tells nothing; then nothing is known to be faster than it.
    let best = capacities.iter().map(|(_, capacity)| *capacity).max();
    let mut fastest = CpuSet::new();
    for (cpu, _) in capacities.iter().filter(|(_, capacity)| Some(*capacity) == best) {
        fastest.set(*cpu);
    }
    if fastest.count() == 0 || fastest.count() == u32::try_from(capacities.len()).unwrap_or(0) {
        return *allowed;
    }
    fastest
}

/// The numbers in a set.
pub(super) fn members(set: &CpuSet) -> impl Iterator<Item = usize> {
    let end = usize::try_from(CPUS_MAX).unwrap_or(usize::MAX).min(CpuSet::MAX_CPU);
    (0..end).filter(|cpu| set.is_set(*cpu))
}

/// Whether every CPU of `wanted` is in `set`.
pub(super) fn has_all(set: &CpuSet, wanted: &CpuSet) -> bool {
    members(wanted).all(|cpu| set.is_set(cpu))
}

#[cfg(test)]
mod tests;
