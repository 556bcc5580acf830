//! Victims on their way from the thread that decides to those that free.
//!
//! A bounded channel holds them, and a counting eventfd wakes: one that waits on the channel itself would have to take
//! its lock to be woken, and whoever submits would meet that lock. Here the receiving end is only ever asked, so the
//! sending end finds nobody registered and takes no lock.

use super::{
    super::{PidFd, clock_monotonic_ns},
    early::Early,
};
use plimsoll_policy::units::Pid;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, read, write},
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
};

/// Victims that were waited for before they were killed, and are not handed over yet.
const EARLY_MAX: usize = 16;

/// Room for our own victims that are at their threads: more are as good as never.
const OWN_USUAL: usize = 64;

/// Who killed a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledBy {
    /// Whoever has the [`super::Reaper`]: it waits for the memory.
    Us,
    /// Anybody else.
    Others,
}

/// One victim.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) pidfd: PidFd,
    pub(super) tag: u64,
    /// Whose kill it was.
    pub(super) killed_by: KilledBy,
    /// When it was handed over, on `CLOCK_MONOTONIC`.
    pub(super) handed_ns: u64,
}

/// What a thread is woken for.
#[derive(Debug)]
pub(super) enum Work {
    Reap(Job),
    /// This one is about to be killed.
    Expect(PidFd),
    /// Another thread is at a large victim: free beside it.
    Help(PidFd),
    /// Nothing more will come.
    End,
}

/// The side of whoever decides.
#[derive(Debug)]
pub(super) struct Queue {
    jobs: Option<SyncSender<Job>>,
    others: SyncSender<Job>,
    expected: SyncSender<PidFd>,
    wake: Arc<OwnedFd>,
    threads: usize,
    /// Victims that came back.
    pub(super) refused: AtomicU64,
}

/// The side of those who free.
#[derive(Debug)]
pub(super) struct Taker {
    jobs: Mutex<Receiver<Job>>,
    others: Mutex<Others>,
    expected: Mutex<Receiver<PidFd>>,
    early: Mutex<Vec<Arc<Early>>>,
    /// Our own victims from their turn to their report.
    own: Mutex<Vec<Pid>>,
    help: Mutex<Vec<PidFd>>,
    pub(super) wake: Arc<OwnedFd>,
    threads: usize,
}

/// Victims of others' kills, and how many of them are being freed.
#[derive(Debug)]
struct Others {
    jobs: Receiver<Job>,
    at_work: usize,
}

impl Queue {
    pub(super) fn new(length: usize, threads: usize) -> io::Result<(Self, Taker)> {
        let (sender, receiver) = sync_channel(length);
        let (for_others, of_others) = sync_channel(length);
        let (expecting, expected) = sync_channel(threads);
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = Arc::new(eventfd(0, flags)?);
        let taker = Taker {
            jobs: Mutex::new(receiver),
            others: Mutex::new(Others { jobs: of_others, at_work: 0 }),
            expected: Mutex::new(expected),
            early: Mutex::new(Vec::with_capacity(EARLY_MAX)),
            own: Mutex::new(Vec::with_capacity(OWN_USUAL)),
            help: Mutex::new(Vec::with_capacity(threads)),
            wake: Arc::clone(&wake),
            threads,
        };
        Ok((
            Self {
                jobs: Some(sender),
                others: for_others,
                expected: expecting,
                wake,
                threads,
                refused: AtomicU64::new(0),
            },
            taker,
        ))
    }

    /// As [`super::Reaper::submit`].
    pub(super) fn submit(&self, pidfd: PidFd, tag: u64, killed_by: KilledBy) -> Result<(), PidFd> {
        // None only while it is dropped, when nobody can hand anything over.
        let Some(jobs) = &self.jobs else { return Err(pidfd) };
        let job = Job { pidfd, tag, killed_by, handed_ns: clock_monotonic_ns() };
        let sent = match killed_by {
            KilledBy::Us => jobs.try_send(job),
            KilledBy::Others => self.others.try_send(job),
        };
        match sent {
            Ok(()) => {
                ring(&self.wake, 1);
                Ok(())
            }
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                self.refused.fetch_add(u64::from(killed_by == KilledBy::Us), Ordering::Relaxed);
                Err(job.pidfd)
            }
        }
    }

    /// As [`super::Reaper::expect`].
    pub(super) fn expect(&self, victim: &PidFd) {
        if let Ok(copy) = victim.try_clone()
            && self.expected.try_send(copy).is_ok()
        {
            ring(&self.wake, 1);
        }
    }
}

