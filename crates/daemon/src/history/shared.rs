//! What the thread that writes, those who record and those who ask have in common.

use crate::config;
use std::{
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The file of the store; its write-ahead log beside it takes some MiB more at most.
    pub max_bytes: u64,
    /// Older incidents are forgotten when the next one is recorded, or at the next start.
    pub max_age: Duration,
    /// Of more than this the oldest of the account that has most are forgotten.
    pub max_incidents: u64,
}

impl From<&config::History> for Caps {
    fn from(configured: &config::History) -> Self {
        Self {
            max_bytes: configured.max_bytes.0,
            max_age: Duration::from_secs(u64::from(configured.max_age_days).saturating_mul(86_400)),
            max_incidents: configured.max_incidents,
        }
    }
}

/// What the reader may do now.
#[derive(Debug, Default)]
pub(super) enum Gate {
    /// Nothing: the file is being made or replaced.
    #[default]
    Building,
    /// Query, with the connection that is open, if one is.
    Open(Option<rusqlite::Connection>),
    /// Nothing any more.
    Closed,
}

/// What the writing thread, the writers and the readers have in common.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) gate: Mutex<Gate>,
    pub(super) gate_moved: Condvar,
    /// How often there was something new.
    news: Mutex<u64>,
    told: Condvar,
    pub(super) counters: Counters,
    pub(super) last_error: Mutex<Option<String>>,
}

impl Shared {
    /// A panic elsewhere leaves the gate in one of its states, each of which is sound.
    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a query that is running, closes the reader's connection, and changes the gate.
    pub(super) fn move_gate(&self, to: Gate) {
        *self.gate() = to;
        self.gate_moved.notify_all();
    }

    /// Incidents are in the store that were not there before, or something else is new.
    pub(super) fn tell_news(&self) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        *news = news.wrapping_add(1);
        self.told.notify_all();
    }

    /// Waits until that happened since `known` was returned, but no longer than so; how often it has. Without `known` at once.
    pub(super) fn await_news(&self, known: Option<u64>, within: Duration) -> u64 {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(news, within, |news| known == Some(*news));
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn remember(&self, error: &dyn fmt::Display) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

/// See [`super::Counts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Traces in the queue.
    pub(super) traces: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) unwritten: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) unmatched: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) set_aside: AtomicU64,
    /// 0: none yet.
    pub(super) commit_last_ns: AtomicU64,
    pub(super) commit_longest_ns: AtomicU64,
}
