//! Calls that may not come back, and who goes on with what their threads had to do.
//!
//! `process_mrelease` waits for the lock of the victim's address space, which the victim can hold for ever; nothing but the
//! end of this process ends that wait, and nothing tells beforehand whether there will be one. So a thread puts all that it
//! has to do here before it makes the call, and takes it back after. Somebody else, who never makes that call, looks after
//! those that are inside when a timer says so ([`Watch`]). One that sleeps there is left to its victim: another thread takes
//! its place and its work. Each owner has a share of the threads that are left.

use super::{
    super::{ProcRoot, clock_monotonic_ns, root::EntryPath},
    Crew, KilledBy, start,
    worker::Duties,
};
use plimsoll_policy::units::{Pid, Uid};
use plimsoll_wire::text::{ProcessState, Status};
use rustix::{
    io::read,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// How long a call may take before its thread is looked at, in nanoseconds. One that frees is left in peace, however long it
/// takes.
const LOOK_AFTER_NS: u64 = 10_000_000;

/// Threads that are left to victims of one owner; with so many, no call is made for another of them.
pub(super) const LEFT_OF_OWNER_MAX: usize = 2;

/// Threads that are left in all; with so many, no call is made for anybody.
pub(super) const LEFT_MAX: usize = 16;

/// Whom a uid counts for where each may take so much and no more: the owner of subordinate uids, for instance.
#[derive(Clone)]
pub struct OwnerOf(Arc<dyn Fn(Uid) -> Uid + Send + Sync>);

impl OwnerOf {
    /// Asked only while a thread is left to a victim, and never on the thread that decides.
    pub fn new(owner: impl Fn(Uid) -> Uid + Send + Sync + 'static) -> Self {
        Self(Arc::new(owner))
    }
}

/// Each uid counts for itself.
impl Default for OwnerOf {
    fn default() -> Self {
        Self::new(|uid| uid)
    }
}

impl fmt::Debug for OwnerOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerOf").finish_non_exhaustive()
    }
}

/// Who is inside, and who was left there.
pub(super) struct Calls {
    list: Mutex<List>,
    /// Goes off when it is time to look after them.
    timer: OwnedFd,
    owner: OwnerOf,
}

struct List {
    /// The newest call's number.
    newest: u64,
    inside: Vec<Call>,
    left: Vec<Left>,
    /// What nobody has taken over yet.
    open: Vec<Duties>,
    /// The timer will go off, or has.
    timed: bool,
}

/// One that has not come back.
struct Call {
    number: u64,
    thread: Pid,
    victim: Pid,
    /// When to look.
    look_ns: u64,
    duties: Duties,
}

/// One whose thread was left.
struct Left {
    number: u64,
    owner: Option<Uid>,
}

