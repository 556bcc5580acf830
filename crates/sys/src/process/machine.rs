//! The machine's own numbers: page size, clocks, memory, CPUs, kernel.

use super::{Errno, ProcessError, Subject};
use nix::{time::clock_getcpuclockid, unistd};
use plimsoll_policy::frag::Blocks;
use plimsoll_policy::units::{Bytes, PageSize, Pages, Pid};
use plimsoll_wire::text::{
    Compactions, KernelVersion, Pagetypes, WireError, ZoneMarks, ZoneName, parse_arcstats, parse_buddyinfo,
    parse_compactions, parse_cpu_online, parse_cpu_possible, parse_oom_kills, parse_osrelease,
    parse_pagetypeinfo, parse_refaults, parse_zone_marks,
};
use rustix::{
    fs::{Mode, OFlags},
    time::{ClockId, Timespec, clock_gettime},
};
use std::{os::fd::OwnedFd, time::Duration};

const NANOSECONDS_A_SECOND: u64 = 1_000_000_000;

/// The smallest page of any machine Linux runs on.
const SMALLEST_PAGE: PageSize = match PageSize::from_bytes(4096) {
    Some(size) => size,
    None => unreachable!(),
};

/// The machine's page size, as the kernel told this process at its start.
#[must_use]
pub fn page_size() -> PageSize {
    // The kernel passes its own PAGE_SIZE, which is one of the sizes that PageSize knows.
    u64::try_from(rustix::param::page_size()).ok().and_then(PageSize::from_bytes).unwrap_or(SMALLEST_PAGE)
}

/// Nanoseconds of one clock tick, the unit of start times in `/proc`: 10 ms everywhere but on Alpha.
#[must_use]
pub fn tick_ns() -> u64 {
    NANOSECONDS_A_SECOND.checked_div(rustix::param::clock_ticks_per_second()).unwrap_or(10_000_000)
}

/// Nanoseconds on the clock that stands still while the machine sleeps (`CLOCK_MONOTONIC`, `bpf_ktime_get_ns`).
#[must_use]
pub fn clock_monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds since boot, sleep included (`CLOCK_BOOTTIME`): the clock of process start times.
#[must_use]
pub fn clock_boottime_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

/// `CLOCK_REALTIME`, in nanoseconds: what files are stamped with.
#[must_use]
pub fn clock_realtime_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// What the calling thread has had of a CPU.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ThreadCPUTime)))
}

/// What all threads of this process have had.
#[must_use]
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}

/// What all threads of a process have had, dead ones included, by its own clock; `None` where there is no such process (any
/// more). A thread of the kernel's is a process of its own.
#[must_use]
pub fn cpu_time_of(process: Pid) -> Option<Duration> {
    let clock = clock_getcpuclockid(unistd::Pid::from_raw(i32::try_from(process.0).ok()?)).ok()?;
    Some(clock.now().ok()?.into())
}

/// These clocks count up from 0: neither part is ever negative.
const fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec
        .unsigned_abs()
        .saturating_mul(NANOSECONDS_A_SECOND)
        .saturating_add(time.tv_nsec.unsigned_abs())
}

/// CPU slots: the highest CPU number there can be, and one. What per-CPU maps are sized by.
///
/// # Errors
/// By what the kernel says of the file; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn possible_cpus() -> Result<u32, ProcessError> {
    read_file("/sys/devices/system/cpu/possible", "read the possible CPUs", parse_cpu_possible)
}

/// CPUs that run now.
///
/// # Errors
/// As [`possible_cpus`].
pub fn online_cpus() -> Result<u32, ProcessError> {
    read_file("/sys/devices/system/cpu/online", "read the CPUs that are online", parse_cpu_online)
}

/// How many processes the kernel's own OOM killer has ended since boot.
///
/// # Errors
/// By what the kernel says of `/proc/vmstat`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn oom_kills() -> Result<u64, ProcessError> {
    read_file("/proc/vmstat", "read /proc/vmstat", parse_oom_kills)
}

