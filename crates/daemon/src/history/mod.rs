//! The history: one store of incidents, which a thread of its own writes and everybody's queries read.
//!
//! An incident is on the disk before its note in the pinned [`Journal`] is let go of: what a daemon that dies has not written
//! the next one does. Each account has a share of the store, and one that has more gives up its own oldest. Everything slow
//! happens on the thread, behind a bounded queue: whoever records an incident never waits, and what finds the queue full is
//! counted. What the disk refuses is tried again each second, and waits in the queue meanwhile. With nothing to record, the
//! thread sleeps without waking up.

use self::store::StoreError;
use crate::{config, state::StateError};
use plimsoll_policy::incident::Incident;
use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicU64, mpsc},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thiserror::Error;

mod entry;
mod import;
mod journal;
mod reader;
mod store;
mod writer;

pub use entry::Outcome;
pub use journal::Journal;
pub(crate) use journal::{Draft, Inheritance};
pub use reader::{PAGE_MAX, Pages, Query, Reader};
#[cfg(test)]
pub(crate) use writer::Recorded;
pub use writer::{Counts, QUEUE_MAX, Writer};

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
        /// The state folder.
        path: PathBuf,
    },
    /// A newer Plimsoll wrote it.
    #[error("{} holds records of version {version}, this plimsoll knows {known}, and was left as it is: install the newer plimsoll, or move the file away", path.display())]
    Future {
        /// The file.
        path: PathBuf,
        /// The newer version.
        version: u64,
        /// The newest that this build reads.
        known: u64,
    },
    /// The store is being opened, or what could be read of a damaged one taken over.
    #[error("the history is being made ready: ask again in a moment")]
    Building,
    /// The store could not be read or written.
    #[error("cannot use the history: {0}")]
    Database(#[source] rusqlite::Error),
    /// An incident that can never be stored.
    #[error("incident {id} cannot be stored: {reason}")]
    Refused {
        /// Its number.
        id: u64,
        /// Why.
        reason: &'static str,
    },
    /// The disk refuses what is to be written. It waits, and is tried again.
    #[error("{0} records are not written: {1}")]
    Unwritten(u64, String),
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
    /// Every incident with a lower id that was ever recorded was written.
    pub written_below: u64,
}

impl History {
    /// As [`History::open_with_journal`], where nothing outlives this process and nobody listens.
    ///
    /// # Errors
    /// As there.
    pub fn open(
        folder: &Path,
        caps: Caps,
        enrich: impl FnMut(&mut Incident) + Send + 'static,
    ) -> Result<Self, HistoryError> {
        Self::open_with_journal(folder, caps, None, enrich, |_| {})
    }

    /// Opens the store in the state folder, which is made where it is missing, and starts the thread. With a journal, what
    /// is recorded and not written yet outlives this process. A disk that refuses is no error: incidents wait until it does
    /// not.
    ///
    /// `enrich` is called on the thread with each incident before it is written, for what takes too long elsewhere; `say`
    /// with a line whenever something begins to go wrong, or is well again.
    ///
    /// # Errors
    /// [`HistoryError`]: somebody else owns a file, another daemon writes it, or a newer Plimsoll wrote it. The files are left
    /// as they were.
    pub fn open_with_journal(
        folder: &Path,
        caps: Caps,
        journal: Option<Journal>,
        enrich: impl FnMut(&mut Incident) + Send + 'static,
        say: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, HistoryError> {
        crate::state::prepare_folder(folder)?;
        let lock = lock(folder)?;
        let older = match import::largest_id(folder) {
            Err(error) if is_final(&error) => return Err(error),
            older => older.ok(),
        };
        let store = match store::Store::open(folder) {
            Err(StoreError::Failed(error)) if is_final(&error) => return Err(error),
            store => store.ok(),
        };
        let path = store::path(folder);
        let next = store::connect_to_read(&path).and_then(|connection| store::next_id(&connection)).ok();
        let known = next.zip(older).map(|(next, older)| next.max(older.saturating_add(1)));
        // Ids go on rising where nobody can say which the last one was.
        let next_id = known.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs().max(1))
        });
        let (sender, receiver) = mpsc::sync_channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        writer::spawn(writer::Work {
            folder: folder.to_path_buf(),
            _lock: lock,
            store,
            last_id: next_id.saturating_sub(1),
            failing: false,
            caps,
            shared: Arc::clone(&shared),
            receiver,
            enrich: Box::new(enrich),
            say: Box::new(say),
        })
        .map_err(HistoryError::io("start the thread that writes", folder))?;
        let reader = Reader::new(path, Arc::clone(&shared), sender.clone());
        let writer = Writer::new(sender, shared, journal);
        Ok(Self { writer, reader, next_id, written_below: known.unwrap_or(0) })
    }
}

/// Whether a daemon must not start with it; a disk that refuses is none of these.
fn is_final(error: &HistoryError) -> bool {
    matches!(error, HistoryError::Future { .. })
        || matches!(error, HistoryError::State(error) if !matches!(error, StateError::Io { .. }))
}

/// Takes the folder for this process, as long as the file is open.
fn lock(folder: &Path) -> Result<File, HistoryError> {
    let file = File::open(folder).map_err(HistoryError::io("open", folder))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(HistoryError::InUse { path: folder.to_path_buf() }),
        Err(fs::TryLockError::Error(source)) => Err(HistoryError::io("lock", folder)(source)),
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
    /// Nothing any more.
    Closed,
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

    fn remember(&self, error: &dyn fmt::Display) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }
}

/// See [`Counts`].
#[derive(Debug, Default)]
struct Counters {
    dropped: AtomicU64,
    unwritten: AtomicU64,
    waiting: AtomicU64,
    unmatched: AtomicU64,
    errors: AtomicU64,
    set_aside: AtomicU64,
    /// 0: none yet.
    commit_last_ns: AtomicU64,
    commit_longest_ns: AtomicU64,
}

#[cfg(test)]
mod tests;
