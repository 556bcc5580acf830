//! Scheduling classes: those of the daemon's own threads, and those of dying processes.
#![expect(unsafe_code, reason = "no safe wrapper of sched_setscheduler(2) and its kin exists")]

use super::{Errno, checked, thread_cpu_time};
use plimsoll_policy::units::Pid;
use rustix::process::{getpriority_process, setpriority_process};
use std::{
    mem::MaybeUninit,
    thread::sleep,
    time::{Duration, Instant},
};

/// How urgent a thread of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Real-time, round robin, at the lowest levels: before every ordinary program, after whatever else is real-time.
    RealTime,
    /// Nice -20: more of the CPU than ordinary programs, not before them.
    Raised,
    /// As its starter: `CAP_SYS_NICE` is missing.
    Unchanged,
}

/// The level of a dying process in a turn that it is given.
const TURN_LEVEL: i32 = 1;

/// One above it: who decides, and who takes the turn back, runs beside it.
const DECIDING_LEVEL: i32 = 2;

/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;

/// Of whatever works for long. Nice values below keep others waiting: one at 0 that wakes beside one at -20 runs when that
/// has had 87 times its slice (EEVDF, 6.6 and later): 260 ms. Seen beside a victim of 6 GiB: 406 ms at -20, 50 at -10.
pub(super) const PATIENT_NICE: i32 = 0;

/// Makes the calling thread real-time: for one that decides and signals, which takes microseconds. Whatever takes longer, as
/// freeing does and walks of many tasks do, is done `unhurried`. Children and later threads do not inherit it. Nice alone is
/// not enough: a program that has slept runs before one at nice -20 that has worked.
#[must_use]
pub fn raise_decider() -> Priority {
    if set_schedule(None, Schedule::DECIDING).is_ok() {
        return Priority::RealTime;
    }
    // Without a pid, this is of the calling thread alone.
    match setpriority_process(None, URGENT_NICE) {
        Ok(()) => Priority::Raised,
        Err(_unprivileged) => Priority::Unchanged,
    }
}

/// Does long work beside others, however urgent the calling thread is otherwise.
pub fn unhurried<T>(work: impl FnOnce() -> T) -> T {
    let nice = getpriority_process(None).ok().filter(|nice| *nice < PATIENT_NICE);
    if nice.is_some() {
        // Anybody may.
        setpriority_process(None, PATIENT_NICE).ok();
    }
    let done = in_class(libc::SCHED_RESET_ON_FORK, work);
    if let Some(nice) = nice {
        // It had this, and may have lost the right to it meanwhile.
        setpriority_process(None, nice).ok();
    }
    done
}

/// Does work in the ordinary class, at the nice value that the calling thread has there, which is inherited as ever.
pub fn not_real_time<T>(work: impl FnOnce() -> T) -> T {
    in_class(0, work)
}

/// The ordinary class, with so much of the calling thread's flags.
fn in_class<T>(kept: i32, work: impl FnOnce() -> T) -> T {
    let schedule = schedule_of(None).ok().filter(|schedule| schedule.is_urgent());
    if let Some(Schedule { policy, .. }) = schedule {
        let policy = Schedule::ORDINARY.policy | (policy & kept);
        set_schedule(None, Schedule { policy, ..Schedule::ORDINARY }).ok();
    }
    let done = work();
    // It had this, and may have lost the right to it meanwhile.
    if let Some(schedule) = schedule {
        set_schedule(None, schedule).ok();
    }
    done
}

/// The calling thread's nice value.
#[must_use]
pub fn own_nice() -> i32 {
    getpriority_process(None).unwrap_or(PATIENT_NICE)
}

/// Gives the calling thread a nice value; it stays as it is where `CAP_SYS_NICE` is missing for that.
pub fn set_own_nice(nice: i32) {
    setpriority_process(None, nice).ok();
}

/// A walk of all tasks takes no longer than this while the thread is real-time.
const PIECE: Duration = Duration::from_millis(4);

