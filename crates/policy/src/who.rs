//! Whose line, as it is written on the command line: `alice`, `1000`, `default`, `@staff`, `group:staff`, `job:7`,
//! `cgroup:/x`, `system`.
//!
//! Names are resolved by the client; the daemon is only ever given a uid, a gid or `default`.

use crate::{
    account::{CgroupPath, CgroupPathError},
    human,
    units::{Gid, JobId, Uid},
};
use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};

/// The longest name accepted, in bytes: Linux's `LOGIN_NAME_MAX` is 256 with the final zero.
const NAME_BYTES_MAX: usize = 255;

/// WHO of `limit set WHO ...`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Who {
    /// A user by name.
    User(String),
    /// A user by number.
    Uid(Uid),
    /// Every user without a line of their own.
    Default,
    /// Each member of a group, by the group's name.
    Members(String),
    /// Each member of a group, by the group's number.
    MembersOf(Gid),
    /// All members of a group together, by its name.
    Group(String),
    /// All members of a group together, by its number.
    Gid(Gid),
    /// A job started by `plimsoll run`.
    Job(JobId),
    /// A cgroup by path.
    Cgroup(CgroupPath),
    /// All programs of the machine.
    System,
}

/// Why a text names nobody. Displays as one line that names the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhoError {
    /// Nothing was given.
    #[error(
        "nobody named; give a user name, a uid, @group, group:NAME, job:ID, cgroup:PATH, 'default' or 'system'"
    )]
    Empty,
    /// A number that is no uid: it does not fit 32 bits, or is 4294967295, which the kernel uses for 'none'.
    #[error("uid '{}' is out of range; uids go from 0 to 4294967294", human::escaped(.0))]
    UidRange(String),
    /// A number that is no gid, for the same reasons.
    #[error("gid '{}' is out of range; gids go from 0 to 4294967294", human::escaped(.0))]
    GidRange(String),
    /// No cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupPathError),
    /// Not a name that an account could have.
    #[error("'{}' is no user name, uid, @group, group:NAME, job:ID, cgroup:PATH, 'default' or 'system'", human::escaped(.0))]
    Malformed(String),
}

impl FromStr for Who {
    type Err = WhoError;

    fn from_str(text: &str) -> Result<Self, WhoError> {
        match text {
            "" => return Err(WhoError::Empty),
            "default" => return Ok(Self::Default),
            "system" => return Ok(Self::System),
            _ => {}
        }
        if is_number(text) {
            return uid(text);
        }
        let found = if let Some(rest) = text.strip_prefix("user:") {
            if is_number(rest) {
                return uid(rest);
            }
            is_name(rest).then(|| Self::User(rest.to_string()))
        } else if let Some(rest) = text.strip_prefix('@') {
            if is_number(rest) {
                return gid(rest).map(Self::MembersOf);
            }
            is_name(rest).then(|| Self::Members(rest.to_string()))
        } else if let Some(rest) = text.strip_prefix("group:") {
            if is_number(rest) {
                return gid(rest).map(Self::Gid);
            }
            is_name(rest).then(|| Self::Group(rest.to_string()))
        } else if let Some(rest) = text.strip_prefix("job:") {
            number(rest).filter(|_| is_number(rest)).map(|number| Self::Job(JobId(number)))
        } else if let Some(rest) = text.strip_prefix("cgroup:") {
            return Ok(Self::Cgroup(rest.parse()?));
        } else {
            is_name(text).then(|| Self::User(text.to_string()))
        };
        found.ok_or_else(|| WhoError::Malformed(text.to_string()))
    }
}

impl fmt::Display for Who {
    /// As it is written; parses back to the same value. A user whose name is a word of ours gets `user:` in front.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) if name == "default" || name == "system" => write!(f, "user:{name}"),
            Self::User(name) => f.write_str(name),
            Self::Uid(uid) => uid.fmt(f),
            Self::Default => f.write_str("default"),
            Self::Members(name) => write!(f, "@{name}"),
            Self::MembersOf(gid) => write!(f, "@{gid}"),
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Gid(gid) => write!(f, "group:{gid}"),
            Self::Job(id) => write!(f, "job:{id}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::System => f.write_str("system"),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn uid(text: &str) -> Result<Who, WhoError> {
    number(text).map(|number| Who::Uid(Uid(number))).ok_or_else(|| WhoError::UidRange(text.to_string()))
}

fn gid(text: &str) -> Result<Gid, WhoError> {
    number(text).map(Gid).ok_or_else(|| WhoError::GidRange(text.to_string()))
}

/// The kernel uses 4294967295 for 'none'.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != u32::MAX)
}

/// Not shadow's strict pattern (directories have names with dots, spaces and other scripts), only what cannot be
/// mistaken: no control characters, no `:` or `/`, and no leading `-` or `@`.
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && !text.starts_with(['-', '@', ' '])
        && !text.ends_with(' ')
        && !text.contains(|c: char| c.is_control() || c == ':' || c == '/')
}

#[cfg(test)]
mod tests;
