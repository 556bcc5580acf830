//! The client's side of the control socket: one connection, one typed method per call, no waiting for ever.

use super::{
    frame::{FrameError, Frames, Patience, write_within},
    message::{
        AwaitIncident, AwaitIncidentReply, ClearLimitCall, ClearLimitReply, ExpediteCall, ExpediteReply,
        GetIncident, HistoryCall, HistoryPage, INTERFACE, IncidentReply, Limits, Nothing, ProcessesReply,
        ProtectionReply, SetLimitCall, SetProtectionCall, ShowLimits, ShowProcesses, ShowProtection,
        StartJobCall, StartJobReply,
    },
};
use crate::{accounts::AccountProcesses, protect::ProtectView, status::Status};
use plimsoll_policy::{
    incident::Incident,
    lines::{Cleared, Target},
    units::Pid,
    workingset::TunableChange,
};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::{Timeout, set_socket_timeout, socket_peercred},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use varlink::{Reply, Request, sansio::protocol};

/// The largest reply that is read, in bytes: four times what a page of incidents may be.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// How long the daemon may take over anything. Under memory pressure it is slow, not silent.
const ANSWER: Duration = Duration::from_secs(60);

/// From one try to the next where no connection is free: at first, and at most.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why a call has no result. Each is one line with what to do.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody serves the socket.
    #[error(
        "the plimsoll daemon is not running (no answer on '{socket}'); start it with 'systemctl start plimsoll' or 'plimsoll daemon'",
        socket = .socket.display()
    )]
    NotRunning {
        /// Where it was looked for.
        socket: PathBuf,
    },
    /// The caller may not.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// As many connections as one user may have are taken, or all are.
    #[error("the daemon refused: {0}")]
    Busy(String),
    /// The daemon refused, for another reason.
    #[error("the daemon refused: {0}")]
    Refused(String),
    /// No answer, or none that can be understood.
    #[error("the daemon on '{socket}' gave no answer: {why}; see its journal and try again", socket = .socket.display())]
    NoAnswer {
        /// Where it serves.
        socket: PathBuf,
        /// What happened.
        why: String,
    },
}

/// A connection to the daemon. Each call fails with the [`CallError`] that says why.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    socket: PathBuf,
    patience: Patience,
    standing: Standing,
}

/// Whether it was answered, and whether the other end has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unanswered,
    Answered,
    /// Without an answer: as a daemon does with those who have all their connections.
    TurnedAway,
}

impl Client {
    /// Connects to the daemon that serves `socket`.
    ///
    /// # Errors
    /// [`CallError::NotRunning`] when there is no socket or nobody behind it, [`CallError::NotPermitted`] when the
    /// file system does not let the caller reach it, [`CallError::NoAnswer`] for all else.
    pub fn connect(socket: &Path) -> Result<Self, CallError> {
        Self::connect_within(socket, ANSWER)
    }

    /// Asks over a connection of its own, and again until then, while all connections that one user may have are taken.
    ///
    /// # Errors
    /// Any [`CallError`].
    pub fn ask<T>(
        socket: &Path,
        answer: Duration,
        until: Instant,
        mut ask: impl FnMut(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut pause = BUSY_PAUSE;
        loop {
            let mut is_busy = false;
            let asked = Self::connect_within(socket, answer).and_then(|mut client| {
                let asked = ask(&mut client);
                is_busy = client.standing == Standing::TurnedAway;
                asked
            });
            if !(is_busy || matches!(asked, Err(CallError::Busy(_)))) || Instant::now() >= until {
                return asked;
            }
            // Many who were turned away at once come back one after the other.
            let part = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos() % 100);
            thread::sleep(pause + pause * part / 100);
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }

    /// The same as [`Client::connect`], for who waits no longer than so, for the connection and for each answer.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(socket: &Path, answer: Duration) -> Result<Self, CallError> {
        let patience = Patience { idle: answer, message: answer };
        match open(socket, answer) {
            Ok(stream) => {
                Ok(Self { stream, socket: socket.to_owned(), patience, standing: Standing::Unanswered })
            }
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => {
                Err(CallError::NotRunning { socket: socket.to_owned() })
            }
            Err(Errno::ACCESS | Errno::PERM) => Err(CallError::NotPermitted(format!(
                "'{}' is out of your reach; ask the administrator for access to its folder",
                socket.display()
            ))),
            Err(Errno::AGAIN) => Err(no_answer(socket, "it accepts no connection")),
            Err(errno) => {
                let said = errno.to_string();
                Err(no_answer(socket, said.split(" (os error").next().unwrap_or(&said)))
            }
        }
    }

