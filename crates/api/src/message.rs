//! The parameters of each call and reply, as they travel. `io.plimsoll.varlink` describes the same; a test of
//! the daemon, which answers, holds the two together.

use crate::{
    accounts::{AccountProcesses, AccountView, DefaultView, GroupView, NearView},
    protect::ProtectView,
};
use jiff::Timestamp;
use plimsoll_policy::{
    account::{Account, Action},
    human,
    incident::Incident,
    lines::{Cleared, Target},
    size::Size,
    workingset::TunableChange,
};
use serde::{Deserialize, Deserializer, Serialize, de};

/// The interface's name.
pub const INTERFACE: &str = "io.plimsoll";

/// The interface's description, as `varlinkctl introspect` shows it.
pub const DESCRIPTION: &str = include_str!("io.plimsoll.varlink");

/// Parameters of a call without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parameters of `ShowLimits`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowLimits {
    /// One target; all that the caller may see where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Target>,
}

/// Parameters of `ShowProcesses`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowProcesses {
    /// As for [`ShowLimits`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Target>,
    /// How many of each account at most are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
}

/// What `ShowProcesses` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessesReply {
    /// Those of each account with a line.
    pub accounts: Vec<AccountProcesses>,
}

/// What `ShowLimits` and `SetLimit` answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Accounts with a line.
    pub accounts: Vec<AccountView>,
    /// Lines of groups.
    #[serde(default)]
    pub groups: Vec<GroupView>,
    /// The `default` line, where it was asked for and there is one.
    #[serde(default)]
    pub default: Option<DefaultView>,
}

/// Parameters of `SetLimit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimitCall {
    /// For whom.
    pub who: Target,
    /// The hard limit.
    pub hard: Size,
    /// The soft limit; 90 % of the hard one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<Size>,
    /// What crossing does; `kill` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Enforce it at once; `false` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<bool>,
}

/// Parameters of `ClearLimit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearLimitCall {
    /// Whose line.
    pub who: Target,
}

/// What `ClearLimit` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearLimitReply {
    /// What was found.
    pub result: Cleared,
}

/// Parameters of `StartJob`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartJobCall {
    /// What its user calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The hard limit; it is counted only where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<Size>,
    /// The soft limit; 90 % of the hard one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<Size>,
    /// What crossing does; `kill` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// So much is promised to it; where that cannot be done now, it waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
}

/// What `StartJob` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartJobReply {
    /// The job's.
    pub account: Account,
    /// Its line; `None`: it has none.
    #[serde(default)]
    pub hard_bytes: Option<u64>,
    /// Incidents of the job have this number or a higher one. `None`: an earlier version does not tell.
    #[serde(default)]
    pub next_incident_id: Option<u64>,
    /// It waits for its turn.
    #[serde(default)]
    pub waits: bool,
}

/// Parameters of `ShowProtection`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowProtection {
    /// How many files at most are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// Parameters of `SetProtection`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProtectionCall {
    /// `NAME=VALUE`, or `NAME=` for what the configuration says.
    pub settings: Vec<TunableChange>,
}

/// What `ShowProtection` and `SetProtection` answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionReply {
    /// What is kept in memory.
    pub protection: ProtectView,
}

/// Parameters of `Expedite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpediteCall {
    /// The process.
    pub pid: u32,
    /// Its start time since boot in nanoseconds, to the clock tick at least.
    pub start_ns: u64,
}

/// What `Expedite` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpediteReply {
    /// It was taken. `false`: it is not dying, or the share of its user, or of all, is used up, and it frees its memory itself.
    pub taken: bool,
}

/// Parameters of `History`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryCall {
    /// Not before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment")]
    pub since: Option<Timestamp>,
    /// Only those with a smaller id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_id: Option<u64>,
    /// How many at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// An RFC 3339 time, or `null`; the error names the text, which the parser's own does not.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let parsed = text.parse();
    parsed.map(Some).map_err(|error: jiff::Error| {
        de::Error::custom(format_args!(
            "time '{}': {error}; write 2026-11-21T08:00:00Z",
            human::escaped(&text)
        ))
    })
}

/// One page of incidents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Oldest first. May be empty although there are older pages: those in between are not for the caller's eyes.
    pub incidents: Vec<Incident>,
    /// `before_id` of the page before this one; `None` when there is none.
    #[serde(default)]
    pub next_before_id: Option<u64>,
}

/// Parameters of `AwaitIncident`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitIncident {
    /// One with a larger id; 0: any.
    pub after_id: u64,
    /// For so long, in milliseconds; 30,000 at most.
    pub within_ms: u64,
    /// Accounts that are known to be near their line. Another one that comes near ends the wait; left out, none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Vec<Account>>,
}

/// What `AwaitIncident` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitIncidentReply {
    /// Of the newest that the caller may see; `after_id` where none has come.
    pub newest_id: u64,
    /// The accounts that are near their line now.
    pub near: Vec<NearView>,
}

/// Parameters of `GetIncident`; without any, the newest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetIncident {
    /// By its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The newest with this process among its victims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What `GetIncident` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentReply {
    /// The incident.
    pub incident: Incident,
}
