//! What rules are held against: where a process runs and what, read through its held folder, so that all of it is of the
//! same process. None of these files waits for the process's address space.

use super::{
    ExeIdentity, HeldFolder, ProcessError,
    root::{FOLDER, identify, living_thread, read_whole, unreadable},
};
use plimsoll_wire::text::{parse_cgroup, parse_stat};
use rustix::fs::{CWD, Mode, openat, readlinkat_raw};
use std::os::fd::OwnedFd;

/// Longer than any path that the kernel tells (`PATH_MAX`).
const PATH_BYTES: usize = 4096;

/// Room for `cgroup`: a path for each hierarchy. As a rule it is a hundred bytes.
const CGROUP_BYTES: usize = 16 * 1024;

/// Buffers for [`HeldFolder::portray`], made once.
#[derive(Debug)]
pub struct Portrait {
    text: Vec<u8>,
    exe: Vec<u8>,
    cgroup: Vec<u8>,
    identity: Option<ExeIdentity>,
    oom_score_adj: Option<i16>,
    leads_terminal: bool,
}

impl Default for Portrait {
    fn default() -> Self {
        Self {
            text: vec![0; CGROUP_BYTES],
            exe: Vec::with_capacity(PATH_BYTES),
            cgroup: Vec::with_capacity(PATH_BYTES),
            identity: None,
            oom_score_adj: None,
            leads_terminal: false,
        }
    }
}

impl Portrait {
    /// The path of the executable as the kernel tells it; `None` where it has none or may not be read.
    #[must_use]
    pub fn exe(&self) -> Option<&[u8]> {
        (!self.exe.is_empty()).then_some(self.exe.as_slice())
    }

    /// The file that is its executable.
    #[must_use]
    pub const fn exe_identity(&self) -> Option<ExeIdentity> {
        self.identity
    }

    /// Whether the executable is root's, only root can write it, and this process finds the same file under that path.
    ///
    /// A user can have any path in a mount namespace of their own, and can show root's files on a FUSE file system: but
    /// not where everybody sees it. Walks the path: only for one of a pattern that the administrator trusts, since a path
    /// into a user's FUSE file system can make whoever walks it wait for ever.
    #[must_use]
    pub fn exe_is_what_it_says(&self) -> bool {
        self.identity.is_some_and(|identity| {
            identity.only_root_writes()
                && identify(CWD, self.exe.as_slice())
                    .is_ok_and(|seen| (seen.device, seen.inode) == (identity.device, identity.inode))
        })
    }

    /// The path of the cgroup from the root of its hierarchy, as [`super::ProcRoot::cgroup`] tells it as text.
    #[must_use]
    pub fn cgroup(&self) -> Option<&[u8]> {
        (!self.cgroup.is_empty()).then_some(self.cgroup.as_slice())
    }

    /// `oom_score_adj`, -1000 to 1000.
    #[must_use]
    pub const fn oom_score_adj(&self) -> Option<i16> {
        self.oom_score_adj
    }

    /// Whether it leads a session that has a terminal.
    #[must_use]
    pub const fn leads_terminal(&self) -> bool {
        self.leads_terminal
    }
}

impl HeldFolder {
    /// Finds out what rules ask for. What this process does not have, or what may not be read on this machine, is not there
    /// in the portrait.
    ///
    /// `cgroup`: its cgroup's path, where that is known; it is not read then. Up to Linux 6.10 reading it waits for the
    /// `cgroup_mutex`, which whoever makes a cgroup holds while memory is found for that (kernel/cgroup/cgroup.c,
    /// `proc_cgroup_show`): not for the kill path.
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] when the process has gone meanwhile. Any other: something could not be read this time, for
    /// want of descriptors or of memory, and is not to be taken for missing.
    pub fn portray(&self, cgroup: Option<&[u8]>, into: &mut Portrait) -> Result<(), ProcessError> {
        // A first thread that has exited tells nothing of this any more; the others do, and have the memory.
        let (thread, exe) = match self.read_exe(self.folder(), into) {
            Err(ProcessError::Vanished(_)) => {
                let thread = self.living_thread()?;
                let exe = self.read_exe(&thread, into);
                (Some(thread), exe)
            }
            exe => (None, exe),
        };
        into.identity = exe.map(Some).or_else(unless_passing(None))?;
        let folder = thread.as_ref().unwrap_or_else(|| self.folder());
        into.cgroup.clear();
        match cgroup {
            Some(path) => into.cgroup.extend_from_slice(path),
            None => self.read_cgroup(folder, into).or_else(unless_passing(()))?,
        }
        into.oom_score_adj = self.oom_score_adj().map(Some).or_else(unless_passing(None))?;
        into.leads_terminal = self.read_leads_terminal(into).or_else(unless_passing(false))?;
        Ok(())
    }

    /// The folder of a thread that has an address space; [`ProcessError::Vanished`] when none is left.
    fn living_thread(&self) -> Result<OwnedFd, ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid(), "list the threads", errno);
        let tasks = openat(self.folder(), c"task", FOLDER, Mode::empty()).map_err(failed)?;
        let living = living_thread(&tasks).map_err(failed)?;
        living.map(|(_, folder)| folder).ok_or(ProcessError::Vanished(self.pid()))
    }

    fn read_exe(&self, folder: &OwnedFd, into: &mut Portrait) -> Result<ExeIdentity, ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid(), "read the executable's path", errno);
        into.exe.clear();
        let identity = identify(folder, c"exe").map_err(failed)?;
        let room = into.text.get_mut(..PATH_BYTES).unwrap_or_default();
        let length = readlinkat_raw(folder, c"exe", room).map_err(failed)?;
        if length >= PATH_BYTES {
            return Err(failed(rustix::io::Errno::NAMETOOLONG));
        }
        into.exe.extend_from_slice(into.text.get(..length).unwrap_or_default());
        Ok(identity)
    }

    fn read_leads_terminal(&self, into: &mut Portrait) -> Result<bool, ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid(), "read its session", errno);
        let text = read_whole(self.folder(), c"stat", &mut into.text).map_err(failed)?;
        parse_stat(text).map(|stat| stat.leads_terminal).map_err(|error| unreadable(self.pid(), error))
    }

    fn read_cgroup(&self, folder: &OwnedFd, into: &mut Portrait) -> Result<(), ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid(), "read the cgroup", errno);
        let text = read_whole(folder, c"cgroup", &mut into.text).map_err(failed)?;
        let membership = parse_cgroup(text).map_err(|error| unreadable(self.pid(), error))?;
        into.cgroup.extend_from_slice(membership.path().unwrap_or_default());
        Ok(())
    }
}

/// What stands for a reading that failed and will fail again.
fn unless_passing<T>(missing: T) -> impl FnOnce(ProcessError) -> Result<T, ProcessError> {
    |error| {
        let gone = matches!(error, ProcessError::Vanished(_));
        if gone || error.is_passing() { Err(error) } else { Ok(missing) }
    }
}

#[cfg(test)]
mod tests;
