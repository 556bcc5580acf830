//! The lines that are drawn, who drew them, and which one is in force for a user.
//!
//! Three places can hold a line for a user: the configuration and the state folder (the administrator's; state wins),
//! and the user's own, which only ever tightens one of those. A user's line comes before those of their groups, of which
//! the most generous counts, and these before the `default` line.

use crate::{
    account::{Account, Action, CgroupPath, Source},
    size::Size,
    units::{Bytes, Gid, JobId, PageSize, Pages, Uid},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, ops::RangeInclusive, str::FromStr};
use serde::{Deserialize, Serialize};

/// The smallest line that can be drawn, 64 KiB: the largest page Linux has, so that no line rounds down to 0 pages.
pub const HARD_BYTES_MIN: Bytes = Bytes(65_536);

/// A line as it was asked for; percentages stay percentages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The load line.
    pub hard: Size,
    /// Where the account is near; `None` is 90 % of the hard limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<Size>,
    /// What crossing does; `kill` where not given.
    #[serde(default = "kill")]
    pub action: Action,
}

const fn kill() -> Action {
    Action::Kill
}

/// Why a line is refused. Displays as one line that names the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A limit of 0.
    #[error("{limit} limit {size}: a line of 0 would kill every process; to remove a line use 'limit clear'")]
    Zero {
        /// `hard` or `soft`.
        limit: &'static str,
        /// As given.
        size: Size,
    },
    /// Too small to mean anything.
    #[error("hard limit {size}: less than {} bytes; give a larger size", HARD_BYTES_MIN)]
    TooSmall {
        /// As given.
        size: Size,
    },
    /// Above the machine's RAM, where it could never be crossed in time.
    #[error("{limit} limit {size}: more than this machine's RAM of {}; give at most \
     100%", crate::human::bytes(*.mem_total))]
    MoreThanRam {
        /// `hard` or `soft`.
        limit: &'static str,
        /// As given.
        size: Size,
        /// The machine's RAM.
        mem_total: Bytes,
    },
    /// The soft limit above the hard one.
    #[error("soft limit {soft}: above the hard limit {hard}; give at most the hard limit")]
    SoftAboveHard {
        /// As given.
        soft: Size,
        /// As given.
        hard: Size,
    },
    /// What is refused is refused to a job.
    #[error("action 'deny' is for jobs ('plimsoll run --strict'); use kill, term or notify")]
    DenyIsForJobs,
    /// Nothing is told of a strict job before it is refused memory.
    #[error("a strict job has no soft limit: it is told when memory is refused, and not before")]
    SoftOfStrict,
}

/// Whether a line can be drawn on a machine with `mem_total` of RAM; not a job's.
///
/// # Errors
/// As [`validate_for_job`]; [`LineError::DenyIsForJobs`].
pub fn validate(line: &Line, mem_total: Bytes) -> Result<(), LineError> {
    validate_for_job(line, mem_total)?;
    if line.action == Action::Deny { Err(LineError::DenyIsForJobs) } else { Ok(()) }
}

/// Whether a job's line can be drawn.
///
/// # Errors
/// [`LineError`] for 0, less than [`HARD_BYTES_MIN`], more than RAM, soft above hard, or a soft limit of a strict job.
pub fn validate_for_job(line: &Line, mem_total: Bytes) -> Result<(), LineError> {
    let hard = bounded("hard", line.hard, mem_total)?;
    if hard < HARD_BYTES_MIN {
        return Err(LineError::TooSmall { size: line.hard });
    }
    if let Some(soft) = line.soft
        && bounded("soft", soft, mem_total)? > hard
    {
        return Err(LineError::SoftAboveHard { soft, hard: line.hard });
    }
    if line.action == Action::Deny && line.soft.is_some() {
        return Err(LineError::SoftOfStrict);
    }
    Ok(())
}

fn bounded(limit: &'static str, size: Size, mem_total: Bytes) -> Result<Bytes, LineError> {
    let bytes = size.resolve(mem_total);
    if bytes == Bytes(0) {
        return Err(LineError::Zero { limit, size });
    }
    if bytes > mem_total {
        return Err(LineError::MoreThanRam { limit, size, mem_total });
    }
    Ok(bytes)
}

/// What a line is drawn for. Its text is `user:1000`, `@50`, `group:50`, `default`, `job:7`,
/// `cgroup:/machine.slice` or `system`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Every user of the range without a line of their own and without one of a group.
    Default,
    /// Each member of one group, for themselves: it is not shared.
    Members(Gid),
    /// One group: all its members together, besides what each may have.
    Group(Gid),
    /// One user.
    User(Uid),
    /// One job.
    Job(JobId),
    /// One cgroup, with those below it.
    Cgroup(CgroupPath),
    /// The machine.
    System,
}

impl Target {
    /// The account, where it has one that the kernel itself measures, as a whole: no event counts what it is charged.
    #[must_use]
    pub fn measured(&self) -> Option<Account> {
        match self {
            Self::Cgroup(path) => Some(Account::Cgroup(path.clone())),
            Self::System => Some(Account::System),
            Self::User(_) | Self::Members(_) | Self::Group(_) | Self::Job(_) | Self::Default => None,
        }
    }

