//! All shared memory, walked off the guard thread, and whose it is: there may be much of it.

use crate::{
    offload::{Haste, Lane, Offload},
    owners::Owners,
};
use plimsoll_policy::{
    shared::{Foreign, Ownership, SharedFile, ownership},
    units::{Nanos, Pages, Uid},
};
use plimsoll_sys::{
    bpf::{BpfError, SharedMemory, SharedWalks},
    process::thread_cpu_time,
};
use plimsoll_wire::shared::SharedName;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// What others than their owners held is known of so many files at most.
const FOREIGN_MAX: usize = 262_144;

/// What one walk found.
#[derive(Debug)]
pub(crate) struct Walked {
    /// When it was asked for.
    pub(crate) asked: Nanos,
    /// What it took of a CPU.
    pub(crate) took: Nanos,
    /// `None`: it was not gone through, because too much of it was freed meanwhile.
    pub(crate) found: Result<Option<Found>, BpfError>,
}

/// Whose shared memory is.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) owned: Ownership<SharedName>,
    /// Nothing is missing but what `partly` says.
    pub(crate) is_whole: bool,
    /// Users of whom not all was looked at.
    pub(crate) partly: BTreeSet<Uid>,
    /// Of those, who may have more files than were found.
    pub(crate) unlisted: BTreeSet<Uid>,
    /// What of the machine's count was found, of whomever.
    pub(crate) explained: Pages,
    /// Who is handed a file is told of.
    pub(crate) tells_handed: bool,
}

/// Has shared memory walked.
#[derive(Debug)]
pub(crate) struct SharedReader {
    requests: Lane<Nanos>,
}

impl SharedReader {
    /// By the programs that are pinned there, once they are; `tell` is told what was found.
    pub(crate) fn new(offload: &Offload, pins: PathBuf, tell: impl Fn(Walked) + Send + 'static) -> Self {
        let mut walker = Walker {
            walks: None,
            pins,
            owners: Owners::default(),
            foreign: Foreign::new(),
            before: BTreeMap::new(),
        };
        let requests = offload.lane(Haste::Ordinary, 1, move |asked| {
            let began = thread_cpu_time();
            let found = walker.walk();
            let took = thread_cpu_time().saturating_sub(began);
            let took = Nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            tell(Walked { asked, took, found });
        });
        Self { requests }
    }

    /// One that walks nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed() }
    }

    /// Asks for a walk; false while one is waiting already.
    pub(crate) fn ask(&self, asked: Nanos) -> bool {
        self.requests.hand(asked)
    }
}

struct Walker {
    walks: Option<SharedWalks>,
    pins: PathBuf,
    owners: Owners,
    /// What others than its owner held at an earlier walk, or were handed.
    foreign: Foreign,
    /// What each file had at the walk before, by key and number.
    before: BTreeMap<(u64, u64), Pages>,
}

impl Walker {
    fn walk(&mut self) -> Result<Option<Found>, BpfError> {
        let walks = match &mut self.walks {
            Some(walks) => walks,
            none => none.insert(SharedWalks::open(&self.pins)?),
        };
        let tells_handed = walks.tells_handed();
        let _now: Uid = self.owners.owner_now(Uid::ROOT);
        let owners = &self.owners;
        let Some(memory) = walks.walk(|uid| owners.owner(uid))? else { return Ok(None) };
        let found = self.own(memory, tells_handed);
        if self.foreign.len() > FOREIGN_MAX {
            // Begun anew, it takes all files that are there for such.
            self.foreign.clear();
            self.walks = None;
        }
        Ok(Some(found))
    }

    fn own(&mut self, mut memory: SharedMemory, tells_handed: bool) -> Found {
        let (before, mut now) = (core::mem::take(&mut self.before), BTreeMap::new());
        let files = memory.take_files().map(|file| {
            let identity = (file.key, file.number);
            now.insert(identity, file.pages);
            SharedFile { before: before.get(&identity).copied().unwrap_or_default(), ..file }
        });
        let mut owned = ownership(files, memory.take_holdings(), &self.foreign, &memory.partly);
        self.before = now;
        let is_whole = memory.dropped == 0;
        let before = core::mem::replace(&mut self.foreign, core::mem::take(&mut owned.foreign));
        if !is_whole || !memory.partly.is_empty() {
            // Some of them may not have been looked at.
            self.foreign.extend(before);
        }
        let SharedMemory { partly, unlisted, explained, .. } = memory;
        Found { owned, is_whole, partly, unlisted, explained, tells_handed }
    }
}
