//! Lifts from a killed process what keeps it from dying: class, nice value and affinity, thread by thread.
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
    root::{EntryPath, Files},
    scan::number,
    urgency::{Schedule, schedule_of, set_schedule},
};
use plimsoll_policy::{
    reap::{Hindrance, Hindrances},
    units::Pid,
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RawDir, openat, statat},
    process::{getpriority_process, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{ffi::CStr, mem::MaybeUninit, os::fd::OwnedFd};

/// Threads of one victim that are looked after, at about 4 us each; all but a handful of programs have fewer.
pub(super) const THREADS_MAX: usize = 4096;

/// Room for the names of about 80 threads; more are asked for as needed.
const LISTING_BYTES: usize = 2048;

/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;

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
    /// Its cgroup keeps it from the real-time class.
    pub(super) held_by_group: bool,
}

/// Makes every thread of a process that SIGKILL has reached as urgent as what frees, on all of `cpus` that it may use.
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
        let before = quicken(thread, cpus, &mut all);
        if !threads.has(thread) {
            put_back(&before);
        }
    }
    Ok(all)
}

/// The folder of a process's threads.
struct Threads {
    folder: OwnedFd,
}

impl Threads {
    fn open(files: &Files, pidfd: &PidFd) -> Result<Self, ProcessError> {
        let pid = pidfd.pid();
        let path = EntryPath::new(pid, "task")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&files.dir, path.name(), flags, Mode::empty())
            .map_err(|errno| ProcessError::of_process(pid, "list the threads", errno))?;
        // Not waited for until after the folder was opened: until then the number was its own.
        if pidfd.has_number() { Ok(Self { folder }) } else { Err(ProcessError::Vanished(pid)) }
    }

    /// Whether this number is one of its threads now.
    fn has(&self, thread: Pid) -> bool {
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
    if let Ok(schedule) = schedule_of(Some(thread))
        && !schedule.is_urgent()
    {
        raise(schedule, &mut before, all);
    }
    if let Some(wanted) = cpus {
        spread(wanted, &mut before, all);
    }
    before
}

/// The class and, where that is refused, what an ordinary thread can have.
fn raise(schedule: Schedule, before: &mut Before, all: &mut Lifted) {
    let thread = before.thread;
    let raw = raw_pid(thread);
    let nice = raw.and_then(|raw| getpriority_process(Some(raw)).ok());
    let (was_idle, was_nice) = (schedule.is_idle(), nice.is_some_and(|nice| nice > 0));
    all.found.insert_if(was_idle, Hindrance::IdleClass);
    all.found.insert_if(was_nice, Hindrance::Nice);
    match set_schedule(Some(thread), Schedule::DYING) {
        Ok(()) => {
            before.schedule = Some(schedule);
            all.lifted.insert_if(was_idle, Hindrance::IdleClass);
            all.lifted.insert_if(was_nice, Hindrance::Nice);
            return;
        }
        Err(Errno(libc::ESRCH)) => return,
        Err(_) => {}
    }
    // Refused without CAP_SYS_NICE, and in a v1 cpu cgroup without real-time runtime.
    if was_idle && set_schedule(Some(thread), Schedule::ORDINARY).is_ok() {
        before.schedule = Some(schedule);
        all.lifted.insert(Hindrance::IdleClass);
    }
    if raw.is_some_and(|raw| setpriority_process(Some(raw), URGENT_NICE).is_ok()) {
        before.nice = nice;
        all.lifted.insert_if(was_nice, Hindrance::Nice);
        // Whoever may raise it that far may make it real-time as well: it is the cgroup that refuses.
        all.held_by_group = true;
    } else {
        all.found.insert(Hindrance::Denied);
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

fn raw_pid(thread: Pid) -> Option<rustix::process::Pid> {
    i32::try_from(thread.0).ok().and_then(rustix::process::Pid::from_raw)
}

#[cfg(test)]
mod tests;
