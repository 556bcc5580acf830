//! What this machine's kernel offers, each thing tried on the kernel itself: nothing is guessed from a version number.
//!
//! Facts only. What a feature is good for, what is used in its place and what follows from it all is for whoever asked
//! to say (`plimsoll doctor`). Nothing is left attached, loaded or changed.

mod bpf;
mod machine;
mod program;

pub use bpf::{BpfFacts, probe_bpf};
pub use machine::{MachineFacts, capability_name, in_initial_pid_namespace, probe_machine};
pub use program::function_hooks;
pub(crate) use program::function_hooks_of;

/// What one probe came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is there, and works.
    Present,
    /// It is not, or does not work: what was seen.
    Absent(String),
    /// It could not be found out: why.
    Unknown(String),
}

impl Answer {
    fn of(present: bool, seen: &str) -> Self {
        if present { Self::Present } else { Self::Absent(seen.to_owned()) }
    }
}

#[cfg(test)]
mod tests;
