//! The freezer of cgroup v1, which holds a killed process; that of v2 lets SIGKILL pass.
//!
//! Only the victim is moved, to the root of the freezer's tree, where nothing is frozen: the cgroup and whoever else
//! is in it stay as they are, and what was changed dies with the victim. A frozen process can neither run nor exit, so
//! its number cannot have come to mean another between the look and the move.

use super::{Errno, PidFd, ProcRoot, ProcessError, Subject, v1_tree::folder_below};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What its tree is called by.
pub(super) const FREEZER: &str = "freezer";

/// Moves a frozen process to where it thaws. Whether it was frozen.
///
/// Waits for locks of the cgroup tree (seen: 13 ms when idle): for a thread that may wait.
///
/// # Errors
/// By what the kernel says of the move.
pub(super) fn thaw(freezer: &Path, root: &mut ProcRoot, pidfd: &PidFd) -> Result<bool, ProcessError> {
    let pid = pidfd.pid();
    let Some(folder) = frozen_folder(freezer, root, pidfd)? else {
        return Ok(false);
    };
    if !pidfd.has_number() {
        return Err(ProcessError::Vanished(pid));
    }
    match fs::write(freezer.join("cgroup.procs"), pid.to_string()) {
        Ok(()) => Ok(true),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            // Thawed by others meanwhile.
            if is_frozen(&folder) {
                Err(ProcessError::Failed { operation: "thaw", subject: Subject::Process(pid), errno })
            } else {
                Ok(false)
            }
        }
    }
}

/// The folder of the victim's cgroup, if that is frozen (by itself or by one above it).
fn frozen_folder(
    freezer: &Path,
    root: &mut ProcRoot,
    pidfd: &PidFd,
) -> Result<Option<PathBuf>, ProcessError> {
    if !freezer.join("cgroup.procs").exists() {
        return Ok(None);
    }
    let folder = root.freezer_cgroup(pidfd.pid(), |path| folder_below(freezer, path))?;
    Ok(folder.filter(|folder| is_frozen(folder)))
}

fn is_frozen(folder: &Path) -> bool {
    let state = fs::read(folder.join("freezer.state")).unwrap_or_default();
    matches!(state.trim_ascii(), b"FROZEN" | b"FREEZING")
}

#[cfg(test)]
mod tests;
