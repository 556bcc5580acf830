//! Debian's earlyoom in its dry run: how long it takes from 'low memory' to its choice, and from low memory to that.
//!
//! It runs with the real machine's processes and thresholds of the bench's choosing, and sends nothing.

use crate::{child::Workload, error::BenchError, proc};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const WRAPPER: &str = "command -v setpriv >/dev/null && exec setpriv --pdeathsig KILL \"$0\" \"$@\" 2>&1; exec \"$0\" \"$@\" 2>&1";

/// Where it is, if it is installed.
pub(crate) fn find() -> Option<PathBuf> {
    super::find_program("earlyoom")
}

/// A running dry run.
#[derive(Debug)]
pub(crate) struct Earlyoom {
    process: Workload,
}

impl Earlyoom {
    /// Starts it so that both thresholds are met while MemAvailable is at or below `memory_kib`.
    pub(crate) fn start(binary: &Path, memory_kib: u64) -> Result<Self, BenchError> {
        let mut command = Command::new("/bin/sh");
        // Its messages go to standard error, and it must not outlive the bench: setpriv sees to that where it is.
        command.args(["-c", WRAPPER]);
        command
            .arg(binary)
            .args(["--dryrun", "-r", "0", "-s", "100,100", "-M"])
            .arg(format!("{memory_kib},{memory_kib}"));
        Ok(Self { process: Workload::spawn(command, "earlyoom --dryrun")? })
    }

    /// Starts it so that both thresholds are always met: it chooses once a cycle.
    pub(crate) fn start_always(binary: &Path) -> Result<Self, BenchError> {
        let total_bytes = proc::told("MemTotal", proc::meminfo()?.mem_total)?;
        let mut earlyoom = Self::start(binary, total_bytes / 1024 - 1)?;
        earlyoom.wait_until_watching()?;
        // What it said while nobody listened arrives at once, and measures nothing.
        for _ in 0..5 {
            earlyoom.choice_ns()?;
        }
        Ok(earlyoom)
    }

    /// Waits for its next 'low memory' and then its 'sending': nanoseconds between the two lines.
    pub(crate) fn choice_ns(&mut self) -> Result<u64, BenchError> {
        let low_ns = self.process.hear_until(is_low)?;
        Ok(self.chosen_at_ns()?.saturating_sub(low_ns))
    }

    /// Waits for its next 'sending' and gives its monotonic time.
    pub(crate) fn chosen_at_ns(&mut self) -> Result<u64, BenchError> {
        self.process.hear_until(is_choice)
    }

    /// Waits until it has begun to watch (it says what it found at its start).
    pub(crate) fn wait_until_watching(&mut self) -> Result<(), BenchError> {
        self.process.hear_until(|line| line.trim_start().starts_with("SIGKILL when"))?;
        // Then it locks its memory and does a selection on trial; no line tells the end of that.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }
}

fn is_low(line: &str) -> bool {
    line.starts_with("low memory!")
}

fn is_choice(line: &str) -> bool {
    line.starts_with("sending SIG") && line.contains(" to process ")
}

#[cfg(test)]
mod tests;