/// How many pages were read again soon after they were evicted since boot, of files and anonymous ones.
///
/// # Errors
/// By what the kernel says of `/proc/vmstat`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn refaults() -> Result<Pages, ProcessError> {
    read_file("/proc/vmstat", "read /proc/vmstat", parse_refaults)
}

/// Free blocks of each zone.
///
/// # Errors
/// By what the kernel says of `/proc/buddyinfo`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn free_blocks() -> Result<Vec<(ZoneName, Blocks)>, ProcessError> {
    read_file("/proc/buddyinfo", "read /proc/buddyinfo", parse_buddyinfo)
}

/// What each zone keeps.
///
/// # Errors
/// By what the kernel says of `/proc/zoneinfo`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn zone_marks() -> Result<Vec<(ZoneName, ZoneMarks)>, ProcessError> {
    read_file("/proc/zoneinfo", "read /proc/zoneinfo", parse_zone_marks)
}

/// Free blocks by the kind of pages that they are for. The kernel holds each zone's lock while it counts.
///
/// # Errors
/// By what the kernel says of `/proc/pagetypeinfo`, which is root's: [`ProcessError::Denied`] for others;
/// [`ProcessError::Unreadable`] when it cannot be understood.
pub fn pagetypes() -> Result<Pagetypes, ProcessError> {
    read_file("/proc/pagetypeinfo", "read /proc/pagetypeinfo", parse_pagetypeinfo)
}

/// What the kernel counted of compaction since boot.
///
/// # Errors
/// By what the kernel says of `/proc/vmstat`; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn compactions() -> Result<Compactions, ProcessError> {
    read_file("/proc/vmstat", "read /proc/vmstat", parse_compactions)
}

/// What the cache of ZFS gives up when memory is asked for; `None` where there is no ZFS.
///
/// # Errors
/// By what the kernel says of its `arcstats`; [`ProcessError::Unreadable`] when they cannot be understood.
pub fn arc_available() -> Result<Option<Bytes>, ProcessError> {
    match read_file("/proc/spl/kstat/zfs/arcstats", "read the arcstats of ZFS", parse_arcstats) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ProcessError::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A descriptor that is readable out of the ordinary (`POLLPRI`) when some program could not go on for want of memory for
/// `stalled` of `window`; once a window at most (`psi_trigger_create`, kernel/sched/psi.c).
///
/// # Errors
/// By what the kernel says: it knows no stalls, or one who is not root asks for a window of other than whole 2 s.
pub fn memory_stall_trigger(stalled: Duration, window: Duration) -> Result<OwnedFd, ProcessError> {
    let failed = |errno| ProcessError::of_machine("set a trigger at /proc/pressure/memory", errno);
    let file = rustix::fs::open(
        "/proc/pressure/memory",
        OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let file = file.map_err(failed)?;
    let trigger = format!("some {} {}\0", stalled.as_micros(), window.as_micros());
    rustix::io::write(&file, trigger.as_bytes()).map_err(failed)?;
    Ok(file)
}

/// The running kernel's version.
///
/// # Errors
/// By what the kernel says of the file; [`ProcessError::Unreadable`] when it cannot be understood.
pub fn kernel_version() -> Result<KernelVersion, ProcessError> {
    read_file("/proc/sys/kernel/osrelease", "read the kernel's version", parse_osrelease)
}

fn read_file<T>(
    path: &str,
    operation: &'static str,
    parse: impl FnOnce(&[u8]) -> Result<T, WireError>,
) -> Result<T, ProcessError> {
    let text = std::fs::read(path).map_err(|error| {
        ProcessError::of_machine(operation, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    parse(&text).map_err(|error| ProcessError::Unreadable { subject: Subject::Machine, error })
}

#[cfg(test)]
mod tests;
