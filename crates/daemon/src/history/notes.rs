//! What was done and is not in the store yet, kept where the daemon's own death does not reach it: in a pinned map, which no
//! disk is behind. A note is let go of when the store has the incident on the disk.
//!
//! A note is the JSON of an incident, without its peers: a later version reads what it knows of it.

use plimsoll_policy::{
    account::Account,
    incident::{Guard, Incident, Outcome, Trigger, Victim, origin::Origin},
    victim::VictimId,
};
use plimsoll_sys::bpf::{BpfError, Found, Journal as Slots, NOTE_MAX_BYTES, Note, Pins, Standing};
use serde::Serialize;

/// Where incidents are noted.
#[derive(Debug, Clone)]
pub struct PinnedNotes {
    slots: Slots,
}

/// An incident as far as it is known before it is done; the fields of [`Incident`], borrowed.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Draft<'a> {
    pub(crate) id: u64,
    pub(crate) time: jiff::Timestamp,
    pub(crate) account: Option<&'a Account>,
    pub(crate) guard: Guard,
    pub(crate) trigger: Trigger,
    pub(crate) action: Outcome,
    pub(crate) victims: &'a [Victim],
    pub(crate) usage_bytes: u64,
    pub(crate) hard_bytes: Option<u64>,
    pub(crate) overshoot_bytes: u64,
    pub(crate) requested_bytes: Option<u64>,
    pub(crate) unrecorded: Option<u64>,
    pub(crate) cross_to_signal_ns: Option<u64>,
    pub(crate) signal_to_freed_ns: Option<u64>,
    pub(crate) freed_bytes: Option<u64>,
    pub(crate) reason: &'a str,
    pub(crate) peers: [(); 0],
    pub(crate) origin: Option<&'a Origin>,
}

impl<'a> From<&'a Incident> for Draft<'a> {
    fn from(incident: &'a Incident) -> Self {
        Self {
            id: incident.id,
            time: incident.time,
            account: incident.account.as_ref(),
            guard: incident.guard,
            trigger: incident.trigger,
            action: incident.action,
            victims: &incident.victims,
            usage_bytes: incident.usage_bytes,
            hard_bytes: incident.hard_bytes,
            overshoot_bytes: incident.overshoot_bytes,
            requested_bytes: incident.requested_bytes,
            unrecorded: incident.unrecorded,
            cross_to_signal_ns: incident.cross_to_signal_ns,
            signal_to_freed_ns: incident.signal_to_freed_ns,
            freed_bytes: incident.freed_bytes,
            reason: &incident.reason,
            peers: [],
            origin: incident.origin.as_ref(),
        }
    }
}

impl PinnedNotes {
    /// Opens the journal beside the pins, with what an earlier daemon left in it.
    ///
    /// # Errors
    /// [`BpfError::Pin`]
    pub fn open(pins: &Pins) -> Result<(Self, Vec<Found>), BpfError> {
        Slots::open(pins).map(|(slots, found)| (Self { slots }, found))
    }

    /// Notes what is about to be done.
    pub(crate) fn intend(&self, draft: &Draft<'_>) -> Option<Note> {
        self.write(false, draft)
    }

    /// Notes what was done, as much of it as there is room for: without what somebody else's log says of it, then with fewer
    /// victims, then without their command lines.
    pub(super) fn done(&self, incident: &Incident) -> Option<Note> {
        let whole = Draft::from(incident);
        if let Some(note) = whole.origin.and_then(|_| self.write(true, &whole)) {
            return Some(note);
        }
        let whole = Draft { origin: None, ..whole };
        for victims in (1..=whole.victims.len()).rev() {
            let fewer = Draft { victims: whole.victims.get(..victims).unwrap_or_default(), ..whole };
            if let Some(note) = self.write(true, &fewer) {
                return Some(note);
            }
        }
        let bare: Vec<Victim> =
            whole.victims.iter().take(1).map(|one| Victim { cmdline: None, ..one.clone() }).collect();
        self.write(true, &Draft { victims: &bare, ..whole })
    }

    fn write(&self, done: bool, draft: &Draft<'_>) -> Option<Note> {
        let mut bytes = [0; NOTE_MAX_BYTES];
        let mut rest = bytes.as_mut_slice();
        serde_json::to_writer(&mut rest, draft).ok()?;
        let length = NOTE_MAX_BYTES.saturating_sub(rest.len());
        self.slots.note(done, bytes.get(..length)?)
    }
}

/// What an earlier daemon left unsaid.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    /// To be recorded, by number.
    pub(crate) untold: Vec<(Incident, Note)>,
    /// Who was sent what, and in which incident that is told.
    deeds: Vec<(VictimId, Outcome, u64)>,
}

impl Inheritance {
    /// What was recorded, all of it told: for tests.
    #[cfg(test)]
    pub(crate) const fn told(deeds: Vec<(VictimId, Outcome, u64)>) -> Self {
        Self { untold: Vec::new(), deeds }
    }

    /// Tells what is true of what was found. The store has had every incident below `written_below`; `was_sent` finds out
    /// whether what was intended was done.
    pub(crate) fn of(found: Vec<Found>, written_below: u64, was_sent: impl FnMut(&Incident) -> bool) -> Self {
        let mut was_sent = was_sent;
        let mut read: Vec<(Incident, Standing, Option<Note>)> = found
            .into_iter()
            .filter_map(|one| {
                serde_json::from_slice(&one.bytes).ok().map(|incident| (incident, one.standing, one.note))
            })
            .collect();
        // What was done comes before the intention to do it.
        read.sort_by_key(|(incident, standing, _)| (incident.id, *standing != Standing::Done));
        let mut inherited = Self::default();
        let mut last = None;
        for (incident, standing, note) in read {
            let told = incident.id < written_below || last == Some(incident.id);
            // What was let go of and is not in the store was counted as lost.
            let sent = match standing {
                Standing::Done => true,
                Standing::LetGo => told,
                Standing::Intended => told || was_sent(&incident),
            };
            if !sent {
                continue;
            }
            for victim in &incident.victims {
                let id = VictimId { pid: victim.pid, start_ns: victim.start_ns };
                inherited.deeds.push((id, incident.action, incident.id));
            }
            if let Some(note) = note.filter(|_| !told) {
                last = Some(incident.id);
                inherited.untold.push((incident, note));
            }
        }
        inherited
    }

    /// The number of the incident in which an earlier daemon recorded this already.
    pub(crate) fn incident(&self, victim: VictimId, action: Outcome) -> Option<u64> {
        self.deeds.iter().find(|(who, what, _)| (*who, *what) == (victim, action)).map(|(_, _, id)| *id)
    }
}

#[cfg(test)]
mod tests;
