//! A counter for hundreds of CPUs: what `bpf/limits/tree.h` keeps of an account's usage, as a model.
//!
//! Far from its limit each CPU keeps what it adds in a *leaf* of its own, until that comes to a *batch*. Then it goes on to a
//! *branch*, which [`FAN_OUT`] CPUs share; from there, once that comes to [`BRANCH_BATCHES`] of them, to the *total*. What
//! lies in leaves and branches is no more than the [bound](Shape::bound), either way.
//!
//! The batch goes by the room below the limit: the bound is never more than a quarter of it. So whoever looks at the total
//! alone sees that the limit is far; and where it is near nothing lies in the tree, and the total is exact.

use crate::units::Pages;
use alloc::{vec, vec::Vec};
use core::cmp::Ordering;

/// So many CPUs share a branch, by their numbers: no more than 64 branches add to the total on 1,024 CPUs.
pub const FAN_OUT: u32 = 16;
/// A branch goes on once it comes to so many batches.
pub const BRANCH_BATCHES: u32 = 4;
/// Nearer to the limit than this batch allows nothing is kept: collecting from each CPU would take longer than it saves.
pub const MIN_BATCH: u32 = 8;
/// Of each CPU's additions one in so many times the number of CPUs is written where others write as well: all together write
/// there as often as an eighth of what one does...
pub const BATCH_PER_CPU: u32 = 8;
/// ...up to this batch, in pages: with the branches' own, less than one in 1,000.
pub const MAX_BATCH: u32 = 1280;

/// How often the bound fits into the room below the limit. Less often, and all is collected for a smaller batch.
const NARROW_BELOW: u64 = 4;
/// As it is chosen.
const ROOM_PER_BOUND: u64 = 5;
/// In halves: from there on the batch becomes larger.
const WIDEN_FROM_HALVES: u64 = 11;

/// What a CPU keeps to itself of a counter of the kernel's, less than this: `percpu_counter_batch = max(32, 2 * online CPUs)`
/// (lib/percpu_counter.c, 6.2 to 7.2).
pub const fn kernel_batch(cpus: u32) -> u32 {
    let batch = cpus.saturating_mul(2);
    if batch < 32 { 32 } else { batch }
}

/// The tree of a machine with so many CPUs. They are possible ones, by number: what one that is offline kept stays there
/// until it is collected, and a number that is missing keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    cpus: u32,
}

impl Shape {
    /// For so many possible CPUs; none count as one.
    pub const fn of(cpus: u32) -> Self {
        Self { cpus: if cpus == 0 { 1 } else { cpus } }
    }

    /// How many branches there are; none where all CPUs would share one.
    pub const fn branches(self) -> u32 {
        if self.cpus > FAN_OUT { self.cpus.div_ceil(FAN_OUT) } else { 0 }
    }

    /// Leaves and branches: what an account takes of the map, eight bytes each.
    pub const fn nodes(self) -> u32 {
        self.cpus.saturating_add(self.branches())
    }

    /// The bound for a batch of one page.
    const fn width(self) -> u64 {
        (self.cpus as u64).saturating_add((self.branches() as u64).saturating_mul(BRANCH_BATCHES as u64))
    }

    /// The largest batch, in pages.
    pub const fn max_batch(self) -> u32 {
        let most = self.cpus.saturating_mul(BATCH_PER_CPU);
        if most > MAX_BATCH { MAX_BATCH } else { most }
    }

    /// How far the total may be from what was added, either way, while a batch is in force.
    pub const fn bound(self, batch: u32) -> Pages {
        Pages(self.width().saturating_mul(batch as u64))
    }

    /// The largest bound: that of whoever is far from their limit.
    pub const fn max_bound(self) -> Pages {
        self.bound(self.max_batch())
    }

    /// Within so many pages of the limit nothing is kept, and the total is exact.
    pub const fn exact_within(self) -> Pages {
        Pages(self.width().saturating_mul(ROOM_PER_BOUND).saturating_mul(MIN_BATCH as u64))
    }

    /// The batch that is chosen for so much room below the limit; 0: nothing is kept.
    pub fn batch_for(self, room: i64) -> u32 {
        let room = room.max(0).cast_unsigned();
        if room < self.exact_within().0 {
            return 0;
        }
        let batch = room.checked_div(self.width().saturating_mul(ROOM_PER_BOUND)).unwrap_or(0);
        u32::try_from(batch).map_or(self.max_batch(), |batch| batch.min(self.max_batch()))
    }

    fn branch_of(self, cpu: u32) -> Option<u32> {
        let branch = cpu.checked_div(FAN_OUT)?;
        (self.branches() > 0).then(|| self.cpus.saturating_add(branch))
    }
}

/// A value that is known within a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// What is known.
    pub pages: i64,
    /// The true value is no further away, either way.
    pub bound: Pages,
}

