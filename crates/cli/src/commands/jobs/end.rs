//! The end of a job: each process that is in it gets a signal, and whoever they start meanwhile gets one as well, until nobody
//! is left. The signals are the caller's own, sent through pidfds: the kernel decides who may, as for kill(2).

use crate::{commands::kill::wait_for_any, exit::Failure, output::counted};
use plimsoll_api::{
    accounts::{AccountView, ProcessView},
    client::{CallError, Client},
};
use plimsoll_policy::{
    account::Account,
    lines::Target,
    units::{JobId, Pid},
    victim::{Signal, TERM_GRACE, VictimId},
};
use plimsoll_sys::process::{PidFd, ProcRoot, ProcessError};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long processes that were sent SIGKILL are waited for, and those that they start hunted.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one look at who is there to the next: at first, and at most. Where all have ended the next comes at once.
const APART: Duration = Duration::from_millis(50);
const APART_AT_MOST: Duration = Duration::from_millis(400);
/// So many processes are named.
const NAMED_MAX: usize = 8;

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Ended {
    /// Processes that were signalled and are there no more.
    pub(crate) ended: u64,
    /// Those that are there.
    pub(crate) left: Vec<Pid>,
    /// Of these, those that the kernel did not let us signal.
    pub(crate) denied: Vec<Pid>,
    /// How many more there are, which start others and exit faster than they are found.
    pub(crate) unseen: u64,
}

impl Ended {
    /// Why it did not go as it should have; `None`: it did.
    pub(crate) fn complain(&self, id: JobId) -> Option<Failure> {
        let named = |pids: &[Pid]| {
            let named: Vec<String> = pids.iter().take(NAMED_MAX).map(Pid::to_string).collect();
            let more = if pids.len() > NAMED_MAX { " and others" } else { "" };
            format!("{}{more}", named.join(", "))
        };
        if !self.denied.is_empty() {
            let denied = named(&self.denied);
            let told = format_args!("job {id}: not permitted to end {denied}; ask root");
            return Some(Failure::not_permitted(told));
        }
        if !self.left.is_empty() {
            let left = named(&self.left);
            let told = format_args!(
                "job {id} has not ended: {left} are there still, or came since; try again with --now"
            );
            return Some(Failure::failed(told));
        }
        (self.unseen > 0).then(|| {
            let count = counted(self.unseen, "process is", "processes are");
            Failure::failed(format_args!(
                "job {id} has not ended: {count} there that start others and exit faster than they are found; try again with \
                 --now"
            ))
        })
    }
}

/// Those that were signalled, and are there as far as is known.
#[derive(Debug, Default)]
struct Hunt {
    held: BTreeMap<VictimId, Held>,
    denied: BTreeSet<Pid>,
    ended: u64,
}

#[derive(Debug)]
struct Held {
    pidfd: PidFd,
    sent: Signal,
}

/// Ends all processes of a job but this one: by SIGTERM, and by SIGKILL after [`TERM_GRACE`], or as soon as `at_once` says so.
pub(crate) fn end(client: &mut Client, id: JobId, at_once: &AtomicBool) -> Result<Ended, CallError> {
    let mut root =
        ProcRoot::open(Path::new("/proc")).map_err(|error| CallError::Invalid(error.to_string()))?;
    let mut kill_from = Instant::now() + Duration::from_nanos(TERM_GRACE.0);
    let (mut hunt, mut apart) = (Hunt::default(), APART);
    // One that is no job of theirs is told as that.
    let (mut there, _) = all_in(client, &mut root, id)?;
    loop {
        let now = Instant::now();
        if at_once.load(Ordering::Acquire) {
            kill_from = kill_from.min(now);
        }
        let signal = if now >= kill_from { Signal::Kill } else { Signal::Term };
        there.iter().filter(|one| !is_own(one.pid)).for_each(|one| hunt.signal(&root, *one, signal));
        hunt.wait(apart, || signal == Signal::Term && at_once.load(Ordering::Acquire));
        apart = apart.saturating_mul(2).min(APART_AT_MOST);
        let unseen;
        (there, unseen) = of_one(all_in(client, &mut root, id))?.unwrap_or_default();
        let left: Vec<Pid> = there.iter().filter(|one| !is_own(one.pid)).map(|one| one.pid).collect();
        let denied: Vec<Pid> = left.iter().copied().filter(|pid| hunt.denied.contains(pid)).collect();
        if (left.len() == denied.len() && unseen == 0) || now >= kill_from + PATIENCE {
            return Ok(Ended { ended: hunt.ended, left, denied, unseen });
        }
        if left.is_empty() {
            thread::sleep(APART);
        }
    }
}

