//! What a line is drawn for, and what is shown of it.

use crate::{human, lines::Target, size::Size, units::Uid};
use alloc::{format, string::String, vec::Vec};
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

/// What crossing a line does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Record it, do nothing.
    Notify,
    /// Refuse the allocation with ENOMEM.
    Deny,
    /// SIGTERM, then SIGKILL after a grace period.
    Term,
    /// SIGKILL.
    Kill,
}

impl Action {
    /// All of them, from the mildest to the strictest.
    pub const ALL: [Self; 4] = [Self::Notify, Self::Deny, Self::Term, Self::Kill];

    /// The word, as in the configuration and on the command line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::Deny => "deny",
            Self::Term => "term",
            Self::Kill => "kill",
        }
    }

    /// Where it stands from mild (0) to strict: a user's own line must not weaken the administrator's action.
    #[must_use]
    pub const fn strictness(self) -> u8 {
        match self {
            Self::Notify => 0,
            Self::Deny => 1,
            Self::Term => 2,
            Self::Kill => 3,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
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

/// One account as `status` and `limit show` tell it (DESIGN section 6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountView {
    /// The account.
    pub account: Account,
    /// The user's name, where it has one; filled in by the client.
    pub name: Option<String>,
    /// Charged now.
    pub usage_bytes: u64,
    /// Reserved and not yet touched.
    pub reserved_bytes: u64,
    /// The largest usage at or above the soft limit, or at a grant, since the line was drawn.
    #[serde(default)]
    pub peak_bytes: Option<u64>,
    /// The soft limit.
    pub soft_bytes: Option<u64>,
    /// The hard limit.
    pub hard_bytes: Option<u64>,
    /// The line in force: above `hard_bytes` while usage falls to a lowered line.
    pub effective_bytes: Option<u64>,
    /// What crossing does.
    pub action: Action,
    /// Usage is at or above the soft limit.
    pub near: bool,
    /// Processes (address spaces) charged to it.
    pub processes: u64,
    /// Where the line comes from.
    pub source: Source,
    /// What the line was drawn for: this user, a group they are in, or `default`.
    #[serde(default)]
    pub target: Option<Target>,
    /// Who drew it: root, or the user.
    #[serde(default)]
    pub set_by: Option<Uid>,
}

/// The line of a group, as `status` and `limit show` tell it. What it comes to for each member is in their accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The group, as a target.
    pub account: Target,
    /// The group's name, where it has one; filled in by the client.
    pub name: Option<String>,
    /// The hard limit of each member.
    pub hard_bytes: u64,
    /// The soft limit of each member.
    pub soft_bytes: u64,
    /// What crossing does.
    pub action: Action,
    /// Where the line comes from.
    pub source: Source,
    /// Members known, also those whom another line applies to.
    pub members: u64,
    /// Why members may be missing, or still be among them, as a sentence; `None`: all is known.
    pub doubt: Option<String>,
}

/// The `default` line, as `status` and `limit show` tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultView {
    /// As typed; a percentage stays one.
    pub hard: Size,
    /// The hard limit on this machine, in whole pages.
    pub hard_bytes: u64,
    /// The soft limit on this machine, in whole pages.
    pub soft_bytes: u64,
    /// What crossing does.
    pub action: Action,
    /// Where the line comes from.
    pub source: Source,
    /// The lowest uid that it is for.
    pub uid_min: u32,
    /// The highest uid that it is for.
    pub uid_max: u32,
    /// Whoever runs something, has a uid above `uid_max` and no line: those that the asker may see, and
    /// [`UNCOVERED_MAX`] at most. Containers' uids are among them.
    #[serde(default)]
    pub uncovered: Vec<UserView>,
}

/// How many users [`DefaultView::uncovered`] holds.
pub const UNCOVERED_MAX: usize = 256;

/// A user who has no account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// The user.
    pub uid: Uid,
    /// The user's name, where it has one; filled in by the client.
    pub name: Option<String>,
}

#[cfg(test)]
mod tests;
