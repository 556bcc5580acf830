//! What other threads ask of the guard thread, and how it is woken for it.

use super::{last_defence::ArrangedKill, selection::judge::JudgeAnswer};
use crate::{
    api::control::Refusal,
    compactor::Report,
    facts::{cmdlines::Found, copied::Survey, meter::Looked, shared::Walked},
    foreign_kills::ForeignKill,
    message::{Receiver, Sender, queue},
    tmalloc::Refused,
};
use plimsoll_api::{accounts::AccountView, status::Status};
use plimsoll_policy::{
    account::Account,
    last_defence::LastDefenceConfig,
    limits::LimitConfig,
    lines::{Jobs, LineBook, Place},
    machine::MachineConfig,
    preference::Rules,
    units::{Bytes, JobId, Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{Looks, Selector},
    process::PidFd,
};
use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    time::Duration,
};

/// Requests waiting at once; one more is refused.
const QUEUE_MAX: usize = 64;

/// How long a caller waits for the guard: longer than any scan takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way back.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    answer: SyncSender<T>,
    /// The guard has begun with it, or its caller has given up: whichever came first.
    settled: Arc<AtomicBool>,
}

impl<T> Reply<T> {
    /// Whether the caller still waits; if so, it does from here on until it is answered. For before anything is changed: a
    /// caller that gave up said that nothing was.
    pub(crate) fn begin(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn send(self, value: T) {
        // A caller that has gone hears nothing.
        self.answer.try_send(value).ok();
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// One, which tells whose doing it is; `now`: enforce it at once.
    One { place: Place, now: bool },
    /// Jobs have ended.
    JobsEnded,
    /// Jobs that waited have their turn: nothing is drawn.
    Turns,
    /// Any of them: start, reload.
    All,
}

impl Change {
    /// Whether it is of jobs, which are not kept with the lines.
    pub(crate) fn is_of_jobs(&self) -> bool {
        matches!(self, Self::One { place: Place::Job(..), .. } | Self::JobsEnded | Self::Turns)
    }

    /// The job whose line it is of.
    pub(crate) fn job(&self) -> Option<JobId> {
        match self {
            Self::One { place: Place::Job(id, _), .. } => Some(*id),
            Self::One { .. } | Self::JobsEnded | Self::Turns | Self::All => None,
        }
    }

    /// Whether it is of a line that needs no programs.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::One { place, .. } if place.target().measured().is_some())
    }
}

/// Clean file memory was below its floor, or near it with nothing that reclaim could take, and nothing but a process's end
/// could bring memory back.
#[derive(Debug, Clone)]
pub(crate) struct BelowFloor {
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) noticed: Nanos,
    /// Clean file memory then.
    pub(crate) clean: Pages,
    /// The floor.
    pub(crate) line: Pages,
    /// Whom the programs sent SIGKILL, and when; `None`: they could not, and the guard is to select.
    pub(crate) taken: Option<(VictimId, Nanos)>,
    /// Nobody but these is selected; `None`: anybody.
    pub(crate) among: Option<BTreeSet<Pid>>,
}

/// What the configuration says to the guards.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    pub(crate) limits: LimitConfig,
    pub(crate) machine: Option<MachineConfig>,
    pub(crate) last_defence: LastDefenceConfig,
    pub(crate) rules: Rules,
    /// What grants leave free under each line.
    pub(crate) headroom: Bytes,
    /// Memory is compacted where large blocks run out.
    pub(crate) fragmentation: bool,
}

/// What is asked of jobs.
#[derive(Debug)]
pub(crate) enum OfJobs {
    /// The one that a process is in; it may have ended.
    Around { process: Arc<PidFd>, reply: Reply<Result<Option<JobId>, Refusal>> },
    /// This process is in one from here on. The number of the next incident: those of the job are not below it.
    Enter { process: Arc<PidFd>, job: JobId, reply: Reply<Result<u64, Refusal>> },
    /// Those that nobody runs in any more.
    Ended { walk: bool, reply: Reply<Result<Vec<JobId>, Refusal>> },
    /// Those of these that wait and have their turn.
    Turns { jobs: Jobs, reply: Reply<Result<Vec<JobId>, Refusal>> },
}

