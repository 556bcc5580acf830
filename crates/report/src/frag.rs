//! Fragmentation as people read it: free memory by the size of its blocks, and who asks for blocks of several pages.

mod sites;
mod told;
mod words;

pub use sites::{Asker, CallSite, Request, call_sites};
pub use told::told;
pub use words::words;

use plimsoll_policy::{
    frag::{Blocks, gone_in},
    units::{Bytes, Nanos, PageSize, Pages},
};
use plimsoll_wire::text::{Compactions, Pagetypes, ZoneMarks, ZoneName, for_the_kernel};
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Free memory at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The machine's.
    pub page: PageSize,
    /// Free blocks of each zone.
    pub zones: Vec<(ZoneName, Blocks)>,
    /// What zones keep.
    pub marks: Vec<(ZoneName, ZoneMarks)>,
    /// By kinds of pages; `None` for who is not root.
    pub types: Option<Pagetypes>,
    /// What the kernel counted of compaction since boot.
    pub compaction: Compactions,
}

/// What a request of one order finds, and how it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Blocks of 2 to the power of this many pages.
    pub order: u32,
    /// The size of one.
    pub block_bytes: Bytes,
    /// How many there are, larger ones taken apart, in the zones that the kernel's own requests may use.
    pub blocks: u64,
    /// Free memory in them.
    pub free_bytes: Bytes,
    /// Free memory that lies in smaller ones, in thousandths of all that is free.
    pub unusable_permille: u64,
    /// Why a request would fail, in thousandths: towards 0 for want of memory, towards 1000 for fragmentation; `None`: it would
    /// not fail.
    pub index_permille: Option<i64>,
    /// Requests that are in a call site, in the time that was recorded; `None` below the smallest order that was.
    pub requests: Option<u64>,
    /// When the last block of this size is gone, if it goes on so. `None`: there are no fewer than before, or it is not known.
    pub gone_in_ns: Option<Nanos>,
}

/// What was recorded of who asks.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Recorded<'a> {
    /// How long it took.
    pub took_ns: Nanos,
    /// Requests for less were not counted.
    pub order_min: u32,
    /// All requests from there on.
    pub requests: u64,
    /// Of them, those that are in no call site, for want of room.
    pub unkept: u64,
    /// How often pages were taken from blocks of another kind.
    pub stolen: u64,
    /// Of these, how often pages that cannot be moved were put among those that can: no whole pageblock was taken.
    pub polluting: u64,
    /// Where the requests came from.
    pub sites: &'a [CallSite],
}

/// All that is told.
#[derive(Debug)]
pub struct Page<'a> {
    /// Free memory now.
    pub memory: &'a Memory,
    /// Each order.
    pub orders: &'a [Order],
    /// Where somebody recorded.
    pub recorded: Option<Recorded<'a>>,
}

impl Memory {
    fn for_the_kernel(&self) -> impl Iterator<Item = &Blocks> {
        for_the_kernel(&self.zones, &self.marks).map(|(blocks, _)| blocks)
    }

    /// A pageblock has 2 to the power of this many pages. Where that is not told, the largest block is one.
    #[must_use]
    pub fn pageblock_order(&self) -> u32 {
        let told = self.types.as_ref().and_then(|types| types.pageblock_order);
        let largest = || self.zones.iter().map(|(_, blocks)| blocks.counts().len()).max();
        told.or_else(|| u32::try_from(largest()?.checked_sub(1)?).ok()).unwrap_or_default()
    }

    /// All free blocks that the kernel's own requests may take.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        let mut sum = Blocks::default();
        self.for_the_kernel().for_each(|blocks| sum.add(blocks));
        sum
    }

    fn bytes(&self, pages: Pages) -> Bytes {
        self.page.to_bytes(pages)
    }

    /// Where no zone has a block, of the zone with the most free memory. The kernel judges each by its own.
    fn index(&self, order: u32) -> Option<i64> {
        let zones = || self.for_the_kernel();
        if zones().any(|blocks| blocks.suitable(order) > 0) {
            return None;
        }
        zones().max_by_key(|blocks| blocks.free()).and_then(|blocks| blocks.index_permille(order))
    }

    /// Each order; `recorded`: what was free when a recording began, and the recording.
    #[must_use]
    pub fn orders(&self, recorded: Option<(&Self, &Recorded<'_>)>) -> Vec<Order> {
        let now = self.blocks();
        let before = recorded.map(|(before, _)| before.blocks());
        let each = |order: u32| Order {
            order,
            block_bytes: self.bytes(Pages(1_u64.checked_shl(order).unwrap_or(u64::MAX))),
            blocks: now.suitable(order),
            free_bytes: self.bytes(now.in_blocks_of(order)),
            unusable_permille: now.unusable_permille(order),
            index_permille: self.index(order),
            requests: recorded.filter(|(_, recorded)| order >= recorded.order_min).map(|(_, recorded)| {
                let of_it = recorded.sites.iter().filter(|site| site.order == order);
                of_it.map(|site| site.requests).fold(0, u64::saturating_add)
            }),
            gone_in_ns: recorded.zip(before.as_ref()).and_then(|((_, recorded), before)| {
                gone_in(before.suitable(order), now.suitable(order), recorded.took_ns)
            }),
        };
        let orders = u32::try_from(now.counts().len()).unwrap_or_default();
        (0..orders).map(each).collect()
    }
}
