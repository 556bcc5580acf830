//! What locks take from memory cgroups: a page of a file is charged to the cgroup of who read it first, and stays
//! charged to it while it is locked, whoever locked it.
//!
//! A cgroup with a limit is a small machine: of its limit no more is locked than the ratios allow of the machine's
//! memory. What its processes have taken themselves does not count against that: it grows when a hog does, which is when
//! the locks are needed. And a cgroup that was removed cannot be freed while a page of it is locked, so only so many of
//! those are kept from it.

use super::{Barred, ChunkId, Tunables};
use crate::units::{Nanos, Pages};
use alloc::{collections::BTreeMap, vec::Vec};

/// At most this part of a cgroup's limit is locked, whatever the ratios say: half. What is locked cannot be reclaimed
/// for the cgroup's own processes, and the hard tier does not yield to them.
pub const CGROUP_SHARE_PARTS: u64 = 2;

/// So many removed cgroups are kept from being freed at most. Each takes some 100 KiB of the kernel's memory on a
/// machine with many CPUs, so that this is a few MiB.
pub const CGROUPS_GONE_MAX: usize = 64;

/// A chunk that is locked, and to whom it is charged: to the cgroup that most of its pages are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Which.
    pub chunk: ChunkId,
    /// The cgroup, by its inode.
    pub cgroup: u64,
    /// What is locked of it.
    pub pages: Pages,
    /// Since when.
    pub since: Nanos,
}

/// A cgroup that chunks are charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// It is there, with the limits that hold for it: its own, and those of each one around it.
    There(Vec<CgroupLimit>),
    /// It was removed.
    Gone,
}

/// The limit of one cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Whose, by its inode.
    pub cgroup: u64,
    /// The limit.
    pub limit: Pages,
}

/// How much of a cgroup's limit may be locked.
#[must_use]
pub fn share(tunables: &Tunables, limit: Pages) -> Pages {
    tunables.budget(limit).total().min(Pages(limit.0.checked_div(CGROUP_SHARE_PARTS).unwrap_or(0)))
}

/// What has to be let go, each with the reason. `protected` is the cgroup whose limit stands for the machine's memory,
/// if one does: its share is the budget. Owners that are not known bound nothing.
///
/// Of a cgroup that has more than its share, what was locked last goes first, and of that the ends of files: what
/// stays is the same every time.
#[must_use]
pub fn excess(
    charges: &[Charge],
    owners: &BTreeMap<u64, Owner>,
    tunables: &Tunables,
    protected: Option<u64>,
) -> Vec<(ChunkId, Barred)> {
    let mut bounds: BTreeMap<u64, (Pages, Vec<&Charge>)> = BTreeMap::new();
    let mut gone: BTreeMap<u64, (Pages, Vec<&Charge>)> = BTreeMap::new();
    for charge in charges {
        match owners.get(&charge.cgroup) {
            Some(Owner::There(limits)) => {
                for one in limits.iter().filter(|one| Some(one.cgroup) != protected) {
                    let bound = bounds.entry(one.cgroup).or_insert((Pages(0), Vec::new()));
                    bound.0 = share(tunables, one.limit);
                    bound.1.push(charge);
                }
            }
            Some(Owner::Gone) => {
                let held = gone.entry(charge.cgroup).or_insert((Pages(0), Vec::new()));
                held.0 = held.0.saturating_add(charge.pages);
                held.1.push(charge);
            }
            None => {}
        }
    }
    let mut going: BTreeMap<ChunkId, Barred> = BTreeMap::new();
    for (share, charges) in bounds.into_values() {
        let over = over(share, charges).into_iter();
        going.extend(over.map(|chunk| (chunk, Barred::CgroupShare)));
    }
    for chunk in too_many(gone.into_values().collect()) {
        going.insert(chunk, Barred::CgroupGone);
    }
    going.into_iter().collect()
}

/// What of these does not fit.
fn over(share: Pages, mut charges: Vec<&Charge>) -> Vec<ChunkId> {
    charges.sort_unstable_by_key(|charge| (charge.since, charge.chunk.chunk, charge.chunk.file));
    let mut left = share;
    let mut full = false;
    let mut over = Vec::new();
    for charge in charges {
        // Nothing smaller behind it slips in: it would go for the next one that is as old.
        full |= charge.pages > left;
        if full {
            over.push(charge.chunk);
        } else {
            left = left.saturating_sub(charge.pages);
        }
    }
    over
}

/// The chunks of those removed cgroups that are too many: the ones with the fewest pages.
fn too_many(mut gone: Vec<(Pages, Vec<&Charge>)>) -> Vec<ChunkId> {
    let excess = gone.len().saturating_sub(CGROUPS_GONE_MAX);
    gone.sort_by_key(|(pages, _)| *pages);
    gone.iter().take(excess).flat_map(|(_, charges)| charges).map(|charge| charge.chunk).collect()
}

#[cfg(test)]
mod tests;
