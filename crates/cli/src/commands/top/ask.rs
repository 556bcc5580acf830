//! What the daemon is asked: its state once in an interval, and besides only what is on the screen.

use crate::{
    commands::{history, status::follow::incidents},
    names::Names,
};
use plimsoll_api::{
    accounts::AccountProcesses,
    client::{CallError, Client},
    message::{GetIncident, HistoryCall, HistoryPage},
    protect::ProtectView,
    status::Status,
};
use plimsoll_policy::{account::Account, incident::Incident, lines::Target};
use plimsoll_report::story::{Reader, story};
use std::time::{Duration, Instant};

/// So many processes of an account are asked for.
const PROCESSES: u64 = 200;

/// What is on the screen besides the state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    /// The processes of this account.
    pub(super) processes_of: Option<Account>,
    /// The page of incidents before this one.
    pub(super) older_than: Option<u64>,
    /// The story of this incident.
    pub(super) story_of: Option<u64>,
}

/// An incident, and whose it is by name.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) incident: Incident,
    pub(super) whose: String,
}

/// A page of incidents.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    /// What it was the page before; `None`: the newest.
    pub(super) before: Option<u64>,
    /// What the next page is before; `None`: there is none.
    pub(super) next: Option<u64>,
}

/// What was answered. `None`: not asked, or refused.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    /// With the names of accounts.
    pub(super) status: Option<Status>,
    pub(super) held: Option<ProtectView>,
    pub(super) processes: Option<AccountProcesses>,
    pub(super) pages: Vec<Page>,
    pub(super) story: Option<(u64, String)>,
}

/// Who asks, in the feed's thread: names are looked up here, too, which can take long.
#[derive(Debug)]
pub(super) struct Asker {
    interval: Duration,
    names: Names,
    /// When the state was last told.
    told: Option<Instant>,
    /// How many incidents there were then, and the last.
    seen: Option<(u64, Option<u64>)>,
}

impl Asker {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, names: Names::default(), told: None, seen: None }
    }

    /// Asks what is due, and what is wanted.
    pub(super) fn ask(&mut self, client: &mut Client, wanted: &Wanted) -> Result<News, CallError> {
        let answer = self.collect(client, wanted);
        if answer.is_err() {
            (self.told, self.seen) = (None, None);
        }
        answer
    }

    fn collect(&mut self, client: &mut Client, wanted: &Wanted) -> Result<News, CallError> {
        let mut news = News::default();
        if self.told.is_none_or(|told| told.elapsed() >= self.interval) {
            let status = client.status()?;
            if status.guards.workingset.as_ref().is_some_and(|guard| guard.state != "off") {
                news.held = granted(client.show_protection(Some(0)))?;
            }
            let seen = incidents(&status);
            if self.seen != Some(seen) {
                news.pages.extend(self.page(client, None)?);
            }
            (self.told, self.seen) = (Some(Instant::now()), Some(seen));
            news.status = Some(self.names.fill_in_status(status));
        }
        if let Some(account) = &wanted.processes_of {
            let found = granted(client.show_processes(Some(target(account)), Some(PROCESSES)))?;
            news.processes = found.and_then(|found| found.into_iter().find(|of| of.account == *account));
        }
        if let Some(before) = wanted.older_than {
            news.pages.extend(self.page(client, Some(before))?);
        }
        if let Some(id) = wanted.story_of {
            let found = granted(client.incident(GetIncident { id: Some(id), pid: None }))?;
            news.story = found.map(|incident| {
                let name = incident.account.as_ref().and_then(|account| self.names.of(account));
                (id, story(&incident, name.as_deref(), Reader::User))
            });
        }
        Ok(news)
    }

    fn page(&mut self, client: &mut Client, before: Option<u64>) -> Result<Option<Page>, CallError> {
        let page = granted(client.history_page(HistoryCall { since: None, before_id: before, limit: None }))?;
        Ok(page.map(|HistoryPage { incidents, next_before_id: next }| {
            let row = |incident: Incident| {
                let whose = history::whose(incident.account.as_ref(), &mut self.names);
                Row { incident, whose }
            };
            Page { rows: incidents.into_iter().map(row).collect(), before, next }
        }))
    }
}

/// One part that is refused is no reason to show nothing; a daemon that does not answer is.
fn granted<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ (CallError::NotRunning { .. } | CallError::NoAnswer { .. })) => Err(error),
        Err(
            CallError::NotPermitted(_)
            | CallError::Invalid(_)
            | CallError::NotFound(_)
            | CallError::Busy(_)
            | CallError::Refused(_),
        ) => Ok(None),
    }
}

fn target(account: &Account) -> Target {
    match account {
        Account::User(uid) => Target::User(*uid),
        Account::Group(gid) => Target::Group(*gid),
        Account::Job(id) => Target::Job(*id),
        Account::Cgroup(path) => Target::Cgroup(path.clone()),
        Account::System => Target::System,
    }
}
