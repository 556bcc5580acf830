//! Every way to load the programs, for the load gate.

use super::{
    error::BpfError,
    load::{self, LoadOptions},
    oom, select,
    verified::Verified,
    workingset::{self, Accesses},
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
    /// `oom.bpf.c`
    Oom {
        /// Possible CPUs.
        cpus: u32,
        /// For kernels that tell of a victim but its number, which is a program that every kernel takes.
        by_number: bool,
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
        match self {
            Self::Limits(options) => load::verified(options),
            Self::Select { cpus } => select::verified(*cpus),
            Self::Oom { cpus, by_number } => oom::verified(*cpus, *by_number),
            Self::WorkingSet { accesses, page_shift, nodes } => {
                workingset::verified(*accesses, *page_shift, *nodes)
            }
        }
    }
}
