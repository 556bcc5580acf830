//! Lifts from a killed process what keeps it from dying: class, nice value and affinity, thread by thread; and gives it
//! turns before all others where that is not enough.
//!
//! It is an ordinary process at nice 0 then, whatever it was, so that others are let in beside it however much it has to
//! free: at a real-time level one of 2.5 GiB kept them from a CPU for 120 to 244 ms.
//!
//! A process that was killed still has to run: to leave its system calls, to close its files, to take its page tables
//! down. And once it has let go of its address space, nobody else can free that (`process_mrelease` says `ESRCH`):
//! seen, a victim at `SCHED_IDLE` beside four busy programs kept 256 MiB for 7.7 s in that state.
//!
//! **What keeps this from a stranger.** The pidfd proves which process had the number when `/proc/PID/task` was
//! opened; that folder shows the threads of that process only, and none of a later one of the same number. A thread
//! may end between its listing and its change, and its number go to another within those microseconds: so the folder
//! is asked again after each change, and where it does not know the thread any more, whoever has the number now gets
//! back what it was before. Nothing else is changed by number. What was changed of the victim dies with it.

use super::{
    Errno, PidFd, ProcessError,
    cpus::has_all,
    root::{EntryPath, Files, read_whole},
    scan::number,
    urgency::{self, PATIENT_NICE, Schedule, schedule_of, set_schedule, unhurried},
};
use plimsoll_policy::{
    reap::{Hindrance, Hindrances},
    units::Pid,
};
use plimsoll_wire::text::{ProcessState, parse_stat};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, Mode, OFlags, RawDir, openat, statat},
    process::{getpriority_process, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    ffi::CStr,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
};

/// Threads of one victim that are looked after, at about 4 us each; all but a handful of programs have fewer.
pub(super) const THREADS_MAX: usize = 4096;

/// Of them, those that take no longer than a turn; others run between the rest.
const THREADS_AT_ONCE: usize = 256;

/// Room for the names of about 80 threads; more are asked for as needed.
const LISTING_BYTES: usize = 2048;

/// Threads of one victim that are in a turn: those that are listed first. Who ends in it makes room for the next.
const TURN_THREADS: usize = 8;

/// How long a turn is.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Threads that are looked at for one that wants the CPU, at some 10 us each.
const LOOKED_AT_MAX: usize = 64;

/// Room for a line of `stat`: 52 numbers and a name of 64 bytes at most.
const STAT_BYTES: usize = 2048;

/// What a thread was before it was changed; `None`: this was not changed.
#[derive(Debug, Clone, Copy)]
struct Before {
    thread: Pid,
    schedule: Option<Schedule>,
    nice: Option<i32>,
    cpus: Option<CpuSet>,
}

/// What stood in the way, and what of it was lifted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lifted {
    pub(super) found: Hindrances,
    pub(super) lifted: Hindrances,
}

