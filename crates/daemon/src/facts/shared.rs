//! All shared memory, walked off the guard thread: there may be much of it.

use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::units::Nanos;
use plimsoll_sys::{
    bpf::{BpfError, SharedMemory, SharedWalks},
    process::clock_monotonic_ns,
};
use std::path::PathBuf;

/// What one walk found.
#[derive(Debug)]
pub(crate) struct Walked {
    /// When it was asked for.
    pub(crate) asked: Nanos,
    /// How long it took.
    pub(crate) took: Nanos,
    /// `None`: it was not gone through, because too much of it was freed meanwhile.
    pub(crate) found: Result<Option<SharedMemory>, BpfError>,
}

/// Has shared memory walked.
#[derive(Debug)]
pub(crate) struct SharedReader {
    requests: Lane<Nanos>,
}

impl SharedReader {
    /// By the programs that are pinned there, once they are; `tell` is told what was found.
    pub(crate) fn new(offload: &Offload, pins: PathBuf, tell: impl Fn(Walked) + Send + 'static) -> Self {
        let mut walks = None;
        let requests = offload.lane(Haste::Ordinary, 1, move |asked| {
            let began = clock_monotonic_ns();
            let found = walk(&mut walks, &pins);
            let took = Nanos(clock_monotonic_ns().saturating_sub(began));
            tell(Walked { asked, took, found });
        });
        Self { requests }
    }

    /// One that walks nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed() }
    }

    /// Asks for a walk; false while one is waiting already.
    pub(crate) fn ask(&self, asked: Nanos) -> bool {
        self.requests.hand(asked)
    }
}

fn walk(walks: &mut Option<SharedWalks>, pins: &std::path::Path) -> Result<Option<SharedMemory>, BpfError> {
    let walks = match walks {
        Some(walks) => walks,
        none => none.insert(SharedWalks::open(pins)?),
    };
    walks.walk()
}
