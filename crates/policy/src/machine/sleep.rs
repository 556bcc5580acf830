//! How long the machine guard may sleep: no longer than memory and swap take to fill at the fastest rate seen.

use crate::units::{Bytes, Nanos, part};

/// 800 MiB/s, earlyoom's 'seen with membomb on ZRAM'.
const SWAP_FILL_BYTES_PER_SECOND: u64 = 800 << 20;
/// The shortest sleep while memory is being used up, 10 ms, as lmkd's: 60 MiB at earlyoom's fastest.
pub const MIN: Nanos = Nanos(10_000_000);
/// The shortest otherwise, 100 ms, as earlyoom's.
pub const AT_REST: Nanos = Nanos(100_000_000);
/// The longest sleep, 1 s, as earlyoom's.
pub(crate) const MAX: Nanos = Nanos(1_000_000_000);

/// The time to fill what is left of memory and of swap above the SIGTERM thresholds: first memory, then swap, so both times
/// add up.
pub(super) fn adaptive((memory, per_second): (Bytes, u64), swap: Bytes) -> Nanos {
    time_to_fill((memory, per_second), swap).clamp(MIN, MAX)
}

/// The same, however short or long.
pub(crate) fn time_to_fill((memory, per_second): (Bytes, u64), swap: Bytes) -> Nanos {
    let time = fill_ns(memory, per_second).saturating_add(fill_ns(swap, SWAP_FILL_BYTES_PER_SECOND));
    Nanos(time)
}

/// Cuts a sleep short for a deadline.
pub(super) fn until(sleep: Nanos, deadline: Option<Nanos>, now: Nanos) -> Nanos {
    match deadline {
        Some(deadline) if deadline > now => sleep.min(deadline.saturating_sub(now)),
        // Already due and just acted on: look again soon, without spinning.
        Some(_) => AT_REST,
        None => sleep,
    }
}

fn fill_ns(headroom: Bytes, bytes_per_second: u64) -> u64 {
    part(headroom.0, 1_000_000_000, bytes_per_second).unwrap_or(u64::MAX)
}
