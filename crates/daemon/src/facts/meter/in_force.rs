//! The lines of cgroups and of the machine that are in force: `<state>/lines-in-force.json`. A daemon that starts raises a line
//! once to what is used already. Where the one before it had the line in force, it does not: what came while no daemon lived is
//! past the line.

use super::{Look, Order};
use crate::{
    journal::{Journal, Notices},
    state::StateError,
    undo::BootFile,
};
use plimsoll_policy::{account::Account, units::Bytes};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

const NAME: &str = "lines-in-force.json";

/// The longest file that is read: 5,000 lines, of paths of 200 bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// In the place of a line that is not in force yet.
pub(crate) const OPEN: Bytes = Bytes(u64::MAX);

/// A raised line is written again when it has fallen by an eighth.
const FALL_SHIFT: u32 = 3;

/// What is in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    lines: Lines,
}

/// Lines in force; of one that was raised, up to an eighth more.
pub(crate) type Lines = BTreeMap<Account, Bytes>;

/// The file.
#[derive(Debug)]
pub(crate) struct InForceFile {
    file: BootFile,
    notices: Notices,
}

impl InForceFile {
    pub(crate) fn new(folder: &Path, journal: Journal) -> Self {
        let file = BootFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES);
        Self { file, notices: Notices::new(journal) }
    }

    /// What an earlier daemon of this boot left. Where that cannot be used it is said, and nothing was in force.
    pub(super) fn read(&mut self) -> Lines {
        let kept = self.file.read_json().map(Option::unwrap_or_default);
        let Kept { lines } = kept.unwrap_or_else(|error| {
            let notice = format_args!("which lines of cgroups were in force is not known: {error}");
            self.notices.say(notice);
            Kept::default()
        });
        lines
    }

    /// Writes it, or says why not.
    pub(super) fn write(&mut self, lines: Lines) {
        if let Err(error) = self.file.write_json((!lines.is_empty()).then_some(Kept { lines })) {
            self.notices.once("lines in force", &error);
        }
    }

    /// None is in force any more.
    ///
    /// # Errors
    /// [`StateError`]: the file is still there.
    pub(crate) fn forget(folder: &Path) -> Result<(), StateError> {
        BootFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES).write(None)
    }
}

/// What is to be in the file.
#[derive(Debug)]
pub(super) struct LinesInForce {
    inherited: Lines,
    now: Lines,
    written: Lines,
}

impl LinesInForce {
    pub(super) fn new(inherited: Lines) -> Self {
        Self { now: Lines::new(), written: inherited.clone(), inherited }
    }

    /// Takes in how lines stand as they are looked at, and tells what an earlier daemon left of those drawn when this one
    /// began.
    pub(super) fn take(&mut self, orders: &[Order], looks: &mut [Look]) {
        for (order, look) in orders.iter().zip(looks) {
            look.inherited = self.inherited.get(&order.account).copied().filter(|_| order.inherits);
            let line = if order.line == OPEN { look.inherited } else { Some(order.line) };
            let Some((line, hard)) = line.zip(order.hard) else {
                self.now.remove(&order.account);
                continue;
            };
            let known = self.now.get(&order.account).copied().unwrap_or(OPEN);
            // One that was raised falls with usage, and is not written each time.
            if line == hard || line > known || known.saturating_sub(line).0 > known.0 >> FALL_SHIFT {
                self.now.insert(order.account.clone(), line);
            }
        }
    }

    /// Hands them over to be written where they are others than before.
    pub(super) fn hand(&mut self, hand: impl FnOnce(Lines) -> bool) {
        if self.now != self.written && hand(self.now.clone()) {
            self.written.clone_from(&self.now);
        }
    }
}

#[cfg(test)]
mod tests;
