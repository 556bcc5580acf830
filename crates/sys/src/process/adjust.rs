//! `oom_score_adj` of other processes: read and written through a folder of `/proc` that is held, so that neither can
//! reach a later process of the same number.
//!
//! What the kernel does with a write (`__set_oom_adj`, fs/proc/base.c; seen on 6.1, 6.12 and 6.18): raising needs no
//! capability; lowering does, below `oom_score_adj_min` of the process. That is moved by every write of whoever has
//! `CAP_SYS_RESOURCE`, up as well: a process that such a writer raised could not lower itself any more, even to where it
//! was. So [`without_sys_resource`] is for whoever raises others: what they put back is what was there, and the
//! process's own freedom stays as it was.

use super::{
    Errno, ProcRoot, ProcessError, Subject,
    root::{EntryPath, open_file},
    tick_ns,
};
use plimsoll_policy::{units::Pid, victim::VictimId};
use plimsoll_wire::text::parse_stat;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::{read, write},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};
use std::{ffi::CStr, os::fd::OwnedFd};

const FILE: &CStr = c"oom_score_adj";

/// Room for one `stat` line, as [`ProcRoot::start_ticks`] has.
const STAT_BYTES: usize = 2048;

/// The `/proc` folder of one process: once it has ended, every use says [`ProcessError::Vanished`].
#[derive(Debug)]
pub struct HeldFolder {
    folder: OwnedFd,
    pid: Pid,
}

impl HeldFolder {
    /// Holds the folder of the process that has this number and start time (nanoseconds since boot; compared in clock
    /// ticks, which is what `/proc` tells).
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] also when the number belongs to another process by now.
    pub fn open(root: &ProcRoot, id: VictimId) -> Result<Self, ProcessError> {
        let pid = id.pid;
        let path = EntryPath::new(pid, ".")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&root.files.dir, path.name(), flags, Mode::empty())
            .map_err(|errno| ProcessError::of_process(pid, "open the folder", errno))?;
        let held = Self { folder, pid };
        let started = held.start_ticks()?;
        if Some(started) == id.start_ns.checked_div(tick_ns()) {
            Ok(held)
        } else {
            Err(ProcessError::Vanished(pid))
        }
    }

    pub(super) const fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    fn start_ticks(&self) -> Result<u64, ProcessError> {
        let mut line = [0; STAT_BYTES];
        let text = self.read(c"stat", "read stat", &mut line)?;
        let unreadable = |error| ProcessError::Unreadable { subject: Subject::Process(self.pid), error };
        parse_stat(text).map(|stat| stat.start_ticks).map_err(unreadable)
    }

    /// Its `oom_score_adj`, -1000 to 1000.
    ///
    /// # Errors
    /// By what the kernel says.
    pub fn oom_score_adj(&self) -> Result<i16, ProcessError> {
        let mut text = [0; 16];
        let text = self.read(FILE, "read oom_score_adj", &mut text)?;
        let number = core::str::from_utf8(text).ok().and_then(|text| text.trim_end().parse().ok());
        number.ok_or(ProcessError::Failed {
            operation: "understand oom_score_adj",
            subject: Subject::Process(self.pid),
            errno: Errno::INVAL,
        })
    }

    /// Sets it, for all processes that share its memory, too.
    ///
    /// # Errors
    /// [`ProcessError::Denied`] when it would be lowered further than without `CAP_SYS_RESOURCE`; otherwise by what the
    /// kernel says. Nothing was changed then.
    pub fn set_oom_score_adj(&self, adjustment: i16) -> Result<(), ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid, "set oom_score_adj", errno);
        let file =
            openat(&self.folder, FILE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        write(&file, adjustment.to_string().as_bytes()).map(|_| ()).map_err(failed)
    }

    fn read<'text>(
        &self,
        name: &CStr,
        operation: &'static str,
        text: &'text mut [u8],
    ) -> Result<&'text [u8], ProcessError> {
        let failed = |errno| ProcessError::of_process(self.pid, operation, errno);
        let file = open_file(&self.folder, name).map_err(failed)?;
        let length = rustix::io::retry_on_intr(|| read(&file, &mut *text)).map_err(failed)?;
        Ok(text.get(..length).unwrap_or(&[]))
    }
}

/// Does `work` without `CAP_SYS_RESOURCE` in the calling thread; it is told why the thread has kept it, where it has.
pub fn without_sys_resource<T>(work: impl FnOnce(Result<(), Errno>) -> T) -> T {
    let given_up = capabilities(None).and_then(|had| {
        let rest = had.effective.difference(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, CapabilitySets { effective: rest, ..had })?;
        Ok(had)
    });
    let done = work(given_up.map(|_had| ()));
    if let Ok(had) = given_up {
        // What is permitted can be had back.
        set_capabilities(None, had).ok();
    }
    done
}

#[cfg(test)]
mod tests;
