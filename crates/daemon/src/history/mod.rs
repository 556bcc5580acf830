//! The history: incidents are appended to a plain log first, and a database built from it answers queries.
//!
//! Each account has a share of the log, and one that has more gives up its own oldest.
//!
//! The log is the truth. A database that is missing, damaged or of another schema is built again from it. Everything slow
//! happens on a thread of its own behind a bounded queue: whoever records an incident never waits, and what finds the
//! queue full is counted. With nothing to record, the thread sleeps without waking up.

use crate::{config, state::StateError};
use plimsoll_policy::incident::Incident;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicU64, mpsc},
    time::Duration,
};
use thiserror::Error;

mod journal;
mod log;
mod reader;
pub mod record;
mod share;
mod store;
mod writer;

pub use journal::Journal;
pub(crate) use journal::{Draft, Inheritance};
pub use log::Repaired;
pub use reader::{PAGE_MAX, Pages, Query, Reader};
pub use record::Outcome;
#[cfg(test)]
pub(crate) use writer::Recorded;
pub use writer::{Counts, QUEUE_MAX, Writer};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Both files of the log together; the database, which holds no more than they do, grows to about the same.
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

/// What is wrong with the history, as one line.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The state folder, or who owns a file in it.
    #[error(transparent)]
    State(#[from] StateError),
    /// A system call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another daemon writes it.
    #[error("{} is being written by another plimsoll daemon: stop it, or give this one a folder of its own with --state", path.display())]
    InUse {
        /// The log.
        path: PathBuf,
    },
    /// A newer Plimsoll wrote it.
    #[error("{} holds records of version {version}, this plimsoll knows {}, and was left as it is: install the newer plimsoll, or move the file away", path.display(), record::RECORD_VERSION)]
    Future {
        /// The log.
        path: PathBuf,
        /// The newer version.
        version: u64,
    },
    /// The database is being built again.
    #[error("the history database is being built from the log: ask again in a moment")]
    Building,
    /// The database could not be built.
    #[error(
        "the history database cannot be used ({reason}): incidents.log in the state folder holds the same records"
    )]
    Unusable {
        /// Why.
        reason: String,
    },
    /// A query failed.
    #[error("the history database cannot be read: {0}")]
    Query(#[source] rusqlite::Error),
    /// [`Writer::flush`] or [`Writer::close`] ran out of time.
    #[error("the history was not written within {} ms", .0.as_millis())]
    TooSlow(Duration),
    /// The thread that writes has ended.
    #[error("the history is closed")]
    Closed,
}

impl HistoryError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }
}

/// The opened history.
#[derive(Debug)]
pub struct History {
    /// For those who record.
    pub writer: Writer,
    /// For those who ask.
    pub reader: Reader,
    /// The id for the next incident; the caller counts on from here.
    pub next_id: u64,
    /// What was wrong with the log and was set right.
    pub repaired: Repaired,
}

impl History {
    /// Opens the log in the state folder, which is made where it is missing, and starts the thread. The database is
    /// opened, brought up to date or built on that thread; queries wait for it.
    ///
    /// `enrich` is called there with each incident before it is written: for what takes too long elsewhere.
    ///
    /// # Errors
    /// [`HistoryError`]; the files are left as they were.
    pub fn open(
        folder: &Path,
        caps: Caps,
        enrich: impl FnMut(&mut Incident) + Send + 'static,
    ) -> Result<Self, HistoryError> {
        Self::open_with_journal(folder, caps, None, enrich)
    }

    /// Likewise; with a journal, what is recorded and not written yet outlives this process.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn open_with_journal(
        folder: &Path,
        caps: Caps,
        journal: Option<Journal>,
        enrich: impl FnMut(&mut Incident) + Send + 'static,
    ) -> Result<Self, HistoryError> {
        crate::state::prepare_folder(folder)?;
        let log::OpenedLog { log, repaired, next_id } = log::Log::open(folder, caps.max_bytes)?;
        let (sender, receiver) = mpsc::sync_channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        writer::spawn(writer::Work {
            log,
            caps,
            shared: Arc::clone(&shared),
            receiver,
            enrich: Box::new(enrich),
        })
        .map_err(HistoryError::io("start the thread that writes", folder))?;
        let reader = Reader::new(store::path(folder), Arc::clone(&shared), sender.clone());
        Ok(Self { writer: Writer::new(sender, shared, journal), reader, next_id, repaired })
    }
}

/// What the reader may do now.
#[derive(Debug, Default)]
enum Gate {
    /// Nothing: the file is being made or replaced.
    #[default]
    Building,
    /// Query, with the connection that is open, if one is.
    Open(Option<rusqlite::Connection>),
    /// Nothing: it could not be made, for this reason.
    Failed(String),
}

/// What the writing thread, the writers and the readers have in common.
#[derive(Debug, Default)]
struct Shared {
    gate: Mutex<Gate>,
    gate_moved: Condvar,
    counters: Counters,
    last_error: Mutex<Option<String>>,
}

impl Shared {
    /// A panic elsewhere leaves the gate in one of its states, each of which is sound.
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a query that is running, closes the reader's connection, and changes the gate.
    fn move_gate(&self, to: Gate) {
        *self.gate() = to;
        self.gate_moved.notify_all();
    }

    /// Lets queries in; a connection that is open already stays so.
    fn open_gate(&self) {
        let mut gate = self.gate();
        if !matches!(*gate, Gate::Open(_)) {
            *gate = Gate::Open(None);
            self.gate_moved.notify_all();
        }
    }

    fn remember(&self, error: &dyn fmt::Display) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

/// See [`Counts`].
#[derive(Debug, Default)]
struct Counters {
    dropped: AtomicU64,
    unwritten: AtomicU64,
    unmatched: AtomicU64,
    undecodable: AtomicU64,
    log_errors: AtomicU64,
    database_errors: AtomicU64,
    rebuilds: AtomicU64,
}

#[cfg(test)]
mod tests;
