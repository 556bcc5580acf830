//! All shared memory, walked off the guard thread, and whose it is: there may be much of it.

use crate::{
    offload::{Haste, Lane, Offload},
    owners::Owners,
};
use plimsoll_policy::{
    shared::{Foreign, Kind, Ownership, SharedFile, ownership},
    units::{Nanos, Pages, Uid},
};
use plimsoll_sys::{
    bpf::{BpfError, SharedMemory, SharedWalks},
    process::clock_monotonic_ns,
};
use plimsoll_wire::shared::SharedName;
use std::{collections::BTreeSet, path::PathBuf};

/// What others than their owners held is known of so many files at most.
const FOREIGN_MAX: usize = 262_144;

/// What one walk found.
#[derive(Debug)]
pub(crate) struct Walked {
    /// When it was asked for.
    pub(crate) asked: Nanos,
    /// How long it took.
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
        let mut walker =
            Walker { walks: None, pins, owners: Owners::default(), foreign: Foreign::new(), forgot: false };
        let requests = offload.lane(Haste::Ordinary, 1, move |asked| {
            let began = clock_monotonic_ns();
            let found = walker.walk();
            let took = Nanos(clock_monotonic_ns().saturating_sub(began));
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
    /// That was too much to be known.
    forgot: bool,
}

impl Walker {
    fn walk(&mut self) -> Result<Option<Found>, BpfError> {
        let walks = match &mut self.walks {
            Some(walks) => walks,
            none => none.insert(SharedWalks::open(&self.pins)?),
        };
        let tells_handed = walks.tells_handed();
        let Some(memory) = walks.walk()? else { return Ok(None) };
        Ok(Some(self.own(memory, tells_handed)))
    }

    fn own(&mut self, mut memory: SharedMemory, tells_handed: bool) -> Found {
        let _now: Uid = self.owners.owner_now(Uid::ROOT);
        let owners = &self.owners;
        let partly: BTreeSet<Uid> = memory.partly.iter().map(|user| owners.owner(*user)).collect();
        // Nobody can be handed what has no descriptor.
        let may_be_handed = memory.may_be_handed || core::mem::take(&mut self.forgot);
        let files = memory.take_files().map(|file| SharedFile {
            owner: owners.owner(file.owner),
            is_open_to_others: file.is_open_to_others || (may_be_handed && file.kind != Kind::Anonymous),
            ..file
        });
        let mut owned = ownership(files, memory.take_holdings(), &self.foreign, &partly);
        let is_whole = memory.dropped == 0;
        let before = core::mem::replace(&mut self.foreign, core::mem::take(&mut owned.foreign));
        if !is_whole || !partly.is_empty() {
            // Some of them may not have been looked at.
            self.foreign.extend(before);
        }
        if self.foreign.len() > FOREIGN_MAX {
            self.foreign.clear();
            self.forgot = true;
        }
        Found { owned, is_whole, partly, explained: memory.explained, tells_handed }
    }
}