/// Walks all tasks: [`unhurried`] where the last walk took so much of a CPU that others would notice, and the first, of which
/// that is not known (`Duration::MAX`). Beside a fork storm one
/// that always waits for its turn keeps its thread from all else: usage went to three times the line.
pub(crate) fn walk<T>(last: &mut Duration, work: impl FnOnce() -> T) -> T {
    let began = thread_cpu_time();
    let done = if *last <= PIECE { work() } else { unhurried(work) };
    *last = thread_cpu_time().saturating_sub(began);
    done
}

/// Long work of an urgent thread, in pieces of [`PIECE`]: others have as long after each.
#[derive(Debug)]
pub(crate) struct Pieces(Instant);

impl Pieces {
    /// The first piece begins.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Sleeps where a piece is over, after which the next begins.
    pub(crate) fn rest(&mut self) {
        if self.0.elapsed() >= PIECE {
            sleep(PIECE);
            self.0 = Instant::now();
        }
    }
}

/// A scheduling class, and the level in it (0 for the classes that have none). The nice value is apart, and outlives a
/// change of class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) policy: i32,
    pub(super) level: i32,
}

impl Schedule {
    /// What a dying thread gets for a turn: real-time threads are under no CPU quota or share of their cgroup.
    pub(super) const TURN: Self = Self { policy: libc::SCHED_RR, level: TURN_LEVEL };

    const DECIDING: Self = Self { policy: libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, level: DECIDING_LEVEL };

    pub(super) const ORDINARY: Self = Self { policy: libc::SCHED_OTHER, level: 0 };

    /// Without the flag that keeps children from inheriting it.
    const fn class(self) -> i32 {
        self.policy & !libc::SCHED_RESET_ON_FORK
    }

    pub(super) const fn is_idle(self) -> bool {
        self.class() == libc::SCHED_IDLE
    }

    pub(super) const fn is_deadline(self) -> bool {
        self.class() == libc::SCHED_DEADLINE
    }

    /// A class that runs before all ordinary ones.
    pub(super) const fn is_urgent(self) -> bool {
        matches!(self.class(), libc::SCHED_RR | libc::SCHED_FIFO | libc::SCHED_DEADLINE)
    }
}

/// The class of a thread; `None` is the calling one.
///
/// # Errors
/// What the kernel said: `ESRCH` for a thread that is gone.
pub(super) fn schedule_of(thread: Option<Pid>) -> Result<Schedule, Errno> {
    let number = number(thread)?;
    // SAFETY: sched_getscheduler(pid) takes an integer and changes nothing.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, number) };
    let policy = i32::try_from(checked(policy)?).map_err(|_too_large| Errno::OVERFLOW)?;
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: sched_getparam(pid, param) writes one struct sched_param, which `parameters` is, alive during the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, number, &raw mut parameters) };
    checked(result)?;
    Ok(Schedule { policy, level: parameters.sched_priority })
}

/// Changes the class of a thread; `None` is the calling one.
///
/// # Errors
/// What the kernel said: `EPERM` without `CAP_SYS_NICE`, or in a v1 cpu cgroup without real-time runtime.
pub(super) fn set_schedule(thread: Option<Pid>, schedule: Schedule) -> Result<(), Errno> {
    let number = number(thread)?;
    let parameters = libc::sched_param { sched_priority: schedule.level };
    // SAFETY: sched_setscheduler(pid, policy, param) reads one struct sched_param, which `parameters` is, alive during
    // the call. It changes when a thread runs, and nothing of this process's memory.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, number, schedule.policy, &raw const parameters)
    };
    checked(result).map(drop)
}

/// Makes a thread ordinary that was something else.
///
/// # Errors
/// As [`set_schedule`].
pub(super) fn make_ordinary(thread: Pid, was: Schedule) -> Result<(), Errno> {
    if was.is_deadline() {
        // The kernel never subtracts what a sleeping thread has reserved that leaves the class (`switched_from_dl`), or a dead
        // one that came into it. Where this is refused, nobody can do better.
        set_attributes(thread, &Attributes::NOTHING).ok();
    }
    set_schedule(Some(thread), Schedule::ORDINARY)
}