/// A request.
#[derive(Debug)]
pub(crate) enum Request {
    /// These are the lines now. The programs are loaded already where there are any.
    Lines { book: Arc<LineBook>, change: Change, reply: Reply<Result<(), Refusal>> },
    /// Of jobs.
    Jobs(OfJobs),
    /// The configuration changed.
    Configure { configured: Configured, reply: Reply<Result<(), Refusal>> },
    /// What cgroups with a line hold, and the machine.
    Looked(Looked),
    /// Accounts with a line; `only`: that one.
    Accounts { only: Option<Account>, asker: Uid, reply: Reply<Result<Vec<AccountView>, Refusal>> },
    /// The kernel's own OOM killer took somebody.
    LastDefence(ArrangedKill),
    /// Somebody else took somebody. Answered when it is written down; `written` is then set, and a second request with the
    /// same one, made because the answer to the first was late, is only answered.
    ForeignKills { kill: ForeignKill, written: Arc<AtomicBool>, reply: Reply<Result<(), Refusal>> },
    /// Command lines that rules ask for.
    CommandLines(Found),
    /// What processes of an account near its line count.
    Judged(JudgeAnswer),
    /// The selection programs are there.
    Equip(Box<Selector>),
    /// The programs that tell when to look at memory are there.
    Looks(Box<Looks>),
    /// What forked processes were found to have copied.
    Surveyed(Survey),
    /// What a walk of shared memory found.
    SharedWalked(Walked),
    /// What came of a look at large blocks.
    Compacted(Result<Report, String>),
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
    requests: Receiver<Request>,
    worked_ns: Arc<AtomicU64>,
}

impl Mailbox {
    /// As [`Receiver::next`].
    pub(crate) fn next(&self) -> Result<Request, TryRecvError> {
        self.requests.next()
    }

    /// Notes what was spent on requests.
    pub(crate) fn worked(&self, time: Duration) {
        self.worked_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// As [`Receiver::close`].
    pub(crate) fn close(&mut self) {
        self.requests.close();
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }
}

/// The callers' end.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    requests: Sender<Request>,
    worked_ns: Arc<AtomicU64>,
}

/// Both ends.
pub(crate) fn mailbox() -> io::Result<(Mailbox, Caller)> {
    let (sender, requests) = queue(QUEUE_MAX)?;
    let worked_ns = Arc::<AtomicU64>::default();
    Ok((Mailbox { requests, worked_ns: Arc::clone(&worked_ns) }, Caller { requests: sender, worked_ns }))
}

impl Caller {
    /// Asks and waits for the answer: until the guard is done where it has begun with a change, and else for 10 s.
    pub(crate) fn ask<T>(
        &self,
        request: impl FnOnce(Reply<Result<T, Refusal>>) -> Request,
    ) -> Result<T, Refusal> {
        self.ask_within(PATIENCE, request)
    }

    fn ask_within<T>(
        &self,
        patience: Duration,
        request: impl FnOnce(Reply<Result<T, Refusal>>) -> Request,
    ) -> Result<T, Refusal> {
        let (sender, answer) = sync_channel(1);
        let settled = Arc::new(AtomicBool::new(false));
        self.send(request(Reply { answer: sender, settled: Arc::clone(&settled) }))?;
        let answered = match answer.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) if settled.swap(true, Ordering::AcqRel) => answer.recv().ok(),
            answered => answered.ok(),
        };
        let late = "the guard did not answer within 10 s, and nothing was changed; try again";
        answered.unwrap_or_else(|| Err(Refusal::Unavailable(late.into())))
    }

    /// What of a CPU the guard has spent on requests.
    pub(crate) fn worked(&self) -> Duration {
        Duration::from_nanos(self.worked_ns.load(Ordering::Relaxed))
    }

    /// Tells without an answer.
    pub(crate) fn send(&self, request: Request) -> Result<(), Refusal> {
        let busy = |_| Refusal::Unavailable("the guard is busy or stopping; try again".into());
        self.requests.try_send(request).map_err(busy)
    }

    /// Tells without an answer, and waits while the guard is busy: for its own threads. One that stops needs none of it.
    pub(crate) fn deliver(&self, request: Request) {
        self.requests.send(request).ok();
    }
}

#[cfg(test)]
mod tests;
