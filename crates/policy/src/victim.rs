//! Who is being killed and how far that has come: shared by the guards' state machines.

use crate::units::{Nanos, Pid};
use serde::{Deserialize, Serialize};

/// How long after SIGKILL a victim may take to die before the next one may be selected: 5 s. The slowest exit seen in
/// the field is one in uninterruptible sleep, which no waiting helps.
pub const KILL_DEADLINE: Nanos = Nanos(5_000_000_000);

/// How long a process has between SIGTERM and SIGKILL: 10 s, as long as earlyoom waits for a process to exit.
pub const TERM_GRACE: Nanos = Nanos(10_000_000_000);

/// One process, told from a later one of the same number by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VictimId {
    /// Its number.
    pub pid: Pid,
    /// Start time since boot in nanoseconds (`start_boottime`).
    pub start_ns: u64,
}

texts! {
    /// A signal of ours.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Signal {
        /// SIGTERM.
        Term = "SIGTERM",
        /// SIGKILL.
        Kill = "SIGKILL",
    }
    /// The name as `kill -l` has it, with `SIG`.
    fn name
}

impl Signal {
    /// The one that the programs know by this number; `None`: they send nothing (0).
    #[must_use]
    pub const fn numbered(number: u32) -> Option<Self> {
        match number {
            9 => Some(Self::Kill),
            15 => Some(Self::Term),
            _ => None,
        }
    }
}

/// Why a signal was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignalFault {
    /// `EPERM`: a capability is missing, or a security module said no.
    NotPermitted,
    /// Any other `errno`.
    Other(i32),
}

/// What became of a signal, or of its victim later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignalOutcome {
    /// The kernel took the signal; the victim is dying from now on.
    Sent(Signal),
    /// Not sent: nothing is dying.
    Failed(SignalFault),
    /// The process was gone before the signal (`ESRCH`).
    Vanished,
    /// The victim is gone and its memory is back.
    Freed,
}

/// How far the killing of one victim has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// SIGTERM was sent; SIGKILL follows after the grace period.
    Term,
    /// SIGKILL was sent.
    Kill,
    /// SIGKILL was sent and the deadline is over: its memory is no longer counted on.
    Overdue,
}
