//! Whose shared memory is, and what of it ends with whom.
//!
//! A file of shared memory is charged once, to the user who owns it. It counts for a line as memory that a kill gives back
//! only where that is sure: processes of the owner hold it and nobody else, it goes with the last of them, and nobody else
//! could have made it grow. All other is told, and granted to nobody, but nobody is killed for it.

use crate::units::{Pages, Pid, Uid};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// What shared memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file in a tmpfs.
    File,
    /// Many files that are small.
    Small,
    /// Made by `memfd_create`.
    Memfd,
    /// Mapped shared, of no file.
    Anonymous,
    /// A System V segment.
    Segment,
    /// A pipe, with the pages that lie in it and nowhere else.
    Pipe,
}

/// A file of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedFile<N> {
    /// Tells it from others, as long as both are there.
    pub key: u64,
    /// Tells it from those that had its key before.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// In memory and swapped out.
    pub pages: Pages,
    /// The same at the walk before this one; 0 where it was not there.
    pub before: Pages,
    /// Whose it is.
    pub uid: Uid,
    /// The user whom it counts for where nobody of its uid holds any: whose the user namespace is that its file system was
    /// mounted in, else whom `uid` counts for.
    pub owner: Uid,
    /// It stays when nobody holds it any more: a directory has it, or it is a System V segment.
    pub stays: bool,
    /// Others than its owner may have opened it, for all that is known of its permissions, or were handed it.
    pub is_open_to_others: bool,
    /// More have it mapped than was told.
    pub is_crowded: bool,
    /// What it is called.
    pub name: N,
}

/// A process that has a file of shared memory mapped or open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// [`SharedFile::key`].
    pub key: u64,
    /// Its address space.
    pub mm: u64,
    /// Its number.
    pub pid: Pid,
    /// Its real uid.
    pub uid: Uid,
    /// The user whom it counts for: another where its uid is a subordinate one.
    pub user: Uid,
    /// It is in a container of root's: its uid is not this machine's.
    pub is_contained: bool,
}

/// What a process holds of its account's shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// All of it.
    pub pages: Pages,
    /// Its part, where all who hold the same have the same part: what comes back with the last of them, for each.
    pub part: Pages,
    /// The largest file of it that others of the account hold too.
    pub in_common: Option<InCommon>,
}

/// A file that several processes of its owner hold: nothing of it comes back before the last of them has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InCommon {
    /// The file.
    pub file: Identity,
    /// Its size.
    pub pages: Pages,
}

/// [`SharedFile::key`] and [`SharedFile::number`].
pub type Identity = (u64, u64);

/// What one user owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned<N> {
    /// Ends with the user's processes.
    pub ending: Pages,
    /// Of that, what the walk before found too.
    pub sure: Pages,
    /// Does not end with them for sure.
    pub lasting: Pages,
    /// The largest of what lasts, the largest first.
    pub largest: Vec<(N, Pages)>,
}

impl<N> Default for Owned<N> {
    fn default() -> Self {
        Self { ending: Pages(0), sure: Pages(0), lasting: Pages(0), largest: Vec::new() }
    }
}

/// How many of the largest are named.
pub const NAMED_MAX: usize = 3;

impl<N> Owned<N> {
    /// All of it.
    #[must_use]
    pub const fn total(&self) -> Pages {
        self.ending.saturating_add(self.lasting)
    }

    fn lasts(&mut self, name: N, pages: Pages) {
        self.lasting = self.lasting.saturating_add(pages);
        let place = self.largest.partition_point(|(_, other)| *other >= pages);
        self.largest.insert(place, (name, pages));
        self.largest.truncate(NAMED_MAX);
    }
}

/// Whose all shared memory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership<N> {
    /// By user.
    pub users: BTreeMap<Uid, Owned<N>>,
    /// By address space.
    pub spaces: BTreeMap<u64, Held>,
    /// What a process hides of memory that no count of a process has, by address space and number: its part, of what only
    /// processes of one user hold.
    pub hidden: BTreeMap<(u64, Pid), Pages>,
    /// Files that others than their owner held, or may have opened: they may have made them grow, and let go of them since.
    pub foreign: Foreign,
}

