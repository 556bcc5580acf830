//! What the control API asks of the daemon. The event loop implements it; the server knows nothing else of the daemon.

use super::peer::Peer;
use jiff::Timestamp;
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, DefaultView, GroupView, NearView},
    message::StartJobReply,
    protect::ProtectView,
    status::Status,
};
use plimsoll_policy::{
    account::Account,
    incident::Incident,
    lines::{Cleared, Line, LineBook, Target, UidRange},
    size::Size,
    units::{Bytes, Gid, PageSize, Pid, Uid},
    workingset::TunableChange,
};
use std::{sync::Arc, time::Duration};

/// Why a call was not carried out. The texts are for the user: one line each, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The peer may not.
    #[error("{0}")]
    NotPermitted(String),
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// Not now: starting, stopping, too busy.
    #[error("{0}")]
    Unavailable(String),
    /// It failed inside.
    #[error("{0}")]
    Internal(String),
}

/// What permission depends on besides the peer, as it stands now.
#[derive(Debug, Clone)]
pub struct Standing {
    /// All lines.
    pub book: Arc<LineBook>,
    /// The machine's RAM (`MemTotal`).
    pub mem_total: Bytes,
    /// The machine's page size.
    pub page_size: PageSize,
}

/// A line to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLimit {
    /// For whom.
    pub target: Target,
    /// The line, as it was asked for.
    pub line: Line,
    /// Enforce it at once, even below present usage.
    pub now: bool,
}

/// A job to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartJob {
    /// What its user calls it.
    pub name: Option<String>,
    /// Its line; `None`: it is counted only.
    pub line: Option<Line>,
    /// So much is to be promised to it.
    pub reserve: Option<Size>,
}

/// Which processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Of which accounts.
    pub accounts: Vec<Account>,
    /// Of an account that is no user's only this user's; `None`: all.
    pub only_of: Option<Uid>,
    /// How many of each account at most.
    pub most: usize,
}

/// Which incidents: the newest `limit` of those that all other fields admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryQuery {
    /// Not before this moment.
    pub since: Option<Timestamp>,
    /// Only those with a larger id.
    pub after_id: u64,
    /// Only those with a smaller id: the page before one already read.
    pub before_id: Option<u64>,
    /// How many at most; 1 to [`super::plimsoll::PAGE_INCIDENTS`] plus one.
    pub limit: usize,
}

/// One incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// By its number.
    Id(u64),
    /// The newest.
    Last,
    /// The newest with this process among its victims.
    Pid(Pid),
}

/// The daemon behind the socket.
///
/// Calls come from connection threads, several at a time. Each must return within a few seconds, and none may hold up
/// the kill path. The server has asked [`plimsoll_policy::permission::may`] before it calls anything but
/// [`Control::standing`], and redacts what is returned; the peer is passed on for the record only.
pub trait Control: Send + Sync + 'static {
    /// The lines, for the question of permission. A line changed between this answer and the change it permits does no
    /// harm: a user's own line never loosens the administrator's, whatever the book holds when it is resolved.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] while starting or stopping.
    fn standing(&self) -> Result<Standing, Refusal>;

    /// Everything, with all accounts.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn status(&self, peer: Peer) -> Result<Status, Refusal>;

    /// Accounts with a line: all, or one (none or one).
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn limits(&self, peer: Peer, only: Option<&Account>) -> Result<Vec<AccountView>, Refusal>;

    /// The processes of accounts, an answer for each.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn processes(&self, peer: Peer, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal>;

    /// The users that run something now, those to whom `/etc/subuid` gives no owner first.
    fn running(&self) -> Vec<Uid>;

    /// Draws a line and saves it. All of it has happened, or nothing has.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for what [`plimsoll_policy::lines::validate`] refuses; any other [`Refusal`].
    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal>;

    /// Removes a line and saves that.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal>;

    /// What of a CPU the guard has spent on what it was asked for.
    fn guard_time(&self) -> Duration {
        Duration::ZERO
    }

    /// What may take its time before a job is started, and is not to hold up others who start one.
    fn before_start(&self) {}

    /// Starts a job, with the peer's process in it. All of it has happened, or nothing has.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for what [`plimsoll_policy::lines::validate`] refuses, [`Refusal::NotFound`] where the process is
    /// gone; any other [`Refusal`].
    fn start_job(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal>;

    /// What is kept in memory, with everything in it.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn protection(&self, peer: Peer) -> Result<ProtectView, Refusal>;

    /// Changes tunables and saves them. All of it has happened, or nothing has.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn set_protection(&self, peer: Peer, changes: &[TunableChange]) -> Result<(), Refusal>;

    /// Has a process freed that was sent SIGKILL, if it is the peer's: whose it is, is known only once it is held. Whether it
    /// was taken.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::NotPermitted`], or any other [`Refusal`].
    fn expedite(&self, peer: Peer, pid: Pid, start_ns: u64) -> Result<bool, Refusal>;

    /// A page of incidents, oldest first.
    ///
    /// # Errors
    /// Any [`Refusal`].
    fn history(&self, peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal>;

    /// Waits until incidents were recorded, or accounts may have come near their line, since `known` was returned, but no
    /// longer than so; a number to ask with again. Without `known` it is told at once.
    fn await_news(&self, known: Option<u64>, within: Duration) -> u64;

    /// The accounts that are near their line.
    fn near(&self) -> Vec<NearView>;

    /// One incident.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], or any other [`Refusal`].
    fn incident(&self, peer: Peer, pick: Pick) -> Result<Incident, Refusal>;
}

/// The `default` line, as far as no process has to be looked at; `None` where there is none.
#[must_use]
pub fn default_view(standing: &Standing) -> Option<DefaultView> {
    let Standing { book, mem_total, page_size } = standing;
    let resolved = book.resolve_default(*mem_total, *page_size)?;
    let (line, source) = book.administrators(&Target::Default)?;
    let UidRange { min, max } = book.range();
    Some(DefaultView {
        hard: line.hard,
        hard_bytes: page_size.to_bytes(resolved.hard).0,
        soft_bytes: page_size.to_bytes(resolved.soft).0,
        action: resolved.action,
        source,
        uid_min: min.0,
        uid_max: max.0,
        uncovered: Vec::new(),
    })
}

/// The line of a group as `limit show` tells it; `None` where there is none.
#[must_use]
pub fn group_view(standing: &Standing, gid: Gid) -> Option<GroupView> {
    let Standing { book, mem_total, page_size } = standing;
    let account = Target::Members(gid);
    let resolved = book.resolve_target(&account, *mem_total, *page_size)?;
    let membership = book.membership(gid);
    let known = membership.map_or(0, |membership| membership.uids.len());
    Some(GroupView {
        account,
        name: None,
        hard_bytes: page_size.to_bytes(resolved.hard).0,
        soft_bytes: page_size.to_bytes(resolved.soft).0,
        action: resolved.action,
        source: resolved.source,
        members: u64::try_from(known).unwrap_or(u64::MAX),
        doubt: match membership {
            Some(membership) => membership.doubt.clone(),
            None => Some("its members have not been looked for yet".to_owned()),
        },
    })
}
