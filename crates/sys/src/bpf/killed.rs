//! Whom anybody kills, told by a program at `signal/signal_generate`.
//!
//! [`Killed::load`] belongs into the loader's child; [`Killed::open`] is light. Only the program and its maps are pinned: it is
//! attached by a descriptor of this value, and ends with it or with this process.

use super::{
    build_pins::BuildPins, error::BpfError, link::attach_tracepoint, map::Map, object::Plan, pins::number,
    ring::Ring, select::OnlineCpus, site::Table as _, types::Features,
};
use plimsoll_wire::{
    abi,
    killed::{self, KILLED_BYTES, KilledSettings},
};
use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

/// Tells the program from that of another build.
const BUILD: u64 = number(env!("PLIMSOLL_KILLED_BUILD"));

const ON_SIGNAL: &str = "on_signal";

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "killed", BUILD)
}

pub(super) fn plan(cpus: u32, kernel: Features) -> Plan {
    Plan {
        name: "killed",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/killed.bpf.o")),
        tried: &[ON_SIGNAL],
        ..Plan::of_counters(cpus, kernel)
    }
}

/// The pinned ring of those who are killed, and the program, attached. One reader at a time.
#[derive(Debug)]
pub struct Killed {
    ring: Ring,
    counts: Map,
    online: OnlineCpus,
    undecodable: u64,
    _attached: OwnedFd,
}

impl Killed {
    /// Loads and pins below `root/killed`, for a machine of `cpus` possible CPUs, unless this build's program is there. Those
    /// of other builds go. Heavy: for the loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses, or this is no initial pid namespace; [`BpfError::Pin`].
    pub fn load(root: &Path, cpus: u32) -> Result<(), BpfError> {
        pins(root).load(|| Ok(vec![plan(cpus, Features::read()?)])).map(drop)
    }

    /// Has the kernel verify the program, and lets go of it.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses it.
    pub fn verify(cpus: u32) -> Result<(), BpfError> {
        plan(cpus, Features::read()?).verify()
    }

    /// Removes all pins below `root/killed`, of whichever build. Returns whether there were any. What a living process has
    /// attached stays attached until it ends.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Opens what [`Killed::load`] pinned, and attaches the program. What was told to an earlier reader is passed over.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when this build's program is not there, [`BpfError::Attach`], [`BpfError::Map`].
    pub fn attach(root: &Path, settings: KilledSettings) -> Result<Self, BpfError> {
        let pins = pins(root);
        let map = |name: &'static str| Map::open(&pins.path(name), name);
        map("settings")?.write(&0_u32.to_ne_bytes(), &settings.encode())?;
        let mut ring = Ring::open(&pins.path("kills"), "kills")?;
        while ring.next()?.is_some() {}
        ring.give_back()?;
        let program = pins.open(ON_SIGNAL)?;
        let attached = attach_tracepoint(program.as_fd())
            .map_err(|source| BpfError::Attach { program: ON_SIGNAL, source })?;
        Ok(Self {
            ring,
            counts: map("killed_counts")?,
            online: OnlineCpus::open(&pins)?,
            undecodable: 0,
            _attached: attached,
        })
    }

    /// To be polled for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The next one that was killed, oldest first; the one before is given back.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it; [`BpfError::Scan`].
    pub fn next_killed(&mut self) -> Result<Option<killed::Killed>, BpfError> {
        loop {
            self.ring.give_back()?;
            let Some(place) = self.ring.next()? else {
                return Ok(None);
            };
            let mut bytes = [0; KILLED_BYTES];
            let looseness = self.online.looseness()?;
            let copied = self.ring.copy(place, &mut bytes);
            match killed::decode(&bytes, looseness) {
                Ok(killed) if copied => return Ok(Some(killed)),
                Ok(_) | Err(_) => self.undecodable = self.undecodable.saturating_add(1),
            }
        }
    }

    /// How many were not told since the program was loaded: as their user's share was used up, as the ring was full, or as the
    /// record made no sense.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn untold(&self) -> Result<u64, BpfError> {
        let counts = [abi::PLIMSOLL_KILLED_OVER_SHARE, abi::PLIMSOLL_KILLED_NO_ROOM];
        counts.into_iter().try_fold(self.undecodable, |sum, which| {
            let count = self.counts.get::<u64>(&which.to_ne_bytes())?;
            Ok(sum.saturating_add(count.unwrap_or_default()))
        })
    }
}
