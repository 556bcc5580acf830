//! CPU time that is reserved for a dying thread (`SCHED_DEADLINE`), where its cgroup keeps it from the real-time class.
//!
//! No cgroup has a say in it: neither quota, nor share, nor `cpu.rt_runtime_us`. The kernel ends each piece itself, and what is
//! reserved goes with the thread, whatever becomes of the daemon.
//!
//! **What it must not do** is use up what may be reserved on the machine, for which any user's victims are enough: the kernel
//! keeps count, and never subtracts what was given to a thread that is asleep, or dead already, and taken from it again
//! (`switched_from_dl`; 30 victims of 20 % each, and nobody can reserve anything). So only a thread that wants the CPU is
//! given some; it is looked at again right after; and what is taken back is made nothing before the thread leaves the class,
//! which subtracts it in each state ([`make_ordinary`]). What remains is a thread that dies, and whose number goes, within the
//! system call that gives it some. So it waits behind the caller on one CPU, which is more urgent. Where the caller had to
//! sleep in the call, and it was gone then, nobody can tell: after [`LOST_MAX`] of those nothing is reserved any more.

use super::{
    Errno, PidFd, ProcessError,
    expedite::{Threads, Turn, raw_pid},
    root::Files,
    urgency::{Attributes, attributes_of, make_ordinary, own_sleeps, schedule_of, set_attributes},
};
use plimsoll_policy::{reap::Hindrance, units::Pid};
use plimsoll_wire::text::{CPUS_MAX, ProcessState};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity, sched_getcpu, sched_setaffinity},
};
use std::{
    fs,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many may be lost at most, each a tenth of a CPU that nobody can reserve until CPUs come or go.
const LOST_MAX: usize = 2;

/// Threads of one victim that have time one after the other, while each is gone at once.
const AT_ONCE: usize = 8;

/// How soon that is.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000 };

/// The longest period that is allowed, in microseconds.
const PERIOD_MAX: &str = "/proc/sys/kernel/sched_deadline_period_max_us";

/// Who has time reserved, of so many as may at once.
#[derive(Debug)]
pub(super) struct Reservations {
    /// One for each CPU: a tenth of the machine.
    places: usize,
    taken: Arc<AtomicUsize>,
    lost: AtomicUsize,
    /// Whether what is given can be made nothing again.
    endable: bool,
}

/// The time of one thread. It is taken back when this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    thread: Pid,
    place: Place,
}

/// One of the places; free when this is dropped.
#[derive(Debug)]
struct Place(Option<Arc<AtomicUsize>>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(taken) = &self.0 {
            taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !take_back(self.thread) {
            // It may have it still: nobody else gets it.
            self.place.0 = None;
        }
    }
}

impl Reservations {
    /// For a machine of so many CPUs.
    pub(super) fn new(cpus: usize) -> Self {
        let longest =
            fs::read_to_string(PERIOD_MAX).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let needed = Attributes::NOTHING_PERIOD_NS / 1000;
        Self {
            places: cpus.max(1),
            taken: Arc::default(),
            lost: AtomicUsize::new(0),
            endable: longest.is_none_or(|micros| micros >= needed),
        }
    }

