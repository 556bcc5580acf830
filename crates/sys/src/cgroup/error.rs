//! What went wrong with a cgroup, by what the daemon does next.

use crate::process::Errno;
use core::fmt;
use plimsoll_wire::text::{Printable, WireError};
use thiserror::Error;

/// Why something could not be read of a cgroup, or done to it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("could not {operation} of cgroup {path}: {kind}")]
pub struct CgroupError {
    /// What was tried, such as `read cgroup.procs`.
    pub operation: &'static str,
    /// With which cgroup: its path below the tree's root, as [`Printable`] text; `/` for the root.
    pub path: Box<str>,
    /// Why not.
    pub kind: CgroupErrorKind,
}

/// What the daemon does next.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CgroupErrorKind {
    /// The cgroup has been removed, or is not there. Normal: go on with the next.
    #[error("it is gone")]
    Gone,
    /// A right is missing: a fault of the installation, to be told once.
    #[error("not permitted: run as root")]
    Denied,
    /// This kernel, or this machine's set-up, does not have it: use the next best, and say so.
    #[error("{0}")]
    Unsupported(
        /// What is missing, in words.
        &'static str,
    ),
    /// Killing it would be wrong, whoever asks.
    #[error("refused, {0}")]
    Refused(Refusal),
    /// The file was read and not understood: drop it and count it.
    #[error("{0}")]
    Unreadable(Box<WireError>),
    /// Anything else.
    #[error("{0}")]
    Failed(Errno),
}

/// Why a cgroup is not killed, whatever it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is the root of the tree.
    Root,
    /// It is `init.scope`: systemd's own.
    InitScope,
    /// Process 1 is in it, or in one below it.
    HoldsInit,
    /// The caller is in it, or in one below it.
    HoldsCaller,
    /// It is threaded: it holds threads of processes that belong to another cgroup.
    Threaded,
    /// Processes of a PID namespace outside of the caller's are in it: who they are cannot be told.
    Foreign,
    /// It has more processes or cgroups below it than are looked through, and whether process 1 or the caller is
    /// among them could not be learnt in another way.
    TooLarge,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "it is the root of the tree",
            Self::InitScope => "it is the init system's own",
            Self::HoldsInit => "it holds process 1",
            Self::HoldsCaller => "it holds this program",
            Self::Threaded => "it holds threads of processes that belong to another cgroup",
            Self::Foreign => "it holds processes of an outer PID namespace",
            Self::TooLarge => "it is too large to be looked through",
        })
    }
}

impl CgroupError {
    pub(super) fn new(operation: &'static str, path: &[u8], kind: CgroupErrorKind) -> Self {
        let path = if path.is_empty() { "/".into() } else { Printable(path).to_string().into_boxed_str() };
        Self { operation, path, kind }
    }

    pub(super) fn of(operation: &'static str, path: &[u8], errno: rustix::io::Errno) -> Self {
        Self::new(operation, path, CgroupErrorKind::sort(errno))
    }

    pub(super) fn unreadable(operation: &'static str, path: &[u8], error: WireError) -> Self {
        Self::new(operation, path, CgroupErrorKind::Unreadable(Box::new(error)))
    }

    /// The cgroup is not there, or not any more.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self.kind, CgroupErrorKind::Gone)
    }
}

impl CgroupErrorKind {
    /// A file of a cgroup that is gone is not there (`ENOENT`), or was opened before and says `ENODEV`.
    fn sort(errno: rustix::io::Errno) -> Self {
        match errno {
            rustix::io::Errno::NOENT | rustix::io::Errno::NODEV => Self::Gone,
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Self::Denied,
            rustix::io::Errno::NOSYS => Self::Unsupported("this kernel has no such system call"),
            other => Self::Failed(other),
        }
    }
}
