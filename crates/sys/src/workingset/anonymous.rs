//! To keep anonymous memory in RAM for a while: what keeps the kernel from swapping.
//!
//! `memory.swap.max` of each cgroup below the root set to 0: what is in swap stays there, nothing more goes,
//! whatever LRU is in use and whatever swappiness is set. `memory.low` and `memory.min` protect a cgroup's files as
//! readily as its anonymous memory, and nothing of it against itself. Where there is no such file (v1, no swap
//! accounting), `vm.swappiness` 0 is the next best: it yields when files run out.

use super::knobs::{self, KnobError, Undo};
use crate::cgroup::CgroupMount;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Cgroups below the root that are looked at: a dozen on a machine with systemd.
const CGROUPS_MAX: usize = 1024;

const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

/// By what swapping is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapHold {
    /// `memory.swap.max` of cgroups.
    SwapMax,
    /// `vm.swappiness`, for the machine.
    Swappiness,
}

/// Where swapping is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapKnobs {
    tree: Option<PathBuf>,
    swappiness: PathBuf,
}

impl SwapKnobs {
    /// Of this machine.
    #[must_use]
    pub fn find() -> Self {
        let mut mounts = CgroupMount::all().unwrap_or_default().into_iter();
        let tree = mounts.find(|mount| mount.whole && mount.has_memory()).map(|mount| mount.place);
        Self { tree, swappiness: SWAPPINESS.into() }
    }

    /// At other places, for tests. `tree` is where cgroup v2 is mounted with the memory controller.
    #[must_use]
    pub fn at(tree: Option<&Path>, swappiness: &Path) -> Self {
        Self { tree: tree.map(Path::to_path_buf), swappiness: swappiness.to_path_buf() }
    }

    /// The changes by which nothing more is swapped out, as records to be kept safe before each [`Undo::apply`]; empty
    /// where all of them are made already. To be asked again every few seconds while it holds, for cgroups that came
    /// since. Undone by [`Undo::put_back`].
    ///
    /// # Errors
    /// [`KnobError`] where neither means can be read.
    pub fn plan(&self) -> Result<(SwapHold, Vec<Undo>), KnobError> {
        let knobs: Vec<PathBuf> = self.tree.as_deref().map(swap_knobs).unwrap_or_default();
        let (means, knobs) = if knobs.is_empty() {
            (SwapHold::Swappiness, vec![self.swappiness.clone()])
        } else {
            (SwapHold::SwapMax, knobs)
        };
        let mut changes = Vec::new();
        for knob in knobs {
            match knobs::plan(&knob, "0") {
                Ok(change) => changes.extend(change),
                // Removed since it was listed.
                Err(error) if error.is_absent() && means == SwapHold::SwapMax => {}
                Err(error) => return Err(error),
            }
        }
        Ok((means, changes))
    }
}

fn swap_knobs(tree: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(tree).into_iter().flatten().flatten();
    let knobs = folders.take(CGROUPS_MAX).map(|folder| folder.path().join("memory.swap.max"));
    knobs.filter(|knob| knob.exists()).collect()
}

#[cfg(test)]
mod tests;
