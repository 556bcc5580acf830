//! To end all processes of a cgroup and of those below it, and no other.
//!
//! `cgroup.kill` does it in one stroke, forks included. It waits for the kernel's `cgroup_mutex`, which
//! whoever makes a cgroup holds while memory is found for it: the largest processes are therefore signalled first,
//! each by a pidfd that was opened before, so that memory comes back even if the stroke is late. Where
//! `cgroup.kill` cannot be used, every process is signalled by pidfd, again and again, until none is left or the
//! patience ends.
//!
//! **Everybody is judged.** Whoever orders the kill says of each process whether it is spared. Those that came in
//! meanwhile are judged as well: the stroke falls only on a cgroup whose last list held nobody new and nobody
//! spared, so that all that it may meet unseen was forked by somebody condemned, microseconds before. In one that
//! never comes to rest each process is judged and signalled by itself.
//!
//! **A number is never trusted.** The list of a cgroup has numbers, and a number can change hands between the list
//! and the pidfd. So the list is read once more after the pidfds were opened: a process that lives on after that
//! second list, and whose number is in it, was in the cgroup (it had the number all the time between). Only those
//! are signalled.

use super::{
    Cgroup, CgroupError, CgroupErrorKind, Refusal,
    members::{Look, processes},
    scope::is_below,
};
use crate::process::{Errno, PidFd, ProcRoot, ReaperHandle, clock_monotonic_ns};
use plimsoll_policy::{
    reading::Reading,
    units::{Pages, Pid},
    victim::Signal,
};
use plimsoll_wire::text::{CgroupType, parse_cgroup};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::write,
};
use std::{collections::HashMap, fs, time::Duration};

/// Processes of one cgroup that are looked through. With more, only `cgroup.kill` is tried.
pub const KILL_PROCESSES_MAX: usize = 16_384;

/// Processes that are held for the reaper at most.
pub const KILL_HELD_MAX: usize = 32;

/// Processes whose size is read to find the largest: two small files each, some 5 ms for all.
const SIZED_MAX: usize = 256;

/// Processes that are signalled by pidfd between two lists.
const BATCH: usize = 64;

/// How long the end of a signalled process is waited for before the next list, in milliseconds.
const ROUND_MS: u64 = 5;

/// Lists that are read until one has nobody new, before the processes are judged and signalled one by one.
const LISTS_MAX: u32 = 8;

/// Whether a process lives on, whatever else is in its cgroup. Asked of each once or more; with one that is spared in
/// it, all others are signalled one by one. (The kernel's own group kill spares those with an `oom_score_adj` of
/// -1000: spare them to do the same.) Before a single process is signalled it is asked while the process is held.
pub type Spares<'a> = dyn FnMut(&mut ProcRoot, Pid) -> bool + 'a;

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct KillOrders<'a> {
    /// Who frees the memory of the largest; `None`: they do it themselves.
    pub reaper: Option<&'a ReaperHandle>,
    /// How many of the largest to hold for the reaper: at most [`KILL_HELD_MAX`].
    pub hold: usize,
    /// How long to go on signalling one by one. `cgroup.kill` itself is not waited for.
    pub patience: Duration,
    /// Does all but signal, and says what would have been done.
    pub dry_run: bool,
}

/// How it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillMeans {
    /// There was nobody to signal.
    Nobody,
    /// By `cgroup.kill`: nothing that was in it when it was written survives, nothing it forked either.
    Whole,
    /// One by one.
    Each {
        /// Why: what `cgroup.kill` said; `None` where somebody was to be spared.
        why: Option<Errno>,
        /// How often the list was gone through.
        rounds: u32,
        /// None but the spared was left at the end. `false`: the patience ended before.
        emptied: bool,
    },
}

/// One of the largest processes, held since before the kill.
#[derive(Debug)]
pub struct Held {
    /// The process. SIGKILL was sent to it: it can be reaped.
    pub pidfd: PidFd,
    /// What it was charged before.
    pub usage: Pages,
}

/// What became of a cgroup.
#[derive(Debug)]
pub struct Killed {
    /// Processes that were to die, by the first list: those forked later died with them, uncounted.
    pub processes: u64,
    /// Processes in it that were spared.
    pub spared: u64,
    /// The numbers before are of all; `false`: there were more than are looked through.
    pub complete: bool,
    /// How.
    pub means: KillMeans,
    /// The largest first.
    pub largest: Vec<Held>,
}