/// All that the kernel keeps of when a thread runs: `struct sched_attr` of sched_setattr(2).
#[derive(Clone, Copy)]
pub(super) struct Attributes(libc::sched_attr);

impl Attributes {
    /// 2 ms of every 20, before whoever is in another class, and whatever a cgroup says; checked at each tick, so that 2 ms may
    /// become a tick's 4 (`CONFIG_HZ`=250), which the next period is short of then.
    pub(super) const RESERVED: Self = Self::deadline(2_000_000, 20_000_000, 20_000_000);

    /// The least runtime in so long a period that its share rounds to 0 (`to_ratio`: below one in 2^20). Whatever a thread has
    /// reserved is subtracted when it gets this instead, in each state that it may be in (`sched_dl_overflow`).
    pub(super) const NOTHING: Self = Self::deadline(1024, 1024, Self::NOTHING_PERIOD_NS);

    /// As long as that.
    pub(super) const NOTHING_PERIOD_NS: u64 = 2_000_000_000;

    const fn deadline(runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> Self {
        Self(libc::sched_attr {
            size: SCHED_ATTR_BYTES,
            sched_policy: SCHED_DEADLINE,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: runtime_ns,
            sched_deadline: deadline_ns,
            sched_period: period_ns,
        })
    }

    /// It is [`Attributes::RESERVED`].
    pub(super) const fn are_reserved(&self) -> bool {
        let reserved = Self::RESERVED.0;
        self.0.sched_policy == reserved.sched_policy
            && self.0.sched_runtime == reserved.sched_runtime
            && self.0.sched_period == reserved.sched_period
    }
}

/// `SCHED_ATTR_SIZE_VER0`: without the utilisation clamps, which stay as they are then.
const SCHED_ATTR_BYTES: u32 = 48;

/// As `sched_attr` has it.
const SCHED_DEADLINE: u32 = libc::SCHED_DEADLINE.cast_unsigned();

/// What is kept of a thread.
///
/// # Errors
/// What the kernel said: `ESRCH` for a thread that is gone.
pub(super) fn attributes_of(thread: Pid) -> Result<Attributes, Errno> {
    let mut attributes = Attributes::NOTHING;
    // SAFETY: sched_getattr(pid, attr, size, flags) writes at most `size` bytes to `attr`, which is a struct of as many, alive
    // during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            number(Some(thread))?,
            &raw mut attributes.0,
            SCHED_ATTR_BYTES,
            0_u32,
        )
    };
    checked(result)?;
    Ok(attributes)
}

/// How often the calling thread has gone to sleep; `None` where the kernel does not tell.
pub(super) fn own_sleeps() -> Option<i64> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage(who, usage) writes one struct rusage, which `usage` has room for, alive during the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    checked(result.into()).ok()?;
    // SAFETY: all of it was zeroed, which is a value of each of its numbers, and the kernel has written it since.
    let usage = unsafe { usage.assume_init() };
    Some(usage.ru_nvcsw)
}

/// Changes what is kept of a thread.
///
/// # Errors
/// What the kernel said. To reserve: `EPERM` without `CAP_SYS_NICE`, or where the thread may not use every CPU of its root
/// domain; `EBUSY` where so much more may not be reserved (`kernel.sched_rt_runtime_us`).
pub(super) fn set_attributes(thread: Pid, attributes: &Attributes) -> Result<(), Errno> {
    // SAFETY: sched_setattr(pid, attr, flags) reads one struct sched_attr of the size that it says, alive during the call. It
    // changes when a thread runs, and nothing of this process's memory.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setattr, number(Some(thread))?, &raw const attributes.0, 0_u32)
    };
    checked(result).map(drop)
}

fn number(thread: Option<Pid>) -> Result<i32, Errno> {
    thread.map_or(Ok(0), |thread| i32::try_from(thread.0).map_err(|_too_large| Errno::SRCH))
}

#[cfg(test)]
mod tests;
