//! Which lines of cgroups and of the machine are in force as they were drawn: `<state>/lines-in-force.json`. A daemon that
//! starts raises a line once to what is used already. Where the one before it had the line in force, it does not: what came
//! while no daemon lived is past the line.

use super::{Look, Order};
use crate::{
    journal::{Journal, Notices},
    state::StateError,
    undo::UndoFile,
};
use plimsoll_policy::{account::Account, units::Bytes};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

const NAME: &str = "lines-in-force.json";
const VERSION: u64 = 1;

/// The longest file that is read: 5,000 lines, of paths of 200 bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// What is in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    version: u64,
    boot_id: String,
    lines: BTreeMap<Account, Bytes>,
}

/// The file, and what is to be in it.
#[derive(Debug)]
pub(crate) struct LinesInForce {
    file: UndoFile,
    lines: BTreeMap<Account, Bytes>,
    saved: BTreeMap<Account, Bytes>,
    /// Until the first looks.
    inherited: BTreeMap<Account, Bytes>,
    notices: Notices,
}

impl LinesInForce {
    /// Reads what an earlier daemon of this boot left. Where that cannot be used it is said, and nothing was in force.
    pub(crate) fn load(folder: &Path, journal: Journal) -> Self {
        let file = UndoFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES);
        let mut notices = Notices::new(journal);
        let inherited = read(&file).unwrap_or_else(|error| {
            notices.say(format_args!("which lines of cgroups were in force is not known: {error}"));
            BTreeMap::new()
        });
        Self { file, lines: BTreeMap::new(), saved: inherited.clone(), inherited, notices }
    }

    /// None is in force any more.
    ///
    /// # Errors
    /// [`StateError`]: the file is still there.
    pub(crate) fn forget(folder: &Path) -> Result<(), StateError> {
        UndoFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES).write(None)
    }

    /// Takes in how lines stand as they are looked at, and tells of each what an earlier daemon left.
    pub(super) fn take(&mut self, orders: &[Order], looks: &mut [Look]) {
        let inherited = core::mem::take(&mut self.inherited);
        for (order, look) in orders.iter().zip(looks) {
            look.inherited = inherited.get(&order.account).copied();
            let whole = match order.hard {
                Some(hard) if order.line == hard => Some(hard),
                Some(_) => look.inherited,
                None => None,
            };
            match whole {
                Some(line) => _ = self.lines.insert(order.account.clone(), line),
                None => _ = self.lines.remove(&order.account),
            }
        }
    }

    /// Writes it where it is another than before.
    pub(super) fn save(&mut self) {
        if self.lines == self.saved {
            return;
        }
        if let Err(error) = self.write() {
            self.notices.once("lines in force", &error);
        }
        self.saved.clone_from(&self.lines);
    }

    fn write(&self) -> Result<(), StateError> {
        if self.lines.is_empty() {
            return self.file.write(None);
        }
        let (boot_id, lines) = (self.file.boot_id.clone(), self.lines.clone());
        let content = Content { version: VERSION, boot_id, lines };
        let bytes = serde_json::to_vec(&content).map_err(|error| self.file.corrupt(error))?;
        self.file.write(Some(&bytes))
    }
}

fn read(file: &UndoFile) -> Result<BTreeMap<Account, Bytes>, StateError> {
    let Some(bytes) = file.read()? else { return Ok(BTreeMap::new()) };
    let content: Content = serde_json::from_slice(&bytes).map_err(|error| file.corrupt(error))?;
    if content.version != VERSION {
        return Err(StateError::Future { path: file.path(), version: content.version });
    }
    Ok(if content.boot_id == file.boot_id { content.lines } else { BTreeMap::new() })
}

#[cfg(test)]
mod tests;
