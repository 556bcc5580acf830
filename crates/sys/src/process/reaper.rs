//! Threads that free the memory of killed processes, so that nobody else has to wait for it.
//!
//! Each victim is one thread's from its turn to its end. First its memory (`process_mrelease(2)`), at once: as long as
//! it has not let go of its address space, it can be freed from outside, beside its own exit. Then what holds the victim
//! itself is lifted, so that the rest of its exit takes no longer than it must ([`super::expedite`]). With a large one an
//! idle thread helps: two free one address space nearly twice as fast as one. While a victim is on its way out, its
//! thread takes the next. A thread that does not come back from a victim is replaced ([`Watch`]).
//!
//! Nothing here is part of the decision: [`Reaper::submit`] takes no lock and waits for nothing. No thread has a timer
//! while there is no victim.

mod calls;
mod early;
mod queue;
mod report;
mod worker;

pub use calls::{OwnerOf, Watch};
pub use queue::KilledBy;
pub use report::{Holdings, ReapReport};

use super::{PidFd, ProcRoot, ProcessError, cpu_tree, cpus, freezer, reserve::Reservations, v1_tree};
use calls::Calls;
use plimsoll_policy::reap::Rates;
use queue::{Queue, Taker};
use rustix::thread::CpuSet;
use std::{
    fmt, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{Builder, available_parallelism},
    time::Duration,
};
use worker::{Duties, Worker};

/// Victims that can wait their turn. One account has one victim at a time, so this many accounts crossed their lines
/// at once before one is refused; a refused victim frees its memory itself.
pub const REAPER_QUEUE_MAX: usize = 64;

/// Freeing is bound by the memory bus from a few CPUs on: the rest is for others.
const THREADS_MAX: usize = 4;

/// Two free one address space faster than one.
const THREADS_MIN: usize = 2;

/// The threads need little stack; the default of 2 MiB would count where all memory is locked.
const STACK_BYTES: usize = 128 * 1024;

/// How long [`Reaper::stop`] waits for victims that do not die.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// How a [`Reaper`] is made.
#[derive(Debug, Clone)]
pub struct ReaperOptions {
    /// How many threads; `None`: as many as there are CPUs to run on, 2 to 4.
    pub threads: Option<NonZeroUsize>,
    /// What was seen before, for instance by the daemon's predecessor.
    pub rates: Rates,
    /// Where the v1 freezer is mounted, if it is.
    pub freezer: PathBuf,
    /// Where the v1 cpu controller is mounted, if it is.
    pub cpu_tree: PathBuf,
    /// Who has a share of the threads that do not come back from a victim.
    pub owner: OwnerOf,
}

impl Default for ReaperOptions {
    fn default() -> Self {
        Self {
            threads: None,
            rates: Rates::new(),
            freezer: v1_tree::mounted(freezer::FREEZER),
            cpu_tree: v1_tree::mounted(cpu_tree::CPU),
            owner: OwnerOf::default(),
        }
    }
}

/// The threads' handle. They sleep without a timer until something is submitted. When the handle is dropped, they finish
/// what is queued and end by themselves; [`Reaper::stop`] waits for that.
pub struct Reaper {
    queue: Arc<Queue>,
    threads: usize,
    calls: Arc<Calls>,
    crew: Weak<Crew>,
    rates: Arc<Mutex<Rates>>,
    /// In a lock only so that the handle can be shared.
    ended: Mutex<Receiver<()>>,
}

/// Hands victims to a [`Reaper`] that somebody else has, for as long as it is there; the default one never is.
#[derive(Debug, Clone, Default)]
pub struct ReaperHandle {
    queue: Weak<Queue>,
}

impl ReaperHandle {
    /// As [`Reaper::submit`].
    ///
    /// # Errors
    /// The victim itself, also when the reaper has been stopped.
    pub fn submit(&self, victim: PidFd, tag: u64) -> Result<(), PidFd> {
        match self.queue.upgrade() {
            Some(queue) => queue.submit(victim, tag, KilledBy::Us),
            None => Err(victim),
        }
    }

    /// Hands over a victim that somebody else killed. It is freed when no other needs a thread, and one thread at least is kept
    /// for those; no second thread helps, and it has no turn for being small.
    ///
    /// # Errors
    /// As [`ReaperHandle::submit`]; those that come back so are not counted.
    pub fn submit_other(&self, victim: PidFd, tag: u64) -> Result<(), PidFd> {
        match self.queue.upgrade() {
            Some(queue) => queue.submit(victim, tag, KilledBy::Others),
            None => Err(victim),
        }
    }
}

/// What the threads have in common. There for as long as one of them is.
struct Crew {
    taker: Taker,
    calls: Arc<Calls>,
    cpus: Option<CpuSet>,
    freezer: PathBuf,
    cpu_tree: PathBuf,
    reservations: Reservations,
    report: Box<dyn Fn(ReapReport) + Send + Sync>,
    rates: Arc<Mutex<Rates>>,
    end: Sender<()>,
}

impl Crew {
    fn tell(&self, one: ReapReport) {
        // Not of those that others killed, nor of those that had to be tried again: anybody could have a rate recorded that
        // they like.
        if one.killed_by == KilledBy::Us
            && one.at_first
            && let Some((bytes, took_ns)) = one.measured()
        {
            self.rates.lock().unwrap_or_else(PoisonError::into_inner).record(bytes, took_ns);
        }
        (self.report)(one);
    }
}