/// Makes every thread of a process that SIGKILL has reached an ordinary one, on all of `cpus` that it may use: those that were
/// more urgent too, which would keep others from the CPU for as long as they free.
/// Nothing of it needs undoing: SIGKILL cannot be taken back, so that every change ends with its thread.
///
/// # Errors
/// [`ProcessError::Vanished`] when it is gone.
pub(super) fn expedite(files: &Files, pidfd: &PidFd, cpus: Option<&CpuSet>) -> Result<Lifted, ProcessError> {
    let threads = Threads::open(files, pidfd)?;
    let mut all = Lifted::default();
    let mut seen = 0_usize;
    let mut names = [MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(&threads.folder, &mut names);
    while let Some(entry) = entries.next() {
        let failed = |errno| ProcessError::of_process(pidfd.pid(), "list the threads", errno);
        let Some(thread) = number(entry.map_err(failed)?.file_name()) else {
            continue;
        };
        if seen >= THREADS_MAX {
            all.found.insert(Hindrance::ManyThreads);
            break;
        }
        seen = seen.saturating_add(1);
        let mut change = || {
            let before = quicken(thread, cpus, &mut all);
            if !threads.has(thread) {
                put_back(&before);
            }
        };
        if seen <= THREADS_AT_ONCE { change() } else { unhurried(change) }
    }
    Ok(all)
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It ran before everybody else, or could have.
    Given,
    /// Not now: others have what there is, or no thread of it wants the CPU.
    Waits,
    /// It may not be real-time where it is, whoever asks (`CONFIG_RT_GROUP_SCHED`).
    Barred,
    /// It may not be given any, for this.
    Refused(Hindrance),
}

/// Lets a process that SIGKILL has reached run before everybody else for 2 ms, or until it is gone: it gets the CPU that its
/// cgroup's quota or share, or its session's, kept from it. The caller is as urgent as who decides: else the process could
/// keep it from taking the turn back.
///
/// # Errors
/// [`ProcessError::Vanished`] when it is gone.
pub(super) fn give_turn(files: &Files, pidfd: &PidFd) -> Result<Turn, ProcessError> {
    if !schedule_of(None).is_ok_and(Schedule::is_urgent) {
        return Ok(Turn::Refused(Hindrance::Denied));
    }
    let threads = Threads::open(files, pidfd)?;
    let listed = threads.first(pidfd)?;
    let mut turn = Turn::Waits;
    for thread in listed.iter().flatten().copied() {
        // What it was is what a stranger gets back: where that is not known, nothing is changed. Another one may have reserved
        // time for it.
        let Ok(before) = schedule_of(Some(thread)) else { continue };
        if before.is_deadline() {
            continue;
        }
        match set_schedule(Some(thread), Schedule::TURN) {
            Ok(()) => turn = Turn::Given,
            Err(Errno::PERM) if turn == Turn::Waits => turn = Turn::Barred,
            Err(_) => {}
        }
        if !threads.has(thread) {
            set_schedule(Some(thread), before).ok();
        }
    }
    if turn == Turn::Given {
        // It is looked at again whatever this says.
        poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&TURN)).ok();
    }
    for thread in listed.iter().flatten().copied() {
        // Not whoever has its number by now.
        if schedule_of(Some(thread)) == Ok(Schedule::TURN) {
            set_schedule(Some(thread), Schedule::ORDINARY).ok();
        }
    }
    Ok(turn)
}

/// The folder of a process's threads.
pub(super) struct Threads {
    folder: OwnedFd,
}

impl Threads {
    pub(super) fn open(files: &Files, pidfd: &PidFd) -> Result<Self, ProcessError> {
        let pid = pidfd.pid();
        let path = EntryPath::new(pid, "task")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&files.dir, path.name(), flags, Mode::empty())
            .map_err(|errno| ProcessError::of_process(pid, "list the threads", errno))?;
        // Not waited for until after the folder was opened: until then the number was its own.
        if pidfd.has_number() { Ok(Self { folder }) } else { Err(ProcessError::Vanished(pid)) }
    }

    /// Those that are listed first.
    fn first(&self, pidfd: &PidFd) -> Result<[Option<Pid>; TURN_THREADS], ProcessError> {
        let mut names = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&self.folder, &mut names);
        let mut listed = [None; TURN_THREADS];
        let mut places = listed.iter_mut();
        while let Some(entry) = entries.next() {
            let failed = |errno| ProcessError::of_process(pidfd.pid(), "list the threads", errno);
            let Some(thread) = number(entry.map_err(failed)?.file_name()) else { continue };
            let Some(place) = places.next() else { break };
            *place = Some(thread);
        }
        Ok(listed)
    }

    /// The first of them that wants the CPU, of so many as are looked at.
    pub(super) fn first_ready(&self, pidfd: &PidFd) -> Result<Option<Pid>, ProcessError> {
        let mut names = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&self.folder, &mut names);
        for _ in 0..LOOKED_AT_MAX {
            let Some(entry) = entries.next() else { break };
            let failed = |errno| ProcessError::of_process(pidfd.pid(), "list the threads", errno);
            let Some(thread) = number(entry.map_err(failed)?.file_name()) else { continue };
            if self.state(thread) == Some(ProcessState::Running) {
                return Ok(Some(thread));
            }
        }
        Ok(None)
    }

    /// What one of them does; `None` where it is gone.
    pub(super) fn state(&self, thread: Pid) -> Option<ProcessState> {
        let path = EntryPath::new(thread, "stat").ok()?;
        let mut line = [0; STAT_BYTES];
        let text = read_whole(&self.folder, path.name(), &mut line).ok()?;
        parse_stat(text).ok().map(|stat| stat.state)
    }

    /// Whether this number is one of its threads now.
    pub(super) fn has(&self, thread: Pid) -> bool {
        let mut name = [0; 16];
        std::io::Write::write_fmt(&mut name.as_mut_slice(), format_args!("{thread}\0"))
            .is_ok_and(|()| CStr::from_bytes_until_nul(&name).is_ok_and(|name| self.shows(name)))
    }

    fn shows(&self, name: &CStr) -> bool {
        statat(&self.folder, name, AtFlags::empty()).is_ok()
    }
}

