//! What the daemon arranges for itself, so that it still runs when memory is short.

use super::Errno;
use rustix::{
    mm::{MlockAllFlags, mlockall},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{fs, path::Path};

const OWN_OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// What became of [`lock_memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLock {
    /// Nothing that is resident now leaves memory again, and what is mapped now and touched later stays.
    Locked,
    /// `RLIMIT_MEMLOCK` is too small, or `CAP_IPC_LOCK` is missing.
    Denied,
    /// Anything else.
    Failed(Errno),
}

/// Keeps this process's memory from being swapped out or dropped: under pressure its code pages are the first to go,
/// and a guard that must read its own code from disk is late. Locks pages as they are touched
/// (`MCL_CURRENT | MCL_ONFAULT`), so that it makes nothing resident that was not.
#[must_use]
pub fn lock_memory() -> MemoryLock {
    match mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT) {
        Ok(()) => MemoryLock::Locked,
        // ENOMEM is what exceeding RLIMIT_MEMLOCK is called here, EPERM when the limit is 0.
        Err(Errno::PERM | Errno::NOMEM) => MemoryLock::Denied,
        Err(errno) => MemoryLock::Failed(errno),
    }
}

/// What became of [`set_oom_score_adj_self`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScore {
    /// The kernel's own OOM killer uses the new value.
    Set,
    /// Lowering it needs `CAP_SYS_RESOURCE`; the old value stays.
    Denied,
    /// The value is not one of -1000 to 1000, or there is no such file here.
    Unsupported,
    /// Anything else.
    Failed(Errno),
}

/// Sets this process's place with the kernel's own OOM killer: -1000 is never, 1000 is first. Children inherit it:
/// what the daemon starts for others must set it back.
#[must_use]
pub fn set_oom_score_adj_self(adjustment: i32) -> OomScore {
    write_adjustment(Path::new(OWN_OOM_SCORE_ADJ), adjustment)
}

fn write_adjustment(path: &Path, adjustment: i32) -> OomScore {
    match fs::write(path, adjustment.to_string()) {
        Ok(()) => OomScore::Set,
        Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::ACCESS | Errno::PERM => OomScore::Denied,
            Errno::INVAL | Errno::NOENT => OomScore::Unsupported,
            errno => OomScore::Failed(errno),
        },
    }
}

/// Raises how many descriptors this process may have open (`RLIMIT_NOFILE`) to the most it may raise it to, and gives that
/// number; `None`: any. Each victim takes one until it is gone, and the soft limit is 1024 wherever nobody raised it.
///
/// # Errors
/// By what the kernel says; the old limit stays.
pub fn raise_open_files() -> Result<Option<u64>, Errno> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    Ok(limit.maximum)
}

#[cfg(test)]
mod tests;
