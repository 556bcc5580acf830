//! How memory stood before an incident, and how it came back afterwards: what an incident keeps of the [recorder].
//!
//! Times count from the decision, in milliseconds: negative before it. Between two samples nothing is left out that is off
//! the straight line between them by more than a thirty-second of what is measured against ([recorder] says how).
//!
//! [recorder]: crate::recorder

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

/// The minutes before an incident and the seconds after it, oldest first. An empty list: nothing was near then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Course {
    /// The account of the incident; empty for the machine's.
    #[serde(default)]
    pub account: Vec<UsageSample>,
    /// The machine.
    #[serde(default)]
    pub machine: Vec<MachineSample>,
    /// `MemTotal`.
    #[serde(default)]
    pub mem_total_bytes: Option<u64>,
    /// `SwapTotal`.
    #[serde(default)]
    pub swap_total_bytes: Option<u64>,
    /// What the machine guard decided from ([`crate::machine::trace`]), where the decision was its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// An account at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// When, from the decision.
    pub at_ms: i64,
    /// What it was charged.
    pub usage_bytes: u64,
    /// The line in force.
    pub line_bytes: Option<u64>,
}

/// The machine at one moment. `None` is 'not known', never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSample {
    /// When, from the decision.
    pub at_ms: i64,
    /// `MemAvailable`.
    pub mem_available_bytes: Option<u64>,
    /// `AnonPages`.
    pub anon_bytes: Option<u64>,
    /// `SwapFree`.
    pub swap_free_bytes: Option<u64>,
    /// How much of the time since the sample before at least one task waited for memory (PSI `some`), in permille; of the
    /// last 10 s, where there was none just before. Read only while something was near.
    pub some_permille: Option<u16>,
    /// The same of the time in which all tasks waited at once (PSI `full`).
    pub full_permille: Option<u16>,
}

impl Course {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.account.is_empty() && self.machine.is_empty() && self.trace.is_none()
    }

    /// Goes on with what was recorded later, which takes the place of what was known of the same time.
    pub fn go_on(&mut self, later: Self) {
        if let Some(first) = later.account.first().map(|sample| sample.at_ms) {
            self.account.retain(|sample| sample.at_ms < first);
        }
        if let Some(first) = later.machine.first().map(|sample| sample.at_ms) {
            self.machine.retain(|sample| sample.at_ms < first);
        }
        self.account.extend(later.account);
        self.machine.extend(later.machine);
        self.mem_total_bytes = later.mem_total_bytes.or(self.mem_total_bytes);
        self.swap_total_bytes = later.swap_total_bytes.or(self.swap_total_bytes);
        self.trace = later.trace.or_else(|| self.trace.take());
    }

    /// Keeps the newest `count` samples of each.
    pub fn keep_newest(&mut self, count: usize) {
        self.account.drain(..self.account.len().saturating_sub(count));
        self.machine.drain(..self.machine.len().saturating_sub(count));
    }
}

#[cfg(test)]
mod tests;
