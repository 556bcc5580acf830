//! What becomes of a job, one line of JSON for each event. Scripts rely on the fields: some may be added, none are renamed.

use jiff::Timestamp;
use plimsoll_api::accounts::{AccountView, ProcessView};
use plimsoll_policy::{
    account::Account,
    incident::{Incident, Outcome},
    units::Pid,
};
use plimsoll_report::story::{Reader, story};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

/// So many lines may wait for whoever reads them slowly; the rest is left out.
const WAITING_MAX: usize = 256;
/// How long the last ones may take to be read, once the job has ended.
const LAST_MAY_TAKE: Duration = Duration::from_secs(2);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// The program is about to run.
    Started,
    /// The job's usage is at its soft limit or above.
    Near,
    /// A process of it was sent a signal.
    Killed,
    /// A process of it was told that there is no memory.
    Refused,
    /// The line was crossed, and nothing more: its action is to notify.
    Crossed,
    /// The program has ended.
    Ended,
}

/// One line. `null` is not known, or makes no sense there.
#[derive(Debug, Serialize)]
pub(super) struct Event {
    event: What,
    time: Timestamp,
    job: Account,
    usage_bytes: Option<u64>,
    hard_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    /// The largest; those that were killed or refused; those that were left behind.
    processes: Option<Vec<Process>>,
    incident: Option<u64>,
    reason: Option<String>,
    story: Option<String>,
    seconds_left: Option<u64>,
    status: Option<i32>,
}

/// A process in one.
#[derive(Debug, Serialize)]
pub(super) struct Process {
    pid: Pid,
    comm: String,
    usage_bytes: u64,
}

impl From<&ProcessView> for Process {
    fn from(view: &ProcessView) -> Self {
        let held = view.anon_bytes.saturating_add(view.swap_bytes);
        Self { pid: view.pid, comm: view.comm.clone(), usage_bytes: view.charged_bytes.unwrap_or(held) }
    }
}

impl Event {
    /// `view`: its account now; `None`: that is not known.
    pub(super) fn new(
        what: What,
        job: &Account,
        view: Option<&AccountView>,
        processes: Option<&[ProcessView]>,
    ) -> Self {
        Self {
            event: what,
            time: Timestamp::now(),
            job: job.clone(),
            usage_bytes: view.map(|view| view.usage_bytes),
            hard_bytes: view.and_then(|view| view.hard_bytes),
            peak_bytes: view.and_then(|view| view.peak_bytes.map(|peak| peak.max(view.usage_bytes))),
            processes: processes.map(|processes| processes.iter().map(Process::from).collect()),
            incident: None,
            reason: None,
            story: None,
            seconds_left: None,
            status: None,
        }
    }

    /// Until the line, at the present rate.
    pub(super) fn with_seconds_left(self, seconds_left: Option<u64>) -> Self {
        Self { seconds_left, ..self }
    }

    /// The program's exit status, as a shell shows it.
    pub(super) fn with_status(self, status: Option<i32>) -> Self {
        Self { status, ..self }
    }

    /// While nothing else is known of it.
    pub(super) fn with_line(self, hard_bytes: Option<u64>) -> Self {
        Self { hard_bytes, ..self }
    }

    /// What is used now is not known.
    pub(super) fn without_usage(self) -> Self {
        Self { usage_bytes: None, ..self }
    }

    /// A line of it.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// What was done to the job, by whichever line or killer. `name`: of the incident's account.
    pub(super) fn of_incident(
        job: &Account,
        view: Option<&AccountView>,
        incident: &Incident,
        name: Option<&str>,
    ) -> Self {
        let what = match incident.action {
            Outcome::Kill | Outcome::Term => What::Killed,
            Outcome::Refuse | Outcome::Deny => What::Refused,
            Outcome::Notify => What::Crossed,
        };
        let is_own = incident.account.as_ref() == Some(job);
        let victims = incident.victims.iter().filter(|victim| is_own || is_in(job, &victim.jobs));
        let process = |victim: &plimsoll_policy::incident::Victim| Process {
            pid: victim.pid,
            comm: victim.comm.clone(),
            usage_bytes: victim.usage_bytes,
        };
        let now = Self::new(what, job, view, None);
        Self {
            time: incident.time,
            usage_bytes: if is_own { Some(incident.usage_bytes) } else { now.usage_bytes },
            hard_bytes: if is_own { incident.hard_bytes } else { now.hard_bytes },
            processes: Some(victims.map(process).collect()),
            incident: Some(incident.id),
            reason: Some(incident.reason.clone()),
            story: Some(story(incident, name, Reader::User)),
            ..now
        }
    }
}

/// Whether an incident is of a job: its line's, or one that took a process in it.
pub(super) fn concerns(job: &Account, incident: &Incident) -> bool {
    incident.account.as_ref() == Some(job) || incident.victims.iter().any(|victim| is_in(job, &victim.jobs))
}

fn is_in(job: &Account, jobs: &[plimsoll_policy::units::JobId]) -> bool {
    jobs.iter().any(|id| *job == Account::Job(*id))
}

/// Writes lines in a thread of its own: whoever does not read them holds up nobody.
#[derive(Debug)]
pub(super) struct Lines {
    lines: SyncSender<Vec<u8>>,
    written: Arc<AtomicU64>,
    ended: Receiver<()>,
    /// How many there are to write, and how many found no room.
    given: u64,
    left_out: u64,
}

impl Lines {
    pub(super) fn to(file: File) -> Self {
        let (lines, next) = sync_channel::<Vec<u8>>(WAITING_MAX);
        let (end, ended) = channel();
        let written = Arc::<AtomicU64>::default();
        let count = Arc::clone(&written);
        thread::spawn(move || {
            for line in next {
                // Nobody reads it any more.
                if write_whole(&file, &line).is_err() {
                    break;
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            drop(end);
        });
        Self { lines, written, ended, given: 0, left_out: 0 }
    }

    /// Has an event written.
    pub(super) fn write(&mut self, event: &Event) {
        match self.lines.try_send(event.to_json()) {
            Ok(()) => self.given = self.given.saturating_add(1),
            Err(TrySendError::Full(_)) => self.left_out = self.left_out.saturating_add(1),
            // Whoever has closed it wants no more.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Waits until all are written, or nobody reads them; how many are not, though somebody may read.
    pub(super) fn finish(self) -> u64 {
        drop(self.lines);
        // It ends by the other end's being dropped.
        match self.ended.recv_timeout(LAST_MAY_TAKE) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => self.left_out,
            Err(RecvTimeoutError::Timeout) => {
                let unread = self.given.saturating_sub(self.written.load(Ordering::Relaxed));
                self.left_out.saturating_add(unread)
            }
        }
    }
}

/// Waits for whoever reads, also where the descriptor does not wait by itself.
fn write_whole(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(file, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
