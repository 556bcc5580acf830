//! A pattern over bytes: `*` is any number of them, `?` is one, `\` takes the next as it is.

use crate::human;
use alloc::{borrow::ToOwned as _, string::String};
use wildcard::Wildcard;

/// Matches the whole of what it is held against; `*` reaches across slashes.
#[derive(Debug, Clone)]
pub struct Pattern(Wildcard<'static>);

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is no pattern: after a backslash give *, ? or another backslash", human::escaped(.0))]
pub struct PatternError(String);

/// The longest pattern: longer than any path.
const PATTERN_BYTES_MAX: usize = 4096;

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.pattern() == other.0.pattern()
    }
}

impl Eq for Pattern {}

impl Pattern {
    /// The pattern that the text says.
    ///
    /// # Errors
    /// [`PatternError`] for one that escapes nothing, is empty or longer than 4,096 bytes.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let refused = || PatternError(text.to_owned());
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(refused());
        }
        Wildcard::from_owned(text.as_bytes().to_owned()).map(Self).map_err(|_escape| refused())
    }

    /// Whether it matches all of `bytes`.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }
}
