//! Queries, answered from the store on the caller's thread.
//!
//! They take turns at one connection, and none keeps a transaction open when it has its page: the write-ahead log is never
//! held.

use super::{
    HistoryError,
    shared::{Gate, Shared},
    store,
    writer::Message,
};
use jiff::Timestamp;
use plimsoll_policy::{incident::Incident, units::Pid};
use rusqlite::Connection;
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    time::{Duration, Instant},
};

/// The most incidents that one query returns: what bounds the memory of a caller that goes page by page.
pub const PAGE_MAX: usize = 256;

/// How long a query waits for a store that is being made ready: to take in 100,000 incidents takes a few seconds.
const GATE_WAIT: Duration = Duration::from_secs(10);

/// Which incidents. Times decide where to begin; from there on all ids follow, whatever the clock did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query {
    /// None before the first one at or after this time.
    pub since: Option<Timestamp>,
    /// Only larger ids.
    pub after_id: u64,
    /// Only smaller ids.
    pub before_id: Option<u64>,
    /// At most so many, the newest of them; never more than [`PAGE_MAX`].
    pub limit: usize,
}

/// Answers queries. Its connection is opened by the first one and stays open until [`Reader::close`].
#[derive(Debug, Clone)]
pub struct Reader {
    path: PathBuf,
    shared: Arc<Shared>,
    sender: SyncSender<Message>,
}

impl Reader {
    pub(super) const fn new(path: PathBuf, shared: Arc<Shared>, sender: SyncSender<Message>) -> Self {
        Self { path, shared, sender }
    }

    /// The newest incidents of those asked for, oldest first, without their courses.
    ///
    /// # Errors
    /// [`HistoryError::Building`], [`HistoryError::Closed`] or [`HistoryError::Database`].
    pub fn query(&self, query: &Query) -> Result<Vec<Incident>, HistoryError> {
        let range = store::Range {
            after: i64::try_from(query.after_id).unwrap_or(i64::MAX),
            before: query.before_id.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX)),
            since_us: query.since.map(Timestamp::as_microsecond),
        };
        self.ask(|connection| store::newest(connection, range, query.limit.min(PAGE_MAX)))
    }

    /// All incidents since a time, oldest first, without their courses, in pages of at most `page` ([`PAGE_MAX`] at most).
    #[must_use]
    pub const fn pages(&self, since: Option<Timestamp>, page: usize) -> Pages<'_> {
        Pages { reader: self, since, page, after: Some(0) }
    }

    /// One incident, with its course.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn by_id(&self, id: u64) -> Result<Option<Incident>, HistoryError> {
        self.ask(|connection| store::by_id(connection, id))
    }

    /// The newest incident, with its course.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn last(&self) -> Result<Option<Incident>, HistoryError> {
        self.ask(store::last)
    }

    /// The newest incident that has this process among its victims, with its course.
    ///
    /// # Errors
    /// As [`Reader::query`].
    pub fn by_pid(&self, pid: Pid) -> Result<Option<Incident>, HistoryError> {
        self.ask(|connection| store::by_pid(connection, pid))
    }

    /// Waits until incidents were committed, or something else was new, since `known` was returned, but no longer than so; a
    /// number to ask with again. Without `known` it is told at once.
    #[must_use]
    pub fn await_news(&self, known: Option<u64>, within: Duration) -> u64 {
        self.shared.await_news(known, within)
    }

    /// Closes the connection and frees its cache; the next query opens it again.
    pub fn close(&self) {
        if let Gate::Open(connection) = &mut *self.shared.gate() {
            *connection = None;
        }
    }

    fn ask<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, HistoryError> {
        let deadline = Instant::now() + GATE_WAIT;
        let mut gate = self.shared.gate();
        loop {
            match &mut *gate {
                Gate::Closed => return Err(HistoryError::Closed),
                Gate::Open(connection) => {
                    return Self::ask_through(connection, &self.path, query)
                        .map_err(|error| self.refused(error));
                }
                Gate::Building => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HistoryError::Building);
            }
            gate = match self.shared.gate_moved.wait_timeout(gate, left) {
                Ok((gate, _)) => gate,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn ask_through<T>(
        slot: &mut Option<Connection>,
        path: &std::path::Path,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = match slot.take() {
            Some(connection) => connection,
            None => store::connect_to_read(path)?,
        };
        query(slot.insert(connection))
    }

    /// Has a damaged file set aside. The gate is held, so that it is still the one that was asked.
    fn refused(&self, error: rusqlite::Error) -> HistoryError {
        if !store::is_damage(&error) {
            return HistoryError::Database(error);
        }
        let seen = Message::Damaged(self.shared.counters.set_aside.load(Ordering::Relaxed));
        // A queue that is full now means that the writing thread is about to meet the damage itself.
        match self.sender.try_send(seen) {
            Ok(()) | Err(_) => HistoryError::Building,
        }
    }
}

/// Pages of incidents, oldest first. Ends after an error.
#[derive(Debug)]
pub struct Pages<'a> {
    reader: &'a Reader,
    since: Option<Timestamp>,
    page: usize,
    after: Option<i64>,
}

impl Iterator for Pages<'_> {
    type Item = Result<Vec<Incident>, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = store::Range {
            after: self.after?,
            before: i64::MAX,
            since_us: self.since.map(Timestamp::as_microsecond),
        };
        let limit = self.page.clamp(1, PAGE_MAX);
        let found = self.reader.ask(|connection| store::oldest(connection, range, limit));
        // The page after the last is not asked for; an error ends it.
        self.after = match &found {
            Ok(page) if page.len() == limit => page.last().and_then(|last| i64::try_from(last.id).ok()),
            Ok(_) | Err(_) => None,
        };
        match found {
            Ok(page) if page.is_empty() => None,
            other => Some(other),
        }
    }
}