/// Nothing more comes: each thread ends after what is queued.
impl Drop for Queue {
    fn drop(&mut self) {
        self.jobs = None;
        ring(&self.wake, u64::try_from(self.threads).unwrap_or(u64::MAX));
    }
}

impl Taker {
    /// What there is to do, if there is something; does not wait.
    pub(super) fn take(&self) -> Option<Work> {
        let mut token = [0; 8];
        match read(&*self.wake, &mut token) {
            Ok(_) => {}
            Err(_empty) => return None,
        }
        // Held for the length of one `try_recv`, by threads of this pool alone.
        match self.jobs.lock().unwrap_or_else(PoisonError::into_inner).try_recv() {
            Ok(job) => Some(Work::Reap(job)),
            Err(TryRecvError::Empty) => self
                .expected_one()
                .or_else(|| self.helped().pop().map(Work::Help))
                .or_else(|| self.others_one().map(Work::Reap)),
            Err(TryRecvError::Disconnected) => Some(Work::End),
        }
    }

    fn expected_one(&self) -> Option<Work> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok().map(Work::Expect)
    }

    /// One that somebody else killed, where enough threads are left for one of our own.
    fn others_one(&self) -> Option<Job> {
        let mut others = self.others();
        if others.at_work >= self.threads.saturating_sub(1).max(1) {
            return None;
        }
        let job = others.jobs.try_recv().ok()?;
        others.at_work = others.at_work.saturating_add(1);
        Some(job)
    }

    /// Another one that somebody else killed may be freed.
    pub(super) fn make_way(&self) {
        let mut others = self.others();
        others.at_work = others.at_work.saturating_sub(1);
        drop(others);
        // Whoever was woken for the next one may have left it.
        ring(&self.wake, 1);
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is one of our own victims.
    pub(super) fn is_own(&self, pid: Pid) -> bool {
        self.own().contains(&pid)
    }

    /// One of our own victims has its turn.
    pub(super) fn note_own(&self, pid: Pid) {
        self.own().push(pid);
    }

    /// It is reported.
    pub(super) fn forget_own(&self, pid: Pid) {
        let mut own = self.own();
        if let Some(at) = own.iter().position(|one| *one == pid) {
            own.swap_remove(at);
        }
    }

    fn own(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread that the victim is handed to know that this one is at it.
    pub(super) fn note_early(&self, early: &Arc<Early>) {
        let mut notes = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= EARLY_MAX {
            // Those that were never handed over, for the signal was refused.
            notes.remove(0);
        }
        notes.push(Arc::clone(early));
    }

    /// What is known of a victim since before it was handed over; only once.
    pub(super) fn take_early(&self, pid: Pid) -> Option<Arc<Early>> {
        let mut notes = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let at = notes.iter().position(|early| early.is_of(pid))?;
        Some(notes.remove(at))
    }

    /// Asks a thread that has nothing to do to free beside the one that has.
    pub(super) fn ask_for_help(&self, pidfd: &PidFd) {
        if self.threads < 2 {
            return;
        }
        let mut help = self.helped();
        // Without a descriptor or room there is no help; the victim loses nothing but time.
        if help.len() < self.threads
            && let Ok(copy) = pidfd.try_clone()
        {
            help.push(copy);
            ring(&self.wake, 1);
        }
    }

    fn helped(&self) -> MutexGuard<'_, Vec<PidFd>> {
        self.help.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds tokens. The counter holds 2^64 of them: it cannot be full.
fn ring(wake: &OwnedFd, tokens: u64) {
    match write(wake, &tokens.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(errno) => debug_assert!(false, "an eventfd of ours was refused: {errno}"),
    }
}