    /// The group whose members it is for, each or all together.
    #[must_use]
    pub const fn gid(&self) -> Option<Gid> {
        match self {
            Self::Members(gid) | Self::Group(gid) => Some(*gid),
            Self::User(_) | Self::Job(_) | Self::Default | Self::Cgroup(_) | Self::System => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Members(gid) => write!(f, "@{gid}"),
            Self::Group(gid) => write!(f, "group:{gid}"),
            Self::User(uid) => write!(f, "user:{uid}"),
            Self::Job(id) => write!(f, "job:{id}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::System => f.write_str("system"),
        }
    }
}

/// A text that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is none of 'default', 'system', 'user:' and a uid, '@' or 'group:' and a gid, 'job:' and a number, 'cgroup:' \
     and a path",
    crate::human::escaped(.0)
)]
pub struct UnknownTarget(pub String);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        match text {
            "default" => return Ok(Self::Default),
            "system" => return Ok(Self::System),
            _ => {}
        }
        let number = |digits: &str| digits.parse().ok().filter(|number| *number != u32::MAX);
        let user = text.strip_prefix("user:").and_then(number).map(|uid| Self::User(Uid(uid)));
        let members = text.strip_prefix('@').and_then(number).map(|gid| Self::Members(Gid(gid)));
        let group = text.strip_prefix("group:").and_then(number).map(|gid| Self::Group(Gid(gid)));
        let job = text.strip_prefix("job:").and_then(number).map(|id| Self::Job(JobId(id)));
        let cgroup = || text.strip_prefix("cgroup:")?.parse().ok().map(Self::Cgroup);
        user.or(members).or(group).or(job).or_else(cgroup).ok_or_else(|| UnknownTarget(text.to_string()))
    }
}

as_text!(Target);

/// Where `limit set` puts a line, which is also who set it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Among the administrator's, in the state folder.
    Administrator(Target),
    /// A user's own.
    Own(Uid),
    /// With a job of this user's, for as long as it is there.
    Job(JobId, Uid),
}

impl Place {
    /// Where a line set by `peer` for `target` goes; `None` where that peer has no place for it
    /// ([`crate::permission::may`] refuses the same). That of a job is kept with the job.
    #[must_use]
    pub fn of(peer: Uid, target: Target) -> Option<Self> {
        match target {
            Target::Job(_) => None,
            _ if peer == Uid::ROOT => Some(Self::Administrator(target)),
            Target::User(uid) if uid == peer => Some(Self::Own(uid)),
            Target::User(_)
            | Target::Members(_)
            | Target::Group(_)
            | Target::Default
            | Target::Cgroup(_)
            | Target::System => None,
        }
    }

    /// Who set it.
    #[must_use]
    pub const fn set_by(&self) -> Uid {
        match self {
            Self::Administrator(_) => Uid::ROOT,
            Self::Own(uid) | Self::Job(_, uid) => *uid,
        }
    }

    /// What it is drawn for.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Administrator(target) => target.clone(),
            Self::Own(uid) => Target::User(*uid),
            Self::Job(id, _) => Target::Job(*id),
        }
    }
}

/// One line as the state file keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredLine {
    /// What it is drawn for.
    pub target: Target,
    /// Who set it: root for the administrator's, the user for their own.
    pub set_by: Uid,
    /// As typed.
    pub line: Line,
}

/// Uids that the `default` line applies to: `UID_MIN` and `UID_MAX` of login.defs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The lowest.
    pub min: Uid,
    /// The highest.
    pub max: Uid,
}

/// No person's, whatever `UID_MAX` says: systemd gives these to services for as long as they run (61184 to 65519,
/// `DynamicUser=`), 65534 is `nobody`, whom the kernel shows in the place of every uid that has no number here
/// (`kernel.overflowuid`), and 65535 is -1 in 16 bits.
pub const SERVICES: RangeInclusive<Uid> = Uid(61_184)..=Uid(65_535);

impl UidRange {
    /// Whether a uid is in it; one of [`SERVICES`] never is.
    #[must_use]
    pub fn contains(self, uid: Uid) -> bool {
        !SERVICES.contains(&uid) && (self.min..=self.max).contains(&uid)
    }

    /// Whether a uid is a person's by its number and not in it: those of a directory (LDAP, AD) are above
    /// [`UidRange::max`], and containers' are, too.
    #[must_use]
    pub fn leaves_out(self, uid: Uid) -> bool {
        !SERVICES.contains(&uid) && uid > self.max
    }
}

impl Default for UidRange {
    /// 1000 to 60000, as Debian, Ubuntu and Fedora ship login.defs.
    fn default() -> Self {
        Self { min: Uid(1000), max: Uid(60_000) }
    }
}

/// The line in force, in this machine's pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The hard limit, rounded down.
    pub hard: Pages,
    /// The soft limit, rounded down; at most `hard`.
    pub soft: Pages,
    /// What crossing does.
    pub action: Action,
    /// Where it is kept.
    pub source: Source,
    /// Whose it is: the administrator's for this user or for everybody, or the user's own.
    pub set_as: Place,
}

/// What is more than any machine can have, for whoever is counted and has no line: 2^46 pages.
pub const NO_LINE: Pages = Pages(1 << 46);

impl Resolved {
    /// For whoever is counted and has no line.
    #[must_use]
    pub fn none(source: Source) -> Self {
        let set_as = Place::Administrator(Target::Default);
        Self { hard: NO_LINE, soft: NO_LINE, action: Action::Notify, source, set_as }
    }

    /// Whether there is no line: the user is counted for the lines of groups, and has none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.hard == NO_LINE
    }
}

mod book;
mod jobs;
mod members;
mod turns;
pub use book::{Cleared, LineBook, MEASURED_LINES_MAX, OWN_LINES_MAX};
pub use jobs::{JOB_NAME_MAX, JOBS_MAX, Job, Jobs};
pub use members::{Answer, Members, Membership, renewed};
pub use turns::{Stand, Turns};

#[cfg(test)]
mod tests;
