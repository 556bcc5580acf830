//! How far above the line `memory.max` is set.
//!
//! A line counts anonymous and swapped pages. `memory.max` counts what is resident in the slice: anonymous pages, but page
//! cache, shared memory, page tables, stacks and slabs too. At the line itself it would kill users who never crossed it, and
//! before that it would have the kernel reclaim their page cache without end. The headroom is room for all that.

use crate::{
    human,
    size::{Permyriad, Size},
    units::{Bytes, part},
};
use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};

/// The least that [`Headroom::Auto`] leaves: page tables, kernel stacks and slabs of a desktop session are some 100 MiB,
/// the rest keeps programs and libraries in the page cache. Chosen, not measured on every desktop there is.
pub const HEADROOM_AUTO_MIN: Bytes = Bytes(256 << 20);

/// The least of all: below it, kernel memory alone would reach `memory.max` before anonymous memory reached the line.
pub const HEADROOM_MIN: Bytes = Bytes(16 << 20);

/// `memory.max` is set in steps of this, rounded up: a whole number of pages of any size, so that what is read back is
/// what was set, and a line that moves a little moves nothing.
pub const SLICE_STEP: Bytes = Bytes(1 << 20);

/// A quarter of the line, for [`Headroom::Auto`].
const AUTO_PARTS: u64 = 4;

/// One hundred percent in [`Permyriad`].
const WHOLE: u64 = 10_000;

/// Room between the line and `memory.max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    /// A quarter of the line, and at least [`HEADROOM_AUTO_MIN`].
    Auto,
    /// So much, whatever the line.
    Bytes(Bytes),
    /// A share of the line.
    OfLine(Permyriad),
}

impl Headroom {
    /// In bytes, for a line; never under [`HEADROOM_MIN`].
    #[must_use]
    pub fn above(self, line: Bytes) -> Bytes {
        let room = match self {
            Self::Auto => Bytes(line.0.checked_div(AUTO_PARTS).unwrap_or(0)).max(HEADROOM_AUTO_MIN),
            Self::Bytes(bytes) => bytes,
            // At most all of it.
            Self::OfLine(share) => Bytes(part(line.0, share.get().into(), WHOLE).unwrap_or(line.0)),
        };
        room.max(HEADROOM_MIN)
    }
}

/// A text that is no headroom.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("headroom '{}': write \"auto\", a size of 16M or more, or a share of the line such as \"25%\"", human::escaped(.0))]
pub struct HeadroomError(pub String);

impl FromStr for Headroom {
    type Err = HeadroomError;

    fn from_str(text: &str) -> Result<Self, HeadroomError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(Size::Bytes(bytes)) if bytes >= HEADROOM_MIN => Ok(Self::Bytes(bytes)),
            // In a line, a share is one of RAM; here it is one of the line.
            Ok(Size::OfRam(share)) if share.get() > 0 => Ok(Self::OfLine(share)),
            Ok(Size::Bytes(_) | Size::OfRam(_)) | Err(_) => Err(HeadroomError(text.to_string())),
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => Size::Bytes(bytes).fmt(f),
            Self::OfLine(share) => Size::OfRam(share).fmt(f),
        }
    }
}

/// What a slice needs room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The line in force: the larger of the hard limit and what it still falls from.
    pub line: Bytes,
    /// What the slice holds now that reclaim cannot free: anonymous memory, shared memory, kernel memory. 0 where the slice
    /// is not there.
    pub held: Bytes,
    /// What we set it to before.
    pub set: Option<Bytes>,
}

/// Where `memory.max` belongs: the headroom above the line, or above what is held already and cannot be reclaimed, so that
/// setting it kills nobody. Once it is set, it only falls with what is held: it would be no limit if it rose with it.
/// `None` where that is all of the machine's memory or more: it would never be reached.
#[must_use]
pub fn memory_max(headroom: Headroom, needs: Needs, mem_total: Bytes) -> Option<Bytes> {
    let above = |base: Bytes| {
        let wanted = base.0.checked_add(headroom.above(needs.line).0)?;
        wanted.div_ceil(SLICE_STEP.0).checked_mul(SLICE_STEP.0)
    };
    let patient = above(needs.held)?;
    let value = above(needs.line)?.max(needs.set.map_or(patient, |set| patient.min(set.0)));
    (value < mem_total.0).then_some(Bytes(value))
}
