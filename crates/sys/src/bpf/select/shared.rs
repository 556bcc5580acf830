//! All shared memory, and who holds it: by a walk of its files, and one of what processes have open.

use super::{RECORDS_BYTES, pins, read_on};
use crate::{
    bpf::{
        build_pins::BuildPins,
        error::BpfError,
        link::{attach_tracepoint, begin_walk, iterate_task},
        map::Map,
        site::Table as _,
    },
    process::{clock_monotonic_ns, clock_realtime_ns},
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
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::Path,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

pub(super) const WALK_OPEN: &str = "walk_open";
pub(super) const WALK_SHARED: &str = "walk_shared";
pub(super) const SHARED_WALK: &str = "shared_walk";
pub(super) const OPEN_WALK: &str = "open_walk";
pub(super) const OPEN_SHARES: &str = "open_shares";
/// They tell who is handed a file, or has it open and becomes another user.
pub(super) const TELL_HANDED: [&str; 2] = ["on_receive", "on_become"];
pub(super) const HANDED: &str = "handed";
pub(super) const HANDED_MORE: &str = "handed_more";
pub(super) const HANDED_LOST: &str = "handed_lost";

/// How often a walk of the files is begun anew because where it stood was freed.
const TRIES: u32 = 3;

/// A walk is given up that has lost its place more often in all.
const LOST_MAX: u32 = 64;

/// Files that are kept of one walk, and of one user. What does not fit is counted with the small ones.
const FILES_MAX: Share = Share { all: 65_536, of_user: 16_384 };

/// Likewise who holds one, beside the first of each file: no crowd of many files hides who holds another.
const HOLDINGS_MAX: Share = Share { all: 131_072, of_user: 32_768 };
const FIRST_HOLDERS: u32 = 4;

/// Sums of small files.
const SMALL_MAX: usize = 131_072;

/// One user's part of what there is room for.
#[derive(Debug, Clone, Copy)]
struct Share {
    all: usize,
    of_user: usize,
}

impl Share {
    /// Counts one more of a user's, where there is room for it.
    fn takes(self, kept: usize, of_user: &mut BTreeMap<Uid, usize>, user: Uid) -> bool {
        let its = of_user.entry(user).or_default();
        let has_room = kept < self.all && *its < self.of_user;
        *its = its.saturating_add(usize::from(has_room));
        has_room
    }
}

/// What walks found.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// Each file that is not root's and has pages, by its key, and when it was made.
    files: BTreeMap<u64, (SharedFile<SharedName>, u64)>,
    files_of: BTreeMap<Uid, usize>,
    /// Small files, by file system and user: the telling of them, and all their pages.
    small: BTreeMap<(u64, Uid), (u32, Pages)>,
    /// Who holds one, by its key and the address space; also of files that are not listed.
    holdings: BTreeMap<(u64, u64), Holding>,
    holdings_of: BTreeMap<Uid, usize>,
    /// How many hold one, by its key, up to [`FIRST_HOLDERS`].
    first_holders: BTreeMap<u64, u32>,
    /// Holders beside those.
    others: usize,
    /// Users of whom not all was looked at, or kept.
    pub partly: BTreeSet<Uid>,
    /// Of those, whose files were not all found: there may be more.
    pub unlisted: BTreeSet<Uid>,
    /// Threads that are to be walked by themselves, and their users.
    cut: Vec<(u32, Uid)>,
    /// Found in memory, of whomever.
    pub explained: Pages,
    /// Records that found no room, or were none.
    pub dropped: u64,
}

