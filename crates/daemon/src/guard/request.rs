//! What other threads ask of the guard thread, and how it is woken for it.

use crate::api::control::Refusal;
use nix::sys::eventfd::{EfdFlags, EventFd};
use plimsoll_policy::{
    account::AccountView,
    limits::LimitConfig,
    lines::{LineBook, Target},
    machine::MachineConfig,
    status::Status,
    units::Uid,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Requests waiting at once; one more is refused.
const QUEUE_MAX: usize = 64;

/// How long a caller waits for the guard: longer than any scan takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way back; a caller that has given up loses nothing but the answer.
#[derive(Debug)]
pub(crate) struct Reply<T>(SyncSender<T>);

impl<T> Reply<T> {
    pub(crate) fn send(self, value: T) {
        if self.0.try_send(value).is_err() {
            // The caller has gone: nobody is left to tell.
        }
    }
}

/// Which line changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// One target's; `now`: enforce it at once.
    One { target: Target, now: bool },
    /// Any of them: start, reload.
    All,
}

/// A request.
#[derive(Debug)]
pub(crate) enum Request {
    /// These are the lines now. The programs are loaded already where there are any.
    Lines { book: Arc<LineBook>, change: Change, reply: Reply<Result<(), Refusal>> },
    /// The configuration changed.
    Configure { limits: LimitConfig, machine: Option<MachineConfig>, reply: Reply<Result<(), Refusal>> },
    /// Accounts with a line.
    Accounts { user: Option<Uid>, asker: Uid, reply: Reply<Result<Vec<AccountView>, Refusal>> },
    /// Everything.
    Status { asker: Uid, reply: Reply<Result<Status, Refusal>> },
}

/// The guard's end.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Receiver<Request>,
    bell: Arc<EventFd>,
}

/// The callers' end.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    queue: SyncSender<Request>,
    bell: Arc<EventFd>,
}

/// Both ends.
pub(crate) fn mailbox() -> io::Result<(Mailbox, Caller)> {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let bell = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    Ok((Mailbox { queue: receiver, bell: Arc::clone(&bell) }, Caller { queue: sender, bell }))
}

impl Mailbox {
    /// The next request. The bell is silenced first, so that none is missed.
    pub(crate) fn next(&self) -> Option<Request> {
        if let Err(errno) = self.bell.read()
            && errno != nix::errno::Errno::EAGAIN
        {
            // An event descriptor fails in no other way; the queue is looked at all the same.
        }
        self.queue.try_recv().ok()
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Caller {
    /// Asks and waits for the answer.
    pub(crate) fn ask<T>(
        &self,
        request: impl FnOnce(Reply<Result<T, Refusal>>) -> Request,
    ) -> Result<T, Refusal> {
        let (sender, receiver) = sync_channel(1);
        self.send(request(Reply(sender)))?;
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            Err(Refusal::Unavailable("the guard did not answer within 10 s; try again".into()))
        })
    }

    /// Tells without an answer.
    pub(crate) fn send(&self, request: Request) -> Result<(), Refusal> {
        let busy = |_| Refusal::Unavailable("the guard is busy or stopping; try again".into());
        self.queue.try_send(request).map_err(busy)?;
        self.bell
            .write(1)
            .map(|_| ())
            .map_err(|errno| Refusal::Internal(format!("cannot wake the guard: {errno}")))
    }
}
