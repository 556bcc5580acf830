//! What can go wrong in a bench.

use plimsoll_api::client::CallError;
use plimsoll_sys::process::ProcessError;
use plimsoll_wire::text::WireError;
use std::{io, time::Duration};

/// A bench that could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No bench of that name.
    #[error(
        "unknown bench '{name}': try one of faults, latency, overshoot, accuracy, scale, reap, select, tmalloc, workingset, frag, suite"
    )]
    UnknownBench {
        /// What was asked for.
        name: String,
    },
    /// Not root.
    #[error(
        "not permitted: the benches start processes of other users and a private daemon; run them as root"
    )]
    NotPermitted,
    /// The operating system refused something.
    #[error("{operation}: {source}")]
    Io {
        /// What was tried, with the path or command.
        operation: String,
        /// Why not.
        source: io::Error,
    },
    /// The machine, or a place on it, does not have what the bench needs.
    #[error("{problem}")]
    Unfit {
        /// What is missing, and what to do.
        problem: String,
    },
    /// A workload process failed or said what it should not.
    #[error("workload {workload}: {problem}")]
    Workload {
        /// Its name and arguments.
        workload: String,
        /// What it did.
        problem: String,
    },
    /// The guard under test failed.
    #[error("guard under test: '{command}': {problem}")]
    Guard {
        /// The command given.
        command: String,
        /// Its answer, one line.
        problem: String,
    },
    /// The guard under test did not do what it was asked.
    #[error("guard under test: {0}")]
    Call(#[from] CallError),
    /// A process, or a file of the kernel's about it, could not be had.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A text of the kernel's is not of the form that is documented.
    #[error(transparent)]
    Text(#[from] WireError),
    /// Something took too long.
    #[error("no {awaited} within {within:?}: is the machine overloaded, or the guard not guarding?")]
    Deadline {
        /// What was waited for.
        awaited: String,
        /// How long.
        within: Duration,
    },
    /// A text of the kernel or the guard that is not understood.
    #[error("cannot read {what}: '{text}'")]
    Malformed {
        /// What it should have been.
        what: String,
        /// What it was, shortened.
        text: String,
    },
}

impl BenchError {
    /// For `map_err`: an I/O error with what was tried.
    pub(crate) fn io<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source: source.into() }
    }

    /// A text that is not what it should be; at most 80 characters of it are kept.
    pub(crate) fn malformed(what: impl Into<String>, text: &str) -> Self {
        Self::Malformed { what: what.into(), text: text.trim().chars().take(80).collect() }
    }
}