impl Estimate {
    /// How the true value compares, as far as the bound tells. `None`: only the exact one tells.
    pub fn compare(self, with: i64) -> Option<Ordering> {
        let bound = i64::try_from(self.bound.0).unwrap_or(i64::MAX);
        if self.pages.saturating_add(bound) < with {
            Some(Ordering::Less)
        } else if self.pages.saturating_sub(bound) > with {
            Some(Ordering::Greater)
        } else {
            (bound == 0).then_some(Ordering::Equal)
        }
    }
}

/// How often memory was written that several CPUs write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writes {
    /// By the CPUs of one branch.
    pub branches: u64,
    /// By all.
    pub total: u64,
}

impl Writes {
    /// All of them.
    pub const fn all(self) -> u64 {
        self.branches.saturating_add(self.total)
    }
}

/// The counter of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    shape: Shape,
    limit: i64,
    total: i64,
    /// Leaves by CPU, then branches.
    kept: Vec<i64>,
    batch: u32,
    writes: Writes,
}

impl Tree {
    /// With nothing in it; the limit in pages.
    pub fn new(shape: Shape, limit: i64) -> Self {
        let nodes = usize::try_from(shape.nodes()).unwrap_or(0);
        Self { shape, limit, total: 0, kept: vec![0; nodes], batch: 0, writes: Writes::default() }
    }

    /// What may lie in each leaf now, in pages.
    pub const fn batch(&self) -> u32 {
        self.batch
    }

    /// How often shared memory was written so far.
    pub const fn writes(&self) -> Writes {
        self.writes
    }

    /// Adds, or takes away, on a CPU: each event does.
    pub fn add(&mut self, cpu: u32, pages: i64) {
        let mut pages = pages;
        if self.batch > 0 {
            pages = self.keep(cpu, pages, 1);
            if let Some(branch) = self.shape.branch_of(cpu).filter(|_| pages != 0) {
                self.writes.branches = self.writes.branches.saturating_add(1);
                pages = self.keep(branch, pages, BRANCH_BATCHES);
            }
        }
        if pages != 0 {
            self.add_at_once(pages);
        }
        self.fit();
    }

    /// Adds to the total, past the tree: what forks, ends or moves. The next event sees what room that leaves.
    pub const fn add_at_once(&mut self, pages: i64) {
        self.total = self.total.saturating_add(pages);
        self.writes.total = self.writes.total.saturating_add(1);
    }

    /// What goes on from a node.
    fn keep(&mut self, node: u32, pages: i64, batches: u32) -> i64 {
        let most = u64::from(self.batch).saturating_mul(batches.into());
        let kept = usize::try_from(node).ok().and_then(|node| self.kept.get_mut(node));
        let Some(kept) = kept else { return pages };
        *kept = kept.saturating_add(pages);
        if kept.unsigned_abs() < most { 0 } else { core::mem::take(kept) }
    }

    const fn room(&self) -> i64 {
        self.limit.saturating_sub(self.total)
    }

    /// The batch for the total as it is.
    fn fit(&mut self) {
        let (room, bound) = (self.room(), self.shape.bound(self.batch).0);
        let positive = room.max(0).cast_unsigned();
        // A room that is less than nothing has room for no bound.
        if bound > 0 && (room < 0 || positive < bound.saturating_mul(NARROW_BELOW)) {
            self.collect();
        } else if positive.saturating_mul(2) >= bound.saturating_mul(WIDEN_FROM_HALVES) {
            self.batch = self.batch.max(self.shape.batch_for(room));
        }
    }

    /// All that lies in the tree comes to the total, and no more will than what the room that is left after it allows.
    pub fn collect(&mut self) {
        let bound = i64::try_from(self.shape.bound(self.batch).0).unwrap_or(i64::MAX);
        self.batch = self.batch.min(self.shape.batch_for(self.room().saturating_sub(bound)));
        for kept in &mut self.kept {
            self.total = self.total.saturating_add(core::mem::take(kept));
        }
    }

    /// What lies in leaves and branches, together.
    pub fn kept(&self) -> i64 {
        self.exact().saturating_sub(self.total)
    }

    /// Moves the limit.
    pub fn set_limit(&mut self, limit: i64) {
        self.limit = limit;
        self.batch = 0;
        self.collect();
    }

    /// The total, and how far it may be off: O(1).
    pub const fn approximate(&self) -> Estimate {
        Estimate { pages: self.total, bound: self.shape.bound(self.batch) }
    }

    /// All that was added: O(CPUs).
    pub fn exact(&self) -> i64 {
        self.kept.iter().fold(self.total, |sum, kept| sum.saturating_add(*kept))
    }

    /// How what was added compares: by the total, and exactly only where its bound does not tell.
    pub fn compare(&self, with: i64) -> Ordering {
        self.approximate().compare(with).unwrap_or_else(|| self.exact().cmp(&with))
    }
}

#[cfg(test)]
mod tests;