impl SharedMemory {
    /// `owner`: whom a uid counts for. False: there is no room for it.
    fn take(&mut self, record: SharedRecord, owner: &impl Fn(Uid) -> Uid) -> bool {
        match record {
            SharedRecord::File { file, telling, born_ns } => {
                let file = SharedFile { owner: owner(file.owner), ..file };
                if self.files.contains_key(&file.key)
                    || FILES_MAX.takes(self.files.len(), &mut self.files_of, file.owner)
                {
                    self.files.insert(file.key, (file, born_ns));
                    return true;
                }
                self.partly.insert(file.owner);
                let (major, minor) = file.name.device;
                // No address of a file system is so low.
                self.add_small((u64::from(major) << 20 | u64::from(minor), file.owner), telling, file.pages)
            }
            SharedRecord::Pipe { file, held } => {
                self.take(SharedRecord::Held(held), owner)
                    && self.take(SharedRecord::File { file, telling: 0, born_ns: 0 }, owner)
            }
            SharedRecord::Held(held) => {
                let held = Holding { user: owner(held.user), ..held };
                let key = (held.key, held.mm);
                let first = self.first_holders.entry(held.key).or_default();
                if self.holdings.contains_key(&key) {
                    self.holdings.insert(key, held);
                } else if *first < FIRST_HOLDERS {
                    *first = first.saturating_add(1);
                    self.holdings.insert(key, held);
                } else if HOLDINGS_MAX.takes(self.others, &mut self.holdings_of, held.user) {
                    self.others = self.others.saturating_add(1);
                    self.holdings.insert(key, held);
                } else {
                    self.partly.insert(held.user);
                }
                true
            }
            SharedRecord::Partly(user) => {
                self.partly.insert(owner(user));
                true
            }
            SharedRecord::Unlisted(user) => {
                self.partly.insert(owner(user));
                self.unlisted.insert(owner(user));
                true
            }
            SharedRecord::Cut(thread, user) => {
                self.cut.push((thread, owner(user)));
                true
            }
            SharedRecord::Small { key, uid, telling, pages } => {
                self.add_small((key, owner(uid)), telling, pages)
            }
        }
    }

    fn add_small(&mut self, key: (u64, Uid), telling: u32, pages: Pages) -> bool {
        let has_room = self.small.len() < SMALL_MAX || self.small.contains_key(&key);
        if has_room {
            let (told, sum) = self.small.entry(key).or_insert((telling, Pages(0)));
            let before = if *told == telling { *sum } else { Pages(0) };
            (*told, *sum) = (telling, before.saturating_add(pages));
        }
        has_room
    }

    /// Others may have been handed what is older than `since` says for its kind and uid, in nanoseconds of `CLOCK_REALTIME`.
    fn mark_older(&mut self, since: impl Fn(Kind, Uid) -> u64) {
        for (file, born_ns) in self.files.values_mut() {
            // Nobody can be handed what has no descriptor.
            let may_be = file.kind != Kind::Anonymous;
            file.is_open_to_others |= may_be && *born_ns < since(file.kind, file.uid);
        }
    }

    /// Who holds one, each address space once.
    pub fn take_holdings(&mut self) -> impl Iterator<Item = Holding> + use<> {
        core::mem::take(&mut self.holdings).into_values()
    }

    /// All files, those that are small as one of each user and file system.
    pub fn take_files(&mut self) -> impl Iterator<Item = SharedFile<SharedName>> + use<> {
        let small = core::mem::take(&mut self.small).into_iter().map(|((key, uid), (_, pages))| SharedFile {
            key,
            number: 0,
            kind: Kind::Small,
            pages,
            before: Pages(0),
            uid,
            owner: uid,
            stays: true,
            is_open_to_others: true,
            is_crowded: false,
            name: SharedName::SMALL,
        });
        core::mem::take(&mut self.files).into_values().map(|(file, _)| file).chain(small)
    }
}

