//! `memory.max` of one user's slice: when it is set, when it is put back, and when it is somebody else's.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// A `memory.max`. Ordered by how much it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Max {
    /// So many bytes.
    At(Bytes),
    /// `max`, `infinity`.
    Unlimited,
}

/// What is set now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// What systemd would set when it makes or renews the slice.
    pub property: Max,
    /// What the kernel enforces; `None` where the slice is not there.
    pub in_force: Option<Max>,
}

impl Present {
    /// Both are what we set.
    fn is(self, set: Bytes) -> bool {
        let set = Max::At(set);
        self.property == set && self.in_force.is_none_or(|now| now == set)
    }

    /// The lower of both: what already holds.
    fn tightest(self) -> Max {
        self.in_force.map_or(self.property, |now| now.min(self.property))
    }
}

/// What we know of a slice that we set, or that somebody else took from us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ours {
    /// We set it.
    Set {
        /// What to put back.
        before: Max,
        /// What we set.
        set: Bytes,
    },
    /// Somebody changed what we had set: it is theirs as long as the line stays as it is.
    Yielded {
        /// The hard limit at that time.
        line: Bytes,
    },
}

/// What the line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The hard limit, as set.
    pub line: Bytes,
    /// Where `memory.max` belongs.
    pub value: Bytes,
}

/// What to do with a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing; what is known of it stays known.
    Keep,
    /// Set it, and remember.
    Set {
        /// To this.
        value: Bytes,
        /// What to put back one day.
        before: Max,
    },
    /// Put it back, and forget it.
    PutBack(Max),
    /// Somebody else changed it: leave it, and remember that.
    Yield,
    /// It is none of ours any more: forget it, and touch nothing.
    Forget,
}

/// Decides. An administrator's lower limit is never raised, and what somebody changed after us is never touched until the
/// line itself is drawn anew.
#[must_use]
pub fn plan(present: Present, ours: Option<Ours>, wanted: Option<Wanted>) -> Step {
    match (ours, wanted) {
        (Some(Ours::Set { set, .. }), None) if !present.is(set) => Step::Forget,
        (Some(Ours::Set { set, .. }), Some(_)) if !present.is(set) => Step::Yield,
        (Some(Ours::Set { before, .. }), None) => Step::PutBack(before),
        (Some(Ours::Set { before, set }), Some(wanted)) => {
            if before <= Max::At(wanted.value) {
                Step::PutBack(before)
            } else if wanted.value == set {
                Step::Keep
            } else {
                Step::Set { value: wanted.value, before }
            }
        }
        (Some(Ours::Yielded { .. }), None) => Step::Forget,
        (Some(Ours::Yielded { line }), Some(wanted)) if line == wanted.line => Step::Keep,
        (None, None) => Step::Keep,
        (None | Some(Ours::Yielded { .. }), Some(wanted)) => {
            if present.tightest() > Max::At(wanted.value) {
                Step::Set { value: wanted.value, before: present.property }
            } else if ours.is_some() {
                Step::Forget
            } else {
                Step::Keep
            }
        }
    }
}
