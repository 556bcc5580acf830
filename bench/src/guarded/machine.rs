//! The machine guard of a private daemon, in a dry run: its thresholds are moved, not the machine's memory.

use super::{Memory, PrivateDaemon, configure, pressure};
use crate::{child::wait_for, error::BenchError};
use plimsoll_api::status::Pressure;
use rustix::process::{Signal, pidfd_send_signal};
use std::time::Duration;

/// Nothing that a machine gets to by itself; nothing is said ahead of a selection, and no page is moved.
pub(super) const PLENTY: &str = "[machine]\nterm_memory = 0.1\nkill_memory = 0.1\nterm_swap = 100\nkill_swap = 100\n\
                                 notice = false\nreclaim = false\n";

/// Between two looks at what the daemon says.
const POLL: Duration = Duration::from_millis(2);

/// Thresholds of available memory in permille: what no machine with a process of some size is above, and none is below.
const MOST_PERMILLE: u64 = 999;
const LEAST_PERMILLE: u64 = 1;

/// What programs have and could have: what thresholds are parts of.
fn total_bytes(pressure: &Pressure) -> Option<u64> {
    Some(pressure.mem_available_bytes?.saturating_add(pressure.anon_bytes?))
}

/// The threshold in force, in permille.
fn term_permille(pressure: &Pressure) -> Option<u64> {
    let total = total_bytes(pressure)?;
    // It is rounded down.
    pressure.term_at_mem_bytes?.saturating_mul(1_000).saturating_add(total / 2).checked_div(total)
}

/// A threshold that memory is above, and one and a half of which it is under.
fn near_permille(pressure: &Pressure) -> Option<u64> {
    let available =
        pressure.mem_available_bytes?.saturating_mul(1_000).checked_div(total_bytes(pressure)?)?;
    Some(available.saturating_mul(4) / 5)
}

/// Moves the thresholds, and waits until they are in force.
pub(super) fn make(daemon: &PrivateDaemon, memory: Memory) -> Result<(), BenchError> {
    let permille = match memory {
        Memory::Plenty => LEAST_PERMILLE,
        Memory::Short => MOST_PERMILLE,
        Memory::Near => {
            wait_for("reading of the machine's memory", POLL, || Ok(near_permille(&pressure(daemon)?)))?
        }
    };
    let share = format!("term_memory = {}.{}", permille / 10, permille % 10);
    configure(&daemon.folder, &PLENTY.replace("term_memory = 0.1", &share))?;
    pidfd_send_signal(&daemon.pidfd, Signal::HUP).map_err(BenchError::io("signal the daemon"))?;
    wait_for(
        "new threshold",
        POLL,
        || Ok((term_permille(&pressure(daemon)?) == Some(permille)).then_some(())),
    )
}