/// The pinned programs that walk shared memory.
#[derive(Debug)]
pub struct SharedWalks {
    files: OwnedFd,
    open: OwnedFd,
    /// An iterator of `open` over all tasks.
    open_of_all: OwnedFd,
    place: Map,
    open_place: Map,
    /// Of the last walk.
    number: u64,
    handed: Option<Handed>,
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
        // As where the kernel takes no program for it: whoever asks is told.
        let may_tell = TELL_HANDED.iter().all(|program| pins.has(program));
        let handed = may_tell.then(|| Handed::attach(&pins)).and_then(Result::ok);
        let open = pins.open(WALK_OPEN)?;
        Ok(Self {
            handed,
            number: clock_monotonic_ns(),
            open_place: Map::open(&pins.path(OPEN_WALK), OPEN_WALK)?,
            files: pins.open(WALK_SHARED)?,
            open_of_all: iterate_task(open.as_fd(), 0).map_err(BpfError::Scan)?,
            open,
            place: Map::open(&pins.path(SHARED_WALK), SHARED_WALK)?,
            sample: memfd_create("plimsoll", MemfdFlags::CLOEXEC)
                .map_err(|errno| BpfError::Scan(errno.into()))?,
            records: vec![0; RECORDS_BYTES],
        })
    }

    /// Whether programs tell who is handed a file.
    #[must_use]
    pub const fn tells_handed(&self) -> bool {
        self.handed.is_some()
    }

    /// Walks all of it. `None`: files were freed again and again where the walk stood. Takes no lock that a process can hold.
    /// `owner`: whom a uid counts for.
    ///
    /// # Errors
    /// [`BpfError::Scan`], [`BpfError::Map`].
    pub fn walk(&mut self, owner: impl Fn(Uid) -> Uid) -> Result<Option<SharedMemory>, BpfError> {
        let known = self.handed.as_ref().map(Handed::list).transpose()?.unwrap_or_default();
        for _ in 0..TRIES {
            let mut found = SharedMemory::default();
            let number = self.next_number();
            if !self.walk_files(number, &mut found, &owner)? {
                continue;
            }
            self.walk_open(&mut found, &owner)?;
            match &mut self.handed {
                Some(handed) => handed.settle(&known, number, &mut found, &owner)?,
                None => found.mark_older(|_, _| u64::MAX),
            }
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Who has any open; those by themselves who have more than fits.
    fn walk_open(&mut self, found: &mut SharedMemory, owner: &impl Fn(Uid) -> Uid) -> Result<(), BpfError> {
        let first = self.handed.as_ref().is_some_and(|handed| !handed.has_first).into();
        let begin = abi::plimsoll_open_walk { walk: self.next_number(), first, ..Default::default() };
        self.open_place.write(&0_u32.to_ne_bytes(), begin.as_bytes())?;
        let walk = begin_walk(self.open_of_all.as_fd()).map_err(BpfError::Scan)?;
        self.read(&walk, found, owner)?;
        for (thread, user) in core::mem::take(&mut found.cut) {
            let link = match iterate_task(self.open.as_fd(), thread) {
                Ok(link) => link,
                // It has ended; others may have the same table.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    found.partly.insert(user);
                    continue;
                }
                Err(error) => return Err(BpfError::Scan(error)),
            };
            let mut place = abi::plimsoll_open_walk { single: 1, ..begin };
            while place.done == 0 {
                // As the program leaves it where there is nothing to walk any more.
                place.done = 1;
                self.open_place.write(&0_u32.to_ne_bytes(), place.as_bytes())?;
                let walk = begin_walk(link.as_fd()).map_err(BpfError::Scan)?;
                self.read(&walk, found, owner)?;
                let after = self.open_place.get::<abi::plimsoll_open_walk>(&0_u32.to_ne_bytes())?;
                place = after.ok_or(BpfError::Missing("the place of a walk"))?;
            }
        }
        Ok(())
    }

    /// Of a walk: another than the one before had.
    fn next_number(&mut self) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Part by part, each with other threads let run in between. False: it has to begin anew.
    fn walk_files(
        &mut self,
        walk: u64,
        found: &mut SharedMemory,
        owner: &impl Fn(Uid) -> Uid,
    ) -> Result<bool, BpfError> {
        let descriptor = u32::try_from(self.sample.as_raw_fd()).unwrap_or(u32::MAX);
        let mut place = abi::plimsoll_shared_walk { walk, descriptor, ..Default::default() };
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let link = iterate_task(self.files.as_fd(), thread).map_err(BpfError::Scan)?;
        loop {
            self.place.write(&0_u32.to_ne_bytes(), place.as_bytes())?;
            let walk = begin_walk(link.as_fd()).map_err(BpfError::Scan)?;
            self.read(&walk, found, owner)?;
            let after = self.place.get::<abi::plimsoll_shared_walk>(&0_u32.to_ne_bytes())?;
            place = after.ok_or(BpfError::Missing("the place of a walk"))?;
            match place.result.saturating_neg() {
                0 => {
                    found.explained = Pages(u64::try_from(place.explained_pages).unwrap_or_default());
                    return Ok(true);
                }
                libc::EAGAIN if place.lost > LOST_MAX => return Ok(false),
                libc::EAGAIN => std::thread::yield_now(),
                libc::ESRCH => return Ok(false),
                errno => return Err(BpfError::Scan(io::Error::from_raw_os_error(errno))),
            }
        }
    }

    fn read(
        &mut self,
        walk: &OwnedFd,
        found: &mut SharedMemory,
        owner: &impl Fn(Uid) -> Uid,
    ) -> Result<(), BpfError> {
        const BYTES: usize = size_of::<abi::plimsoll_shared>();
        let room = self.records.len() - self.records.len() % BYTES;
        loop {
            let got = read_on(walk, self.records.get_mut(..room).unwrap_or_default())?;
            if got == 0 {
                return Ok(());
            }
            for record in self.records.get(..got).unwrap_or_default().chunks(BYTES) {
                if !decode(record).is_ok_and(|record| found.take(record, owner)) {
                    found.dropped = found.dropped.saturating_add(1);
                }
            }
        }
    }
}