    /// What is guarded, and how.
    pub fn status(&mut self) -> Result<Status, CallError> {
        self.call("Status", &Nothing {})
    }

    /// The line of `who`, or all lines that the caller may see.
    pub fn show_limits(&mut self, who: Option<Target>) -> Result<Limits, CallError> {
        self.call("ShowLimits", &ShowLimits { who })
    }

    /// The processes of `who`, or of all accounts that have a line and that the caller may see; of each account at most so
    /// many.
    pub fn show_processes(
        &mut self,
        who: Option<Target>,
        most: Option<u64>,
    ) -> Result<Vec<AccountProcesses>, CallError> {
        let reply = self.call("ShowProcesses", &ShowProcesses { who, most });
        reply.map(|reply: ProcessesReply| reply.accounts)
    }

    /// Draws a line.
    pub fn set_limit(&mut self, limit: &SetLimitCall) -> Result<Limits, CallError> {
        self.call("SetLimit", limit)
    }

    /// Removes a line.
    pub fn clear_limit(&mut self, who: Target) -> Result<Cleared, CallError> {
        self.call("ClearLimit", &ClearLimitCall { who }).map(|reply: ClearLimitReply| reply.result)
    }

    /// Starts a job, with this process in it: it must have one thread.
    pub fn start_job(&mut self, start: &StartJobCall) -> Result<StartJobReply, CallError> {
        self.call("StartJob", start)
    }

    /// What is kept in memory; at most so many files are told.
    pub fn show_protection(&mut self, files: Option<u64>) -> Result<ProtectView, CallError> {
        let reply = self.call("ShowProtection", &ShowProtection { files });
        reply.map(|reply: ProtectionReply| reply.protection)
    }

    /// Changes tunables.
    pub fn set_protection(&mut self, settings: Vec<TunableChange>) -> Result<ProtectView, CallError> {
        let reply = self.call("SetProtection", &SetProtectionCall { settings });
        reply.map(|reply: ProtectionReply| reply.protection)
    }

    /// Has a process freed that was sent SIGKILL; whether it was taken.
    pub fn expedite(&mut self, victim: ExpediteCall) -> Result<bool, CallError> {
        self.call("Expedite", &victim).map(|reply: ExpediteReply| reply.taken)
    }

    /// The daemon's process, as the kernel knows it. `None`: it is in another pid namespace.
    pub fn daemon(&self) -> Option<Pid> {
        let credentials = socket_peercred(&self.stream).ok()?;
        u32::try_from(credentials.pid.as_raw_nonzero().get()).ok().map(Pid)
    }

    /// Waits for an incident that the caller may see, or for an account that comes near its line.
    pub fn await_incident(&mut self, call: &AwaitIncident) -> Result<AwaitIncidentReply, CallError> {
        self.call("AwaitIncident", call)
    }

    /// One page of incidents.
    pub fn history_page(&mut self, query: HistoryCall) -> Result<HistoryPage, CallError> {
        self.call("History", &query)
    }

    /// Incidents, oldest first: all that `query` admits, page by page; with a limit, the newest of them.
    pub fn history(&mut self, query: HistoryCall) -> Result<Vec<Incident>, CallError> {
        self.history_where(query, |_| true)
    }

    /// The same of those that `admits` lets through; no page is asked for once there are as many as the limit says.
    pub fn history_where(
        &mut self,
        query: HistoryCall,
        admits: impl Fn(&Incident) -> bool,
    ) -> Result<Vec<Incident>, CallError> {
        self.go_back(query, 0, admits)
    }

    /// Of the incidents after that one those that `admits` lets through, oldest first; of more than `most` the newest.
    pub fn history_after(
        &mut self,
        after_id: u64,
        most: u64,
        admits: impl Fn(&Incident) -> bool,
    ) -> Result<Vec<Incident>, CallError> {
        self.go_back(HistoryCall { limit: Some(most), ..HistoryCall::default() }, after_id, admits)
    }

