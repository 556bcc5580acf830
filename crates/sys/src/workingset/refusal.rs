//! Why a file is left alone.

use crate::process::Errno;
use plimsoll_policy::workingset::Barred;
use thiserror::Error;

/// Why a file was not opened or not locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Its filesystem is none of those whose page cache is worth locking and safe to open files on: FUSE, network
    /// filesystems and such that live in memory.
    #[error("its file system is not one that is protected")]
    FileSystem,
    /// It is on a drive that is made to be pulled out.
    #[error("it is on a removable drive")]
    Removable,
    /// No name leads to it any more: it only takes disk space until the last who has it open is done.
    #[error("it was removed")]
    Unlinked,
    /// It is no regular file.
    #[error("it is no regular file")]
    NotRegular,
    /// The kernel swaps to it.
    #[error("it is a swap file")]
    SwapFile,
    /// A file server or a program has a lease on it, which opening it would break.
    #[error("somebody holds a lease on it")]
    Leased,
    /// It lies in memory already: its filesystem needs no page cache (DAX).
    #[error("its file system keeps it in memory itself")]
    Direct,
    /// The kernel does not tell which of its pages are in memory: it belongs to another user, on a filesystem that
    /// cannot be written to, and `CAP_FOWNER` is missing.
    #[error("the kernel does not tell which of its pages are in memory")]
    Hidden,
    /// There is no such file: it was removed, or its number is another file's by now.
    #[error("it is gone")]
    Gone,
    /// No mount of its device can be reached without waiting for somebody.
    #[error("no mount of its file system can be reached")]
    Unreachable,
    /// Its filesystem names files in no way that is known here.
    #[error("its file system cannot open it by its number")]
    NoHandle,
    /// All of the space for mappings is in use.
    #[error("as many chunks are locked as there is room for")]
    Full,
    /// The soft tier was let go meanwhile.
    #[error("the soft tier was released")]
    Released,
    /// A right is missing: a fault of the installation, to be told once.
    #[error("not permitted to {0}: run as root")]
    Denied(
        /// What was tried.
        &'static str,
    ),
    /// Anything else.
    #[error("could not {0}: {1}")]
    Failed(
        /// What was tried.
        &'static str,
        /// What the kernel said.
        Errno,
    ),
}

impl Refusal {
    /// Sorts what the kernel said.
    pub(super) fn of(operation: &'static str, errno: rustix::io::Errno) -> Self {
        match errno {
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Self::Denied(operation),
            other => Self::Failed(operation, other),
        }
    }

    /// Why the file is not held, as policy has it. `None` where nothing speaks against the file: there was no room, or
    /// the soft tier was released meanwhile.
    #[must_use]
    pub const fn barred(&self) -> Option<Barred> {
        match self {
            Self::FileSystem | Self::Direct => Some(Barred::FileSystem),
            Self::Removable => Some(Barred::Removable),
            Self::Unlinked => Some(Barred::Unlinked),
            Self::NotRegular => Some(Barred::NotRegular),
            Self::SwapFile => Some(Barred::SwapFile),
            Self::Leased => Some(Barred::Leased),
            Self::Gone => Some(Barred::Replaced),
            Self::Unreachable => Some(Barred::NoMount),
            Self::NoHandle => Some(Barred::NoHandle),
            Self::Hidden | Self::Denied(_) | Self::Failed(..) => Some(Barred::Refused),
            Self::Full | Self::Released => None,
        }
    }
}
