//! What other threads ask of the guard thread, and how it is woken for it.

use super::{examiner::Findings, last_defence::Deed, machine::BelowFloor};
use crate::cmdlines::Found;
use crate::coordinator::Refused;
use crate::{api::control::Refusal, obituary::Deceased, survey::Survey};
use nix::sys::eventfd::{EfdFlags, EventFd};
use plimsoll_policy::{
    account::AccountView,
    last_defence::LastDefenceConfig,
    limits::LimitConfig,
    lines::{LineBook, Place},
    machine::MachineConfig,
    preference::Rules,
    status::Status,
    units::{Bytes, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::bpf::Selector;
use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::AtomicBool,
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

/// Where the order of victims is told.
pub(crate) struct Ranked(Box<dyn FnOnce(Vec<VictimId>) + Send>);

impl Ranked {
    /// `tell` runs on the guard's thread, and must not wait.
    pub(crate) fn new(tell: impl FnOnce(Vec<VictimId>) + Send + 'static) -> Self {
        Self(Box::new(tell))
    }

    pub(crate) fn tell(self, victims: Vec<VictimId>) {
        (self.0)(victims);
    }
}

impl std::fmt::Debug for Ranked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranked").finish_non_exhaustive()
    }
}

/// Which line changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// One, which tells whose doing it is; `now`: enforce it at once.
    One { place: Place, now: bool },
    /// Any of them: start, reload.
    All,
}

/// A request.
#[derive(Debug)]
pub(crate) enum Request {
    /// These are the lines now. The programs are loaded already where there are any.
    Lines { book: Arc<LineBook>, change: Change, reply: Reply<Result<(), Refusal>> },
    /// The configuration changed.
    Configure {
        limits: LimitConfig,
        machine: Option<MachineConfig>,
        last_defence: LastDefenceConfig,
        rules: Rules,
        /// What grants leave free under each line.
        headroom: Bytes,
        reply: Reply<Result<(), Refusal>>,
    },
    /// Accounts with a line.
    Accounts { user: Option<Uid>, asker: Uid, reply: Reply<Result<Vec<AccountView>, Refusal>> },
    /// The kernel's own OOM killer took somebody.
    LastDefence(Deed),
    /// Somebody else took somebody. Answered when it is written down; `written` is then set, and a second request with the
    /// same one, made because the answer to the first was late, is only answered.
    Obituary { deceased: Deceased, written: Arc<AtomicBool>, reply: Reply<Result<(), Refusal>> },
    /// Command lines that rules ask for.
    CommandLines(Found),
    /// What processes of an account near its line count.
    Examined(Findings),
    /// The selection programs are there.
    Equip(Box<Selector>),
    /// What forked processes were found to have copied.
    Surveyed(Survey),
    /// A request for memory was refused.
    Refused(Refused),
    /// The coordinator has to know what accounts use exactly: all tasks are walked, and it is told.
    Walk,
    /// Whom the machine guard would select now, in order; `among`: of these.
    Foremost { among: Option<BTreeSet<Pid>>, told: Ranked },
    /// Clean file memory was below its floor: somebody has to go, or has been taken.
    BelowFloor(BelowFloor),
    /// Clean file memory is far from its floor: nobody asks for a while.
    FloorFar,
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
    /// The next request. The bell goes on ringing while there may be another: whoever takes one and comes back later
    /// misses none.
    pub(crate) fn next(&self) -> Option<Request> {
        if let Ok(request) = self.queue.try_recv() {
            return Some(request);
        }
        if self.bell.read().is_err() {
            // It does not ring, or an event descriptor failed, which it does not; the queue is looked at all the same.
        }
        let late = self.queue.try_recv().ok()?;
        if self.bell.write(1).is_err() {
            // Full, and so it rings.
        }
        Some(late)
    }
}

impl Mailbox {
    /// Takes nothing any more: whoever waits for an answer, or asks later, learns that there is none.
    pub(crate) fn close(&mut self) {
        let (_nobody, closed) = sync_channel(0);
        self.queue = closed;
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
