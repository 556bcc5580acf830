//! A thread that frees the memory of killed processes, so that nobody else has to wait for it.

use super::{PidFd, Reap, clock_monotonic_ns};
use rustix::process::setpriority_process;
use std::{
    fmt, io,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// Victims that can wait their turn. One account has one victim at a time, so this many accounts crossed their lines
/// at once before one is refused; a refused victim frees its memory itself.
pub const REAPER_QUEUE_MAX: usize = 64;

/// Waits between tries, in milliseconds: 63 in all, then the victim is left to itself. The address space is held for
/// the length of a page fault or an `mmap`; and a signal sent from inside the kernel may arrive a tick after its
/// record did.
const RETRY_WAITS_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;

/// The thread needs little stack; the default of 2 MiB would count where all memory is locked.
const STACK_BYTES: usize = 128 * 1024;

/// What became of one victim.
#[derive(Debug)]
pub struct ReapReport {
    /// What the submitter called it.
    pub tag: u64,
    /// The victim, handed back.
    pub pidfd: PidFd,
    /// How the last try ended.
    pub result: Reap,
    /// Tries, at least 1.
    pub attempts: u32,
    /// From its turn to its end, retries included, in nanoseconds; the time in the queue is not in it.
    pub took_ns: u64,
}

/// How urgent the thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Nice -20: it runs before ordinary programs, also before the one it frees.
    Raised,
    /// As its starter: `CAP_SYS_NICE` is missing.
    Unchanged,
}

/// The thread's handle. It sleeps without a timer until something is submitted. When the handle is dropped, the thread
/// finishes what is queued and ends by itself; [`Reaper::stop`] waits for that.
pub struct Reaper {
    queue: SyncSender<Job>,
    refused: AtomicU64,
    priority: Priority,
    thread: JoinHandle<()>,
}

struct Job {
    pidfd: PidFd,
    tag: u64,
}

impl Reaper {
    /// Starts the thread. `report` is called on it, once for each victim taken: whatever it does delays the next
    /// victim, so let it only pass the report on.
    ///
    /// # Errors
    /// When the kernel cannot start another thread.
    pub fn spawn(report: impl FnMut(ReapReport) + Send + 'static) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(REAPER_QUEUE_MAX);
        let (tell, told) = sync_channel(1);
        let thread = Builder::new().name("reaper".to_owned()).stack_size(STACK_BYTES).spawn(move || {
            // Without a pid, this sets the priority of the calling thread alone.
            let priority = match setpriority_process(None, URGENT_NICE) {
                Ok(()) => Priority::Raised,
                Err(_unprivileged) => Priority::Unchanged,
            };
            if tell.send(priority).is_ok() {
                run(&jobs, report);
            }
        })?;
        let priority = told.recv().map_err(io::Error::other)?;
        Ok(Self { queue, refused: AtomicU64::new(0), priority, thread })
    }

    /// Hands over a victim that SIGKILL was sent to. Never waits: when the queue is full (or the thread has died) the
    /// victim comes back at once, and is counted.
    ///
    /// # Errors
    /// The victim itself, which will have to free its memory without help.
    pub fn submit(&self, pidfd: PidFd, tag: u64) -> Result<(), PidFd> {
        self.queue.try_send(Job { pidfd, tag }).map_err(|refusal| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let (TrySendError::Full(job) | TrySendError::Disconnected(job)) = refusal;
            job.pidfd
        })
    }

    /// How many victims [`Reaper::submit`] gave back.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How urgent the thread is.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Lets the thread finish what is queued, and waits for it.
    ///
    /// # Errors
    /// When the thread, which is to say `report`, has panicked.
    pub fn stop(self) -> io::Result<()> {
        drop(self.queue);
        self.thread.join().map_err(|_panic| io::Error::other("the reaper thread has panicked"))
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("priority", &self.priority).field("refused", &self.refused()).finish()
    }
}

fn run(jobs: &Receiver<Job>, mut report: impl FnMut(ReapReport)) {
    for Job { pidfd, tag } in jobs {
        let start_ns = clock_monotonic_ns();
        let (result, attempts) = reap_patiently(&pidfd);
        let took_ns = clock_monotonic_ns().saturating_sub(start_ns);
        report(ReapReport { tag, pidfd, result, attempts, took_ns });
    }
}

/// Tries until the memory is free or the waits are used up. Between tries it waits for the exit itself, so that a
/// victim that goes by itself costs no further try.
fn reap_patiently(pidfd: &PidFd) -> (Reap, u32) {
    let mut attempts = 1;
    let mut result = pidfd.reap();
    for wait_ms in RETRY_WAITS_MS {
        match result {
            Reap::StillMapped | Reap::NotDying => {}
            Reap::Reaped | Reap::AlreadyGone | Reap::Unsupported | Reap::Failed(_) => break,
        }
        if pidfd.wait_exit(Duration::from_millis(wait_ms)) == Ok(true) {
            return (Reap::AlreadyGone, attempts);
        }
        attempts = attempts.saturating_add(1);
        result = pidfd.reap();
    }
    (result, attempts)
}

#[cfg(test)]
mod tests;
