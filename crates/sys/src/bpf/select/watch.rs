//! Who grows past a floor: the program on its tracepoint, and the map that it notes them in.

use super::super::{
    error::BpfError, link::attach_tracepoint, map::Map, program::SyscallProgram, site::Call as _,
};
use plimsoll_policy::{
    units::{Pages, Pid},
    victim::VictimId,
};
use plimsoll_wire::abi;
use std::os::fd::{AsFd as _, OwnedFd};
use zerocopy::FromBytes as _;

/// As many as the map has room for (bpf/select/watch.h).
const GROWN_MAX: usize = 1024;

const VALUE_BYTES: usize = size_of::<abi::plimsoll_grown>();

/// A process whose anonymous, swapped and shared pages were seen at the floor or above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grown {
    /// Its memory's key, as in [`plimsoll_wire::task::TaskFacts::mm`]: others may use it too.
    pub mm: u64,
    /// Whose it is by the kernel's own note.
    pub id: VictimId,
}

/// What [`super::Selector::grown`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrownCounts {
    /// Shown to the visitor.
    pub visited: u64,
    /// Found no room and are not known: only another sweep tells who they are.
    pub lost: u64,
}

/// The watch, and the buffers that its notes are taken into.
#[derive(Debug)]
pub(super) struct Watch {
    program: OwnedFd,
    set: SyscallProgram,
    grown: Map,
    attached: Option<OwnedFd>,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Watch {
    pub(super) fn new(program: OwnedFd, set: SyscallProgram, grown: Map) -> Self {
        Self {
            program,
            set,
            grown,
            attached: None,
            keys: vec![0; GROWN_MAX * size_of::<u64>()],
            values: vec![0; GROWN_MAX * VALUE_BYTES],
        }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.attached.is_some()
    }

    pub(super) fn begin(&mut self, floor: Pages) -> Result<(), BpfError> {
        if self.attached.is_none() {
            // Of an earlier watch, whose owner may have died.
            self.take(|_old| ())?;
        }
        self.set_floor(floor)?;
        if self.attached.is_none() {
            let attached = attach_tracepoint(self.program.as_fd())
                .map_err(|source| BpfError::Attach { program: "on_growth", source })?;
            self.attached = Some(attached);
        }
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<(), BpfError> {
        self.attached = None;
        self.set_floor(Pages(u64::MAX))
    }

    /// Takes all notes out of the map, and the count of those that found no room.
    pub(super) fn take(&mut self, mut visit: impl FnMut(Grown)) -> Result<GrownCounts, BpfError> {
        let mut visited = 0_u64;
        self.grown.take_each((&mut self.keys, &mut self.values), |key, value| {
            if let Ok(note) = abi::plimsoll_grown::read_from_bytes(value) {
                visited = visited.saturating_add(1);
                visit(grown(u64::from_ne_bytes(*key), &note));
            }
            Ok(())
        })?;
        Ok(GrownCounts { visited, lost: self.run(-1)? })
    }

    fn set_floor(&self, floor: Pages) -> Result<(), BpfError> {
        self.run(i64::try_from(floor.0).unwrap_or(i64::MAX)).map(|_lost| ())
    }

    /// Sets the floor, if it is one; how many notes were lost since the last call.
    fn run(&self, floor_pages: i64) -> Result<u64, BpfError> {
        let mut context = abi::plimsoll_watch { floor_pages, lost: 0 };
        self.set.run(&mut context)?;
        Ok(context.lost)
    }
}

pub(super) fn grown(mm: u64, value: &abi::plimsoll_grown) -> Grown {
    Grown { mm, id: VictimId { pid: Pid(value.tgid), start_ns: value.start_ns } }
}
