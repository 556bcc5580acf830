//! The machine guard of a private daemon, in a dry run: its thresholds are moved, not the machine's memory.

use super::{Memory, PrivateDaemon, StatusReading};
use crate::error::BenchError;
use rustix::process::{Signal, pidfd_send_signal};
use serde::Deserialize;
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Nothing that a machine gets to by itself; nothing is said ahead of a selection, and no page is moved.
pub(super) const PLENTY: &str = "[machine]\nterm_memory = 0.1\nkill_memory = 0.1\nterm_swap = 100\nkill_swap = 100\n\
                                 notice = false\nreclaim = false\n";

/// Between two looks at what the daemon says.
const POLL: Duration = Duration::from_millis(2);

/// Thresholds of available memory in permille: what no machine with a process of some size is above, and none is below.
const MOST_PERMILLE: u64 = 999;
const LEAST_PERMILLE: u64 = 1;

/// What the benches read of `pressure` in `status --json`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PressureReading {
    mem_available_bytes: Option<u64>,
    anon_bytes: Option<u64>,
    term_at_mem_bytes: Option<u64>,
    selection: Option<SelectionReading>,
}

/// How a guard of the machine knows whom to select (`pressure.selection` of `status --json`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SelectionReading {
    /// `programs` or `proc`: what the last look at all processes came from.
    pub from: Option<String>,
    /// The age of the list that is ready, in nanoseconds.
    pub ready_ns: Option<u64>,
    /// What the last decision took.
    pub last: Option<EffortReading>,
}

/// What a decision took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct EffortReading {
    /// Processes in the list.
    pub processes: u64,
    /// Looked at closely.
    pub looks: u64,
    /// Age of the list in nanoseconds.
    pub age_ns: u64,
}

impl PressureReading {
    /// What programs have and could have: what thresholds are parts of.
    fn total_bytes(&self) -> Option<u64> {
        Some(self.mem_available_bytes?.saturating_add(self.anon_bytes?))
    }

    /// The threshold in force, in permille.
    fn term_permille(&self) -> Option<u64> {
        let total = self.total_bytes()?;
        // It is rounded down.
        self.term_at_mem_bytes?.saturating_mul(1_000).saturating_add(total / 2).checked_div(total)
    }

    /// A threshold that memory is above, and one and a half of which it is under.
    fn near_permille(&self) -> Option<u64> {
        let available = self.mem_available_bytes?.saturating_mul(1_000).checked_div(self.total_bytes()?)?;
        Some(available.saturating_mul(4) / 5)
    }
}

fn pressure(daemon: &PrivateDaemon) -> Result<PressureReading, BenchError> {
    Ok(daemon.read::<StatusReading>(&["status"])?.pressure)
}

/// Moves the thresholds, and waits until they are in force.
pub(super) fn make(daemon: &PrivateDaemon, memory: Memory) -> Result<(), BenchError> {
    let within = Duration::from_secs(10);
    let until = Instant::now() + within;
    let permille = match memory {
        Memory::Plenty => LEAST_PERMILLE,
        Memory::Short => MOST_PERMILLE,
        Memory::Near => loop {
            match pressure(daemon)?.near_permille() {
                Some(permille) => break permille,
                None => wait(until, within, "reading of the machine's memory")?,
            }
        },
    };
    let share = format!("term_memory = {}.{}", permille / 10, permille % 10);
    fs::write(daemon.folder.path().join(super::CONFIGURATION), PLENTY.replace("term_memory = 0.1", &share))
        .map_err(BenchError::io("write the daemon's configuration"))?;
    pidfd_send_signal(&daemon.pidfd, Signal::HUP).map_err(BenchError::io("signal the daemon"))?;
    while pressure(daemon)?.term_permille() != Some(permille) {
        wait(until, within, "new threshold")?;
    }
    Ok(())
}

pub(super) fn selection(daemon: &PrivateDaemon) -> Result<SelectionReading, BenchError> {
    pressure(daemon)?.selection.ok_or_else(|| {
        BenchError::malformed("how the machine guard selects", "it does not guard the machine")
    })
}

fn wait(until: Instant, within: Duration, awaited: &str) -> Result<(), BenchError> {
    if Instant::now() > until {
        return Err(BenchError::Deadline { awaited: awaited.to_owned(), within });
    }
    thread::sleep(POLL);
    Ok(())
}
