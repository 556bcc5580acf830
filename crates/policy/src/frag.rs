//! Fragmentation: free memory that lies in blocks too small for a request, and what becomes of the request then.
//!
//! The kernel hands memory out in blocks of 2 to the power of an order pages. Its own measures of fragmentation are worked out
//! here from the free blocks (mm/vmstat.c, 2.6.35 to 7.2), since it shows them in debugfs only.

use crate::units::{Nanos, Pages};
use alloc::vec::Vec;

pub mod compaction;

#[cfg(test)]
mod tests;

/// The largest order for which the kernel goes on trying, and kills, until a request is served (`PAGE_ALLOC_COSTLY_ORDER`,
/// include/linux/mmzone.h, 2.6.24 to 7.2).
pub const COSTLY_ORDER: u32 = 3;

/// How many thousandths are a whole, as in the kernel's own measures.
const WHOLE: u64 = 1000;

/// Flags of a request (include/linux/gfp_types.h; gfp.h before 6.0). Their numbers are the same from 6.1 to 7.2.
pub mod gfp {
    /// From the lowest zone, or from that below 4 GiB.
    pub const LOW_ZONES: u32 = 0x1 | 0x4;
    /// File systems may be called to free memory.
    pub const FS: u32 = 0x80;
    /// Who asks may free memory itself.
    pub const DIRECT_RECLAIM: u32 = 0x400;
    /// Its failure is not worth a warning.
    pub const NOWARN: u32 = 0x2000;
    /// To be tried hard, but nobody is killed for it.
    pub const RETRY_MAYFAIL: u32 = 0x4000;
    /// May not fail.
    pub const NOFAIL: u32 = 0x8000;
    /// To be tried once.
    pub const NORETRY: u32 = 0x10000;
    /// Of a huge page (`GFP_TRANSHUGE_LIGHT`).
    pub const TRANSHUGE: u32 = 0x001c_20ca;
    /// From one memory node or not at all.
    pub const THISNODE: u32 = 0x0020_0000;
}

texts! {
    /// What comes of it where no block is large enough.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum OnFailure {
        /// The kernel compacts and reclaims until there is one. In the end it kills; without [`gfp::FS`] it goes on and on.
        Forces = "forces",
        /// After some tries who asked is told that there is no memory.
        Fails = "fails",
        /// Who asked has another way: smaller blocks, or pages that lie apart.
        FallsBack = "falls-back",
    }
    /// The word in JSON.
    fn name, Display
}

impl OnFailure {
    /// Of a request with these flags, for a block of that order (`__alloc_pages_slowpath`, `__alloc_pages_may_oom`,
    /// mm/page_alloc.c, 6.1 to 7.2).
    ///
    /// That somebody has another way is known by its asking for one try without a warning, as `kvmalloc` and the slab
    /// allocators do: with `__GFP_NORETRY`, or (6.18, 7.2) without the right to reclaim. In place of a huge page there are
    /// small ones. Whoever cannot wait and wants the warning (`GFP_ATOMIC`) fails. For low zones nobody is killed.
    #[must_use]
    pub const fn of(flags: u32, order: u32) -> Self {
        if flags & gfp::NOFAIL != 0 {
            Self::Forces
        } else if flags & gfp::NORETRY != 0 || flags & gfp::TRANSHUGE == gfp::TRANSHUGE {
            Self::FallsBack
        } else if flags & gfp::DIRECT_RECLAIM == 0 {
            if flags & gfp::NOWARN != 0 { Self::FallsBack } else { Self::Fails }
        } else if order > COSTLY_ORDER || flags & (gfp::RETRY_MAYFAIL | gfp::THISNODE | gfp::LOW_ZONES) != 0 {
            Self::Fails
        } else {
            Self::Forces
        }
    }
}

/// Free blocks by their order, from single pages on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blocks {
    counts: Vec<u64>,
}

impl Blocks {
    /// So many of each order.
    #[must_use]
    pub const fn new(counts: Vec<u64>) -> Self {
        Self { counts }
    }

    /// How many there are of each order.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// With those of another place.
    pub fn add(&mut self, others: &Self) {
        if self.counts.len() < others.counts.len() {
            self.counts.resize(others.counts.len(), 0);
        }
        for (count, other) in self.counts.iter_mut().zip(&others.counts) {
            *count = count.saturating_add(*other);
        }
    }

    fn by_order(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0_u32..).zip(self.counts.iter().copied())
    }

    /// All free memory in them.
    #[must_use]
    pub fn free(&self) -> Pages {
        self.in_blocks_of(0)
    }

    /// What lies in blocks of this order and larger ones.
    #[must_use]
    pub fn in_blocks_of(&self, order: u32) -> Pages {
        let large = self.by_order().filter(|(at, _)| *at >= order);
        large.map(|(at, count)| Pages(count.saturating_mul(pages_of(at)))).sum()
    }

    /// How many blocks of this order there are, larger ones taken apart (`free_blocks_suitable`).
    #[must_use]
    pub fn suitable(&self, order: u32) -> u64 {
        self.in_blocks_of(order).0.checked_div(pages_of(order)).unwrap_or(0)
    }

    /// How much of the free memory is of no use to a request of this order, in thousandths (`unusable_free_index`). Without any
    /// free memory none is of use.
    #[must_use]
    pub fn unusable_permille(&self, order: u32) -> u64 {
        let free = self.free().0;
        let unusable = free.saturating_sub(self.in_blocks_of(order).0);
        unusable.saturating_mul(WHOLE).checked_div(free).unwrap_or(WHOLE)
    }

    /// Why a request of this order would fail, in thousandths: towards 0 for want of memory, towards 1000 as what is free lies
    /// apart (`__fragmentation_index`). `None`: it would not fail, which the kernel shows as -1.000.
    ///
    /// For a costly order the kernel does not compact a zone whose index is from 0 to `vm.extfrag_threshold` (500)
    /// (`compaction_suitable`).
    #[must_use]
    pub fn index_permille(&self, order: u32) -> Option<i64> {
        if self.in_blocks_of(order).0 > 0 {
            return None;
        }
        let blocks = self.counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if blocks == 0 {
            return Some(0);
        }
        let asked = self.free().0.saturating_mul(WHOLE).checked_div(pages_of(order))?;
        let missing = asked.saturating_add(WHOLE).checked_div(blocks)?;
        i64::try_from(missing).ok().map(|missing| i64::from(1000_i16).saturating_sub(missing))
    }
}

const fn pages_of(order: u32) -> u64 {
    match 1_u64.checked_shl(order) {
        Some(pages) => pages,
        None => u64::MAX,
    }
}

/// When what there is of something will be gone, if it goes on as it did since there was `before`. `None`: it grows, or it is
/// not known how fast it goes.
#[must_use]
pub fn gone_in(before: u64, now: u64, elapsed: Nanos) -> Option<Nanos> {
    let used = before.checked_sub(now).filter(|used| *used > 0)?;
    crate::units::part(elapsed.0, now, used).map(Nanos)
}
