//! What is wrong with a text of the kernel's.

use super::Printable;
use core::fmt;
use thiserror::Error;

/// A text that cannot be used. The caller drops the reading and counts it; it never takes 0 in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// A part without which the text means nothing is not there.
    #[error("{file} has no {field}: the text was cut short, or this kernel writes it differently")]
    Missing {
        /// The file's name, such as `/proc/PID/stat`.
        file: &'static str,
        /// The kernel's name of the part.
        field: &'static str,
    },
    /// A part is there and is not what the kernel's documentation promises.
    #[error("{file} has a {field} that is not {expected}: '{found}'")]
    Malformed {
        /// The file's name.
        file: &'static str,
        /// The kernel's name of the part.
        field: &'static str,
        /// What it should have been, in words.
        expected: &'static str,
        /// The beginning of what was there.
        found: Excerpt,
    },
}

impl WireError {
    pub(super) const fn missing(file: &'static str, field: &'static str) -> Self {
        Self::Missing { file, field }
    }

    pub(super) fn malformed(
        file: &'static str,
        field: &'static str,
        expected: &'static str,
        found: &[u8],
    ) -> Self {
        Self::Malformed { file, field, expected, found: Excerpt::new(found) }
    }
}

/// Bytes an [`Excerpt`] keeps: enough to recognise a number, few enough for an error to be copied about.
const EXCERPT_BYTES_MAX: usize = 32;

/// The first bytes of something that was not understood; shown as [`Printable`] text. Holds no heap memory, so that
/// an error costs nothing where nothing may be allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; EXCERPT_BYTES_MAX],
    length: usize,
    cut: bool,
}

impl Excerpt {
    fn new(found: &[u8]) -> Self {
        let mut bytes = [0; EXCERPT_BYTES_MAX];
        let mut length = 0;
        for (slot, byte) in bytes.iter_mut().zip(found) {
            *slot = *byte;
            length += 1;
        }
        Self { bytes, length, cut: found.len() > length }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.bytes.get(..self.length).unwrap_or(&self.bytes);
        write!(f, "{}{}", Printable(kept), if self.cut { "..." } else { "" })
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Excerpt({self})")
    }
}