/// Changes one thread, and tells what it was.
fn quicken(thread: Pid, cpus: Option<&CpuSet>, all: &mut Lifted) -> Before {
    let mut before = Before { thread, schedule: None, nice: None, cpus: None };
    make_ordinary(&mut before, all);
    set_nice(&mut before, all);
    if let Some(wanted) = cpus {
        spread(wanted, &mut before, all);
    }
    before
}

/// The class.
fn make_ordinary(before: &mut Before, all: &mut Lifted) {
    let thread = Some(before.thread);
    let Ok(schedule) = schedule_of(thread) else { return };
    all.found.insert_if(schedule.is_idle(), Hindrance::IdleClass);
    if schedule == Schedule::ORDINARY {
        return;
    }
    match urgency::make_ordinary(before.thread, schedule) {
        Ok(()) => {
            before.schedule = Some(schedule);
            all.lifted.insert_if(schedule.is_idle(), Hindrance::IdleClass);
        }
        Err(Errno::SRCH) => {}
        Err(_) => all.found.insert(Hindrance::Denied),
    }
}

/// The nice value.
fn set_nice(before: &mut Before, all: &mut Lifted) {
    let raw = raw_pid(before.thread);
    let Ok(nice) = getpriority_process(raw) else { return };
    all.found.insert_if(nice > PATIENT_NICE, Hindrance::Nice);
    if nice == PATIENT_NICE {
        return;
    }
    match setpriority_process(raw, PATIENT_NICE) {
        Ok(()) => {
            before.nice = Some(nice);
            all.lifted.insert_if(nice > PATIENT_NICE, Hindrance::Nice);
        }
        Err(rustix::io::Errno::SRCH) => {}
        Err(_) => all.found.insert(Hindrance::Denied),
    }
}

/// The CPUs. The kernel leaves out what the thread's cpuset forbids.
fn spread(wanted: &CpuSet, before: &mut Before, all: &mut Lifted) {
    let Some(raw) = raw_pid(before.thread) else { return };
    match sched_getaffinity(Some(raw)) {
        Ok(own) if !has_all(&own, wanted) => {
            all.found.insert(Hindrance::Affinity);
            if sched_setaffinity(Some(raw), wanted).is_ok() {
                before.cpus = Some(own);
                let now = sched_getaffinity(Some(raw));
                all.lifted.insert_if(now.is_ok_and(|now| now != own), Hindrance::Affinity);
            }
        }
        Ok(_) | Err(_) => {}
    }
}

/// A thread that is gone meanwhile needs nothing back.
fn put_back(before: &Before) {
    let Some(raw) = raw_pid(before.thread) else { return };
    if let Some(cpus) = &before.cpus {
        sched_setaffinity(Some(raw), cpus).ok();
    }
    if let Some(nice) = before.nice {
        setpriority_process(Some(raw), nice).ok();
    }
    if let Some(schedule) = before.schedule {
        set_schedule(Some(before.thread), schedule).ok();
    }
}

pub(super) fn raw_pid(thread: Pid) -> Option<rustix::process::Pid> {
    i32::try_from(thread.0).ok().and_then(rustix::process::Pid::from_raw)
}

#[cfg(test)]
mod tests;
