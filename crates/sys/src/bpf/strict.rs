//! Strict jobs: programs that refuse memory past a job's line (`bpf/strict.bpf.c`). They are linked through their pins, so that
//! the lines hold on without the daemon.
//!
//! [`Strict::load`] belongs into the loader's child; [`Strict::open`] is light.

use super::{
    build_pins::BuildPins,
    error::BpfError,
    map::Map,
    object::Plan,
    pins::number,
    ring::Ring,
    site::Table as _,
    types::{find, kernel_types},
};
use crate::{
    probe::{Answer, function_hooks_of},
    process::{kernel_version, page_size},
};
use libbpf_rs::btf::{Btf, BtfKind};
use plimsoll_policy::units::{JobId, Pages, Uid};
use plimsoll_wire::{
    abi, pages,
    strict::{self, REFUSAL_BYTES, Refusal},
};
use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, BorrowedFd},
    path::Path,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Tells the maps from those of another layout. Programs of another build that have these maps go on: what they know of jobs
/// that run would be lost.
const LAYOUT: u64 = number(env!("PLIMSOLL_STRICT_LAYOUT"));

/// Those that follow a job, at tracepoints.
const FOLLOWING: [&str; 4] =
    ["on_strict_exec", "on_strict_exec_again", "on_strict_fork", "on_strict_fork_again"];

/// Those at functions of the kernel: first those that see the end of what the others count.
const AT_FUNCTIONS: [&str; 9] = [
    "on_strict_exit",
    "on_strict_exit_again",
    "on_child",
    "on_child_again",
    "on_mmap_addr",
    "on_mmap_addr_again",
    "on_mprotect",
    "on_mprotect_again",
    "on_enough",
];

/// Their ends, where the kernel interrupts programs: see `keep_cpu` of the source.
const AGAIN: &str = "_again";

/// Of those, the programs of the BPF security module, and a function of it.
const OF_THE_MODULE: [&str; 3] = ["on_child_again", "on_mmap_addr_again", "on_mprotect_again"];
const MODULE: &str = "bpf_lsm_mmap_addr";

/// The kernel's function that is asked before memory is given.
const ASKED: &str = "security_vm_enough_memory_mm";

/// Since this version the programs may keep their CPU while they call functions of their own
/// ("bpf: Summarize sleepable global subprogs").
const KEEPS_CPU: (u32, u32) = (6, 15);

/// Nothing is refused below it.
const NO_LIMIT: Pages = Pages(i64::MAX.unsigned_abs());

/// More entries than a hash bucket has.
const BATCH_ENTRIES: usize = 512;

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "strict", LAYOUT)
}

fn plan(page_shift: u32, types: &Btf<'static>, has_hooks: bool) -> Plan {
    let keeps_cpu = kernel_version().is_ok_and(|kernel| (kernel.major, kernel.minor) >= KEEPS_CPU);
    let has_module = find(types, BtfKind::Func, MODULE).is_some();
    let all = [FOLLOWING.as_slice(), AT_FUNCTIONS.as_slice()].concat();
    let is_out = |name: &&&str| {
        (name.ends_with(AGAIN) && !keeps_cpu)
            || (OF_THE_MODULE.contains(name) && !has_module)
            || (AT_FUNCTIONS.contains(name) && !has_hooks)
    };
    Plan {
        name: "strict",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/strict.bpf.o")),
        settings: vec![
            ("page_shift", page_shift.to_ne_bytes().to_vec()),
            ("keeps_cpu", vec![keeps_cpu.into()]),
        ],
        left_out: all.iter().filter(is_out).copied().collect(),
        attached: all,
        ..Plan::default()
    }
}

/// As far as this kernel takes them: those that refuse nothing, at least.
pub(super) fn plan_of_what_there_is(page_shift: u32) -> Result<Plan, BpfError> {
    let types = kernel_types()?;
    let has_hooks = function_hooks_of(&types, ASKED) == Answer::Present;
    Ok(plan(page_shift, &types, has_hooks))
}

fn plan_here() -> Result<Plan, BpfError> {
    let types = kernel_types()?;
    match function_hooks_of(&types, ASKED) {
        Answer::Present => Ok(plan(page_size().bytes().0.trailing_zeros(), &types, true)),
        Answer::Absent(why) | Answer::Unknown(why) => {
            Err(BpfError::Load(format!("no program can refuse memory ({ASKED}): {why}")))
        }
    }
}

/// A strict job's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrictLine {
    /// What its address spaces may write to in all, and nobody else sees.
    pub limit: Pages,
    /// Whose it is.
    pub user: Uid,
    /// The strict job that it is in.
    pub outer: Option<JobId>,
}

impl StrictLine {
    fn wire(self) -> abi::plimsoll_strict_line {
        abi::plimsoll_strict_line {
            limit_pages: self.limit.0,
            uid: self.user.0,
            outer: self.outer.unwrap_or_default().0,
        }
    }
}

/// What a strict job has, and was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// What its address spaces may write to, as far as that is known without a look at each.
    pub now: Pages,
    /// The most that was.
    pub peak: Pages,
    /// Requests that were refused.
    pub refused: u64,
}

/// The pinned maps. One reader of refusals at a time.
#[derive(Debug)]
pub struct Strict {
    ring: Ring,
    lines: Map,
    sums: Map,
    members: Map,
    counts: Map,
    undecodable: u64,
}

impl Strict {
    /// Loads, pins and attaches below `root/strict`, unless programs with these maps are there. Others go. Heavy: for the
    /// loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses, or this is no initial pid namespace; [`BpfError::Pin`].
    pub fn load(root: &Path) -> Result<(), BpfError> {
        pins(root).load(|| Ok(vec![plan_here()?])).map(drop)
    }

