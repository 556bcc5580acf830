//! What was refused a moment ago is not asked for again. Interpreters ask for a mapping before each small object and take the
//! object from malloc(3) when there is none: at the line each of their objects would be a refusal of the daemon's.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tmalloc::monotonic_ms;

/// For how long. What others give back is had that much later.
const REMEMBERED_MS: u64 = 20;

/// The least that was refused, in bytes, and when, in milliseconds of the monotonic clock.
static BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
static AT_MS: AtomicU64 = AtomicU64::new(0);

/// So much was refused.
pub(crate) fn note(bytes: usize) {
    BYTES.store(bytes, Ordering::Relaxed);
    AT_MS.store(monotonic_ms(), Ordering::Release);
}

/// Whether so much, or less, was refused lately.
pub(crate) fn lately(bytes: usize) -> bool {
    let at = AT_MS.load(Ordering::Acquire);
    at > 0 && bytes >= BYTES.load(Ordering::Relaxed) && monotonic_ms().saturating_sub(at) < REMEMBERED_MS
}

/// The process gave something back since.
pub(crate) fn forget() {
    AT_MS.store(0, Ordering::Release);
}