    /// Sees to it that a thread of a process that SIGKILL has reached, and that wants the CPU, has time reserved. `held` is
    /// what its process has; `ours`: it is a victim of our own, for which one place is kept.
    ///
    /// # Errors
    /// [`ProcessError::Vanished`] when it is gone.
    pub(super) fn give(
        &self,
        files: &Files,
        pidfd: &PidFd,
        held: &mut Option<Reserved>,
        ours: bool,
    ) -> Result<Turn, ProcessError> {
        let threads = Threads::open(files, pidfd)?;
        if held.as_ref().is_some_and(|held| held.is_used(&threads)) {
            return Ok(Turn::Given);
        }
        *held = None;
        let mut turn = Turn::Waits;
        for _ in 0..AT_ONCE {
            let Some(thread) = threads.first_ready(pidfd)? else { break };
            if !self.endable {
                return Ok(Turn::Refused(Hindrance::Unreserved));
            }
            if self.lost.load(Ordering::Relaxed) >= LOST_MAX {
                return Ok(Turn::Refused(Hindrance::Booked));
            }
            let Some(place) = self.place(ours) else { break };
            match self.reserve(&threads, thread) {
                Ok(true) => {}
                Ok(false) | Err(Errno::SRCH) => continue,
                Err(errno) => return Ok(Turn::Refused(why(errno))),
            }
            turn = Turn::Given;
            let reserved = Reserved { thread, place };
            if !threads.has(thread) {
                continue;
            }
            poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&SOON)).ok();
            if threads.has(thread) {
                *held = Some(reserved);
                break;
            }
        }
        Ok(turn)
    }

    /// A place, where there is one.
    fn place(&self, ours: bool) -> Option<Place> {
        let places = if ours { self.places } else { self.places.saturating_sub(1).max(1) };
        let one_more = |taken: usize| (taken < places).then_some(taken.saturating_add(1));
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Place(Some(Arc::clone(&self.taken))))
    }

    /// Reserves time for one thread, which may be gone by now; `false` where it wanted none any more.
    fn reserve(&self, threads: &Threads, thread: Pid) -> Result<bool, Errno> {
        // What whoever has its number gets back: without it, nothing is changed.
        let before = attributes_of(thread)?;
        let cpus = sched_getaffinity(raw_pid(thread))?;
        let Some(sleeps) = wait_behind(thread)? else {
            sched_setaffinity(raw_pid(thread), &cpus).ok();
            return Ok(false);
        };
        let given = match threads.state(thread) {
            // Not for one that may use few CPUs. The kernel leaves out what its cpuset forbids.
            Some(ProcessState::Running) => sched_setaffinity(raw_pid(thread), &all_cpus())
                .and_then(|()| set_attributes(thread, &Attributes::RESERVED)),
            Some(_) | None => Err(Errno::SRCH),
        };
        let slept = own_sleeps() != Some(sleeps);
        match threads.state(thread) {
            Some(ProcessState::Zombie | ProcessState::Dead) => {
                take_back(thread);
                given.map(|()| false)
            }
            Some(_) if given.is_ok() => Ok(true),
            Some(_) => {
                sched_setaffinity(raw_pid(thread), &cpus).ok();
                given.map(|()| false)
            }
            None => {
                let stranger = attributes_of(thread).is_ok_and(|now| now.are_reserved());
                if given.is_ok() && stranger {
                    take_back(thread);
                    set_attributes(thread, &before).ok();
                }
                sched_setaffinity(raw_pid(thread), &cpus).ok();
                if given.is_ok() && !stranger && slept {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Ok(given.is_ok() && !stranger)
            }
        }
    }
}

/// Puts a thread on the calling one's CPU, where it does not run as long as that does: it cannot die meanwhile. How often the
/// caller has slept by then; `None` where it was moved itself.
fn wait_behind(thread: Pid) -> Result<Option<i64>, Errno> {
    let own = sched_getcpu();
    let mut only = CpuSet::new();
    only.set(own);
    sched_setaffinity(raw_pid(thread), &only)?;
    let sleeps = own_sleeps();
    Ok(sleeps.filter(|_| sched_getcpu() == own))
}

impl Reserved {
    /// It has what it was given, and wants it.
    fn is_used(&self, threads: &Threads) -> bool {
        threads.state(self.thread) == Some(ProcessState::Running)
            && attributes_of(self.thread).is_ok_and(|now| now.are_reserved())
    }
}

/// Takes back what a thread was given, but not whoever has its number by now. Whether it has nothing any more.
fn take_back(thread: Pid) -> bool {
    match attributes_of(thread) {
        Ok(now) if now.are_reserved() => {}
        Ok(_) | Err(Errno::SRCH) => return true,
        Err(_) => return false,
    }
    let Ok(was) = schedule_of(Some(thread)) else { return false };
    make_ordinary(thread, was).ok();
    !attributes_of(thread).is_ok_and(|now| now.are_reserved())
}

/// What a refusal means.
fn why(errno: Errno) -> Hindrance {
    let may = || capabilities(None).is_ok_and(|now| now.effective.contains(CapabilitySet::SYS_NICE));
    match errno {
        Errno::BUSY => Hindrance::Booked,
        Errno::PERM if !may() => Hindrance::Denied,
        _ => Hindrance::Unreserved,
    }
}

fn all_cpus() -> CpuSet {
    let mut all = CpuSet::new();
    let end = usize::try_from(CPUS_MAX).unwrap_or(usize::MAX).min(CpuSet::MAX_CPU);
    (0..end).for_each(|cpu| all.set(cpu));
    all
}

#[cfg(test)]
mod tests;
