//! Scheduling classes: those of the daemon's own threads, and those of dying processes.
#![expect(unsafe_code, reason = "no safe wrapper of sched_setscheduler(2) and its kin exists")]

use super::Errno;
use plimsoll_policy::units::Pid;

/// How urgent a thread of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Real-time, round robin, at the lowest levels (1 and 2): before every ordinary program, after whatever else is
    /// real-time. The kernel keeps 5 % of the time for others (`sched_rt_runtime_us`).
    RealTime,
    /// Nice -20: more of the CPU than ordinary programs, not before them.
    Raised,
    /// As its starter: `CAP_SYS_NICE` is missing.
    Unchanged,
}

/// The level of what frees memory, and of what is dying.
pub(super) const FREEING_LEVEL: i32 = 1;

/// One above it: who decides is not to wait until a gigabyte is free.
const DECIDING_LEVEL: i32 = 2;

/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;

/// Puts the calling thread before those of the [`super::Reaper`]: for the thread that submits victims, which a reaper
/// that it has just woken must not push from its CPU. Children and later threads do not inherit it.
#[must_use]
pub fn raise_decider() -> Priority {
    raise_self(DECIDING_LEVEL)
}

/// Makes the calling thread as urgent as it may be. Nice alone is not enough: a program that has slept runs before
/// one at nice -20 that has worked.
pub(super) fn raise_self(level: i32) -> Priority {
    let real_time = Schedule { policy: libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, level };
    if set_schedule(None, real_time).is_ok() {
        return Priority::RealTime;
    }
    // Without a pid, this is of the calling thread alone.
    match rustix::process::setpriority_process(None, URGENT_NICE) {
        Ok(()) => Priority::Raised,
        Err(_unprivileged) => Priority::Unchanged,
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
    /// What a dying thread gets: real-time threads are under no CPU quota of their cgroup and no nice value.
    pub(super) const DYING: Self = Self { policy: libc::SCHED_RR, level: FREEING_LEVEL };

    pub(super) const ORDINARY: Self = Self { policy: libc::SCHED_OTHER, level: 0 };

    /// Without the flag that keeps children from inheriting it.
    const fn class(self) -> i32 {
        self.policy & !libc::SCHED_RESET_ON_FORK
    }

    pub(super) const fn is_idle(self) -> bool {
        self.class() == libc::SCHED_IDLE
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
    let policy = checked(policy)?;
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
    checked(result).map(|_| ())
}

fn number(thread: Option<Pid>) -> Result<i32, Errno> {
    thread.map_or(Ok(0), |thread| i32::try_from(thread.0).map_err(|_too_large| Errno(libc::ESRCH)))
}

fn checked(result: libc::c_long) -> Result<i32, Errno> {
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        Ok(_) | Err(_) => Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
    }
}

#[cfg(test)]
mod tests;
