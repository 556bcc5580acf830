//! What can be wrong with the history.

use crate::state::StateError;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use thiserror::Error;

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
    /// [`super::Writer::flush`] or [`super::Writer::close`] ran out of time.
    #[error("the history was not written within {} ms", .0.as_millis())]
    TooSlow(Duration),
    /// The thread that writes has ended.
    #[error("the history is closed")]
    Closed,
}

impl HistoryError {
    pub(super) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }
}
