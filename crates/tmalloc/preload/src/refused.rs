//! What was refused a moment ago is not asked for again. Interpreters ask for a mapping before each small object and take the
//! object from malloc(3) when there is none: at the line each of their objects would be a refusal of the daemon's.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// For how long. What others give back is had that much later.
const REMEMBERED: Duration = Duration::from_millis(20);

/// The least that was refused, in bytes, and when, in nanoseconds of the monotonic clock.
static BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
static AT_NS: AtomicU64 = AtomicU64::new(0);

/// So much was refused.
pub(crate) fn note(bytes: usize) {
    BYTES.store(bytes, Ordering::Relaxed);
    AT_NS.store(now_ns(), Ordering::Release);
}

/// Whether so much, or less, was refused lately.
pub(crate) fn lately(bytes: usize) -> bool {
    let at = AT_NS.load(Ordering::Acquire);
    at > 0
        && bytes >= BYTES.load(Ordering::Relaxed)
        && u128::from(now_ns().saturating_sub(at)) < REMEMBERED.as_nanos()
}

/// The process gave something back since.
pub(crate) fn forget() {
    AT_NS.store(0, Ordering::Release);
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
