//! What the cases share: the guard, the allocators, and how a workload is started with one of them.

use super::allocators::{Contender, TMALLOC};
use crate::{
    child::Workload,
    error::BenchError,
    guarded::{Guarded, Line},
    options::Options,
};
use std::{ffi::OsString, fmt::Display, os::unix::process::CommandExt, process::Command};

pub(super) const MIB: u64 = 1 << 20;

/// Whose processes measure allocators, all under the same line.
pub(super) const USER: u32 = 60_400;

/// Far from what they hold together.
pub(super) const FAR_BYTES: u64 = 4 << 30;

/// A user without a process, whose line keeps the guard's programs in the kernel while others come and go: the first line
/// waits until they are loaded.
pub(super) const NOBODY: Line = Line { uid: 60_449, hard_bytes: FAR_BYTES, soft_bytes: None };

/// Which variable of the library says where the coordinator is, and which what to do without one.
pub(super) const SOCKET_VARIABLE: &str = "PLIMSOLL_TMALLOC_SOCKET";
pub(super) const WITHOUT_DAEMON_VARIABLE: &str = "TMALLOC_WITHOUT_DAEMON";

/// What the cases share.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) options: &'a Options,
    pub(super) guard: Box<dyn Guarded>,
    pub(super) contenders: Vec<Contender>,
}

impl Stage<'_> {
    pub(super) fn tmalloc(&self) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == TMALLOC)
    }

    /// What a process that uses tmalloc needs to know.
    pub(super) fn environment(&self) -> (&'static str, OsString) {
        match self.guard.coordinator() {
            Some(socket) => (SOCKET_VARIABLE, socket.into()),
            None => (WITHOUT_DAEMON_VARIABLE, "pass".into()),
        }
    }

    /// Starts the workload `name` as the user, with this contender loaded before all other libraries.
    pub(super) fn start(
        &self,
        contender: &Contender,
        name: &str,
        uid: u32,
        more: &[&dyn Display],
    ) -> Result<Workload, BenchError> {
        let mut command = self.command(uid);
        command.envs(contender.environment());
        let names = contender.names();
        let words: Vec<&dyn Display> =
            [&name as &dyn Display, &uid, &names].into_iter().chain(more.iter().copied()).collect();
        contender.verified(Workload::start_prepared(command, &words)?)
    }

    /// The workloads' program, as a process of that user that knows where to ask for memory.
    pub(super) fn command(&self, uid: u32) -> Command {
        let (name, value) = self.environment();
        let mut command = Command::new(&self.options.workload);
        command.uid(uid).gid(uid).env(name, value);
        command
    }
}