/// Kills cgroups; its lists are made once, before they are needed.
#[derive(Debug)]
pub struct Killer {
    own: Pid,
    pids: Vec<Pid>,
    judged: HashMap<Pid, Answer>,
    batch: Vec<Candidate>,
}

/// What was said of a number.
#[derive(Debug, Clone, Copy)]
struct Answer {
    spared: bool,
    /// Whoever had the number before the question lived on after the answer: it is about that process.
    holds: bool,
}

#[derive(Debug)]
struct Candidate {
    pidfd: PidFd,
    listed: bool,
}

impl Default for Killer {
    fn default() -> Self {
        Self::new()
    }
}

impl Killer {
    /// Takes some 256 KiB for its lists.
    #[must_use]
    pub fn new() -> Self {
        Self {
            own: Pid(std::process::id()),
            pids: Vec::with_capacity(KILL_PROCESSES_MAX),
            judged: HashMap::with_capacity(KILL_PROCESSES_MAX),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Ends what is in a cgroup and below it, but those that are spared.
    ///
    /// # Errors
    /// [`CgroupErrorKind::Refused`]: nothing was signalled. [`CgroupErrorKind::Gone`]: so are its processes.
    pub fn kill(
        &mut self,
        cgroup: &Cgroup,
        proc: &mut ProcRoot,
        orders: &KillOrders<'_>,
        spares: &mut Spares<'_>,
    ) -> Result<Killed, CgroupError> {
        refuse_by_name(cgroup)?;
        cgroup.check_there()?;
        self.judged.clear();
        let look = self.look(cgroup)?;
        self.refuse_by_members(cgroup, look)?;
        self.judge(proc, spares);
        let spared = self.pids.iter().filter(|pid| self.is_spared(**pid)).count();
        let mut killed = Killed {
            processes: u64::try_from(self.pids.len().saturating_sub(spared)).unwrap_or(u64::MAX),
            spared: u64::try_from(spared).unwrap_or(u64::MAX),
            complete: look.complete,
            means: KillMeans::Nobody,
            largest: self.hold_largest(cgroup, proc, orders)?,
        };
        let rest = self.come_to_rest(cgroup, proc, spares)?;
        if killed.processes == 0 && self.pids.iter().all(|pid| self.is_spared(*pid)) {
            return Ok(killed);
        }
        if orders.dry_run {
            let each = KillMeans::Each { why: None, rounds: 0, emptied: false };
            killed.means = if rest == Rest::SomeSpared { each } else { KillMeans::Whole };
            return Ok(killed);
        }
        for held in &killed.largest {
            kill_and_reap(&held.pidfd, orders.reaper);
        }
        let why = match rest {
            Rest::Condemned => match write_kill(cgroup) {
                Ok(()) | Err(rustix::io::Errno::NODEV) => {
                    killed.means = KillMeans::Whole;
                    return Ok(killed);
                }
                Err(errno) => Some(errno),
            },
            Rest::SomeSpared | Rest::Restless => None,
        };
        killed.means = self.kill_each(cgroup, proc, why, (orders.patience, spares))?;
        let outlived = matches!(killed.means, KillMeans::Each { emptied: false, .. });
        // It forks faster than it is judged, and nobody in it was ever to be spared.
        if outlived && rest == Rest::Restless && !self.judged.values().any(|answer| answer.spared) {
            write_kill(cgroup).map_err(|errno| cgroup.failed("write cgroup.kill", errno))?;
            killed.means = KillMeans::Whole;
        }
        Ok(killed)
    }

    /// Lists and judges until a list has nobody new.
    fn come_to_rest(
        &mut self,
        cgroup: &Cgroup,
        proc: &mut ProcRoot,
        spares: &mut Spares<'_>,
    ) -> Result<Rest, CgroupError> {
        for _ in 0..LISTS_MAX {
            let look = self.look(cgroup)?;
            self.refuse_by_members(cgroup, look)?;
            let new = self.judge(proc, spares);
            if self.pids.iter().any(|pid| self.is_spared(*pid)) {
                return Ok(Rest::SomeSpared);
            }
            if !new {
                return Ok(Rest::Condemned);
            }
        }
        Ok(Rest::Restless)
    }

    /// Judges those of the list that were not yet; whether there were any. One that ended while it was judged is asked about
    /// again if its number is still listed: another may have it by then.
    fn judge(&mut self, proc: &mut ProcRoot, spares: &mut Spares<'_>) -> bool {
        let mut new = false;
        for pid in &self.pids {
            let before = self.judged.get(pid);
            if before.is_some_and(|answer| answer.holds) {
                continue;
            }
            new |= before.is_none();
            let held = PidFd::open(*pid);
            let spared = spares(proc, *pid);
            let holds = held.is_ok_and(|held| held.has_exited() == Ok(false));
            self.judged.insert(*pid, Answer { spared, holds });
        }
        new
    }

    fn is_spared(&self, pid: Pid) -> bool {
        self.judged.get(&pid).is_some_and(|answer| answer.spared)
    }

    /// Lists everybody into `self.pids`.
    fn look(&mut self, cgroup: &Cgroup) -> Result<Look, CgroupError> {
        self.pids.clear();
        let pids = &mut self.pids;
        let mut all = true;
        let look = processes(cgroup, |pid| {
            if pids.len() < KILL_PROCESSES_MAX {
                pids.push(pid);
            } else {
                all = false;
            }
        });
        let look = look.map_err(|errno| cgroup.failed("list the processes", errno))?;
        self.pids.sort_unstable();
        self.pids.dedup();
        Ok(Look { complete: look.complete && all, ..look })
    }

    fn refuse_by_members(&self, cgroup: &Cgroup, look: Look) -> Result<(), CgroupError> {
        let refusal = if self.pids.contains(&Pid(1)) {
            Refusal::HoldsInit
        } else if self.pids.contains(&self.own) {
            Refusal::HoldsCaller
        } else if look.foreign > 0 {
            Refusal::Foreign
        } else if look.complete {
            return Ok(());
        } else {
            match (is_within("/proc/self/cgroup", cgroup), is_within("/proc/1/cgroup", cgroup)) {
                (Some(false), Some(false)) => return Ok(()),
                (Some(true), _) => Refusal::HoldsCaller,
                (_, Some(true)) => Refusal::HoldsInit,
                (None, _) | (_, None) => Refusal::TooLarge,
            }
        };
        Err(refused(cgroup, refusal))
    }

    /// Opens the largest, and keeps those that are in the cgroup for certain.
    fn hold_largest(
        &mut self,
        cgroup: &Cgroup,
        proc: &mut ProcRoot,
        orders: &KillOrders<'_>,
    ) -> Result<Vec<Held>, CgroupError> {
        let hold = orders.hold.min(KILL_HELD_MAX);
        if hold == 0 {
            return Ok(Vec::new());
        }
        let mut sized: Vec<(Pages, Pid)> = Vec::with_capacity(SIZED_MAX);
        let candidates = self.pids.iter().filter(|pid| !self.is_spared(**pid)).take(SIZED_MAX);
        sized.extend(candidates.filter_map(|pid| match proc.process(*pid).map(|process| process.usage()) {
            Ok(Reading::Known(usage)) => Some((usage, *pid)),
            // Not known is not large: it dies all the same, only nobody helps it.
            Ok(Reading::Absent | Reading::Unreadable | Reading::Stale { .. }) | Err(_) => None,
        }));
        sized.sort_unstable_by(|one, other| other.cmp(one));
        sized.truncate(hold);
        let mut largest: Vec<Held> = sized
            .into_iter()
            .filter_map(|(usage, pid)| PidFd::open(pid).ok().map(|pidfd| Held { pidfd, usage }))
            .collect();
        self.look(cgroup)?;
        let pids = &self.pids;
        largest.retain(|held| is_member(pids, &held.pidfd));
        Ok(largest)
    }

    fn kill_each(
        &mut self,
        cgroup: &Cgroup,
        proc: &mut ProcRoot,
        why: Option<Errno>,
        (patience, spares): (Duration, &mut Spares<'_>),
    ) -> Result<KillMeans, CgroupError> {
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock_monotonic_ns().saturating_add(patience_ns);
        let mut rounds = 0_u32;
        loop {
            let look = self.look(cgroup)?;
            let (own, judged) = (self.own, &self.judged);
            let is_spared = |pid: &Pid| judged.get(pid).is_some_and(|answer| answer.spared);
            self.pids.retain(|pid| *pid != own && pid.0 != 1 && !is_spared(pid));
            if self.pids.is_empty() || clock_monotonic_ns() >= end_ns {
                let emptied = self.pids.is_empty() && look.complete;
                return Ok(KillMeans::Each { why, rounds, emptied });
            }
            rounds = rounds.saturating_add(1);
            let mut from = 0;
            while let Some(pids) = self.pids.get(from..).filter(|pids| !pids.is_empty()) {
                from = from.saturating_add(BATCH);
                self.batch.clear();
                for pid in pids.iter().take(BATCH) {
                    // Judged while it is held: whoever had the number in an earlier round may be another.
                    let Ok(pidfd) = PidFd::open(*pid) else { continue };
                    let spared = spares(proc, *pid);
                    self.judged.insert(*pid, Answer { spared, holds: true });
                    if !spared {
                        self.batch.push(Candidate { pidfd, listed: false });
                    }
                }
                signal_listed(cgroup, &mut self.batch)?;
            }
            // Their ends, or those of the ones that a driver holds, decide what the next list has.
            if let Some(last) = self.batch.last() {
                match last.pidfd.wait_exit(Duration::from_millis(ROUND_MS)) {
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }
}

/// What the lists of a cgroup came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// The last had nobody new, and nobody in it is spared.
    Condemned,
    /// Somebody in it is spared.
    SomeSpared,
    /// Each had somebody new.
    Restless,
}

/// A large one. It is not announced to the reaper: who wakes up for it would run before this thread, which is no more urgent
/// than others, and keep it from the signal.
fn kill_and_reap(pidfd: &PidFd, reaper: Option<&ReaperHandle>) {
    try_kill(pidfd);
    if let Some(reaper) = reaper
        && let Ok(copy) = pidfd.try_clone()
        && reaper.submit(copy, u64::from(pidfd.pid().0)).is_err()
    {
        // It frees its memory itself; the reaper has counted it.
    }
}

/// Signals those whose number is still listed and who live on after that.
fn signal_listed(cgroup: &Cgroup, batch: &mut [Candidate]) -> Result<(), CgroupError> {
    processes(cgroup, |pid| {
        if let Ok(at) = batch.binary_search_by_key(&pid, |candidate| candidate.pidfd.pid())
            && let Some(candidate) = batch.get_mut(at)
        {
            candidate.listed = true;
        }
    })
    .map_err(|errno| cgroup.failed("list the processes", errno))?;
    for candidate in batch.iter().filter(|candidate| candidate.listed) {
        if candidate.pidfd.has_exited() == Ok(false) {
            try_kill(&candidate.pidfd);
        }
    }
    Ok(())
}

/// Whoever could not be signalled is in the next list again, or dies by `cgroup.kill`.
fn try_kill(pidfd: &PidFd) {
    match pidfd.send_signal(Signal::Kill) {
        Ok(()) | Err(_) => {}
    }
}

/// Whether the process is in a sorted list that was read after it was opened.
fn is_member(pids: &[Pid], pidfd: &PidFd) -> bool {
    pids.binary_search(&pidfd.pid()).is_ok() && pidfd.has_exited() == Ok(false)
}

fn refuse_by_name(cgroup: &Cgroup) -> Result<(), CgroupError> {
    if cgroup.path().is_empty() {
        return Err(refused(cgroup, Refusal::Root));
    }
    if cgroup.path() == b"init.scope" {
        return Err(refused(cgroup, Refusal::InitScope));
    }
    if cgroup.kind().known() == Some(CgroupType::Threaded) {
        return Err(refused(cgroup, Refusal::Threaded));
    }
    Ok(())
}

fn refused(cgroup: &Cgroup, refusal: Refusal) -> CgroupError {
    CgroupError::new("kill the processes", cgroup.path(), CgroupErrorKind::Refused(refusal))
}

/// Whether the process of this `cgroup` file is in a cgroup or below it; `None` where that cannot be told.
fn is_within(file: &str, cgroup: &Cgroup) -> Option<bool> {
    let text = fs::read(file).ok()?;
    let path = parse_cgroup(&text).ok()?.unified?.strip_prefix(b"/")?;
    Some(is_below(path, cgroup.path()))
}

fn write_kill(cgroup: &Cgroup) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(cgroup.dir(), c"cgroup.kill", flags, Mode::empty())?;
    rustix::io::retry_on_intr(|| write(&file, b"1")).map(drop)
}

#[cfg(test)]
mod tests;
