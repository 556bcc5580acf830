//! What both guards work with: the same processes, victims, ledger and journal.

use super::{flights::Flights, ledger::Ledger, report::Notices, shield::Shield};
use crate::biography::Biographer;
use plimsoll_policy::{limits::LimitConfig, units::Nanos};
use plimsoll_sys::process::{ProcRoot, clock_monotonic_ns};

/// The guard's clock, which is the kernel records': `CLOCK_MONOTONIC`.
pub(super) fn now() -> Nanos {
    Nanos(clock_monotonic_ns())
}

/// What the guard works with besides its own state.
#[derive(Debug)]
pub(crate) struct Hands<'a> {
    pub(crate) proc: &'a mut ProcRoot,
    pub(crate) flights: &'a mut Flights,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) notices: &'a mut Notices,
    pub(crate) biographer: &'a Biographer,
    pub(crate) shield: &'a Shield,
    pub(crate) config: LimitConfig,
}
