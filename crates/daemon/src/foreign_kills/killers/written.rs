//! When an entry of the journal was written.

use jiff::Timestamp;
use plimsoll_policy::units::Nanos;
use plimsoll_sys::process::clock_monotonic_ns;
use serde_json::Value;
use std::fmt;

/// When an entry was written, as journald says it: microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Written(pub(super) i64);

impl Written {
    pub(super) fn now() -> Self {
        Self(Timestamp::now().as_microsecond())
    }

    /// Of an entry in JSON, where it is a number in text.
    pub(super) fn of(entry: &Value) -> Option<Self> {
        entry.get("__REALTIME_TIMESTAMP").and_then(Value::as_str).and_then(|text| text.parse().ok()).map(Self)
    }

    pub(super) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// On `CLOCK_MONOTONIC`: now, less what has passed since.
    pub(super) fn monotonic(self) -> Nanos {
        let ago = Timestamp::from_microsecond(self.0)
            .ok()
            .map(|written| Timestamp::now().duration_since(written).as_nanos())
            .and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
        Nanos(clock_monotonic_ns().saturating_sub(ago.unwrap_or_default()))
    }
}

/// As systemd.time(7) has it.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: i64 = 1_000_000;
        write!(f, "@{}.{:06}", self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND))
    }
}

#[cfg(test)]
mod tests;
