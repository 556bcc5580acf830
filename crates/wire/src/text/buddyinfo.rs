//! `/proc/buddyinfo`, `/proc/pagetypeinfo` and what `/proc/vmstat` counts of compaction: free memory by the size of its blocks.

use super::{
    Printable, WireError,
    field::{decimal, decimal_u32, lines, split_once, words},
};
use plimsoll_policy::{frag::Blocks, units::Pages};
use std::{
    string::{String, ToString as _},
    vec::Vec,
};

const BUDDYINFO: &str = "/proc/buddyinfo";
const ZONEINFO: &str = "/proc/zoneinfo";
const PAGETYPEINFO: &str = "/proc/pagetypeinfo";

/// More orders than any kernel has (64 KiB pages of arm64 have 14).
const ORDERS_MAX: usize = 24;

/// A zone of a memory node, by the kernel's names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneName {
    /// The node.
    pub node: u32,
    /// `Normal` and the like.
    pub zone: String,
}

/// Free blocks of each zone.
///
/// # Errors
/// [`WireError::Missing`] when a line names no zone; [`WireError::Malformed`] when a count is no number.
pub fn parse_buddyinfo(text: &[u8]) -> Result<Vec<(ZoneName, Blocks)>, WireError> {
    let zone = |line| {
        let (name, counts) = zone_line(BUDDYINFO, line)?;
        Ok((name, blocks(BUDDYINFO, words(counts))?))
    };
    lines(text).map(zone).collect()
}

/// What `/proc/pagetypeinfo` shows, to root only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pagetypes {
    /// Free blocks of each zone by the kind of pages that they are for: `Unmovable`, `Movable` and the like. The kernel counts
    /// no further than 100,000 of one order.
    pub free: Vec<(ZoneName, String, Blocks)>,
    /// How many pageblocks of each zone are for which kind. Compaction works to empty whole pageblocks.
    pub pageblocks: Vec<(ZoneName, String, u64)>,
    /// A pageblock has 2 to the power of this many pages; `None`: that is not told.
    pub pageblock_order: Option<u32>,
}

/// Reads `/proc/pagetypeinfo`. Lines it does not know are skipped.
///
/// # Errors
/// [`WireError::Missing`] when a line names no zone or no kind; [`WireError::Malformed`] when a count is no number.
pub fn parse_pagetypeinfo(text: &[u8]) -> Result<Pagetypes, WireError> {
    let mut types = Pagetypes::default();
    let (mut kinds, mut counts_mixed) = (Vec::<String>::new(), false);
    for line in lines(text) {
        if let Some(names) = line.strip_prefix(b"Number of blocks type") {
            kinds = words(names).take(ORDERS_MAX).map(printable).collect();
        } else if let Some(order) = line.strip_prefix(b"Page block order:") {
            types.pageblock_order = words(order).next().and_then(decimal_u32);
        } else if line.starts_with(b"Free pages count") {
            // Both tables come once for each node.
            (kinds, counts_mixed) = (Vec::new(), false);
        } else if line.starts_with(b"Number of mixed blocks") {
            // With page_owner=on.
            counts_mixed = true;
        } else if line.starts_with(b"Node") && !counts_mixed {
            let (name, rest) = zone_line(PAGETYPEINFO, line)?;
            let mut rest = words(rest);
            if kinds.is_empty() {
                // `type`, and its name.
                let kind = rest.nth(1).ok_or(WireError::missing(PAGETYPEINFO, "type"))?;
                types.free.push((name, printable(kind), blocks(PAGETYPEINFO, rest)?));
            } else {
                for (kind, count) in kinds.iter().zip(rest) {
                    types.pageblocks.push((name.clone(), kind.clone(), number(PAGETYPEINFO, count)?));
                }
            }
        }
    }
    Ok(types)
}

/// What a zone keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneMarks {
    /// kswapd stops when so much is free (`high`).
    pub high: Pages,
    /// Kept back from requests that may use the zone `Normal`, as most of the kernel's own may (`lowmem_reserve`): with no more
    /// free than that it serves none of them.
    pub reserve: Pages,
}

