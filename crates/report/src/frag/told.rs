//! The page for scripts.

use super::{Memory, Order, Page, Recorded};
use plimsoll_policy::{frag::Blocks, units::Bytes};
use plimsoll_wire::text::ZoneName;
use serde::Serialize;
use std::collections::BTreeMap;

/// Printed as JSON as it stands.
#[derive(Debug, Serialize)]
struct Told<'a> {
    page_bytes: Bytes,
    orders: &'a [Order],
    zones: Vec<Zone<'a>>,
    compaction: Compaction,
    recording: Option<Recorded<'a>>,
}

#[derive(Debug, Serialize)]
struct Zone<'a> {
    node: u32,
    zone: &'a str,
    free_bytes: Bytes,
    free_blocks: &'a [u64],
    /// By kinds of pages; null for who is not root.
    free_blocks_by_type: Option<BTreeMap<&'a str, &'a [u64]>>,
    pageblocks: Option<BTreeMap<&'a str, u64>>,
    index_permille: Vec<Option<i64>>,
}

#[derive(Debug, Serialize)]
struct Compaction {
    stalls: Option<u64>,
    failures: Option<u64>,
    successes: Option<u64>,
    daemon_wakes: Option<u64>,
}

/// The page, to be written as JSON.
#[must_use]
pub fn told<'a>(page: &'a Page<'_>) -> impl Serialize + 'a {
    let counts = page.memory.compaction;
    Told {
        page_bytes: page.memory.page.bytes(),
        orders: page.orders,
        zones: page.memory.zones.iter().map(|(name, blocks)| zone(page.memory, name, blocks)).collect(),
        compaction: Compaction {
            stalls: counts.stalls,
            failures: counts.failures,
            successes: counts.successes,
            daemon_wakes: counts.daemon_wakes,
        },
        recording: page.recorded,
    }
}

fn zone<'a>(memory: &'a Memory, name: &'a ZoneName, blocks: &'a Blocks) -> Zone<'a> {
    let types = memory.types.as_ref();
    Zone {
        node: name.node,
        zone: &name.zone,
        free_bytes: memory.bytes(blocks.free()),
        free_blocks: blocks.counts(),
        free_blocks_by_type: types.map(|types| {
            let of_it = types.free.iter().filter(|(zone, _, _)| zone == name);
            of_it.map(|(_, kind, blocks)| (kind.as_str(), blocks.counts())).collect()
        }),
        pageblocks: types.map(|types| {
            let of_it = types.pageblocks.iter().filter(|(zone, _, _)| zone == name);
            of_it.map(|(_, kind, count)| (kind.as_str(), *count)).collect()
        }),
        index_permille: (0_u32..)
            .zip(blocks.counts())
            .map(|(order, _)| blocks.index_permille(order))
            .collect(),
    }
}
