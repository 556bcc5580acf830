//! The clock of the threads that protect the working set.

use nix::poll::PollTimeout;
use plimsoll_policy::units::Nanos;
use plimsoll_sys::process::clock_monotonic_ns;

pub(super) fn now() -> Nanos {
    Nanos(clock_monotonic_ns())
}

/// As long as one may sleep who is due then.
pub(super) fn timeout_until(due: Nanos) -> PollTimeout {
    let left = due.0.saturating_sub(now().0).div_ceil(1_000_000);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