/// What each zone keeps, from `/proc/zoneinfo`, where all zones of a node stand in the kernel's order.
///
/// # Errors
/// [`WireError::Missing`] when a line names no zone; [`WireError::Malformed`] when what is kept is no number.
pub fn parse_zone_marks(text: &[u8]) -> Result<Vec<(ZoneName, ZoneMarks)>, WireError> {
    let mut zones: Vec<(ZoneName, Pages, &[u8])> = Vec::new();
    for line in lines(text) {
        if line.starts_with(b"Node") {
            zones.push((zone_line(ZONEINFO, line)?.0, Pages(0), &[]));
            continue;
        }
        let Some((_, high, kept)) = zones.last_mut() else { continue };
        let line = line.trim_ascii();
        if let Some(list) = line.strip_prefix(b"protection:") {
            let list = list.trim_ascii();
            *kept = list.strip_prefix(b"(").and_then(|list| list.strip_suffix(b")")).unwrap_or(list);
        } else if let Some(pages) = line.strip_prefix(b"high ") {
            *high = Pages(number(ZONEINFO, pages.trim_ascii())?);
        }
    }
    let marks = |(name, high, kept): &(ZoneName, Pages, &[u8])| {
        let place = zones
            .iter()
            .filter(|(other, _, _)| other.node == name.node)
            .position(|(it, _, _)| it.zone == "Normal");
        let pages = place.and_then(|place| kept.split(|byte| *byte == b',').nth(place));
        let pages = pages.map(<[u8]>::trim_ascii).filter(|pages| !pages.is_empty());
        let pages = pages.map_or(Ok(0), |pages| number(ZONEINFO, pages))?;
        Ok((name.clone(), ZoneMarks { high: *high, reserve: Pages(pages) }))
    };
    zones.iter().map(marks).collect()
}

/// Zones that only pages which can be moved are taken from, or none: the kernel's own requests find nothing there.
const NOT_FOR_THE_KERNEL: [&str; 2] = ["Movable", "Device"];

/// The zones that serve the kernel's own requests now: their free blocks, and what they keep.
pub fn for_the_kernel<'a>(
    zones: &'a [(ZoneName, Blocks)],
    marks: &'a [(ZoneName, ZoneMarks)],
) -> impl Iterator<Item = (&'a Blocks, ZoneMarks)> {
    let with_marks = |(name, blocks): &'a (ZoneName, Blocks)| {
        let marks = marks.iter().find(|(zone, _)| zone == name).map(|(_, marks)| *marks).unwrap_or_default();
        let serves = blocks.free() > marks.reserve || marks.reserve.0 == 0;
        (serves && !NOT_FOR_THE_KERNEL.contains(&name.zone.as_str())).then_some((blocks, marks))
    };
    zones.iter().filter_map(with_marks)
}

/// What the kernel counted of compaction since boot; `None` where it does not count that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compactions {
    /// Requests that had to compact memory themselves (`compact_stall`).
    pub stalls: Option<u64>,
    /// Of them, those that found no block all the same (`compact_fail`).
    pub failures: Option<u64>,
    /// And those that did (`compact_success`).
    pub successes: Option<u64>,
    /// How often kcompactd was woken (`compact_daemon_wake`).
    pub daemon_wakes: Option<u64>,
}

/// Reads what `/proc/vmstat` counts of compaction.
///
/// # Errors
/// [`WireError::Malformed`] when one is no number.
pub fn parse_compactions(text: &[u8]) -> Result<Compactions, WireError> {
    let mut counts = Compactions::default();
    for (key, value) in lines(text).filter_map(|line| split_once(line, b' ')) {
        let slot = match key {
            b"compact_stall" => &mut counts.stalls,
            b"compact_fail" => &mut counts.failures,
            b"compact_success" => &mut counts.successes,
            b"compact_daemon_wake" => &mut counts.daemon_wakes,
            _ => continue,
        };
        *slot = Some(number("/proc/vmstat", value)?);
    }
    Ok(counts)
}

/// `Node 0, zone   Normal` and what follows; in one of the files a comma follows the name.
fn zone_line<'a>(file: &'static str, line: &'a [u8]) -> Result<(ZoneName, &'a [u8]), WireError> {
    let missing = || WireError::missing(file, "zone");
    let (node, rest) = split_once(line, b',').ok_or_else(missing)?;
    let node =
        node.strip_prefix(b"Node").map(<[u8]>::trim_ascii).and_then(decimal_u32).ok_or_else(missing)?;
    let rest = rest.trim_ascii_start().strip_prefix(b"zone").ok_or_else(missing)?.trim_ascii_start();
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (zone, rest) = rest.split_at_checked(end).ok_or_else(missing)?;
    let zone = printable(zone.strip_suffix(b",").unwrap_or(zone));
    if zone.is_empty() { Err(missing()) } else { Ok((ZoneName { node, zone }, rest)) }
}

fn printable(name: &[u8]) -> String {
    Printable(name).to_string()
}

fn blocks<'a>(file: &'static str, counts: impl Iterator<Item = &'a [u8]>) -> Result<Blocks, WireError> {
    let counts: Result<_, _> = counts.take(ORDERS_MAX).map(|count| number(file, count)).collect();
    counts.map(Blocks::new)
}

/// `>100000` is a count that the kernel broke off.
fn number(file: &'static str, word: &[u8]) -> Result<u64, WireError> {
    decimal(word.strip_prefix(b">").unwrap_or(word))
        .ok_or_else(|| WireError::malformed(file, "count", "a number that fits in 64 bits", word))
}

#[cfg(test)]
mod tests;
