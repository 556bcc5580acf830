//! The last defence: what the kernel's own OOM killer is told beforehand, for when neither the programs nor the daemon
//! acted. `memory.max` of a user's slice above the line ([`memory_max`], [`mod@slice`]), and who is taken first
//! ([`ranking`]); and when each of it is put back.
//!
//! Only decisions: what is set now, and by whom, arrives as arguments.

mod headroom;
pub mod ranking;
pub mod slice;
mod standing;

pub use headroom::{HEADROOM_AUTO_MIN, HEADROOM_MIN, Headroom, HeadroomError, Needs, SLICE_STEP, memory_max};
pub use standing::{MemoryMaxState, Standing};

/// Which parts of the last defence are arranged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastDefenceConfig {
    /// `memory.max` on the slices of users with a line.
    pub memory_max: bool,
    /// How far above the line.
    pub headroom: Headroom,
    /// `oom_score_adj` of the largest process of each account that is near its line.
    pub oom_score_adj: bool,
}

impl Default for LastDefenceConfig {
    fn default() -> Self {
        Self { memory_max: true, headroom: Headroom::Auto, oom_score_adj: true }
    }
}

impl LastDefenceConfig {
    /// Nothing is arranged.
    pub const OFF: Self = Self { memory_max: false, headroom: Headroom::Auto, oom_score_adj: false };
}

#[cfg(test)]
mod tests;
