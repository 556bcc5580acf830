//! What becomes of a job, one line of JSON for each event. Scripts rely on the fields: some may be added, none are renamed.

use jiff::Timestamp;
use plimsoll_api::accounts::ProcessView;
use plimsoll_policy::{
    account::Account,
    incident::{Incident, Outcome, Victim},
    units::{JobId, Pid},
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
    /// The job is there, and waits for its turn.
    Waiting,
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
    /// The program has ended, or did not begin.
    Ended,
}

/// One line. `null` is not known, or makes no sense there.
#[derive(Debug, Serialize)]
pub(super) struct Event {
    pub(super) event: What,
    pub(super) time: Timestamp,
    pub(super) job: Account,
    pub(super) usage_bytes: Option<u64>,
    pub(super) hard_bytes: Option<u64>,
    pub(super) peak_bytes: Option<u64>,
    /// The largest; those that were killed or refused; those that were left behind.
    pub(super) processes: Option<Vec<Process>>,
    pub(super) incident: Option<u64>,
    pub(super) reason: Option<String>,
    pub(super) story: Option<String>,
    /// Until the line, at the present rate.
    pub(super) seconds_left: Option<u64>,
    /// The program's exit status, as a shell shows it.
    pub(super) status: Option<i32>,
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

/// Each of them.
pub(super) fn processes(views: &[ProcessView]) -> Vec<Process> {
    views.iter().map(Process::from).collect()
}

impl Event {
    /// With nothing known of the job.
    pub(super) fn new(event: What, job: Account) -> Self {
        Self {
            event,
            time: Timestamp::now(),
            job,
            usage_bytes: None,
            hard_bytes: None,
            peak_bytes: None,
            processes: None,
            incident: None,
            reason: None,
            story: None,
            seconds_left: None,
            status: None,
        }
    }

    /// What was done to the job, by whichever line or killer. `name`: of the incident's account.
    pub(super) fn of_incident(self, incident: &Incident, name: Option<&str>) -> Self {
        let is_own = incident.account.as_ref() == Some(&self.job);
        let victims = incident.victims.iter().filter(|victim| is_own || is_in(&self.job, &victim.jobs));
        let process = |victim: &Victim| Process {
            pid: victim.pid,
            comm: victim.comm.clone(),
            usage_bytes: victim.usage_bytes,
        };
        Self {
            event: match incident.action {
                Outcome::Kill | Outcome::Term => What::Killed,
                Outcome::Refuse | Outcome::Deny => What::Refused,
                Outcome::Notify => What::Crossed,
            },
            time: incident.time,
            usage_bytes: if is_own { Some(incident.usage_bytes) } else { self.usage_bytes },
            hard_bytes: if is_own { incident.hard_bytes } else { self.hard_bytes },
            processes: Some(victims.map(process).collect()),
            incident: Some(incident.id),
            reason: Some(incident.reason.clone()),
            story: Some(story(incident, name, Reader::User)),
            ..self
        }
    }

    /// A line of it.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        json.push(b'\n');
        json
    }
}

/// Whether an incident is of a job: its line's, or one that took a process in it.
pub(super) fn concerns(job: &Account, incident: &Incident) -> bool {
    incident.account.as_ref() == Some(job) || incident.victims.iter().any(|victim| is_in(job, &victim.jobs))
}

fn is_in(job: &Account, jobs: &[JobId]) -> bool {
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
