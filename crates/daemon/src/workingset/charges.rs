//! Whose memory is locked: each chunk that is held, by the memory cgroup that it is charged to, and what of it has to be
//! let go for that cgroup's sake. Decisions are policy's ([`plimsoll_policy::workingset::share`]).

use super::locked_files::LockedFiles;
use plimsoll_policy::{
    units::{Nanos, PageSize, Pages},
    workingset::{
        Barred, ChunkId, Tunables,
        share::{CgroupLimit, Charge, Owner, excess},
    },
};
use plimsoll_sys::{
    cgroup::CgroupId,
    workingset::{Charged, HotFile, Owners, Refusal, Sampling},
};
use std::collections::{BTreeMap, BTreeSet};

/// How often it is looked again to whom a chunk is charged, and what limits there are: what a cgroup reads anew, and a
/// limit that is lowered, are noticed so late at most.
const AGAIN: Nanos = Nanos(30_000_000_000);

/// Chunks that are looked at again at a time: some 10 ms.
const AGAIN_MAX: usize = 1024;

/// What a chunk without a cgroup is charged to.
const NOBODY: u64 = 0;

#[derive(Debug, Clone, Copy)]
struct Known {
    cgroup: u64,
    looked: Nanos,
}

/// Which memory cgroup each chunk that is held is charged to.
#[derive(Debug)]
pub(super) struct Charges {
    /// `None`: the kernel does not tell.
    owners: Option<Owners>,
    known: BTreeMap<ChunkId, Known>,
    cgroups: BTreeMap<u64, Owner>,
    limits_due: Nanos,
    page_size: PageSize,
}

impl Charges {
    /// With why it cannot be told whose memory is locked, if it cannot.
    pub(super) fn new(page_size: PageSize) -> (Self, Option<Refusal>) {
        let (owners, why) = match Owners::open() {
            Ok(owners) => (Some(owners), None),
            Err(why) => (None, Some(why)),
        };
        let (known, cgroups) = (BTreeMap::new(), BTreeMap::new());
        (Self { owners, known, cgroups, limits_due: Nanos(0), page_size }, why)
    }

    /// Whether the kernel tells whose memory is locked.
    pub(super) const fn are_told(&self) -> bool {
        self.owners.is_some()
    }

    /// Looks to whom new chunks are charged, and again at some of the others. Gives what has to be let go.
    ///
    /// # Errors
    /// [`Refusal`]: the kernel does not tell, and is not asked again.
    pub(super) fn look(
        &mut self,
        stock: &LockedFiles,
        tunables: &Tunables,
        protected: Option<u64>,
        moment: Nanos,
    ) -> Result<Vec<(ChunkId, Barred)>, Refusal> {
        let Some(owners) = self.owners.take() else { return Ok(Vec::new()) };
        let mut charges = Vec::new();
        let mut again = AGAIN_MAX;
        for file in stock.files() {
            self.look_at(&owners, file, moment, &mut again)?;
            for (chunk, _, pages) in file.chunks() {
                let chunk = ChunkId { file: file.id(), chunk };
                if let Some(known) = self.known.get(&chunk) {
                    let since = stock.since(chunk).unwrap_or(moment);
                    charges.push(Charge { chunk, cgroup: known.cgroup, pages, since });
                }
            }
        }
        let held: BTreeSet<ChunkId> = charges.iter().map(|charge| charge.chunk).collect();
        self.known.retain(|chunk, _| held.contains(chunk));
        self.look_at_cgroups(&owners, moment);
        self.owners = Some(owners);
        let going = excess(&charges, &self.cgroups, tunables, protected);
        for (chunk, _) in &going {
            self.known.remove(chunk);
        }
        Ok(going)
    }

    fn look_at(
        &mut self,
        owners: &Owners,
        file: &HotFile,
        moment: Nanos,
        again: &mut usize,
    ) -> Result<(), Refusal> {
        let (mut fresh, mut old) = (BTreeSet::new(), BTreeSet::new());
        for (chunk, _, pages) in file.chunks() {
            match self.known.get(&ChunkId { file: file.id(), chunk }) {
                // Until something of it is in memory nobody is charged.
                None if pages > Pages(0) => drop(fresh.insert(chunk)),
                Some(known) if known.looked.saturating_add(AGAIN) <= moment && *again > 0 => {
                    *again = again.saturating_sub(1);
                    old.insert(chunk);
                }
                Some(_) | None => {}
            }
        }
        for (chunks, sampling) in [(fresh, Sampling::Close), (old, Sampling::Coarse)] {
            if chunks.is_empty() {
                continue;
            }
            for Charged { chunk, cgroup, .. } in
                owners.look(file, |chunk| chunks.contains(&chunk), sampling)?
            {
                self.note(owners, ChunkId { file: file.id(), chunk }, cgroup.0, moment);
            }
        }
        Ok(())
    }

    /// To the kernel, what a removed cgroup was charged is its parent's: here it stays the removed one's.
    fn note(&mut self, owners: &Owners, chunk: ChunkId, cgroup: u64, moment: Nanos) {
        let before = self.known.get(&chunk).map(|known| known.cgroup);
        let cgroup = match before {
            Some(before) if before != cgroup && self.is_gone(owners, before) => before,
            Some(_) | None => cgroup,
        };
        self.known.insert(chunk, Known { cgroup, looked: moment });
    }

    fn is_gone(&mut self, owners: &Owners, cgroup: u64) -> bool {
        if self.cgroups.get(&cgroup) != Some(&Owner::Gone) {
            let found = self.owner(owners, cgroup);
            found.and_then(|owner| self.cgroups.insert(cgroup, owner));
        }
        self.cgroups.get(&cgroup) == Some(&Owner::Gone)
    }

    /// `None`: that could not be found out.
    fn owner(&self, owners: &Owners, cgroup: u64) -> Option<Owner> {
        if cgroup == NOBODY {
            return Some(Owner::There(Vec::new()));
        }
        match owners.limits(CgroupId(cgroup)) {
            Ok(limits) => {
                let limits = limits.iter().map(|one| CgroupLimit {
                    cgroup: one.cgroup.0,
                    limit: self.page_size.to_pages(one.limit),
                });
                Some(Owner::There(limits.collect()))
            }
            Err(Refusal::Gone) => Some(Owner::Gone),
            Err(_) => None,
        }
    }

    /// Reads the limits of new cgroups, and again those of all when it is time.
    fn look_at_cgroups(&mut self, owners: &Owners, moment: Nanos) {
        let wanted: BTreeSet<u64> = self.known.values().map(|known| known.cgroup).collect();
        self.cgroups.retain(|cgroup, _| wanted.contains(cgroup));
        let all = moment >= self.limits_due;
        if all {
            self.limits_due = moment.saturating_add(AGAIN);
        }
        for cgroup in wanted {
            // Numbers are not given twice: what is gone stays so.
            let asks = match self.cgroups.get(&cgroup) {
                None => true,
                Some(Owner::There(_)) => all,
                Some(Owner::Gone) => false,
            };
            if asks && let Some(owner) = self.owner(owners, cgroup) {
                self.cgroups.insert(cgroup, owner);
            }
        }
    }
}
