//! What a line is drawn for, and what crossing it does.

use crate::{
    human,
    units::{Gid, JobId, Uid},
    victim::Signal,
};
use alloc::{
    string::{String, ToString},
    sync::Arc,
};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Serialize};

/// The longest cgroup path accepted, in bytes: Linux's `PATH_MAX` with the final zero.
const PATH_BYTES_MAX: usize = 4095;

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// All processes of one user, by real uid.
    User(Uid),
    /// All processes of all members of one group.
    Group(Gid),
    /// All processes of one job, but those that became another user's.
    Job(JobId),
    /// All that is charged to one cgroup and to those below it.
    Cgroup(CgroupPath),
    /// All programs of the machine.
    System,
}

impl Account {
    /// Whose it is, where it is a user's.
    #[must_use]
    pub const fn user(&self) -> Option<Uid> {
        match self {
            Self::User(uid) => Some(*uid),
            Self::Group(_) | Self::Job(_) | Self::Cgroup(_) | Self::System => None,
        }
    }

    /// The same, where the programs count it, event by event.
    #[must_use]
    pub const fn counted(&self) -> Option<Counted> {
        match self {
            Self::User(uid) => Some(Counted::User(*uid)),
            Self::Group(gid) => Some(Counted::Group(*gid)),
            Self::Job(id) => Some(Counted::Job(*id)),
            Self::Cgroup(_) | Self::System => None,
        }
    }
}

impl From<Uid> for Account {
    fn from(uid: Uid) -> Self {
        Self::User(uid)
    }
}

impl From<Counted> for Account {
    fn from(whose: Counted) -> Self {
        match whose {
            Counted::User(uid) => Self::User(uid),
            Counted::Group(gid) => Self::Group(gid),
            Counted::Job(id) => Self::Job(id),
        }
    }
}

/// Whose an account is that the programs count, event by event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// What a user's processes have is charged to it, in a job or not.
    User(Uid),
    /// What its members' accounts are charged is charged to it as well.
    Group(Gid),
    /// What the processes in it have is charged to it, and to its user's account as well.
    Job(JobId),
}

impl Counted {
    /// Whose it is, where it is a user's.
    #[must_use]
    pub const fn user(self) -> Option<Uid> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Group(_) | Self::Job(_) => None,
        }
    }
}

impl From<Gid> for Counted {
    fn from(gid: Gid) -> Self {
        Self::Group(gid)
    }
}

impl From<JobId> for Counted {
    fn from(id: JobId) -> Self {
        Self::Job(id)
    }
}

impl From<Uid> for Counted {
    fn from(uid: Uid) -> Self {
        Self::User(uid)
    }
}

impl fmt::Display for Counted {
    /// As [`Account`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Account::from(*self).fmt(f)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user:{uid}"),
            Self::Group(gid) => write!(f, "group:{gid}"),
            Self::Job(id) => write!(f, "job:{id}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::System => f.write_str("system"),
        }
    }
}

/// A cgroup below the root of its hierarchy, by path: `/machine.slice`. Whether there is one of that path is not asked.
/// Cloning it allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath(Arc<str>);

impl CgroupPath {
    /// From the root of the hierarchy, with a leading `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether another path is this one or below it.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.0.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no path of a cgroup that can have a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CgroupPathError {
    /// The root is no cgroup like others.
    #[error("the cgroup '/' is the whole machine; give 'system'")]
    Root,
    /// Not a path from the root, or one that could be written in another way.
    #[error("'{}' is no cgroup; write its path from /, without '//', '.' and '..'", human::escaped(.0))]
    Malformed(String),
}

impl FromStr for CgroupPath {
    type Err = CgroupPathError;

    /// One `/` at the end is left out. Names may hold anything but control characters.
    fn from_str(text: &str) -> Result<Self, CgroupPathError> {
        if text == "/" {
            return Err(CgroupPathError::Root);
        }
        let path = text.strip_suffix('/').unwrap_or(text);
        let mut names = path.split('/');
        let from_root = names.next() == Some("") && path.len() > 1;
        let plain = names.all(|name| !matches!(name, "" | "." | ".."));
        if from_root && plain && path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control) {
            Ok(Self(Arc::from(path)))
        } else {
            Err(CgroupPathError::Malformed(text.to_string()))
        }
    }
}

/// A text that is no account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown account '{}'", human::escaped(.0))]
pub struct UnknownAccount(pub String);

impl FromStr for Account {
    type Err = UnknownAccount;

    fn from_str(text: &str) -> Result<Self, UnknownAccount> {
        if text == "system" {
            return Ok(Self::System);
        }
        let user = || text.strip_prefix("user:")?.parse().ok().map(|uid| Self::User(Uid(uid)));
        let group = || text.strip_prefix("group:")?.parse().ok().map(|gid| Self::Group(Gid(gid)));
        let job = || text.strip_prefix("job:")?.parse().ok().map(|id| Self::Job(JobId(id)));
        let cgroup = || text.strip_prefix("cgroup:")?.parse().ok().map(Self::Cgroup);
        user().or_else(group).or_else(job).or_else(cgroup).ok_or_else(|| UnknownAccount(text.to_string()))
    }
}

as_text!(Account);

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
