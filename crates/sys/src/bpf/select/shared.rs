//! All shared memory, and who holds it: by a walk of its files, and one of what processes have open.

use super::{RECORDS_BYTES, pins, read_on};
use crate::bpf::{
    error::BpfError,
    link::{begin_walk, iterate_task},
    map::Map,
    site::Table as _,
};
use plimsoll_policy::{
    shared::{Holding, Kind, SharedFile},
    units::{Pages, Uid},
};
use plimsoll_wire::{
    abi,
    shared::{SharedName, SharedRecord, decode},
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::Path,
};
use zerocopy::IntoBytes as _;

pub(super) const WALK_OPEN: &str = "walk_open";
pub(super) const WALK_SHARED: &str = "walk_shared";
pub(super) const SHARED_WALK: &str = "shared_walk";

/// How often a walk of the files is begun anew because where it stood was freed.
const TRIES: u32 = 3;

/// A walk is given up that has lost its place more often in all.
const LOST_MAX: u32 = 64;

/// Files and holders that are kept of one walk; what does not fit is counted.
const KEPT_MAX: usize = 65_536;

/// What walks found.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// Each file that is not root's and has pages, by its key.
    files: BTreeMap<u64, SharedFile<SharedName>>,
    /// Small files, by file system and user: the telling of them, and all their pages.
    small: BTreeMap<(u64, Uid), (u64, Pages)>,
    /// Who holds one; the same more than once, also of files that are not listed.
    pub holdings: Vec<Holding>,
    /// Records that found no room, or were none.
    pub dropped: u64,
}

impl SharedMemory {
    /// False: there is no room for it.
    fn take(&mut self, record: SharedRecord) -> bool {
        match record {
            SharedRecord::File(file) => {
                let has_room = self.files.len() < KEPT_MAX || self.files.contains_key(&file.key);
                if has_room {
                    self.files.insert(file.key, file);
                }
                has_room
            }
            SharedRecord::Held(held) => {
                let has_room = self.holdings.len() < KEPT_MAX;
                if has_room {
                    self.holdings.push(held);
                }
                has_room
            }
            SharedRecord::Small { key, uid, telling, pages } => {
                let has_room = self.small.len() < KEPT_MAX;
                if has_room {
                    let (told, sum) = self.small.entry((key, uid)).or_insert((telling, Pages(0)));
                    let before = if *told == telling { *sum } else { Pages(0) };
                    (*told, *sum) = (telling, before.saturating_add(pages));
                }
                has_room
            }
        }
    }

    /// All files, those that are small as one of each user and file system.
    pub fn take_files(&mut self) -> impl Iterator<Item = SharedFile<SharedName>> + use<> {
        let small = core::mem::take(&mut self.small).into_iter().map(|((key, uid), (_, pages))| SharedFile {
            key,
            number: 0,
            kind: Kind::Small,
            pages,
            uid,
            owner: uid,
            stays: true,
            is_open_to_others: true,
            is_crowded: false,
            name: SharedName::SMALL,
        });
        core::mem::take(&mut self.files).into_values().chain(small)
    }
}

/// The pinned programs that walk shared memory.
#[derive(Debug)]
pub struct SharedWalks {
    files: OwnedFd,
    open: OwnedFd,
    place: Map,
    /// A file of the kind that is looked for: from it the programs find the others.
    sample: OwnedFd,
    records: Vec<u8>,
}

impl SharedWalks {
    /// Opens what [`super::Selector::load`] pinned.
    ///
    /// # Errors
    /// [`BpfError::Missing`] where this kernel took no program for it; [`BpfError::Pin`].
    pub fn open(root: &Path) -> Result<Self, BpfError> {
        let pins = pins(root);
        if pins.is_complete() && !pins.has(WALK_OPEN) {
            return Err(BpfError::Missing("walks of shared memory"));
        }
        Ok(Self {
            files: pins.open(WALK_SHARED)?,
            open: pins.open(WALK_OPEN)?,
            place: Map::open(&pins.path(SHARED_WALK), SHARED_WALK)?,
            sample: memfd_create("plimsoll", MemfdFlags::CLOEXEC)
                .map_err(|errno| BpfError::Scan(errno.into()))?,
            records: vec![0; RECORDS_BYTES],
        })
    }

    /// Walks all of it. `None`: files were freed again and again where the walk stood. Takes no lock that a process can hold.
    ///
    /// # Errors
    /// [`BpfError::Scan`], [`BpfError::Map`].
    pub fn walk(&mut self) -> Result<Option<SharedMemory>, BpfError> {
        for _ in 0..TRIES {
            let mut found = SharedMemory::default();
            if self.walk_files(&mut found)? {
                let walk = begin_walk(self.open.as_fd()).map_err(BpfError::Scan)?;
                self.read(&walk, &mut found)?;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Part by part, each with other threads let run in between. False: it has to begin anew.
    fn walk_files(&mut self, found: &mut SharedMemory) -> Result<bool, BpfError> {
        let descriptor = u32::try_from(self.sample.as_raw_fd()).unwrap_or(u32::MAX);
        let mut place = abi::plimsoll_shared_walk { descriptor, ..Default::default() };
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let link = iterate_task(self.files.as_fd(), thread).map_err(BpfError::Scan)?;
        loop {
            self.place.write(&0_u32.to_ne_bytes(), place.as_bytes())?;
            let walk = begin_walk(link.as_fd()).map_err(BpfError::Scan)?;
            self.read(&walk, found)?;
            let after = self.place.get::<abi::plimsoll_shared_walk>(&0_u32.to_ne_bytes())?;
            place = after.ok_or(BpfError::Missing("the place of a walk"))?;
            match place.result.saturating_neg() {
                0 => return Ok(true),
                libc::EAGAIN if place.lost > LOST_MAX => return Ok(false),
                libc::EAGAIN => std::thread::yield_now(),
                libc::ESRCH => return Ok(false),
                errno => return Err(BpfError::Scan(io::Error::from_raw_os_error(errno))),
            }
        }
    }

    fn read(&mut self, walk: &OwnedFd, found: &mut SharedMemory) -> Result<(), BpfError> {
        const BYTES: usize = size_of::<abi::plimsoll_shared>();
        let room = self.records.len() - self.records.len() % BYTES;
        loop {
            let got = read_on(walk, self.records.get_mut(..room).unwrap_or_default())?;
            if got == 0 {
                return Ok(());
            }
            for record in self.records.get(..got).unwrap_or_default().chunks(BYTES) {
                if !decode(record).is_ok_and(|record| found.take(record)) {
                    found.dropped = found.dropped.saturating_add(1);
                }
            }
        }
    }
}
