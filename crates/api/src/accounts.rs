//! What `limit show --json` prints and `status --json` has of accounts, and what the clients read back.
//!
//! Fields may be added, not renamed. `null` is 'not known', never 0.

use plimsoll_policy::{
    account::{Account, Action, Source},
    lines::Target,
    size::Size,
    units::{Pid, Uid},
};
use serde::{Deserialize, Serialize};

/// A file of shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFileView {
    /// What it is called.
    pub name: String,
    /// In memory and swapped out.
    pub bytes: u64,
}

/// An account that is near its line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearView {
    /// The account.
    pub account: Account,
    /// Charged a moment ago.
    pub usage_bytes: u64,
    /// The line in force.
    pub hard_bytes: u64,
    /// Until the line, as usage grew in the last ten seconds; `None`: it did not.
    pub seconds_left: Option<u64>,
}

/// One account as `status` and `limit show` tell it.
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
    /// Of the usage, shared memory that the user owns; `None`: not charged.
    #[serde(default)]
    pub shared_bytes: Option<u64>,
    /// The largest files of shared memory for which nobody is killed, the largest first.
    #[serde(default)]
    pub shared_files: Vec<SharedFileView>,
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
    /// Processes (address spaces) charged to it; of a cgroup those that are in it and below it, of the machine all.
    pub processes: u64,
    /// Where the line comes from.
    pub source: Source,
    /// What the line was drawn for: this user, a group they are in, `default`, this cgroup, or the machine.
    #[serde(default)]
    pub target: Option<Target>,
    /// Who drew it: root, or the user.
    #[serde(default)]
    pub set_by: Option<Uid>,
    /// Of a job: what it is apart from its account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// Of a strict job: what counts below its line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<StrictView>,
    /// What else is to be known of it, as a sentence without its full stop: that there is no such cgroup.
    #[serde(default)]
    pub note: Option<String>,
    /// Its processes, where they were asked for; filled in by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_list: Option<Vec<ProcessView>>,
    /// How many more there are than are in that list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_list_more: Option<u64>,
}

/// What counts below the line of a strict job: not what it has touched, but what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrictView {
    /// What its address spaces may write to and nobody else sees. It may have given some of it back since it asked last.
    pub committed_bytes: u64,
    /// The most that was.
    pub peak_bytes: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// A job, as lists of accounts tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Who started it.
    pub uid: Uid,
    /// The job that it was started in.
    pub outer: Option<Account>,
    /// The process that it began with. `None`: it has ended, or is not known.
    pub pid: Option<Pid>,
    /// The start of that process since boot in nanoseconds.
    #[serde(default)]
    pub start_ns: Option<u64>,
    /// How many processes it has left behind: none while it is there. `None`: whether it is there is not known.
    pub orphans: Option<u64>,
    /// What is promised to it.
    #[serde(default)]
    pub promised_bytes: Option<u64>,
    /// It waits for its turn: its program has not begun.
    #[serde(default)]
    pub waits: bool,
}

impl JobView {
    /// Whether it is there, with so many processes, and is not only listed still.
    #[must_use]
    pub const fn is_there(&self, processes: u64) -> bool {
        self.pid.is_some() || self.orphans.is_none() || processes > 0
    }
}

/// A process of an account, with what it holds by the kernel's counters: what every CPU keeps to itself is added, which `/proc`
/// may leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Its number.
    pub pid: Pid,
    /// Its start since boot in nanoseconds.
    pub start_ns: u64,
    /// Its real uid.
    pub uid: Uid,
    /// Its name, which it chose.
    pub comm: String,
    /// What a user's line is charged for it alone, as its last event or a walk left it. What it shares since a fork is charged
    /// once, for all who share it, and so is shared memory. `None`: another line.
    pub charged_bytes: Option<u64>,
    /// Anonymous memory in RAM.
    pub anon_bytes: u64,
    /// Anonymous memory in swap.
    pub swap_bytes: u64,
    /// Shared memory that it has mapped (shmem, tmpfs, memfd).
    pub shared_bytes: u64,
    /// Of files that it has mapped, what is in RAM.
    pub file_bytes: u64,
    /// How far each of these may be off; 0: they are exact.
    pub error_bytes: u64,
}

/// The processes of one account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountProcesses {
    /// The account.
    pub account: Account,
    /// The largest first.
    pub processes: Vec<ProcessView>,
    /// How many more there are, which the asker may see.
    pub more: u64,
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