/// Who is in a job, but for whoever asks: nobody where it has ended.
pub(crate) fn processes(client: &mut Client, id: JobId) -> Result<Vec<ProcessView>, CallError> {
    let mut there = of_one(all_processes(client, id))?.unwrap_or_default();
    there.retain(|one| !is_own(one.pid));
    Ok(there)
}

fn all_processes(client: &mut Client, id: JobId) -> Result<Vec<ProcessView>, CallError> {
    let told = client.show_processes(Some(Target::Job(id)), None)?;
    Ok(told.into_iter().flat_map(|account| account.processes).collect())
}

/// All that there is to be ended, and how many more the programs count: a walk of all tasks can miss who forks and exits all
/// the time.
fn all_in(
    client: &mut Client,
    root: &mut ProcRoot,
    id: JobId,
) -> Result<(BTreeSet<VictimId>, u64), CallError> {
    let found = all_processes(client, id)?;
    let view = view_of(client, id)?;
    let count = view.as_ref().map_or(0, |view| view.processes);
    let unseen = count.saturating_sub(u64::try_from(found.len()).unwrap_or(u64::MAX));
    let mut all: BTreeSet<VictimId> =
        found.into_iter().map(|one| VictimId { pid: one.pid, start_ns: one.start_ns }).collect();
    // Until its program begins, what the first process has is its user's, and not the job's.
    let job = view.and_then(|view| view.job).filter(|job| job.waits || count == 0);
    if let Some((job, (pid, start_ns))) = job.and_then(|job| Some((job.uid, job.pid.zip(job.start_ns)?)))
        && root.process(pid).is_ok_and(|process| process.uid == job)
    {
        all.insert(VictimId { pid, start_ns });
    }
    Ok((all, unseen))
}

fn is_own(pid: Pid) -> bool {
    pid.0 == std::process::id()
}

/// The job's account. `None`: it has ended.
pub(crate) fn view_of(client: &mut Client, id: JobId) -> Result<Option<AccountView>, CallError> {
    let found = of_one(client.show_limits(Some(Target::Job(id))))?;
    Ok(found.and_then(|limits| limits.accounts.into_iter().find(|view| view.account == Account::Job(id))))
}

/// What is told of a job of ours; `None`: it has ended.
fn of_one<T>(told: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(CallError::NotPermitted(_) | CallError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Hunt {
    /// Each signal is sent once.
    fn signal(&mut self, root: &ProcRoot, id: VictimId, signal: Signal) {
        if self.held.get(&id).is_some_and(|held| held.sent == signal) {
            return;
        }
        let known = self.held.remove(&id).map(|held| held.pidfd);
        let held = known.map_or_else(|| PidFd::open_verified(root, id.pid, id.start_ns), Ok);
        let sent = held.and_then(|pidfd| pidfd.send_signal(signal).map(|()| pidfd));
        match sent {
            Ok(pidfd) => {
                self.held.insert(id, Held { pidfd, sent: signal });
            }
            Err(ProcessError::Denied { .. }) => {
                self.denied.insert(id.pid);
            }
            // It has gone by itself, or is looked for again.
            Err(
                ProcessError::Vanished(_)
                | ProcessError::Unsupported { .. }
                | ProcessError::Failed { .. }
                | ProcessError::Unreadable { .. },
            ) => {}
        }
    }

    /// Waits until all have exited, but no longer than so, nor once that is not to be waited for.
    fn wait(&mut self, time: Duration, is_over: impl Fn() -> bool) {
        let until = Instant::now() + time;
        loop {
            let before = self.held.len();
            self.held.retain(|_, held| !held.pidfd.has_exited().unwrap_or(false));
            let gone = before.saturating_sub(self.held.len());
            self.ended = self.ended.saturating_add(u64::try_from(gone).unwrap_or(u64::MAX));
            let left = until.saturating_duration_since(Instant::now());
            if self.held.is_empty() || left.is_zero() || is_over() {
                return;
            }
            wait_for_any(self.held.values().map(|held| &held.pidfd), left.min(APART));
        }
    }
}
