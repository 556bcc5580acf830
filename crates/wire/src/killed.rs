//! Records of the program at `signal/signal_generate`: whom anybody killed. Checked before anything believes them.

use crate::{
    RecordError, abi, read,
    task::{self, Looseness, TaskFacts},
};
use plimsoll_policy::units::{Pages, Pid, Uid};
use zerocopy::transmute;

#[cfg(test)]
mod tests;

/// Bytes of one record.
pub const KILLED_BYTES: usize = size_of::<abi::plimsoll_killed>();

/// Bytes of the settings as the program reads them.
pub const SETTINGS_BYTES: usize = size_of::<abi::plimsoll_killed_settings>();

/// One process that SIGKILL has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    /// The process, as it was then.
    pub victim: TaskFacts,
    /// Whom it counts for, as its user namespace tells: the owner of a subordinate uid.
    pub user: Uid,
}

/// Whom the program tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KilledSettings {
    /// Who has so much in anonymous memory and swap.
    pub from: Pages,
    /// But not whom this process kills.
    pub daemon: Pid,
}

impl KilledSettings {
    /// As the program reads it.
    #[must_use]
    pub fn encode(self) -> [u8; SETTINGS_BYTES] {
        transmute!(abi::plimsoll_killed_settings { from_pages: self.from.0, daemon: self.daemon.0, pad: 0 })
    }
}

/// Decodes one record.
///
/// # Errors
/// [`RecordError`] when no process can be like that; the caller counts and drops it.
pub fn decode(bytes: &[u8], looseness: Looseness) -> Result<Killed, RecordError> {
    let record: abi::plimsoll_killed = read("a record of a killed process", bytes)?;
    Ok(Killed { victim: task::check(&record.victim, looseness)?, user: Uid(record.user) })
}
