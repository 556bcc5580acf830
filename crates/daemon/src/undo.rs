//! What is set on the machine and has to be put back. It is written to a file before it is set, so that the next daemon, or
//! `--stop-guarding`, can put it back.
//!
//! The same kind of file keeps which lines of cgroups are in force.
//!
//! Such a file outlives the daemon and not the boot: process numbers mean nothing after it, and the kernel and systemd have
//! their own settings again. So nothing is forced to the disk.

use crate::state::{StateError, put_file, read_ours};
use std::{fs, path::PathBuf};

/// What became of the settings that a daemon that is gone had made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leftovers {
    /// There were none.
    Nothing,
    /// All were put back that nobody else had changed.
    PutBack,
    /// Some are still as they were set, and why.
    Some(String),
}

/// A file of the state folder.
#[derive(Debug)]
pub(crate) struct UndoFile {
    folder: PathBuf,
    name: &'static str,
    /// The longest that is read, in bytes.
    bytes_max: u64,
    /// This boot's, which the content has to name.
    pub(crate) boot_id: String,
}

impl UndoFile {
    pub(crate) fn new(folder: PathBuf, name: &'static str, bytes_max: u64) -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { folder, name, bytes_max, boot_id: boot_id.trim().to_owned() }
    }

    /// What an earlier daemon left; `None` where there is no such file.
    ///
    /// # Errors
    /// [`StateError`]: it is not ours, or cannot be read.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, StateError> {
        read_ours(&self.path(), self.bytes_max)
    }

    /// Replaces it; `None` removes it.
    ///
    /// # Errors
    /// [`StateError`]: what is to be set next must not be set then.
    pub(crate) fn write(&self, content: Option<&[u8]>) -> Result<(), StateError> {
        put_file(&self.folder, self.name, content)
    }

    /// Its content makes no sense.
    pub(crate) fn corrupt(&self, reason: impl ToString) -> StateError {
        StateError::Corrupt { path: self.path(), reason: reason.to_string() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }
}
