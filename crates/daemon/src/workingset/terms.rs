//! What the working set is protected by.

use plimsoll_policy::workingset::Tunables;

/// What is to be protected, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Terms {
    pub(crate) tunables: Tunables,
    /// The memory cgroup; `None`: the machine.
    pub(crate) cgroup: Option<String>,
    /// Nobody is ended.
    pub(crate) dry_run: bool,
}
