//! Command lines for rules that ask for them: whoever reads one may have to wait, so the guard does not.

use super::patient::PatientReaders;
use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::victim::VictimId;
use plimsoll_sys::process::ProcRoot;
use plimsoll_wire::text::Comm;

/// Which program a process runs: what was read of another holds no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// As far as a look at it shows. From `/proc` only the name tells it.
    Seen {
        mm: u64,
        /// As [`plimsoll_wire::task::TaskFacts::execs`].
        execs: Option<u32>,
        comm: Comm,
    },
    /// As the programs of a user's line know it.
    Tracked {
        mm: u64,
        /// As [`plimsoll_sys::bpf::AddressSpace::tracked_ns`].
        tracked_ns: u64,
    },
}

/// Whose line is asked for, and what it ran then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) id: VictimId,
    pub(crate) program: Program,
}

/// What was read. The line is of this program or of a later one: asked for first, read afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) id: VictimId,
    pub(crate) program: Program,
    pub(crate) text: String,
}

/// Has command lines read, one list at a time.
#[derive(Debug)]
pub(crate) struct CommandLines {
    requests: Lane<Vec<Wanted>>,
}

/// A line for each process that has one.
pub(crate) type Found = Vec<Line>;

impl CommandLines {
    /// Has `tell` told what was found.
    pub(crate) fn new(
        offload: &Offload,
        mut proc: ProcRoot,
        readers: PatientReaders,
        tell: impl Fn(Found) + Send + 'static,
    ) -> Self {
        let requests = offload.lane(Haste::Ordinary, 1, move |wanted: Vec<Wanted>| {
            let line = |Wanted { id, program }| {
                let user = proc.process(id.pid).ok()?.uid;
                Some(Line { id, program, text: readers.command_line(id, user)? })
            };
            tell(wanted.into_iter().filter_map(line).collect());
        });
        Self { requests }
    }

    /// One that answers nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed() }
    }

    /// Asks for the lines of these; false while others are being read. Never waits.
    pub(crate) fn ask(&self, wanted: Vec<Wanted>) -> bool {
        self.requests.hand(wanted)
    }
}
