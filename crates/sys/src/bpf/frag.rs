//! Who asks for blocks of several pages, counted by programs (`bpf/frag.bpf.c`) for as long as a [`Recorder`] lives. Nothing is
//! pinned.

use super::{
    error::BpfError,
    link::attach_tracepoint,
    loaded::Loaded,
    object::Plan,
    types::{find, kernel_types},
};
use libbpf_rs::{MapCore as _, MapFlags, btf::BtfKind};
use plimsoll_wire::{
    abi,
    frag::{Counts, FRAMES_MAX, Site, decode},
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

/// The programs, in the order in which they are attached: who ends a stall before who begins one, so that none is left open.
/// Those with a tracepoint are left out by a kernel without it (`CONFIG_COMPACTION`).
const PROGRAMS: [(&str, Option<&str>); 7] = [
    ("on_request", None),
    ("on_reclaimed", None),
    ("on_compacted", Some("mm_compaction_end")),
    ("on_stolen", None),
    ("on_compaction", Some("mm_compaction_begin")),
    ("on_compact", Some("mm_compaction_try_to_compact_pages")),
    ("on_reclaim", None),
];

/// From this order up, with pageblocks of that.
pub(super) fn plan(order_min: u32, pageblock_order: u32) -> Result<Plan, BpfError> {
    let types = kernel_types()?;
    let missing =
        |tracepoint: &str| find(&types, BtfKind::Typedef, &format!("btf_trace_{tracepoint}")).is_none();
    Ok(Plan {
        name: "frag",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/frag.bpf.o")),
        settings: vec![
            ("order_min", order_min.to_ne_bytes().to_vec()),
            ("pageblock_order", pageblock_order.to_ne_bytes().to_vec()),
        ],
        left_out: PROGRAMS
            .into_iter()
            .filter(|(_, tracepoint)| tracepoint.is_some_and(missing))
            .map(|(program, _)| program)
            .collect(),
        ..Plan::default()
    })
}

/// How much was seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests from the smallest order on.
    pub requests: u64,
    /// Of them, those that are in no site, for want of room.
    pub unkept: u64,
    /// How often the allocator took pages from blocks of another kind (`kmem/mm_page_alloc_extfrag`).
    pub stolen: u64,
    /// Of these, pages that cannot be moved, taken from pageblocks of those that can, and not the whole: until they
    /// are given back such a pageblock cannot become one free block.
    pub polluting: u64,
}

/// All requests of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What they have in common.
    pub site: Site,
    /// Return addresses in the kernel, innermost first, from the program itself on; none where there was no room.
    pub frames: Vec<u64>,
    /// What became of them.
    pub counts: Counts,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// All sites.
    pub asked: Vec<Asked>,
    /// How much was seen.
    pub totals: Totals,
}

/// The programs, attached.
#[derive(Debug)]
pub struct Recorder {
    loaded: Loaded,
    attached: Vec<OwnedFd>,
}

impl Recorder {
    /// Begins to count requests for blocks of `order_min` and above, on a machine whose pageblocks have 2 to the power of
    /// `pageblock_order` pages. Heavy: it reads the kernel's types.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses a program, [`BpfError::Attach`].
    pub fn start(order_min: u32, pageblock_order: u32) -> Result<Self, BpfError> {
        let loaded = plan(order_min, pageblock_order)?.load(None)?;
        let mut attached = Vec::new();
        for (name, _) in PROGRAMS {
            let found = loaded.programs().find(|program| program.name() == name);
            if let Some(program) = found {
                let link = attach_tracepoint(program.as_fd());
                attached.push(link.map_err(|source| BpfError::Attach { program: name, source })?);
            }
        }
        Ok(Self { loaded, attached })
    }

    /// How much was seen so far.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel does not tell it.
    pub fn totals(&self) -> Result<Totals, BpfError> {
        let map = self.loaded.map("frag_totals")?;
        let total = |which: u32| -> Result<u64, BpfError> {
            let by_cpu = map.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
            let counts = by_cpu.iter().filter_map(|count| count.get(..8)?.try_into().ok());
            Ok(counts.map(u64::from_ne_bytes).fold(0, u64::saturating_add))
        };
        Ok(Totals {
            requests: total(abi::PLIMSOLL_FRAG_REQUESTS)?,
            unkept: total(abi::PLIMSOLL_FRAG_UNKEPT)?,
            stolen: total(abi::PLIMSOLL_FRAG_STOLEN)?,
            polluting: total(abi::PLIMSOLL_FRAG_POLLUTING)?,
        })
    }

    /// Stops counting, and tells what was counted.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel does not tell it.
    pub fn stop(mut self) -> Result<Recording, BpfError> {
        self.attached.clear();
        let mut recording = Recording { totals: self.totals()?, ..Recording::default() };
        let sites = self.loaded.map("sites")?;
        let stacks = self.loaded.map("stacks")?;
        let mut known: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for key in sites.keys() {
            let Some(value) = sites.lookup(&key, MapFlags::ANY)? else { continue };
            let Ok((site, counts)) = decode(&key, &value) else {
                // A fault of ours. How many requests were in it is not known.
                recording.totals.unkept = recording.totals.unkept.saturating_add(1);
                continue;
            };
            let frames = match site.stack {
                None => Vec::new(),
                Some(stack) if known.contains_key(&stack) => known.get(&stack).cloned().unwrap_or_default(),
                Some(stack) => {
                    let bytes = stacks.lookup(&stack.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
                    let frames = frames(&bytes);
                    known.insert(stack, frames.clone());
                    frames
                }
            };
            recording.asked.push(Asked { site, frames, counts });
        }
        Ok(recording)
    }
}

/// The addresses of one stack, which ends at a 0.
fn frames(bytes: &[u8]) -> Vec<u64> {
    let (frames, _) = bytes.as_chunks::<8>();
    let addresses = frames.iter().take(FRAMES_MAX).map(|frame| u64::from_ne_bytes(*frame));
    addresses.take_while(|address| *address != 0).collect()
}
