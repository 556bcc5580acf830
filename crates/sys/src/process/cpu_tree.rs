//! The cpu controller of cgroup v1, where the kernel refuses the real-time class to whoever is in a cgroup without
//! real-time runtime (`CONFIG_RT_GROUP_SCHED`; a cgroup has none until somebody gives it some). Its quota, its shares and
//! `cpu.idle` then hold the victim whatever its nice value.
//!
//! Only the victim is moved, to the root of that tree: the cgroup, its quota and whoever else is in it stay as they are, and
//! what was changed ends with the victim. In cgroup v2 a process is in one cgroup for all controllers; it is left there, for
//! its memory would move with it, and its service look empty.

use super::{Errno, PidFd, ProcRoot, ProcessError, Subject, v1_tree::folder_below};
use plimsoll_policy::units::Pid;
use std::{fs, io, path::Path};

/// What its tree is called by.
pub(super) const CPU: &str = "cpu";

/// What became of a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// Nothing holds it here.
    Free,
    /// It was held, and was moved to the root of the tree.
    Moved,
    /// It is held and stays: it has begun to exit (`cgroup_migrate_add_task`, 6.12).
    Stays,
}

/// Moves a killed process to the root of the tree, if its cgroup keeps it from the real-time class.
///
/// Waits for locks of the cgroup tree (some 10 ms when idle): for a thread that may wait.
///
/// # Errors
/// By what the kernel says of the move.
pub(super) fn leave(tree: &Path, root: &mut ProcRoot, pidfd: &PidFd) -> Result<Leave, ProcessError> {
    let pid = pidfd.pid();
    let Some(folder) = root.cpu_cgroup(pid, |path| folder_below(tree, path))? else { return Ok(Leave::Free) };
    // Only the kernels that refuse it have the file (CONFIG_RT_GROUP_SCHED).
    let held = fs::read(folder.join("cpu.rt_runtime_us")).is_ok_and(|micros| micros.trim_ascii() == b"0");
    if !held {
        return Ok(Leave::Free);
    }
    if !pidfd.has_number() {
        return Err(ProcessError::Vanished(pid));
    }
    move_to(tree, pid).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        ProcessError::Failed {
            operation: "move to the root of the cpu controller",
            subject: Subject::Process(pid),
            errno,
        }
    })?;
    if !pidfd.has_number() {
        put_back(tree, root, pid);
        return Err(ProcessError::Vanished(pid));
    }
    // The kernel says that it did in either case.
    let stays = root.cpu_cgroup(pid, |path| folder_below(tree, path))?.is_some();
    Ok(if stays { Leave::Stays } else { Leave::Moved })
}

/// The victim was waited for within the microseconds of its move. If another has its number already, that one goes to where
/// it was born: where its parent is.
fn put_back(tree: &Path, root: &mut ProcRoot, pid: Pid) {
    let Ok(stranger) = root.process(pid) else { return };
    let Ok(born) = root.cpu_cgroup(stranger.parent, |path| folder_below(tree, path)) else { return };
    if let Some(folder) = born {
        // Gone again, or its cgroup is: there is nothing to put back.
        move_to(&folder, pid).ok();
    }
}

fn move_to(folder: &Path, pid: Pid) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), pid.to_string())
}

#[cfg(test)]
mod tests;
