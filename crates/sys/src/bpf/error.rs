//! What can go wrong with the programs, by what the daemon does next.

use std::{io, path::PathBuf};
use thiserror::Error;

/// An error of loading, pinning or using the limits programs.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The kernel refused or cannot load the programs: degrade, say so once.
    #[error("the programs cannot be loaded: {0}; `plimsoll doctor` says what this kernel lacks")]
    Load(String),
    /// A pin could not be made, opened or removed.
    #[error("{path}: cannot {operation}: {cause}", path = path.display())]
    Pin {
        /// The pin.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        cause: String,
    },
    /// The pins are another version's.
    #[error(
        "{path} holds limits of schema {found}, this plimsoll needs {expected}: stop the other version or remove them with `plimsoll daemon --stop-guarding --pin {path}`",
        path = path.display()
    )]
    Schema {
        /// The pin directory.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// A map could not be read or written.
    #[error("map {map}: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A program that is called by the daemon could not be run, or refused.
    #[error("{program}: {source}")]
    Run {
        /// Its name.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The scan of all tasks failed.
    #[error("scan of all tasks: {0}")]
    Scan(io::Error),
    /// A program could not be attached to its tracepoint.
    #[error("attaching {program}: {source}")]
    Attach {
        /// Its name.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// This kernel does not take a program that is needed for it: something else has to do.
    #[error("this kernel takes no program for the {0}: `plimsoll doctor` says what is used in its place")]
    Missing(&'static str),
    /// The ring buffer could not be opened or read.
    #[error("ring buffer: {0}")]
    Events(String),
}

impl BpfError {
    /// There was no room left for what was asked: no free account.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Run { source, .. } if source.raw_os_error() == Some(libc::ENOSPC))
    }
}

/// As of loading.
impl From<libbpf_rs::Error> for BpfError {
    fn from(error: libbpf_rs::Error) -> Self {
        // One line: libbpf's causes, outermost first; its own log went to standard error.
        Self::Load(format!("{error:#}").lines().collect::<Vec<_>>().join("; "))
    }
}
