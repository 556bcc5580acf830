//! Where memory was: counters, nodes, zones, free blocks, huge pages, swap, slab caches.

use super::{
    draft::Draft,
    scan::{contains, decimal, find, first_word, kilobytes_after, leading_number, number_after, words},
    start::split_node,
};
use crate::oom::{Block, BlockKinds, Slab, Zone, ZoneKind};
use plimsoll_policy::units::Bytes;
use plimsoll_wire::text::Printable;

/// 1024 nodes of six zones would be more; no machine in a log has them.
const ZONES_MAX: usize = 1024;
/// `MAX_PAGE_ORDER` is 15 at most.
const BLOCKS_MAX: usize = 24;
const SLABS_KEPT: usize = 8;

/// Page counters of the whole report, in pages, as they were read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageCounts {
    pub(super) active_anon: Option<u64>,
    pub(super) inactive_anon: Option<u64>,
    pub(super) active_file: Option<u64>,
    pub(super) inactive_file: Option<u64>,
    pub(super) unevictable: Option<u64>,
    pub(super) dirty: Option<u64>,
    pub(super) writeback: Option<u64>,
    pub(super) shmem: Option<u64>,
    pub(super) slab_reclaimable: Option<u64>,
    pub(super) slab_unreclaimable: Option<u64>,
    pub(super) pagetables: Option<u64>,
    pub(super) free: Option<u64>,
    pub(super) free_cma: Option<u64>,
}

impl PageCounts {
    fn slot(&mut self, key: &[u8]) -> Option<&mut Option<u64>> {
        Some(match key {
            b"active_anon" => &mut self.active_anon,
            b"inactive_anon" => &mut self.inactive_anon,
            b"active_file" => &mut self.active_file,
            b"inactive_file" => &mut self.inactive_file,
            b"unevictable" => &mut self.unevictable,
            b"dirty" => &mut self.dirty,
            b"writeback" => &mut self.writeback,
            b"shmem" => &mut self.shmem,
            b"slab_reclaimable" => &mut self.slab_reclaimable,
            b"slab_unreclaimable" => &mut self.slab_unreclaimable,
            b"pagetables" => &mut self.pagetables,
            b"free" => &mut self.free,
            b"free_cma" => &mut self.free_cma,
            _ => return None,
        })
    }
}

fn add(slot: &mut Option<Bytes>, more: Option<Bytes>) {
    if let Some(more) = more {
        *slot = Some(slot.unwrap_or_default().saturating_add(more));
    }
}

/// `key:value` pairs, in pages. With a unit they are a node's, and not meant here.
pub(super) fn counters(draft: &mut Draft, text: &[u8]) {
    for word in words(text) {
        let Some(at) = find(word, b":") else { continue };
        let Some((key, value)) = word.split_at_checked(at) else { continue };
        let value = value.get(1..).and_then(decimal);
        if let (Some(value), Some(slot)) = (value, draft.counts.slot(key)) {
            slot.get_or_insert(value);
        }
    }
}

/// A number of kB right after `key:`, where the key begins a word.
fn kilobytes(text: &[u8], key: &[u8]) -> Option<Bytes> {
    let mut rest = text;
    loop {
        let at = find(rest, key)?;
        let begins = at == 0 || rest.get(at.checked_sub(1)?) == Some(&b' ');
        let from = rest.get(at..)?;
        if begins {
            return kilobytes_after(from, key);
        }
        rest = from.get(1..)?;
    }
}

fn sum(text: &[u8], one: &[u8], other: &[u8]) -> Option<Bytes> {
    Some(kilobytes(text, one)?.saturating_add(kilobytes(text, other)?))
}

/// A node's line: what no page counter says.
pub(super) fn node(draft: &mut Draft, text: &[u8]) {
    draft.has_nodes = true;
    if let Some((node, _)) = split_node(text) {
        draft.node = node;
    }
    let sums = &mut draft.sums;
    add(&mut sums.kernel_stack, kilobytes(text, b"kernel_stack:"));
    add(&mut sums.kernel_stack, kilobytes(text, b"shadow_call_stack:"));
    add(&mut sums.pagetables, kilobytes(text, b"pagetables:"));
    add(&mut sums.anon, sum(text, b"active_anon:", b"inactive_anon:"));
    add(&mut sums.file, sum(text, b"active_file:", b"inactive_file:"));
    add(&mut sums.unevictable, kilobytes(text, b"unevictable:"));
    add(&mut sums.shmem, kilobytes(text, b"shmem:"));
}

/// The zone a line is about, made where it is new.
fn zone_of<'a>(draft: &'a mut Draft, node: u32, name: &[u8]) -> Option<&'a mut Zone> {
    let kind = ZoneKind::named(core::str::from_utf8(name).ok()?)?;
    let zones = &mut draft.report.zones;
    let at = match zones.iter().position(|zone| zone.node == node && zone.kind == kind) {
        Some(at) => at,
        None if zones.len() < ZONES_MAX => {
            zones.push(Zone { node, kind, ..Zone::default() });
            zones.len().checked_sub(1)?
        }
        None => return None,
    };
    draft.zone = Some(at);
    zones.get_mut(at)
}

/// Node and zone at the head of a line, and what follows. Kernels without NUMA name no node.
fn head<'a>(draft: &Draft, text: &'a [u8]) -> (u32, &'a [u8], &'a [u8]) {
    let (node, rest) = split_node(text).unwrap_or((if draft.has_nodes { draft.node } else { 0 }, text));
    let (name, rest) = first_word(rest);
    (node, name, rest)
}

