//! Which working-set programs are loaded. What a kernel has no place for is left out, and what it refuses of accesses.

use super::{
    super::{
        build_pins::BuildPins,
        error::BpfError,
        object::Plan,
        types::{Features, find, kernel_types},
    },
    Accesses, WorkingSetOffers,
};
use crate::process::{page_size, possible_cpus};
use libbpf_rs::btf::{Btf, BtfKind};
use plimsoll_wire::{abi, text::parse_node_possible};
use std::{fs, io};

/// The walk over executables, and the one for kernels before 6.7.
pub(super) const WALK: &str = "walk_executables";
pub(super) const WALK_AREAS: &str = "walk_areas";

/// Pins that are there where the programs may do so.
const SIGNALS_OTHERS: &str = "signals_others";
const FINDS_TASKS: &str = "finds_tasks";

const AT_LIMITS: [&str; 2] = ["on_limit_begin", "on_limit_end"];

const AT_TRACEPOINTS: [&str; 3] = ["on_read", "on_map", "on_fault"];
const AT_FUNCTIONS: [&str; 3] = ["on_read_call", "on_map_call", "on_fault_call"];

/// The programs that see accesses in this way.
pub(super) const fn accesses_of(accesses: Accesses) -> &'static [&'static str] {
    match accesses {
        Accesses::Tracepoints => &AT_TRACEPOINTS,
        Accesses::Functions => &AT_FUNCTIONS,
        Accesses::Nowhere => &[],
    }
}

/// What this kernel has places for.
pub(in super::super) struct Kernel {
    types: Btf<'static>,
    features: Features,
    page_shift: u32,
    nodes: u32,
    cpus: u32,
}

impl Kernel {
    pub(in super::super) fn read() -> Result<Self, BpfError> {
        let types = kernel_types()?;
        Ok(Self {
            features: Features::of(&types)?,
            types,
            page_shift: page_size().bytes().0.trailing_zeros(),
            nodes: nodes()?,
            // As many as there may be, where the kernel does not tell.
            cpus: possible_cpus().unwrap_or(u32::MAX),
        })
    }

    /// With pages of another size, and so many memory nodes.
    pub(in super::super) fn with(self, page_shift: u32, nodes: u32) -> Self {
        Self { page_shift, nodes, ..self }
    }

    fn has_tracepoint(&self, name: &str) -> bool {
        find(&self.types, BtfKind::Typedef, &format!("btf_trace_{name}")).is_some()
    }

    fn has_function(&self, name: &str) -> bool {
        find(&self.types, BtfKind::Func, name).is_some()
    }

    /// The ways to see accesses that have their places here, the best first.
    pub(super) fn ways(&self) -> Vec<Accesses> {
        let mut ways = Vec::new();
        if ["get_pages", "map_pages", "fault"]
            .iter()
            .all(|end| self.has_tracepoint(&format!("mm_filemap_{end}")))
        {
            ways.push(Accesses::Tracepoints);
        }
        if ["read", "map_pages", "fault"].iter().all(|end| self.has_function(&format!("filemap_{end}"))) {
            ways.push(Accesses::Functions);
        }
        ways.push(Accesses::Nowhere);
        ways
    }

    /// The programs and settings for it, with accesses seen in this way.
    pub(in super::super) fn plan(&self, way: Accesses) -> Plan {
        let walks_processes = self.has_function("bpf_iter_task_vma_new");
        let (walk, other_walk) = if walks_processes { (WALK, WALK_AREAS) } else { (WALK_AREAS, WALK) };
        let mut left_out = vec![other_walk];
        for other in [Accesses::Tracepoints, Accesses::Functions].into_iter().filter(|other| *other != way) {
            left_out.extend(accesses_of(other));
        }
        // Where the kernel has cgroups.
        if !self.has_tracepoint("mm_vmscan_memcg_reclaim_begin") {
            left_out.extend(AT_LIMITS);
        }
        let marks =
            [(SIGNALS_OTHERS, self.features.signals_others), (FINDS_TASKS, self.features.finds_tasks)];
        Plan {
            name: "workingset",
            object: include_bytes!(concat!(env!("OUT_DIR"), "/workingset.bpf.o")),
            settings: vec![
                ("page_shift", self.page_shift.to_ne_bytes().to_vec()),
                ("nr_nodes", self.nodes.to_ne_bytes().to_vec()),
            ],
            entries: vec![("uses", uses_max(self.cpus))],
            left_out,
            attached: vec![walk],
            tried: accesses_of(way),
            marks: marks.into_iter().filter_map(|(mark, has)| has.then_some(mark)).collect(),
            ..Plan::default()
        }
    }
}

/// Slots of memory nodes; 1 where the kernel knows of none.
fn nodes() -> Result<u32, BpfError> {
    match fs::read("/sys/devices/system/node/possible") {
        Ok(text) => parse_node_possible(&text).map_err(|error| BpfError::Load(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(1),
        Err(error) => Err(BpfError::Load(format!("/sys/devices/system/node/possible: {error}"))),
    }
}

/// Entries of `uses`: as few as do, for a drain walks through all of its buckets. As many as chunks are remembered, or as a map
/// of that kind needs on many CPUs, each of which keeps 128 free ones (`LOCAL_FREE_TARGET`, kernel/bpf/bpf_lru_list.c).
fn uses_max(cpus: u32) -> u32 {
    cpus.saturating_mul(256).clamp(abi::PLIMSOLL_USES_MIN, abi::PLIMSOLL_USES_MAX).next_power_of_two()
}

pub(super) fn load(pins: &BuildPins) -> Result<WorkingSetOffers, BpfError> {
    let refused = pins.load(|| {
        let kernel = Kernel::read()?;
        Ok(kernel.ways().into_iter().map(|way| kernel.plan(way)).collect())
    })?;
    Ok(offers(pins, refused))
}

/// Read off the pins.
pub(super) fn offers(pins: &BuildPins, refused: Option<String>) -> WorkingSetOffers {
    let here = |accesses: &Accesses| accesses_of(*accesses).iter().all(|name| pins.has(name));
    let ways = [Accesses::Tracepoints, Accesses::Functions];
    WorkingSetOffers {
        accesses: ways.into_iter().find(here).unwrap_or(Accesses::Nowhere),
        walks_processes: pins.has(WALK),
        signals_others: pins.has(SIGNALS_OTHERS),
        finds_tasks: pins.has(FINDS_TASKS),
        limits: AT_LIMITS.iter().all(|name| pins.has(name)),
        refused,
    }
}