    /// No page is asked for once there are as many as the limit says, nor one before `after_id`.
    fn go_back(
        &mut self,
        query: HistoryCall,
        after_id: u64,
        admits: impl Fn(&Incident) -> bool,
    ) -> Result<Vec<Incident>, CallError> {
        let wanted = query.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut before_id = query.before_id;
        let mut newest_first = Vec::new();
        loop {
            // Always whole pages: an unprivileged caller's page may come back with fewer than asked for.
            let page = self.history_page(HistoryCall { before_id, limit: None, ..query })?;
            let admitted = |incident: &Incident| incident.id > after_id && admits(incident);
            newest_first.extend(page.incidents.into_iter().rev().filter(admitted));
            let enough = wanted.is_some_and(|wanted| newest_first.len() >= wanted);
            // A next page that is no older would never end.
            let older = page.next_before_id.filter(|next| *next > after_id);
            let older = older.filter(|next| before_id.is_none_or(|before| *next < before));
            if enough || older.is_none() {
                break;
            }
            before_id = older;
        }
        newest_first.truncate(wanted.unwrap_or(usize::MAX));
        newest_first.reverse();
        Ok(newest_first)
    }

    /// One incident; the newest when neither an id nor a process is given.
    pub fn incident(&mut self, which: GetIncident) -> Result<Incident, CallError> {
        self.call("GetIncident", &which).map(|reply: IncidentReply| reply.incident)
    }

    fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: &P,
    ) -> Result<R, CallError> {
        let fail = |why: &dyn std::fmt::Display| no_answer(&self.socket, &why.to_string());
        let parameters = serde_json::to_value(parameters).map_err(|error| fail(&error))?;
        let request = Request::create(format!("{INTERFACE}.{method}"), Some(parameters));
        let request = protocol::serialize_request(&request).map_err(|error| fail(&error))?;
        match write_within(&self.stream, &request, self.patience.message) {
            // A daemon that turns us away says why before it closes: what it said is still there to be read.
            Ok(()) => {}
            Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(fail(&error)),
        }
        let reply = Frames::new(&self.stream, REPLY_BYTES_MAX).read(self.patience);
        let is_closed = match &reply {
            Ok(reply) => reply.is_none(),
            Err(FrameError::Io(error)) => error.kind() == io::ErrorKind::ConnectionReset,
            Err(_) => false,
        };
        self.standing = match self.standing {
            Standing::Unanswered if is_closed => Standing::TurnedAway,
            before if is_closed => before,
            Standing::Unanswered | Standing::Answered | Standing::TurnedAway => Standing::Answered,
        };
        let reply = reply.map_err(|error| fail(&error))?.ok_or_else(|| fail(&"it closed the connection"))?;
        let reply = protocol::parse_reply(&reply).map_err(|error| fail(&error))?;
        if let Some(name) = reply.error.as_deref() {
            return Err(refusal(name, &reply));
        }
        let parameters = reply.parameters.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        serde_json::from_value(parameters)
            .map_err(|error| fail(&format_args!("it speaks another version ({error})")))
    }
}

/// Connects with a deadline: a daemon that is stopped has a queue that fills up, and then `connect` would block.
fn open(path: &Path, patience: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn no_answer(socket: &Path, why: &str) -> CallError {
    CallError::NoAnswer { socket: socket.to_owned(), why: why.to_owned() }
}

/// An error reply as its kind, with its message; errors of Varlink itself by their name.
fn refusal(name: &str, reply: &Reply) -> CallError {
    let message = reply.parameters.as_ref().and_then(|parameters| parameters.get("message"));
    let message = message.and_then(Value::as_str).unwrap_or(name).to_owned();
    match name.strip_prefix(INTERFACE) {
        Some(".NotPermitted") => CallError::NotPermitted(message),
        Some(".NotFound") => CallError::NotFound(message),
        Some(".Invalid") => CallError::Invalid(message),
        Some(".Busy") => CallError::Busy(message),
        _ => CallError::Refused(message),
    }
}

#[cfg(test)]
mod tests;
