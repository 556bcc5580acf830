//! What went wrong with a process or with the machine's files, by what the daemon does next.

use core::fmt;
use plimsoll_policy::units::Pid;
use plimsoll_wire::text::WireError;
use thiserror::Error;

pub use rustix::io::Errno;

/// What a raw system call came to: not negative, or what the C library has noted of it.
pub(crate) fn checked(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result)
        .map_err(|_negative| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// What an operation was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// One process.
    Process(Pid),
    /// The machine, or the daemon itself.
    Machine,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Machine => f.write_str("this machine"),
        }
    }
}

/// Why something could not be read or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProcessError {
    /// The process is gone, or its number belongs to another by now. Normal: go on with the next.
    #[error("process {0} is gone")]
    Vanished(Pid),
    /// A right is missing: a fault of the installation, to be told once.
    #[error("not permitted to {operation} of {subject}: run as root, with CAP_KILL and CAP_SYS_PTRACE")]
    Denied {
        /// What was tried, such as `read status`.
        operation: &'static str,
        /// With what.
        subject: Subject,
    },
    /// This kernel does not have it: use the next best, and say so.
    #[error("this kernel cannot {operation}: see `plimsoll doctor` for what is used in its place")]
    Unsupported {
        /// What was tried.
        operation: &'static str,
    },
    /// Anything else: count it, and do not act on this process.
    #[error("could not {operation} of {subject}: {errno}")]
    Failed {
        /// What was tried.
        operation: &'static str,
        /// With what.
        subject: Subject,
        /// What the kernel said.
        errno: Errno,
    },
    /// The file was read and not understood: drop it and count it.
    #[error("could not understand a file of {subject}: {error}")]
    Unreadable {
        /// Whose file.
        subject: Subject,
        /// What was wrong with it.
        error: WireError,
    },
}

impl ProcessError {
    /// Whether the process is there and this was not found out for want of something of the machine's or of ours, or was not
    /// understood: it is not to be taken for missing.
    ///
    /// Of what else the kernel may say, a good part is in the hands of whoever is looked at: a path too long to be told
    /// (`ENAMETOOLONG`), an executable on a file system of their own that does not answer (`ENOTCONN`, `EIO`). Nobody is to
    /// be out of reach by that.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreadable { .. } => true,
            Self::Failed { errno, .. } => {
                matches!(*errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR)
            }
            Self::Vanished(_) | Self::Denied { .. } | Self::Unsupported { .. } => false,
        }
    }

    /// Sorts what the kernel said about a process.
    pub(super) fn of_process(pid: Pid, operation: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::SRCH | Errno::NOENT => Self::Vanished(pid),
            other => Self::sort(Subject::Process(pid), operation, other),
        }
    }

    /// Sorts what the kernel said about the machine: a file that is not there is a feature that is not there.
    pub(super) fn of_machine(operation: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Unsupported { operation },
            other => Self::sort(Subject::Machine, operation, other),
        }
    }

    fn sort(subject: Subject, operation: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::Denied { operation, subject },
            Errno::NOSYS => Self::Unsupported { operation },
            other => Self::Failed { operation, subject, errno: other },
        }
    }
}
