//! What the next daemon of this boot has to know of this one: what is set on the machine and has to be put back, by it or by
//! `--stop-guarding`, which is written down before it is set; and which lines of cgroups are in force.
//!
//! Such a file does not outlive the boot: process numbers mean nothing after it, and the kernel and systemd have
//! their own settings again. So nothing is forced to the disk.

use crate::state::{StateError, put_file, read_ours};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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
pub(crate) struct BootFile {
    folder: PathBuf,
    name: &'static str,
    /// The longest that is read, in bytes.
    bytes_max: u64,
    /// This boot's, which the content has to name.
    pub(crate) boot_id: String,
}

/// The version of files that are in JSON.
const VERSION: u64 = 1;

/// What is in such a file.
#[derive(Serialize, Deserialize)]
struct Content<T> {
    version: u64,
    boot_id: String,
    #[serde(flatten)]
    kept: T,
}

impl BootFile {
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

    /// What a file in JSON keeps of this boot; `None` where there is no such file, or it is of an earlier boot.
    ///
    /// # Errors
    /// [`StateError`]: it is not ours, cannot be read, makes no sense, or is of a later version.
    pub(crate) fn read_json<T: DeserializeOwned>(&self) -> Result<Option<T>, StateError> {
        let Some(bytes) = self.read()? else { return Ok(None) };
        let content: Content<T> = serde_json::from_slice(&bytes).map_err(|error| self.corrupt(error))?;
        if content.version != VERSION {
            return Err(StateError::Future { path: self.path(), version: content.version, newest: VERSION });
        }
        Ok((content.boot_id == self.boot_id).then_some(content.kept))
    }

    /// Replaces it by what is to be kept of this boot, in JSON; `None` removes it.
    ///
    /// # Errors
    /// As [`BootFile::write`].
    pub(crate) fn write_json<T: Serialize>(&self, kept: Option<T>) -> Result<(), StateError> {
        let Some(kept) = kept else { return self.write(None) };
        let content = Content { version: VERSION, boot_id: self.boot_id.clone(), kept };
        let bytes = serde_json::to_vec(&content).map_err(|error| self.corrupt(error))?;
        self.write(Some(&bytes))
    }

    /// Its content makes no sense.
    pub(crate) fn corrupt(&self, reason: impl ToString) -> StateError {
        StateError::Corrupt { path: self.path(), reason: reason.to_string() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }
}
