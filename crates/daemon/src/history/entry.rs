//! An incident as the store keeps it, cut down to a size that bounds memory and disk, and what becomes known of it later.

use super::HistoryError;
use plimsoll_policy::{
    account::Account,
    incident::{Course, Incident, Victim, origin::Origin},
    reason::Reason,
};
use serde::{Deserialize, Serialize};

/// The longest JSON that is stored: what a larger incident is cut down to.
pub(super) const ENTRY_MAX_BYTES: usize = 256 << 10;

/// The longest command line kept whole; Linux allows megabytes.
const CMDLINE_MAX_BYTES: usize = 4096;
const CGROUP_MAX_BYTES: usize = 1024;
/// `comm` has 15 bytes, which may have become longer when they were made printable.
const COMM_MAX_BYTES: usize = 64;
const REASON_MAX_BYTES: usize = 1024;
const VICTIMS_MAX: usize = 16;
/// A report of the kernel in words has some hundred.
const SUMMARY_MAX_BYTES: usize = 8192;
const ADVICE_MAX: usize = 3;
/// Samples of an incident's course, of the account and of the machine each: what five minutes and a tail can come to.
const SAMPLES_MAX: usize = 400;

/// What became known of an incident after it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Which incident.
    pub id: u64,
    /// From the signal to the victim's memory being returned; `None`: nothing new is known.
    pub signal_to_freed_ns: Option<u64>,
    /// What the victim gave back; `None`: nothing new is known.
    pub freed_bytes: Option<u64>,
    /// How the course of memory went on; `None`: nothing new is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
}

impl Outcome {
    /// Writes what is known over what the incident says, and goes on with its course.
    pub fn apply(self, incident: &mut Incident) {
        if let Some(later) = self.course {
            incident.course.get_or_insert_default().go_on(later);
        }
        incident.signal_to_freed_ns = self.signal_to_freed_ns.or(incident.signal_to_freed_ns);
        incident.freed_bytes = self.freed_bytes.or(incident.freed_bytes);
    }
}

/// One incident as a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) time_us: i64,
    /// In whose share it is; `None`: nobody's.
    pub(super) account: Option<String>,
    /// How many incidents it tells of.
    pub(super) stands_for: i64,
    /// JSON, without the course.
    pub(super) body: String,
    /// JSON. Lists of incidents are read without.
    pub(super) course: Option<String>,
    pub(super) victims: Vec<u32>,
}

impl Row {
    /// Strings and lists that are out of all proportion are shortened first.
    ///
    /// # Errors
    /// [`HistoryError::Refused`] for an id that SQLite cannot hold, and for what is too large even when shortened.
    pub(super) fn of(mut incident: Incident) -> Result<Self, HistoryError> {
        let refused = |reason| HistoryError::Refused { id: incident.id, reason };
        let id = i64::try_from(incident.id)
            .ok()
            .filter(|id| *id > 0)
            .ok_or(refused("its number is out of range"))?;
        shorten_strings(&mut incident);
        let course = incident.course.take().as_ref().map(serde_json::to_string).transpose();
        let folded = incident.unrecorded.filter(|_| incident.reason == Reason::IncidentsFolded.text());
        let (time_us, account) = (incident.time.as_microsecond(), payer(&incident));
        let body = fit(&mut incident)?;
        Ok(Self {
            id,
            time_us,
            account: account.map(|account| account.to_string()),
            stands_for: folded.map_or(1, |count| i64::try_from(count).unwrap_or(i64::MAX)),
            body,
            course: course
                .map_err(|_json| HistoryError::Refused { id: incident.id, reason: "it is no JSON" })?,
            victims: incident.victims.iter().map(|victim| victim.pid.0).collect(),
        })
    }

    /// About what it takes on the disk.
    pub(super) fn bytes(&self) -> usize {
        self.body.len().saturating_add(self.course.as_ref().map_or(0, String::len))
    }
}

/// Whose share an incident is in. A kill that no line was the reason of is in the share of who lost the process: anybody can
/// have the kernel kill again and again.
pub(super) fn payer(incident: &Incident) -> Option<Account> {
    incident.account.clone().or_else(|| incident.victims.first().map(|victim| Account::User(victim.uid)))
}

/// The JSON of the incident, after as many cuts as it takes: first the peers, then command lines, then victims. 16 victims
/// with a cgroup of 1 KiB and an origin of 17 KiB, each byte of which becomes six, stay under the 256 KiB.
fn fit(incident: &mut Incident) -> Result<String, HistoryError> {
    let cuts: [fn(&mut Incident); 4] = [
        |_| {},
        |incident| incident.peers.clear(),
        |incident| incident.victims.iter_mut().for_each(|victim| victim.cmdline = None),
        |incident| incident.victims.truncate(VICTIMS_MAX),
    ];
    for cut in cuts {
        cut(incident);
        if let Ok(json) = serde_json::to_string(incident)
            && json.len() <= ENTRY_MAX_BYTES
        {
            return Ok(json);
        }
    }
    Err(HistoryError::Refused { id: incident.id, reason: "it is too large" })
}

fn shorten_strings(incident: &mut Incident) {
    shorten(&mut incident.reason, REASON_MAX_BYTES);
    if let Some(origin) = &mut incident.origin {
        shorten_origin(origin);
    }
    incident.course.iter_mut().for_each(|course| course.keep_newest(SAMPLES_MAX));
    let Incident { victims, peers, .. } = incident;
    for Victim { comm, cmdline, cgroup, .. } in victims.iter_mut().chain(peers) {
        shorten(comm, COMM_MAX_BYTES);
        cmdline.iter_mut().for_each(|text| shorten(text, CMDLINE_MAX_BYTES));
        cgroup.iter_mut().for_each(|text| shorten(text, CGROUP_MAX_BYTES));
    }
}

fn shorten_origin(origin: &mut Origin) {
    let Origin { cgroup, container, invoker, gfp, cause, summary, advice, .. } = origin;
    advice.truncate(ADVICE_MAX);
    let words = [gfp, cause].into_iter().flatten().chain(advice);
    words.for_each(|text| shorten(text, REASON_MAX_BYTES));
    let paths = cgroup.iter_mut().chain(
        container
            .iter_mut()
            .flat_map(|one| [&mut one.runtime, &mut one.id, &mut one.pod].into_iter().flatten()),
    );
    paths.for_each(|text| shorten(text, CGROUP_MAX_BYTES));
    invoker.iter_mut().for_each(|one| shorten(&mut one.comm, COMM_MAX_BYTES));
    summary.iter_mut().for_each(|text| shorten(text, SUMMARY_MAX_BYTES));
}

fn shorten(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let boundary = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or(0));
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
