//! What the last defence has set: `<state>/last-defence.json`.

use crate::{
    journal::{Journal, Notices},
    state::StateError,
    undo::BootFile,
};
use plimsoll_policy::{
    last_defence::{ranking::Raised, slice::Ours},
    units::Uid,
    victim::VictimId,
};
use plimsoll_sys::{process::tick_ns, slice::SliceCounts};
use serde::{Deserialize, Serialize};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

const NAME: &str = "last-defence.json";

/// The longest file that is read: 64 processes and a slice for each of 65,536 accounts.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// A process that was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RaisedEntry {
    pub(crate) uid: Uid,
    pub(crate) raised: Raised,
    /// When, in nanoseconds since boot: what was forked later has it by inheritance.
    pub(crate) since_ns: u64,
}

impl RaisedEntry {
    /// What the `oom_score_adj` of a process that has `now` would be without us: what we set, and what was inherited from
    /// there, is not its own. `None`: it is.
    pub(super) fn before(&self, id: VictimId, now: i16) -> Option<i16> {
        let ours = now == self.raised.set && (self.is_of(id) || self.is_before(id.start_ns));
        ours.then_some(self.raised.before)
    }

    /// Whether this process is the one that was raised: the programs tell when it started, `/proc` only in which tick.
    fn is_of(&self, id: VictimId) -> bool {
        let tick = |start_ns: u64| start_ns.checked_div(tick_ns());
        self.raised.id.pid == id.pid && tick(self.raised.id.start_ns) == tick(id.start_ns)
    }

    /// Whether a process may have been forked after the raise; `/proc` tells start times in clock ticks.
    pub(super) fn is_before(&self, start_ns: u64) -> bool {
        start_ns.saturating_add(tick_ns()) >= self.since_ns
    }
}

/// What is raised now, for all who judge by `oom_score_adj`: what we set is nobody's preference. The lock is held while a
/// pointer is copied, no longer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Originals(Arc<Mutex<Arc<[RaisedEntry]>>>);

impl Originals {
    /// The `oom_score_adj` of a process of this user that has `now`, as it would be without us.
    pub(crate) fn of(&self, id: VictimId, uid: Uid, now: i16) -> i16 {
        let raised = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let its = raised.iter().filter(|entry| entry.is_of(id) || entry.uid == uid);
        its.filter_map(|entry| entry.before(id, now)).next().unwrap_or(now)
    }

    fn publish(&self, raised: &[RaisedEntry]) {
        let fresh = Arc::from(raised);
        let old = core::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), fresh);
        drop(old);
    }
}

/// Counts of one slice, as [`SliceCounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) slice: u64,
    pub(crate) own_oom: u64,
    pub(crate) oom_kill: u64,
}

impl From<SliceCounts> for Seen {
    fn from(counts: SliceCounts) -> Self {
        Self { slice: counts.id, own_oom: counts.own_oom, oom_kill: counts.oom_kill }
    }
}

/// A slice that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SliceEntry {
    pub(crate) uid: Uid,
    pub(crate) ours: Ours,
    /// systemd had a drop-in of that name before.
    pub(crate) had_drop_in: bool,
    /// What the kernel had counted when last looked at: what it did since is told by the next daemon.
    pub(crate) seen: Option<Seen>,
}

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Kept {
    raised: Vec<RaisedEntry>,
    slices: Vec<SliceEntry>,
}

/// The file, and what is in it.
#[derive(Debug)]
pub(crate) struct Record {
    file: BootFile,
    pub(crate) raised: Vec<RaisedEntry>,
    pub(crate) slices: Vec<SliceEntry>,
    originals: Originals,
    /// For what goes wrong with any of it.
    pub(super) notices: Notices,
}

impl Record {
    /// Reads what an earlier daemon of this boot left. What cannot be used is said, and nothing is known of what it held.
    pub(super) fn load(folder: &Path, journal: Journal) -> Self {
        let mut record = Self {
            file: BootFile::new(folder.to_path_buf(), NAME, FILE_MAX_BYTES),
            raised: Vec::new(),
            slices: Vec::new(),
            originals: Originals::default(),
            notices: Notices::new(journal),
        };
        if let Err(error) = record.read() {
            record.notices.say(format_args!("what the last defence had set before is not known: {error}"));
        }
        record
    }

    fn read(&mut self) -> Result<(), StateError> {
        let Kept { raised, slices } = self.file.read_json()?.unwrap_or_default();
        (self.raised, self.slices) = (raised, slices);
        Ok(())
    }

    /// From here on tells there what is raised: before it is, and until after it was put back.
    pub(super) fn tell(&mut self, originals: Originals) {
        originals.publish(&self.raised);
        self.originals = originals;
    }

    /// Nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.raised.is_empty() && self.slices.is_empty()
    }

    /// Writes it; the file goes when there is nothing to write. Whether it is written: where not, that is said, and what is
    /// to be set next must not be set.
    pub(super) fn save(&mut self) -> bool {
        self.originals.publish(&self.raised);
        let written = self.write();
        written.inspect_err(|error| self.notices.once("last defence", error)).is_ok()
    }

    fn write(&self) -> Result<(), StateError> {
        let kept = || Kept { raised: self.raised.clone(), slices: self.slices.clone() };
        self.file.write_json((!self.is_empty()).then(kept))
    }

    pub(crate) fn slice(&self, uid: Uid) -> Option<&SliceEntry> {
        self.slices.iter().find(|one| one.uid == uid)
    }

    /// Remembers a slice in place of what was known of it; `None` forgets it.
    pub(crate) fn put_slice(&mut self, uid: Uid, entry: Option<SliceEntry>) {
        self.slices.retain(|one| one.uid != uid);
        self.slices.extend(entry);
    }
}
