//! What `protect show --json` prints, and what the clients read back.
//!
//! Fields may be added, not renamed. `null` is 'not known', never 0.

use plimsoll_policy::workingset::{FileId, Tier, Tunables, floor::Standing};
use serde::{Deserialize, Serialize};

/// The whole of `protect show`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProtectView {
    /// In a few words: `on`, `off`, or why not and what is used instead.
    pub state: String,
    /// The tunables in force.
    pub tunables: Tunables,
    /// The memory cgroup that is protected; `None`: the machine.
    pub cgroup: Option<String>,
    /// The memory that the ratios are of.
    pub memory_bytes: Option<u64>,
    /// What is held while it is hot.
    pub hard: TierView,
    /// What is held until reclaim finds next to nothing else.
    pub soft: TierView,
    /// How often the soft tier was let go since protection began.
    pub soft_releases: u64,
    /// The floor of clean file memory; `None` where it is not kept.
    pub floor: Option<FloorView>,
    /// The floor of anonymous memory; `None` where it is not kept: there is no swap, or one cgroup is protected.
    pub anon: Option<AnonView>,
    /// What the multi-generational LRU was told to keep at any price, in milliseconds of use; `None`: nothing was set.
    pub min_ttl_ms: Option<u64>,
    /// Whether no more of a memory cgroup's limit is locked than its share; where not, the kernel does not tell whose
    /// locked memory is.
    pub cgroup_shares: bool,
    /// Files that wait to be opened: a disk that does not answer or a scanner holds up these alone.
    pub opening: u64,
    /// Each file that is held or worth holding, those with most locked first.
    pub files: Vec<FileView>,
    /// How many files are not held though they are used, by reason.
    pub barred: Vec<BarredView>,
    /// What the ranking goes by.
    pub memory: MemoryView,
}

/// One tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TierView {
    /// How much may be locked.
    pub budget_bytes: u64,
    /// How much is.
    pub locked_bytes: u64,
    /// In how many files.
    pub files: u64,
}

/// The floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorView {
    /// The floor itself.
    pub line_bytes: u64,
    /// Clean file memory that is left, with what is locked.
    pub clean_bytes: Option<u64>,
    /// Where it stands.
    pub standing: Standing,
    /// Incidents there since the daemon began: each ended a process, unless only protected ones were left.
    pub kills: u64,
    /// The last incident's number.
    pub last_incident: Option<u64>,
}

/// The floor of anonymous memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnonView {
    /// The floor itself.
    pub line_bytes: u64,
    /// Anonymous memory in RAM.
    pub anon_bytes: Option<u64>,
    /// By what swapping is held back now: `memory.swap.max` or `vm.swappiness`; `None`: it is not.
    pub held_by: Option<String>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// Which.
    #[serde(flatten)]
    pub file: FileId,
    /// Where it was when it was opened; `None`: not opened, or not for the reader's eyes.
    pub path: Option<String>,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// How much of it is locked.
    pub locked_bytes: u64,
    /// How much of it is worth holding.
    pub wanted_bytes: u64,
    /// The firmest tier that a part of it is in; `None`: it is not held.
    pub tier: Option<Tier>,
    /// Why it is held, or why not ([`plimsoll_policy::workingset::Why::text`]).
    pub reason: String,
}

/// How many files are barred for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarredView {
    /// [`plimsoll_policy::workingset::Barred::text`].
    pub reason: String,
    /// So many.
    pub files: u64,
}

/// What the ranking remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryView {
    /// Files that were used lately.
    pub files: u64,
    /// Pieces of them.
    pub chunks: u64,
    /// How many pieces can be remembered.
    pub chunks_max: u64,
}

#[cfg(test)]
mod tests;
