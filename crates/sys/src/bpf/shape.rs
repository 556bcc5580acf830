//! Every way to load the programs, as the kernel's verifier sees them: loaded in one shape of their read-only settings, counted
//! and let go of. For the load gate, which goes through all shapes (`crates/cli/tests/load_gate.rs`). Nothing is attached,
//! pinned or run.

use super::{
    error::BpfError,
    frag, killed,
    load::{self, LoadOptions},
    looks, oom, select, strict,
    types::Features,
    workingset::{self, Accesses},
};
use libbpf_rs::{Program, libbpf_sys};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
};

/// One way to load the programs of one file of `bpf/`. What the running kernel decides is as it decides it.
#[derive(Debug, Clone)]
pub enum Shape {
    /// `limits.bpf.c`
    Limits(LoadOptions),
    /// `select.bpf.c`
    Select {
        /// Possible CPUs.
        cpus: u32,
    },
    /// `frag.bpf.c`
    Frag {
        /// Requests for less are not counted.
        order_min: u32,
        /// A pageblock has 2 to the power of this many pages.
        pageblock_order: u32,
    },
    /// `killed.bpf.c`
    Killed {
        /// Possible CPUs.
        cpus: u32,
    },
    /// `oom.bpf.c`
    Oom {
        /// Possible CPUs.
        cpus: u32,
        /// For kernels that tell of a victim but its number, which is a program that every kernel takes.
        by_number: bool,
    },
    /// `pressure.bpf.c`
    Pressure,
    /// `strict.bpf.c`
    Strict {
        /// A page has 2 to the power of this many bytes.
        page_shift: u32,
    },
    /// `workingset.bpf.c`
    WorkingSet {
        /// Where accesses are seen: one of [`super::WorkingSet::ways`].
        accesses: Accesses,
        /// A page has 2 to the power of this many bytes.
        page_shift: u32,
        /// Slots of memory nodes.
        nodes: u32,
    },
}

impl Shape {
    /// What compiled the programs, as `clang 14`.
    pub const COMPILER: &str = env!("PLIMSOLL_BPF_COMPILER");

    /// Has the kernel verify the programs.
    ///
    /// # Errors
    /// [`BpfError::Load`] when it refuses one.
    pub fn load(&self) -> Result<Verified, BpfError> {
        let plan = match self {
            Self::Limits(options) => load::plan(options, Features::read()?),
            Self::Select { cpus } => select::plan(*cpus, Features::read()?, select::Parts::ALL),
            Self::Frag { order_min, pageblock_order } => frag::plan(*order_min, *pageblock_order)?,
            Self::Killed { cpus } => killed::plan(*cpus, Features::read()?),
            Self::Oom { cpus, by_number: true } => oom::plan(*cpus, Features::read()?, true),
            Self::Oom { cpus, by_number: false } => oom::plan_here(*cpus)?,
            Self::Pressure => looks::plan(),
            Self::Strict { page_shift } => strict::plan_of_what_there_is(*page_shift)?,
            Self::WorkingSet { accesses, page_shift, nodes } => {
                workingset::Kernel::read()?.with(*page_shift, *nodes).plan(*accesses)
            }
        };
        let loaded = plan.load(None)?;
        let went = loaded.programs().map(|program| {
            Ok((program.name().to_string_lossy().into_owned(), Some(instructions(&program)?)))
        });
        let left_out = loaded.left_out().into_iter().map(|name| Ok((name, None)));
        Ok(Verified {
            programs: went.chain(left_out).collect::<Result<_, BpfError>>()?,
            settings: loaded.settings()?,
        })
    }
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Every program of the file, and how many instructions the verifier went through, on all paths together; `None` for those
    /// that are not loaded in this shape.
    pub programs: BTreeMap<String, Option<u32>>,
    /// Every read-only setting of the file, and what it was set to.
    pub settings: BTreeMap<String, Vec<u8>>,
}

#[expect(unsafe_code, reason = "libbpf-rs tells it of all programs of the machine only, one after the other")]
fn instructions(program: &Program<'_>) -> Result<u32, BpfError> {
    let mut facts = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of_val(&facts)).unwrap_or(u32::MAX);
    // SAFETY: the descriptor is open for as long as the program is borrowed; `facts` has `bytes` bytes, and no pointer in it
    // that the kernel would write through.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut facts, &raw mut bytes)
    };
    if result < 0 {
        let error = io::Error::from_raw_os_error(result.saturating_neg());
        return Err(BpfError::Load(format!("{}: {error}", program.name().to_string_lossy())));
    }
    Ok(facts.verified_insns)
}
