//! The history: one store of incidents, which a thread of its own writes and everybody's queries read.
//!
//! An incident is on the disk before its note in [`PinnedNotes`] is let go of: what a daemon that dies has not written
//! the next one does. Each account has a share of the store, and one that has more gives up its own oldest. Everything slow
//! happens on the thread, behind a bounded queue: whoever records an incident never waits, and what finds the queue full is
//! counted. What the disk refuses is tried again each second, and waits in the queue meanwhile. With nothing to record, the
//! thread sleeps without waking up.

use self::{shared::Shared, store::StoreError};
use crate::state::StateError;
use plimsoll_policy::incident::Incident;
use std::{
    fs::{self, File},
    path::Path,
    sync::{Arc, mpsc},
    time::{SystemTime, UNIX_EPOCH},
};

mod entry;
mod error;
mod hearer;
mod import;
mod notes;
mod reader;
mod shared;
mod store;
mod writer;

pub use entry::Outcome;
pub use error::HistoryError;
pub use hearer::Hearer;
pub use notes::PinnedNotes;
pub(crate) use notes::{Draft, Inheritance};
pub use reader::{PAGE_MAX, Pages, Query, Reader};
pub use shared::Caps;
#[cfg(test)]
pub(crate) use writer::Recorded;
pub use writer::{Counts, QUEUE_MAX, Writer};

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
    /// As [`History::open_with_notes`], where nothing outlives this process and nobody listens.
    ///
    /// # Errors
    /// As there.
    pub fn open(
        folder: &Path,
        caps: Caps,
        enrich: impl FnMut(&mut Incident) + Send + 'static,
    ) -> Result<Self, HistoryError> {
        Self::open_with_notes(folder, caps, None, enrich, |_| {})
    }

    /// Opens the store in the state folder, which is made where it is missing, and starts the thread. With pinned notes, what
    /// is recorded and not written yet outlives this process. A disk that refuses is no error: incidents wait until it does
    /// not.
    ///
    /// `hearer` hears on the thread of each incident before it is written; `say` is called with a line whenever something
    /// begins to go wrong, or is well again.
    ///
    /// # Errors
    /// [`HistoryError`]: somebody else owns a file, another daemon writes it, or a newer Plimsoll wrote it. The files are left
    /// as they were.
    pub fn open_with_notes(
        folder: &Path,
        caps: Caps,
        notes: Option<PinnedNotes>,
        hearer: impl Hearer,
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
        // An empty one beside one that was set aside was not filled from it: a daemon died in between.
        let next = next.filter(|next| *next > 1 || !store::was_set_aside(&path));
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
            dropped: 0,
            caps,
            shared: Arc::clone(&shared),
            receiver,
            hearer: Box::new(hearer),
            say: Box::new(say),
        })
        .map_err(HistoryError::io("start the thread that writes", folder))?;
        let reader = Reader::new(path, Arc::clone(&shared), sender.clone());
        let writer = Writer::new(sender, shared, notes);
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

#[cfg(test)]
mod tests;
