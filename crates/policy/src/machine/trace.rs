//! What the machine guard saw and was told, in order: the input of its decisions, line by line, so that the same decisions can
//! be made of it once more.
//!
//! A trace begins with [`Line::Begin`], and has another such line wherever the recording does. Sizes are in bytes, times in
//! nanoseconds on one clock, and a process is what selection knows of it.

use super::{MachineConfig, MachineReading, MachineState, margin::Measured};
use crate::{
    reason::Reason,
    selection::Candidate,
    units::{Bytes, Nanos},
    victim::{Signal, SignalOutcome, VictimId},
};
use alloc::{borrow::Cow, string::String, vec::Vec};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod replay;
pub use replay::{Recorded, Replay, Told, TraceFault};

/// The form of the lines.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a line lives until it is written or taken in; the guard allocates for none"
)]
pub enum Line<'a> {
    /// Where the recording begins.
    Begin(Begin<'a>),
    /// The machine was looked at, and it was decided what to do.
    Look {
        /// When.
        at: Nanos,
        /// What there was to see.
        #[serde(flatten)]
        reading: MachineReading,
    },
    /// Those by whom it is selected from now on: [`crate::selection::decisive`].
    List(Cow<'a, [Candidate]>),
    /// What came of the look before. It is no input: it is what a replay should come to.
    Decided(Decided),
    /// Nothing came of it: somebody else was waited for, or it was not known yet who runs. The next look decides anew.
    Waited,
    /// What became of a signal, or of a victim.
    Outcome {
        /// When.
        at: Nanos,
        /// Whose.
        victim: VictimId,
        /// What.
        outcome: SignalOutcome,
    },
    /// Nothing was sent, and the same is not decided again for a while.
    Hold {
        /// When.
        at: Nanos,
        /// What would have been sent.
        signal: Signal,
    },
    /// How long a part of a kill took.
    Measured(Measured),
    /// What processes are called: for people.
    Names(Vec<Name>),
}

/// What the lines after it are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin<'a> {
    /// Of the form: [`VERSION`].
    pub version: u32,
    /// When.
    pub at: Nanos,
    /// The same on the clock of the wall.
    #[serde(default)]
    pub time: Option<Timestamp>,
    /// `MemTotal`.
    #[serde(default)]
    pub mem_total: Option<Bytes>,
    /// In bytes.
    pub page_size: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// In force; `None`: the defaults.
    #[serde(default)]
    pub config: Option<Cow<'a, MachineConfig>>,
    /// What the guard remembered; `None`: nothing.
    #[serde(default)]
    pub state: Option<Cow<'a, MachineState>>,
}

/// What the guard came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// What was to be sent; `None`: nothing.
    pub signal: Option<Signal>,
    /// To whom; `None`: there was nobody.
    pub victim: Option<VictimId>,
    /// Why.
    pub reason: Reason,
}

/// What a process is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Which process.
    #[serde(flatten)]
    pub id: VictimId,
    /// Its `comm`, made printable.
    pub comm: String,
}

impl MachineState {
    /// Takes in what a trace has besides looks.
    pub fn learn(&mut self, line: &Line<'_>, config: &MachineConfig) {
        match line {
            Line::Outcome { at, victim, outcome } => self.outcome(*victim, *outcome, config, *at),
            Line::Hold { at, signal } => self.hold(*signal, *at),
            Line::Measured(measured) => self.reaction.take(*measured),
            Line::Begin(_) | Line::Look { .. } | Line::List(_) => {}
            Line::Decided(_) | Line::Waited | Line::Names(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
