//! Reads what lies behind another's address space: command lines, `smaps_rollup`, `maps`.
//!
//! The kernel takes the address space's lock for these (`mmap_lock`: `access_remote_vm`, `show_smaps_rollup`, `m_start`;
//! `environ`, `smaps` and `pagemap` likewise), and a process can hold that for ever: in an `mmap` over pages of a file system
//! whose server does not answer, which any user can run. Pages of files are not read for a command line. `stat`, `status`,
//! `statm`, `comm`, `cgroup`, `exe`, `oom_score_adj` and the folders take other locks and may be read anywhere.
//!
//! So nobody else in the daemon opens such a file. Whoever wants one read waits here, no longer than it says; an offload thread
//! that does not come back is left to its process. Each owner has a share of the threads and of the waiting.

use crate::{offload::Offload, owners::Owners};
use plimsoll_policy::{units::Uid, victim::VictimId};
use plimsoll_sys::process::{HeldFolder, ProcRoot};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
        mpsc::sync_channel,
    },
    time::{Duration, Instant},
};

/// How long one reading may take: it takes microseconds to milliseconds, or, where memory was swapped out, as long as the
/// disk does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Threads left to stuck processes at most, those of sixteen owners. When so many are, nothing is read until one comes back.
const LEFT_MAX: usize = 128;

/// Of them, those left to processes of one owner.
const LEFT_OF_OWNER_MAX: usize = 8;

/// For so long after a thread was left, nobody of that owner is read: whoever gets stuck again and again costs others a
/// tenth of their time at most.
const PASSED_OVER: Duration = Duration::from_secs(10);

/// A reading that no thread has come to, that one is at or has been, and that none is to come to.
const ASKED: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Why a process was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// By its own doing, or its owner's: it did not answer in time, or so many of that owner do not.
    Hindered,
    /// Nobody is left to read it.
    Crowded,
}

/// Has processes read. Clones share what they know.
#[derive(Debug, Clone)]
pub(crate) struct PatientReaders {
    offload: Offload,
    pool: Arc<Mutex<Pool>>,
}

/// Whose memory is read.
#[derive(Debug, Clone, Copy)]
struct Target {
    process: VictimId,
    user: Uid,
    /// Its owner is passed over for a while when it does not answer.
    is_noted: bool,
}

/// What all readings share.
#[derive(Debug)]
struct Pool {
    /// What the next one is read with.
    proc: Option<ProcRoot>,
    /// The threads that did not come back in time.
    left: Vec<Left>,
    owners: Owners,
    find_owners: fn() -> Owners,
}

/// A thread that did not come back in time.
#[derive(Debug)]
struct Left {
    process: VictimId,
    owner: Uid,
    /// Since when its owner is passed over.
    noted: Option<Instant>,
    alive: Weak<AtomicU8>,
}

impl PatientReaders {
    pub(crate) fn new(offload: &Offload) -> Self {
        Self::with(offload, Owners::of_machine)
    }

    fn with(offload: &Offload, find_owners: fn() -> Owners) -> Self {
        let pool = Pool { proc: open_proc(), left: Vec::new(), owners: find_owners(), find_owners };
        Self { offload: offload.clone(), pool: Arc::new(Mutex::new(pool)) }
    }