/// Tells which files were handed to somebody else than their owner, from when it is made until it is dropped.
#[derive(Debug)]
struct Handed {
    _attached: [OwnedFd; 2],
    files: Map,
    more: Map,
    lost: Map,
    /// What `lost` was at the last walk.
    lost_before: Option<u64>,
    /// When it began, by `CLOCK_REALTIME`.
    begun: u64,
    /// Pipes that were there then are noted.
    has_first: bool,
    /// Files that are older may have been handed without being noted, by `CLOCK_REALTIME`. Where that was set back before, some
    /// look newer than they are.
    since: u64,
    /// Likewise those of one uid.
    since_of: BTreeMap<Uid, u64>,
}

impl Handed {
    fn attach(pins: &BuildPins) -> Result<Self, BpfError> {
        let attach = |name| {
            let program = pins.open(name)?;
            attach_tracepoint(program.as_fd()).map_err(|source| BpfError::Attach { program: name, source })
        };
        let [receive, become_other] = TELL_HANDED;
        let lost = Map::open(&pins.path(HANDED_LOST), HANDED_LOST)?;
        let attached = [attach(receive)?, attach(become_other)?];
        let begun = clock_realtime_ns();
        Ok(Self {
            _attached: attached,
            files: Map::open(&pins.path(HANDED), HANDED)?,
            more: Map::open(&pins.path(HANDED_MORE), HANDED_MORE)?,
            lost_before: lost.get::<u64>(&0_u32.to_ne_bytes())?,
            lost,
            begun,
            since: begun,
            since_of: BTreeMap::new(),
            has_first: false,
        })
    }

    /// By the files' keys.
    fn list(&self) -> Result<Vec<(u64, abi::plimsoll_handed)>, BpfError> {
        let (mut keys, mut values) = (vec![0; BATCH_BYTES], vec![0; BATCH_BYTES]);
        let mut listed = Vec::new();
        self.files.each::<8>((&mut keys, &mut values), |key, value| {
            listed.extend(
                abi::plimsoll_handed::read_from_bytes(value)
                    .ok()
                    .map(|handed| (u64::from_ne_bytes(*key), handed)),
            );
            Ok(())
        })?;
        Ok(listed)
    }

    /// Forgets those that were `known` before a walk and that it did not come by, and has it know which files may have been
    /// handed without being noted.
    fn settle(
        &mut self,
        known: &[(u64, abi::plimsoll_handed)],
        walk: u64,
        found: &mut SharedMemory,
        owner: &impl Fn(Uid) -> Uid,
    ) -> Result<(), BpfError> {
        for (key, before) in known {
            let key = key.to_ne_bytes();
            // Another file may be there by now, and have been handed.
            let is_gone = |now: &abi::plimsoll_handed| now.number == before.number && now.seen < walk;
            let may_be_missed = match before.owner {
                0 => false,
                abi::PLIMSOLL_NO_UID => !found.partly.is_empty(),
                user => found.unlisted.contains(&owner(Uid(user))),
            };
            if !may_be_missed && self.files.get::<abi::plimsoll_handed>(&key)?.as_ref().is_some_and(is_gone) {
                self.files.delete(&key)?;
            }
        }
        self.note_unnoted()?;
        self.has_first = true;
        let Self { begun, since, since_of, .. } = self;
        found.mark_older(|kind, uid| match (kind, since_of.get(&uid)) {
            // How old a pipe is nobody knows: those that were there before are noted.
            (Kind::Pipe, None) if since == begun => 0,
            (_, since_of) => since_of.copied().unwrap_or_default().max(*since),
        });
        Ok(())
    }

    /// Takes in whose files were handed and found no room.
    fn note_unnoted(&mut self) -> Result<(), BpfError> {
        let (mut keys, mut values) = (vec![0; BATCH_BYTES], vec![0; BATCH_BYTES]);
        let mut owners = Vec::new();
        self.more.each::<4>((&mut keys, &mut values), |key, _| {
            owners.push(*key);
            Ok(())
        })?;
        for uid in &owners {
            self.more.delete(uid)?;
        }
        // Later than all that was deleted tells of.
        let now = clock_realtime_ns();
        self.since_of.extend(owners.into_iter().map(|uid| (Uid(u32::from_ne_bytes(uid)), now)));
        let lost = self.lost.get::<u64>(&0_u32.to_ne_bytes())?;
        if self.lost_before != lost || self.since_of.len() > UNNOTED_MAX {
            (self.lost_before, self.since) = (lost, now);
            self.since_of.clear();
        }
        Ok(())
    }
}

/// Of so many uids it is known that files of theirs found no room.
const UNNOTED_MAX: usize = 131_072;

/// Room for so much of a map at a time.
const BATCH_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests;