impl Calls {
    /// # Errors
    /// There is no descriptor to be had.
    pub(super) fn new(owner: OwnerOf) -> io::Result<Self> {
        let list = List {
            newest: 0,
            inside: Vec::with_capacity(LEFT_MAX),
            left: Vec::with_capacity(LEFT_MAX * 2),
            open: Vec::with_capacity(LEFT_MAX),
            timed: false,
        };
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { list: Mutex::new(list), timer, owner })
    }

    /// The calling thread is about to make one.
    pub(super) fn enter(&self, victim: Pid, duties: Duties) -> u64 {
        let thread = Pid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let look_ns = clock_monotonic_ns().saturating_add(LOOK_AFTER_NS);
        let mut list = self.list();
        list.newest = list.newest.wrapping_add(1);
        let number = list.newest;
        list.inside.push(Call { number, thread, victim, look_ns, duties });
        if !list.timed {
            self.look_in(&mut list, LOOK_AFTER_NS);
        }
        number
    }

    /// Has the timer go off then.
    fn look_in(&self, list: &mut List, wait_ns: u64) {
        // 0 would be never.
        let wait = Timespec::try_from(Duration::from_nanos(wait_ns.max(1))).unwrap_or_default();
        let once = Itimerspec { it_interval: Timespec::default(), it_value: wait };
        list.timed = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok();
    }

    /// It came back. `None`: it was left, and another thread has what it had to do.
    pub(super) fn leave(&self, number: u64) -> Option<Duties> {
        let mut list = self.list();
        list.left.retain(|left| left.number != number);
        let at = list.inside.iter().position(|call| call.number == number)?;
        Some(list.inside.swap_remove(at).duties)
    }

    /// Whether no call is to be made for victims of whom `user` gives. It is asked only while a thread is left. Those that
    /// others killed have half of what there is: anybody can have one that is held killed, and the rest is for our own.
    pub(super) fn pass_over(&self, killed_by: KilledBy, user: impl FnOnce() -> Option<Uid>) -> bool {
        let (of_owner_max, all_max) = match killed_by {
            KilledBy::Us => (LEFT_OF_OWNER_MAX, LEFT_MAX),
            KilledBy::Others => (LEFT_OF_OWNER_MAX / 2, LEFT_MAX / 2),
        };
        let left = self.list().left.len();
        if left == 0 || left >= all_max {
            return left > 0;
        }
        // Those whose user is not known are one owner more.
        let owner = user().map(|user| (self.owner.0)(user));
        self.list().left.iter().filter(|left| left.owner == owner).count() >= of_owner_max
    }

    /// What was left to do by a thread that did not come back.
    pub(super) fn take_over(&self) -> Option<Duties> {
        self.list().open.pop()
    }

    /// Who has been inside for long: their calls' numbers, threads and victims. Sets the timer for the others.
    fn overdue(&self) -> Vec<(u64, Pid, Pid)> {
        let mut list = self.list();
        let now_ns = clock_monotonic_ns();
        let due = list.inside.iter_mut().filter(|call| call.look_ns <= now_ns);
        let due = due.map(|call| {
            call.look_ns = now_ns.saturating_add(LOOK_AFTER_NS);
            (call.number, call.thread, call.victim)
        });
        let due = due.collect();
        list.timed = false;
        if let Some(next_ns) = list.inside.iter().map(|call| call.look_ns).min() {
            self.look_in(&mut list, next_ns.saturating_sub(now_ns));
        }
        due
    }

    /// Leaves a thread to its victim, unless it came back meanwhile.
    pub(super) fn give_up(&self, number: u64, user: Option<Uid>) {
        let owner = user.map(|user| (self.owner.0)(user));
        let mut list = self.list();
        if let Some(at) = list.inside.iter().position(|call| call.number == number) {
            let call = list.inside.swap_remove(at);
            list.open.push(call.duties);
            list.left.push(Left { number, owner });
        }
    }

    /// How many were made and came back. None may have been left.
    #[cfg(test)]
    pub(super) fn made(&self) -> u64 {
        let list = self.list();
        list.newest.saturating_sub(u64::try_from(list.inside.len()).unwrap_or(u64::MAX))
    }

    fn is_open(&self) -> bool {
        !self.list().open.is_empty()
    }

    /// Held for moments. Each change leaves it sound, whoever panics.
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after the threads of a [`Reaper`](super::Reaper). Whoever has it calls [`Watch::look`] whenever its descriptor can be
/// read, and never makes the call that may not come back. Without one, no thread is replaced.
pub struct Watch {
    calls: Arc<Calls>,
    crew: Weak<Crew>,
    root: ProcRoot,
}

impl Watch {
    pub(super) const fn new(calls: Arc<Calls>, crew: Weak<Crew>, root: ProcRoot) -> Self {
        Self { calls, crew, root }
    }

    /// Replaces who does not come back.
    pub fn look(&mut self) {
        let Self { calls, crew, root } = self;
        // Before they are looked at: whoever enters then sets it anew.
        read(&calls.timer, &mut [0; 8]).ok();
        for (number, thread, victim) in calls.overdue() {
            // One that frees runs, or waits for a CPU.
            let sleeps = status(root, thread)
                .is_some_and(|status| status.state == Some(ProcessState::Uninterruptible));
            if sleeps {
                calls.give_up(number, status(root, victim).and_then(|status| status.real_uid));
            }
        }
        while calls.is_open()
            && let Some(crew) = crew.upgrade()
        {
            if start(&crew).is_err() {
                // No memory for a thread: there may be some soon.
                return calls.look_in(&mut calls.list(), LOOK_AFTER_NS);
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.calls.timer.as_fd()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Of a process or a thread.
fn status(root: &mut ProcRoot, pid: Pid) -> Option<Status> {
    EntryPath::new(pid, "status").and_then(|path| root.files.status(pid, path)).ok()
}
