//! What a line is drawn for, and what crossing it does.

use crate::{human, units::Uid, victim::Signal};
use alloc::{format, string::String};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Serialize};

/// An account. Users today; jobs, cgroups and the system get their own variants as their guards come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// All processes of one user, by real uid.
    User(Uid),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user:{uid}"),
        }
    }
}

impl Serialize for Account {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.strip_prefix("user:")
            .and_then(|uid| uid.parse().ok())
            .map(|uid| Self::User(Uid(uid)))
            .ok_or_else(|| serde::de::Error::custom(format!("unknown account '{text}'")))
    }
}

texts! {
    /// What crossing a line does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Action {
        /// Record it, do nothing.
        Notify = "notify",
        /// Refuse the allocation with ENOMEM.
        Deny = "deny",
        /// SIGTERM, then SIGKILL after a grace period.
        Term = "term",
        /// SIGKILL.
        Kill = "kill",
    }
    /// The word, as in the configuration and on the command line. The mildest comes first.
    fn text, Display
}

impl Action {
    /// The one that sends this signal at first.
    #[must_use]
    pub const fn of(signal: Option<Signal>) -> Self {
        match signal {
            Some(Signal::Kill) => Self::Kill,
            Some(Signal::Term) => Self::Term,
            None => Self::Notify,
        }
    }

    /// Where it stands from mild (0) to strict: a user's own line must not weaken the administrator's action.
    #[must_use]
    pub const fn strictness(self) -> u8 {
        self as u8
    }
}

/// A text that is no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown action '{}'; actions are kill, term, deny and notify", human::escaped(.0))]
pub struct UnknownAction(pub String);

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        Self::ALL
            .into_iter()
            .find(|action| action.text() == text)
            .ok_or_else(|| UnknownAction(String::from(text)))
    }
}

/// Where an account's line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Set with `plimsoll limit set`, kept in the state folder.
    State,
    /// Set in the configuration.
    Config,
}

#[cfg(test)]
mod tests;