impl Reaper {
    /// Starts the threads with [`ReaperOptions::default`].
    ///
    /// # Errors
    /// As [`Reaper::spawn_with`].
    pub fn spawn(report: impl Fn(ReapReport) + Send + Sync + 'static) -> io::Result<Self> {
        Self::spawn_with(ReaperOptions::default(), report)
    }

    /// Starts the threads, on the fastest CPUs that the caller may use. `report` is called on them, once for each
    /// victim taken: whatever it does delays other victims, so let it only pass the report on.
    ///
    /// # Errors
    /// When the kernel cannot start another thread, or there is no `/proc`.
    pub fn spawn_with(
        options: ReaperOptions,
        report: impl Fn(ReapReport) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let cpus = cpus::fastest_allowed();
        let threads = options.threads.map_or_else(
            || {
                let usable = cpus.and_then(|cpus| usize::try_from(cpus.count()).ok());
                usable.unwrap_or(THREADS_MIN).clamp(THREADS_MIN, THREADS_MAX)
            },
            NonZeroUsize::get,
        );
        let (queue, taker) = Queue::new(REAPER_QUEUE_MAX, threads)?;
        let rates = Arc::new(Mutex::new(options.rates));
        let (end, ended) = channel();
        let calls = Arc::new(Calls::new(options.owner)?);
        let crew = Arc::new(Crew {
            taker,
            calls: Arc::clone(&calls),
            cpus,
            freezer: options.freezer,
            cpu_tree: options.cpu_tree,
            reservations: Reservations::new(available_parallelism().map_or(1, NonZeroUsize::get)),
            report: Box::new(report),
            rates: Arc::clone(&rates),
            end,
        });
        for _ in 0..threads {
            start(&crew)?;
        }
        let (queue, crew) = (Arc::new(queue), Arc::downgrade(&crew));
        Ok(Self { queue, threads, calls, crew, rates, ended: Mutex::new(ended) })
    }

    /// For whoever replaces threads that do not come back from a victim.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn watch(&self) -> io::Result<Watch> {
        Ok(Watch::new(Arc::clone(&self.calls), Weak::clone(&self.crew), proc_root()?))
    }

    /// Announces a process that the caller is about to send SIGKILL to, and will hand over with [`Reaper::submit`] then: a
    /// thread is awake and asks for its memory when the signal arrives. For large victims: one that runs lets go of its address
    /// space before a sleeping thread is there. Does nothing to a process that is not killed, and ends after 0.5 ms. Never
    /// waits; when all threads have one already, or there are no descriptors left, nothing is lost but time.
    pub fn expect(&self, victim: &PidFd) {
        self.queue.expect(victim);
    }

    /// Hands over a victim that SIGKILL was sent to. Never waits: when the queue is full (or all threads have died) the
    /// victim comes back at once, and is counted.
    ///
    /// # Errors
    /// The victim itself, which will have to free its memory without help.
    pub fn submit(&self, pidfd: PidFd, tag: u64) -> Result<(), PidFd> {
        self.queue.submit(pidfd, tag, KilledBy::Us)
    }

    /// For another thread that kills.
    #[must_use]
    pub fn handle(&self) -> ReaperHandle {
        ReaperHandle { queue: Arc::downgrade(&self.queue) }
    }

    /// How many victims [`Reaper::submit`] gave back.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.queue.refused.load(Ordering::Relaxed)
    }

    /// How many threads there are for victims that do not keep them.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// All that is known of the rates, for telling and for keeping. Takes a lock that the threads hold for a moment.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the threads finish what is queued, and waits for them; but not longer than 5 s for victims that do not die.
    ///
    /// # Errors
    /// When a thread, which is to say `report`, has panicked, or is still waiting for its victim.
    pub fn stop(self) -> io::Result<()> {
        drop(self.queue);
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..self.threads {
            match ended.recv_timeout(STOP_DEADLINE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::other("a reaper thread still waits for its victim"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("a reaper thread has panicked"));
                }
            }
        }
        Ok(())
    }
}

/// Starts one thread for victims, with the work of one that did not come back where there is such. Back when it is fit for the
/// work.
fn start(crew: &Arc<Crew>) -> io::Result<()> {
    let (root, crew) = (proc_root()?, Arc::clone(crew));
    let (tell, told) = channel();
    // Not joined: one that waits for its victim's lock would keep the daemon from stopping.
    Builder::new().name("reaper".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        Worker::settle_in(&crew);
        if tell.send(()).is_err() {
            return;
        }
        let duties = crew.calls.take_over().unwrap_or_else(Duties::new);
        // Who comes back late was replaced, and is not the one that is waited for. Nobody listens when the handle was dropped
        // rather than stopped.
        if Worker::new(Arc::clone(&crew), root, duties).run().is_some() {
            crew.end.send(()).ok();
        }
    })?;
    told.recv().map_err(io::Error::other)
}

fn proc_root() -> io::Result<ProcRoot> {
    ProcRoot::open(Path::new("/proc")).map_err(|error: ProcessError| io::Error::other(error))
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("threads", &self.threads)
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
