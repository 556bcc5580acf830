//! What the service manager that started the daemon is told (sd_notify(3)): that it guards, what came of a reload, that its
//! guard thread takes its turns, and which connections are to outlive it. Where nobody asks for it, nothing is sent and nobody
//! wakes up.

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use plimsoll_policy::units::Nanos;
use rustix::net::{SendFlags, send};
use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd as _, BorrowedFd, RawFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Arc,
    time::Duration,
};

/// How long a message may wait for room in the service manager's queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// A service manager waits so many pulses long before it takes the daemon for stuck: two may be lost.
const PULSES: u64 = 3;

/// Descriptors that one message may carry.
pub(crate) const KEPT_AT_ONCE: usize = 200;

/// The service manager, if there is one that wants to be told. A clone tells the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supervisor {
    socket: Option<Arc<UnixDatagram>>,
    /// From one sign of life to the next.
    every: Option<Nanos>,
}

impl Supervisor {
    /// The one that the environment names.
    ///
    /// # Errors
    /// It names one that cannot be reached.
    pub(crate) fn of_environment() -> io::Result<Self> {
        let meant = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let timeout = env::var("WATCHDOG_USEC").ok().filter(|_| meant);
        Self::new(env::var_os("NOTIFY_SOCKET"), timeout.as_deref())
    }

    pub(crate) fn new(socket: Option<OsString>, timeout_us: Option<&str>) -> io::Result<Self> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Ok(Self::default()) };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&name)?)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let timeout = timeout_us.and_then(|timeout| timeout.parse::<u64>().ok()).filter(|us| *us > 0);
        let every = timeout.map(|us| Nanos(us.saturating_mul(1000) / PULSES));
        Ok(Self { socket: Some(Arc::new(socket)), every })
    }

    /// Guarding has begun.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is being read anew; time of CLOCK_MONOTONIC.
    pub(crate) fn reloading(&self, now: Nanos) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.0 / 1000));
    }

    /// It was read: what came of it, for `systemctl status`.
    pub(crate) fn reloaded(&self, said: &str) {
        // Each line would be a message of its own.
        self.tell(&format!("READY=1\nSTATUS={}", said.replace('\n', " ")));
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Has descriptors kept for the next daemon, at most [`KEPT_AT_ONCE`], under a name of letters. The service manager gives
    /// each up when its other end is closed. Whether the message was taken; `waits`: for room in the queue, some seconds.
    pub(crate) fn keep(&self, name: &str, descriptors: &[BorrowedFd<'_>], waits: bool) -> bool {
        let Some(socket) = &self.socket else { return false };
        let words = format!("FDSTORE=1\nFDNAME={name}");
        let numbers: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let flags =
            if waits { MsgFlags::MSG_NOSIGNAL } else { MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT };
        let rights = [ControlMessage::ScmRights(&numbers)];
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(words.as_bytes())], &rights, flags, None).is_ok()
    }

    fn tell(&self, words: &str) {
        if let Some(socket) = &self.socket {
            // One that is gone, or does not listen, changes nothing about guarding.
            socket.send(words.as_bytes()).ok();
        }
    }

    /// The signs of life of the thread that calls, from this moment on.
    pub(crate) fn pulse(&self, now: Nanos) -> Pulse {
        Pulse { supervisor: self.clone(), due: self.every.map(|_| now) }
    }
}

/// A path, or, after an `@`, a name in the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

/// When the next sign of life is due.
#[derive(Debug)]
pub(crate) struct Pulse {
    supervisor: Supervisor,
    due: Option<Nanos>,
}

impl Pulse {
    /// When [`Self::beat`] has something to send; `None`: never.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Gives a sign of life, if one is due. Waits for nobody: one that finds no room is lost.
    pub(crate) fn beat(&mut self, now: Nanos) {
        if self.due.is_some_and(|due| due <= now)
            && let Supervisor { socket: Some(socket), every: Some(every) } = &self.supervisor
        {
            send(socket, b"WATCHDOG=1", SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok();
            self.due = Some(Nanos(now.0.saturating_add(every.0)));
        }
    }
}

#[cfg(test)]
mod tests;
