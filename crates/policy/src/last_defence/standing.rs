//! What `status` says of the last defence: what is in force, and nothing more.

use super::LastDefenceConfig;
use alloc::{format, string::String};

/// Whether `memory.max` can be set here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMaxState {
    /// Through systemd.
    Possible,
    /// systemd does not run here.
    NoSystemd,
    /// cgroup v2 has no memory controller here.
    NoController,
    /// `systemctl` is not there, or does not answer.
    NoAnswer,
}

impl MemoryMaxState {
    const fn why_not(self) -> Option<&'static str> {
        match self {
            Self::Possible => None,
            Self::NoSystemd => Some("no systemd runs here"),
            Self::NoController => Some("cgroup v2 has no memory controller here"),
            Self::NoAnswer => Some("systemctl does not answer"),
        }
    }
}

/// The last defence as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What is to be arranged.
    pub config: LastDefenceConfig,
    /// Whether `memory.max` can be set.
    pub memory_max: MemoryMaxState,
    /// Slices whose `memory.max` we set.
    pub slices: u32,
    /// Processes whose `oom_score_adj` we raised.
    pub raised: u32,
    /// A line is in force.
    pub lines: bool,
    /// Decisions are only recorded.
    pub dry_run: bool,
}

impl Standing {
    /// In a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let LastDefenceConfig { memory_max, oom_score_adj, .. } = self.config;
        if !memory_max && !oom_score_adj {
            return String::from("off: [last_defence] of the configuration switches it off");
        }
        if self.dry_run {
            return String::from("dry run: nothing is arranged");
        }
        if !self.lines {
            return String::from("idle: no line is set");
        }
        let slices = || match self.slices {
            0 => String::from("no slice of a user with a line has one now"),
            1 => String::from("1 user slice has one"),
            many => format!("{many} user slices have one"),
        };
        let raised = || match self.raised {
            0 => String::from("nobody is near a line, so nobody is raised"),
            1 => String::from("1 process is raised"),
            many => format!("{many} processes are raised"),
        };
        match (memory_max, self.memory_max.why_not(), oom_score_adj) {
            (true, None, true) => format!("memory.max + oom_score_adj: {}, {}", slices(), raised()),
            (true, None, false) => format!("memory.max only: {}; oom_score_adj is switched off", slices()),
            (true, Some(why), true) => format!("oom_score_adj only: {why}; {}", raised()),
            (true, Some(why), false) => format!("not in force: {why}, and oom_score_adj is switched off"),
            (false, _, _) => format!("oom_score_adj only: memory.max is switched off; {}", raised()),
        }
    }
}