/// Files of which something is known.
pub type Foreign = BTreeSet<Identity>;

impl<N> Default for Ownership<N> {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            spaces: BTreeMap::new(),
            hidden: BTreeMap::new(),
            foreign: Foreign::new(),
        }
    }
}

/// Works out whose shared memory is. `foreign`: what was so before. `partly`: users who hold more than was looked at.
///
/// A descriptor gets to another user by being handed over, which is told of, and so does a mapping of what has no path: whoever
/// is known in part holds nobody else's memfd, and a crowd that has one mapped is of its owner. But a file that had a path
/// others may have opened. That an owner is known in part spares nobody: what was found of their files is there.
pub fn ownership<N>(
    files: impl IntoIterator<Item = SharedFile<N>>,
    holdings: impl IntoIterator<Item = Holding>,
    foreign: &Foreign,
    partly: &BTreeSet<Uid>,
) -> Ownership<N> {
    let mut of_file: BTreeMap<u64, Vec<Holding>> = BTreeMap::new();
    let mut users: BTreeMap<Uid, Uid> = BTreeMap::new();
    for holding in holdings {
        if !holding.is_contained {
            users.insert(holding.uid, holding.user);
        }
        of_file.entry(holding.key).or_default().push(holding);
    }
    let mut found = Ownership::default();
    for file in files {
        let holders = of_file.get(&file.key).map_or(&[][..], Vec::as_slice);
        // A container's uid is another one's than the machine's of the same number.
        if holders.iter().any(|one| one.uid == file.uid && one.is_contained) {
            continue;
        }
        let user = users.get(&file.uid).copied().unwrap_or(file.owner);
        let owned = found.users.entry(user).or_default();
        let is_its = |one: &Holding| one.user == user && !one.is_contained;
        let spaces: BTreeSet<u64> = holders.iter().filter(|one| is_its(one)).map(|one| one.mm).collect();
        if file.kind == Kind::Pipe && holders.iter().all(is_its) {
            hide(file.pages, holders, &mut found.hidden);
        }
        let identity = (file.key, file.number);
        let is_foreign = file.is_open_to_others
            || foreign.contains(&identity)
            || !holders.iter().all(is_its)
            || (file.kind == Kind::File && (file.is_crowded || partly.iter().any(|one| *one != user)));
        if is_foreign {
            found.foreign.insert(identity);
        }
        if spaces.is_empty() || file.stays || is_foreign {
            owned.lasts(file.name, file.pages);
            continue;
        }
        owned.ending = owned.ending.saturating_add(file.pages);
        owned.sure = owned.sure.saturating_add(file.pages.min(file.before));
        let count = u64::try_from(spaces.len()).unwrap_or(u64::MAX);
        let part = file.pages.0.checked_div(count).unwrap_or_default();
        for mm in spaces {
            let held = found.spaces.entry(mm).or_default();
            held.pages = held.pages.saturating_add(file.pages);
            held.part = held.part.saturating_add(Pages(part));
            if count > 1 && held.in_common.is_none_or(|other| other.pages < file.pages) {
                held.in_common = Some(InCommon { file: identity, pages: file.pages });
            }
        }
    }
    found
}

/// Each who holds it has the same part.
fn hide(pages: Pages, holders: &[Holding], hidden: &mut BTreeMap<(u64, Pid), Pages>) {
    let holders: BTreeSet<(u64, Pid)> = holders.iter().map(|one| (one.mm, one.pid)).collect();
    let count = u64::try_from(holders.len()).unwrap_or(u64::MAX);
    let part = Pages(pages.0.checked_div(count).unwrap_or_default());
    for holder in holders {
        let its = hidden.entry(holder).or_default();
        *its = its.saturating_add(part);
    }
}

#[cfg(test)]
mod tests;