    /// Has `read` called for a process of `user`'s, and waits for what it gives; `None` also where it takes longer than
    /// `patience`, or the process or its owner is passed over. Not for the kill path.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        process: VictimId,
        user: Uid,
        patience: Duration,
        read: impl FnOnce(&mut ProcRoot) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        if self.pool().passes_over(user) {
            return None;
        }
        self.wait_for(Target { process, user, is_noted: true }, patience, read).ok()
    }

    /// As [`PatientReaders::read`], also when another process of the owner's got stuck just now, and nobody else is passed over
    /// for this one: for those who see to it themselves that one owner does not cost others their time.
    pub(crate) fn read_whoever<T: Send + 'static>(
        &self,
        process: VictimId,
        user: Uid,
        patience: Duration,
        read: impl FnOnce(&mut ProcRoot) -> Option<T> + Send + 'static,
    ) -> Result<T, Unread> {
        self.wait_for(Target { process, user, is_noted: false }, patience, read)
    }

    fn wait_for<T: Send + 'static>(
        &self,
        target: Target,
        patience: Duration,
        read: impl FnOnce(&mut ProcRoot) -> Option<T> + Send + 'static,
    ) -> Result<T, Unread> {
        let mut proc = self.pool().proc_for(target)?;
        let (answer, answered) = sync_channel(1);
        // Who reads has the other for as long as that takes.
        let turn = Arc::new(AtomicU8::new(ASKED));
        let reading = Arc::clone(&turn);
        self.offload.once(move || {
            if reading.compare_exchange(ASKED, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                let found = read(&mut proc);
                // Too late, as the case may be: nobody waits for it any more.
                answer.try_send((found, proc)).ok();
            }
        });
        if let Ok((found, proc)) = answered.recv_timeout(patience) {
            // Others that were needed at the same time go.
            self.pool().proc.get_or_insert(proc);
            return found.ok_or(Unread::Hindered);
        }
        // No thread came to it, and none will.
        if turn.compare_exchange(ASKED, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Err(Unread::Crowded);
        }
        self.pool().leave(Arc::downgrade(&turn), target);
        Err(Unread::Hindered)
    }

    /// The command line of a process of `user`'s; `None` also where it has none.
    pub(crate) fn command_line(&self, process: VictimId, user: Uid) -> Option<String> {
        self.read(process, user, PATIENCE, move |proc| command_line(proc, process))
    }

    /// A panic elsewhere leaves the lists as they were before or after a change, each of which is sound.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Whether one of this owner's was left just now.
    fn passes_over(&self, user: Uid) -> bool {
        let owner = self.owners.owner(user);
        self.left.iter().any(|left| left.owner == owner && left.is_recent())
    }

    /// What to read with, unless this process is stuck, or too many are.
    fn proc_for(&mut self, Target { process, user, .. }: Target) -> Result<ProcRoot, Unread> {
        self.left.retain(|left| left.is_alive() || left.is_recent());
        let owner = self.owners.owner(user);
        let alive = || self.left.iter().filter(|left| left.is_alive());
        if alive().any(|left| left.process == process)
            || alive().filter(|left| left.owner == owner).count() >= LEFT_OF_OWNER_MAX
        {
            return Err(Unread::Hindered);
        }
        if alive().count() >= LEFT_MAX {
            return Err(Unread::Crowded);
        }
        self.proc.take().or_else(open_proc).ok_or(Unread::Crowded)
    }

    fn leave(&mut self, alive: Weak<AtomicU8>, target: Target) {
        // Ranges of subordinate uids may have been given out since.
        self.owners = (self.find_owners)();
        let owner = self.owners.owner(target.user);
        let noted = target.is_noted.then(Instant::now);
        self.left.push(Left { process: target.process, owner, noted, alive });
    }
}

impl Left {
    fn is_alive(&self) -> bool {
        self.alive.strong_count() > 0
    }

    fn is_recent(&self) -> bool {
        self.noted.is_some_and(|noted| noted.elapsed() < PASSED_OVER)
    }
}

fn open_proc() -> Option<ProcRoot> {
    ProcRoot::open(Path::new("/proc")).ok()
}

/// The line of the process that is held: its number cannot have changed hands between two looks at its start.
fn command_line(proc: &mut ProcRoot, id: VictimId) -> Option<String> {
    let held = HeldFolder::open(proc, id).ok()?;
    let line = proc.cmdline(id.pid).ok()??;
    held.oom_score_adj().ok()?;
    Some(line)
}

#[cfg(test)]
mod tests;
