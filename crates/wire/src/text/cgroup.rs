//! `/proc/PID/cgroup`: where a process stands in the control-group tree, or trees.

use super::{
    WireError,
    field::{lines, split_once},
};

const FILE: &str = "/proc/PID/cgroup";

/// The paths of a process's cgroups that matter here, relative to the root of their tree. Raw bytes: whoever may
/// make a cgroup chooses its name; show them as [`super::Printable`] text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Membership<'a> {
    /// In the unified tree (cgroup v2), the line `0::`.
    pub unified: Option<&'a [u8]>,
    /// In the tree of the v1 memory controller.
    pub memory: Option<&'a [u8]>,
    /// In the tree of the v1 freezer.
    pub freezer: Option<&'a [u8]>,
    /// In the tree of the v1 cpu controller.
    pub cpu: Option<&'a [u8]>,
}

impl<'a> Membership<'a> {
    /// The path to show for the process: the unified one, else the memory controller's. On a hybrid machine whose
    /// unified tree is not used (every process at its root) the memory controller's says more, so it is taken.
    #[must_use]
    pub fn path(&self) -> Option<&'a [u8]> {
        match (self.unified, self.memory) {
            (Some(b"/"), Some(memory)) => Some(memory),
            (unified, memory) => unified.or(memory),
        }
    }
}

/// Reads `/proc/PID/cgroup`: lines of `hierarchy:controllers:path`. The path may hold colons, and ends in
/// ` (deleted)` when the cgroup has been removed.
///
/// # Errors
/// [`WireError::Malformed`] for a line that is not of that form.
pub fn parse_cgroup(text: &[u8]) -> Result<Membership<'_>, WireError> {
    let mut membership = Membership::default();
    for line in lines(text) {
        let (hierarchy, controllers, path) = split_once(line, b':')
            .and_then(|(hierarchy, rest)| {
                split_once(rest, b':').map(|(controllers, path)| (hierarchy, controllers, path))
            })
            .filter(|(_, _, path)| path.starts_with(b"/"))
            .ok_or_else(|| WireError::malformed(FILE, "line", "hierarchy:controllers:/path", line))?;
        if hierarchy == b"0" && controllers.is_empty() {
            membership.unified.get_or_insert(path);
            continue;
        }
        for name in controllers.split(|byte| *byte == b',') {
            match name {
                b"memory" => _ = membership.memory.get_or_insert(path),
                b"cpu" => _ = membership.cpu.get_or_insert(path),
                b"freezer" => _ = membership.freezer.get_or_insert(path),
                _ => {}
            }
        }
    }
    Ok(membership)
}

#[cfg(test)]
mod tests;