/// A zone's line.
pub(super) fn zone(draft: &mut Draft, text: &[u8]) {
    let (node, name, rest) = head(draft, text);
    let Some(zone) = zone_of(draft, node, name) else { return };
    let get = |key: &[u8]| kilobytes(rest, key);
    // The same zone again is another dump of memory inside one report: the first belongs to the decision.
    if zone.free.is_some() {
        return;
    }
    zone.free = get(b"free:");
    zone.min = get(b"min:");
    zone.low = get(b"low:");
    zone.high = get(b"high:");
    zone.reserved_highatomic = get(b"reserved_highatomic:");
    zone.free_cma = get(b"free_cma:");
    zone.anon = sum(rest, b"active_anon:", b"inactive_anon:");
    zone.file = sum(rest, b"active_file:", b"inactive_file:");
    zone.slab = sum(rest, b"slab_reclaimable:", b"slab_unreclaimable:");
    zone.present = get(b"present:");
    zone.managed = get(b"managed:");
    let (anon, file) = (zone.anon, zone.file);
    add(&mut draft.sums.kernel_stack, get(b"kernel_stack:"));
    add(&mut draft.zone_sums.pagetables, get(b"pagetables:"));
    add(&mut draft.zone_sums.anon, anon);
    add(&mut draft.zone_sums.file, file);
    add(&mut draft.zone_sums.unevictable, get(b"unevictable:"));
    add(&mut draft.zone_sums.slab_unreclaimable, get(b"slab_unreclaimable:"));
}

/// `lowmem_reserve[]: ...`, of the zone before it.
pub(super) fn reserve(draft: &mut Draft, text: &[u8]) {
    let Some(zone) = draft.zone.and_then(|at| draft.report.zones.get_mut(at)) else { return };
    let numbers = words(text).skip(1).map_while(decimal).take(8);
    if zone.reserve_pages.is_empty() {
        zone.reserve_pages = numbers.collect();
    }
}

/// `3313*4kB (UMEH) 165*8kB (UMEH) ... = 15612kB`
pub(super) fn blocks(draft: &mut Draft, text: &[u8]) {
    let (node, name, rest) = head(draft, text);
    let Some(zone) = zone_of(draft, node, name.strip_suffix(b":").unwrap_or(name)) else { return };
    if !zone.blocks.is_empty() {
        return;
    }
    for word in words(rest) {
        if let Some(block) = block(word) {
            if zone.blocks.len() < BLOCKS_MAX {
                zone.blocks.push(block);
            }
        } else if let Some(letters) =
            word.strip_prefix(b"(").map(|word| word.strip_suffix(b")").unwrap_or(word))
        {
            if let Some(last) = zone.blocks.last_mut() {
                last.kinds = BlockKinds::of(letters);
            }
        } else {
            // `= 15612kB`, or something that mail or another line brought here.
            break;
        }
    }
}

fn block(word: &[u8]) -> Option<Block> {
    let (count, rest) = leading_number(word)?;
    let (size, unit) = leading_number(rest.strip_prefix(b"*")?)?;
    (unit == b"kB").then_some(Block {
        count,
        size: Bytes(size.checked_mul(1024)?),
        kinds: BlockKinds::default(),
    })
}

/// `Node 0 hugepages_total=1024 hugepages_free=0 hugepages_surp=0 hugepages_size=2048kB`
pub(super) fn huge_pages(draft: &mut Draft, text: &[u8]) {
    let total = number_after(text, b"hugepages_total=");
    let size = kilobytes_after(text, b"hugepages_size=");
    if let (Some(total), Some(size)) = (total, size) {
        add(&mut draft.report.counters.hugetlb, Some(Bytes(total.saturating_mul(size.0))));
    }
}

/// Swap, and how many pages there are.
pub(super) fn totals(draft: &mut Draft, text: &[u8]) {
    let report = &mut draft.report;
    if text.starts_with(b"Free swap") {
        report.swap_free = report.swap_free.or(kilobytes_after(text, b"="));
        report.swap_leaving = report.swap_leaving.or(kilobytes_after(text, b"= -"));
    } else if text.starts_with(b"Total swap") {
        report.swap_total = report.swap_total.or(kilobytes_after(text, b"="));
    } else if let Some((pages, rest)) = leading_number(text) {
        if contains(rest, b"pages RAM") {
            draft.ram_pages.get_or_insert(pages);
        } else if contains(rest, b"total pagecache pages") {
            draft.pagecache_pages.get_or_insert(pages);
        } else if contains(rest, b"pages reserved") {
            draft.reserved_pages.get_or_insert(pages);
        }
    }
}

/// A slab cache. The largest are kept.
pub(super) fn slab(draft: &mut Draft, text: &[u8]) {
    let mut words = words(text);
    let (Some(name), Some(_), Some(total)) = (words.next(), words.next(), words.next()) else { return };
    let Some(total) = leading_number(total).and_then(|(kilobytes, _)| kilobytes.checked_mul(1024)).map(Bytes)
    else {
        return;
    };
    let slabs = &mut draft.report.slabs;
    let name = Printable(name.get(..64).unwrap_or(name)).to_string();
    let at = slabs.iter().position(|slab| slab.total < total).unwrap_or(slabs.len());
    slabs.insert(at, Slab { name, total });
    slabs.truncate(SLABS_KEPT);
}
