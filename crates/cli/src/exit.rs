//! How a command ends: its exit status, and the one line that says why it failed.

use plimsoll_api::client::CallError;
use std::{io, process::ExitCode};

/// The exit statuses scripts rely on; the manual page lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed, for a reason that has no number of its own: among them an unknown user and an incident that is not there.
    Failed = 1,
    /// The command line, or a value in it, makes no sense.
    Usage = 2,
    /// The daemon is not running.
    NotRunning = 3,
    /// Not permitted.
    NotPermitted = 4,
    /// `run`: the program was not started.
    NotStarted = 125,
    /// `run`: it cannot be executed.
    NotExecutable = 126,
    /// `run`: there is none of this name.
    NoSuchProgram = 127,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // The discriminants are the contract; each fits a byte.
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotRunning => 3,
            Exit::NotPermitted => 4,
            Exit::NotStarted => 125,
            Exit::NotExecutable => 126,
            Exit::NoSuchProgram => 127,
        })
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// To be told to the user in one line.
    Told {
        /// The status to end with.
        exit: Exit,
        /// What was wrong, with which input, what to do.
        message: String,
    },
    /// Whoever read our output has had enough (`plimsoll history | head -1`): no failure, and nobody left to tell.
    ReaderGone,
}

impl Failure {
    /// Bad input: exit status 2.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::Told { exit: Exit::Usage, message: message.to_string() }
    }

    /// A right is missing: exit status 4.
    pub(crate) fn not_permitted(message: impl ToString) -> Self {
        Self::Told { exit: Exit::NotPermitted, message: message.to_string() }
    }

    /// Exit status 1.
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::Told { exit: Exit::Failed, message: message.to_string() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let exit = match error {
            CallError::NotRunning { .. } => Exit::NotRunning,
            CallError::NotPermitted(_) => Exit::NotPermitted,
            CallError::Invalid(_) => Exit::Usage,
            CallError::NotFound(_)
            | CallError::Busy(_)
            | CallError::Refused(_)
            | CallError::NoAnswer { .. } => Exit::Failed,
        };
        Self::Told { exit, message: error.to_string() }
    }
}

/// A failure to write our own output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::failed(format_args!("cannot write the output: {error}"))
        }
    }
}

/// A failure to write our own output as JSON.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format_args!("{error:#}"))
    }
}

/// What each command comes to.
pub(crate) type Ending = Result<Exit, Failure>;

#[cfg(test)]
mod tests;
