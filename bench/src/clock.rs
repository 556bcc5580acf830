//! The clocks, as nanoseconds.

use crate::error::BenchError;
use nix::{
    errno::Errno,
    time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep},
};
use std::time::Duration;

/// CLOCK_MONOTONIC in nanoseconds: one clock for all processes of the machine, so that stamps of different processes
/// can be compared.
///
/// # Errors
/// The clock cannot be read (a broken kernel).
pub(crate) fn monotonic_ns() -> Result<u64, BenchError> {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread in nanoseconds.
///
/// # Errors
/// As [`monotonic_ns`].
pub(crate) fn thread_cpu_ns() -> Result<u64, BenchError> {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until that moment of CLOCK_MONOTONIC; not at all when it has passed.
///
/// # Errors
/// As [`monotonic_ns`].
pub(crate) fn sleep_until_ns(moment_ns: u64) -> Result<(), BenchError> {
    let moment = Duration::from_nanos(moment_ns).into();
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &moment) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(BenchError::io("clock_nanosleep")(errno)),
        }
    }
}

fn read_ns(clock: ClockId) -> Result<u64, BenchError> {
    let now = clock_gettime(clock).map_err(BenchError::io("clock_gettime"))?;
    let seconds = u64::try_from(now.tv_sec());
    let nanoseconds = u64::try_from(now.tv_nsec());
    match (seconds, nanoseconds) {
        (Ok(seconds), Ok(nanoseconds)) => Ok(seconds * 1_000_000_000 + nanoseconds),
        _ => Err(BenchError::malformed("a clock", &format!("{now:?}"))),
    }
}