    /// Has the kernel verify the programs, and lets go of them.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses one.
    pub fn verify() -> Result<(), BpfError> {
        plan_here()?.verify()
    }

    /// Removes all pins below `root/strict`, of whichever build: nothing is refused from then on. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Whether [`Strict::load`] has nothing to do.
    #[must_use]
    pub fn is_there(root: &Path) -> bool {
        pins(root).is_complete()
    }

    /// Whether programs with other maps are there, which hold the strict jobs that run.
    #[must_use]
    pub fn is_another_there(root: &Path) -> bool {
        let pins = pins(root);
        !pins.is_complete() && pins.has_others()
    }

    /// Opens what [`Strict::load`] pinned; `None`: nothing of this layout is there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when something is missing.
    pub fn open(root: &Path) -> Result<Option<Self>, BpfError> {
        let pins = pins(root);
        if !pins.is_complete() {
            return Ok(None);
        }
        let map = |name: &'static str| Map::open(&pins.path(name), name);
        Ok(Some(Self {
            ring: Ring::open(&pins.path("refusals"), "refusals")?,
            lines: map("strict_lines")?,
            sums: map("strict_sums")?,
            members: map("strict_members")?,
            counts: map("strict_counts")?,
            undecodable: 0,
        }))
    }

    /// Has these jobs and no others be strict, at these lines. One that has ended is there without a limit until nothing of it
    /// is counted in those around it.
    ///
    /// # Errors
    /// [`BpfError::Map`]; some are drawn then.
    pub fn draw(&self, wanted: &BTreeMap<JobId, StrictLine>) -> Result<(), BpfError> {
        let there = self.drawn()?;
        // First: what ends may be between two that go on.
        for (id, line) in wanted.iter().filter(|(id, line)| there.get(id) != Some(line)) {
            let key = id.0.to_ne_bytes();
            // Without a sum nothing is counted, and without a line nothing is refused.
            if self.sums.get::<abi::plimsoll_strict_sum>(&key)?.is_none() {
                self.sums.write(&key, abi::plimsoll_strict_sum::default().as_bytes())?;
            }
            self.lines.write(&key, line.wire().as_bytes())?;
        }
        for (id, line) in there.iter().filter(|(id, _)| !wanted.contains_key(id)) {
            let key = id.0.to_ne_bytes();
            let sum = self.sums.get::<abi::plimsoll_strict_sum>(&key)?;
            let is_outer = wanted.values().any(|line| line.outer == Some(*id));
            if sum.is_none_or(|sum| sum.spaces <= 0) && !is_outer {
                self.lines.delete(&key)?;
                self.sums.delete(&key)?;
            } else if line.limit != NO_LIMIT {
                self.lines.write(&key, StrictLine { limit: NO_LIMIT, ..*line }.wire().as_bytes())?;
            }
        }
        Ok(())
    }

    /// The jobs that are strict now.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn drawn(&self) -> Result<BTreeMap<JobId, StrictLine>, BpfError> {
        let mut all = BTreeMap::new();
        let mut keys = vec![0; BATCH_ENTRIES.saturating_mul(4)];
        let mut values = vec![0; BATCH_ENTRIES.saturating_mul(self.lines.value_bytes())];
        self.lines.each((&mut keys, &mut values), |key: &[u8; 4], value| {
            if let Ok(line) = abi::plimsoll_strict_line::read_from_bytes(value) {
                let outer = Some(JobId(line.outer)).filter(|outer| outer.0 != 0);
                let line = StrictLine { limit: Pages(line.limit_pages), user: Uid(line.uid), outer };
                all.insert(JobId(u32::from_ne_bytes(*key)), line);
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// This process, with what it starts, is in a job from its next exec on, by its pidfd; until then where it is. It must have
    /// one thread.
    ///
    /// # Errors
    /// [`BpfError::Map`] when it has ended, or there is no memory.
    pub fn enter(&self, process: BorrowedFd<'_>, job: JobId) -> Result<(), BpfError> {
        let key = process.as_raw_fd().to_ne_bytes();
        let now = self.members.get::<abi::plimsoll_strict_member>(&key)?.unwrap_or_default();
        self.members.write(&key, abi::plimsoll_strict_member { next: job.0, ..now }.as_bytes())
    }

    /// What a job has; `None`: it is not strict.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn committed(&self, job: JobId) -> Result<Option<Committed>, BpfError> {
        let sum = self.sums.get::<abi::plimsoll_strict_sum>(&job.0.to_ne_bytes())?;
        Ok(sum.map(|sum| Committed {
            now: pages(sum.committed_pages),
            peak: pages(sum.peak_pages),
            refused: sum.refused,
        }))
    }

    /// To be polled for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The next refusal, oldest first; the one before is given back.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it.
    pub fn next_refusal(&mut self) -> Result<Option<Refusal>, BpfError> {
        self.ring.next_decoded::<REFUSAL_BYTES, _>(&mut self.undecodable, strict::decode)
    }

    /// What went wrong since the programs were loaded, by [`abi::PLIMSOLL_STRICT_NO_ROOM`] and its kin; what could not be
    /// decoded is among what was not told.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn counts(&self) -> Result<[u64; abi::PLIMSOLL_STRICT_COUNTS as usize], BpfError> {
        let mut counts = [0; abi::PLIMSOLL_STRICT_COUNTS as usize];
        for (which, count) in (0_u32..).zip(&mut counts) {
            *count = self.counts.get::<u64>(&which.to_ne_bytes())?.unwrap_or_default();
        }
        if let Some(untold) = counts.get_mut(abi::PLIMSOLL_STRICT_UNTOLD as usize) {
            *untold = untold.saturating_add(self.undecodable);
        }
        Ok(counts)
    }
}
