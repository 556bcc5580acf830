//! A fact as it was found: known, absent, unreadable or stale; never a 0 in the place of what is not known.

use serde::{Deserialize, Serialize};

/// One reading of something outside. What is not known stays not known: there is no conversion to a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// Read just now.
    Known(T),
    /// There is no such thing: the field does not exist here, the process has no address space.
    Absent,
    /// It should be there, and could not be read or understood.
    Unreadable,
    /// Read once, not again since.
    Stale {
        /// What it was.
        value: T,
        /// How old that is, in nanoseconds.
        age_ns: u64,
    },
}

impl<T> Reading<T> {
    /// Whether there is no such thing.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// A reading that is written as its value, where it is known. To be left out where it is absent.
pub mod plain {
    use super::Reading;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Plain<T> {
        Known(T),
        Stale { value: T, age_ns: u64 },
        Unreadable(()),
    }

    /// The value, `null` for what is unreadable, the value and its age for what is stale.
    ///
    /// # Errors
    /// The serialiser's.
    pub fn serialize<T: Copy + Serialize, S: Serializer>(
        reading: &Reading<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match *reading {
            Reading::Known(value) => Plain::Known(value),
            Reading::Stale { value, age_ns } => Plain::Stale { value, age_ns },
            Reading::Absent | Reading::Unreadable => Plain::Unreadable(()),
        }
        .serialize(serializer)
    }

    /// Likewise.
    ///
    /// # Errors
    /// For what is none of these.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Reading<T>, D::Error> {
        Ok(match Plain::deserialize(deserializer)? {
            Plain::Known(value) => Reading::Known(value),
            Plain::Stale { value, age_ns } => Reading::Stale { value, age_ns },
            Plain::Unreadable(()) => Reading::Unreadable,
        })
    }
}

impl<T: Copy> Reading<T> {
    /// The value, where it was read just now.
    #[must_use]
    pub const fn known(self) -> Option<T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Unreadable | Self::Stale { .. } => None,
        }
    }

    /// The value, however old: for ranking, where an old number is better than none.
    #[must_use]
    pub const fn latest(self) -> Option<T> {
        match self {
            Self::Known(value) | Self::Stale { value, .. } => Some(value),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// The same reading of something derived from the value.
    pub fn map<U>(self, derive: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Known(value) => Reading::Known(derive(value)),
            Self::Absent => Reading::Absent,
            Self::Unreadable => Reading::Unreadable,
            Self::Stale { value, age_ns } => Reading::Stale { value: derive(value), age_ns },
        }
    }
}

#[cfg(test)]
mod tests;
