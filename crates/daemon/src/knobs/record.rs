//! What protection of the working set has set: `<state>/workingset-undo`. Text, a line for each setting: names of cgroups can
//! be any bytes.

use crate::{state::StateError, undo::BootFile};
use plimsoll_sys::workingset::Undo;
use std::path::Path;

/// Its name.
pub(crate) const NAME: &str = "workingset-undo";

/// The first line: what it is, its version, and the boot.
const HEAD: &str = "plimsoll-undo 1 ";

/// The longest file that is read: 1024 cgroups with paths as long as a path can be.
const FILE_MAX_BYTES: u64 = 8 << 20;

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct Record {
    file: BootFile,
    undos: Vec<Undo>,
}

impl Record {
    /// Reads what an earlier daemon of this boot left; nothing where there is no such file.
    ///
    /// # Errors
    /// [`StateError`] when there is one that cannot be used, or not all of it.
    pub(super) fn load(folder: &Path) -> (Self, Result<(), StateError>) {
        let file = BootFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES);
        let mut record = Self { file, undos: Vec::new() };
        let outcome = record.read();
        (record, outcome)
    }

    fn read(&mut self) -> Result<(), StateError> {
        let Some(bytes) = self.file.read()? else {
            return Ok(());
        };
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let boot_id = lines
            .next()
            .and_then(|line| line.strip_prefix(HEAD.as_bytes()))
            .ok_or_else(|| self.file.corrupt("it does not begin as such a file does"))?;
        if boot_id != self.file.boot_id.as_bytes() {
            return Ok(());
        }
        let mut strange = false;
        for line in lines.filter(|line| !line.is_empty()) {
            match Undo::parse(line) {
                Some(undo) => self.undos.push(undo),
                None => strange = true,
            }
        }
        if strange { Err(self.file.corrupt("a line of it is no setting")) } else { Ok(()) }
    }

    /// What is set, in the order of setting.
    pub(super) fn undos(&self) -> &[Undo] {
        &self.undos
    }

    /// Nothing is set.
    pub(super) const fn is_empty(&self) -> bool {
        self.undos.is_empty()
    }

    /// Writes changes down, before they are made: each in place of an earlier one of the same setting.
    ///
    /// # Errors
    /// [`StateError`]: they must not be made then, and are not in here.
    pub(super) fn put(&mut self, changes: &[Undo]) -> Result<(), StateError> {
        let before = self.undos.clone();
        self.undos.retain(|undo| changes.iter().all(|change| change.path() != undo.path()));
        self.undos.extend_from_slice(changes);
        self.save().inspect_err(|_| self.undos = before)
    }

    /// Forgets one, from the next save on.
    pub(super) fn forget(&mut self, path: &Path) {
        self.undos.retain(|undo| undo.path() != path);
    }

    /// Writes it; the file goes when there is nothing to write.
    ///
    /// # Errors
    /// [`StateError`]
    pub(super) fn save(&self) -> Result<(), StateError> {
        if self.is_empty() {
            return self.file.write(None);
        }
        let mut bytes = format!("{HEAD}{}\n", self.file.boot_id).into_bytes();
        self.undos.iter().for_each(|undo| bytes.extend(undo.line()));
        self.file.write(Some(&bytes))
    }
}
