//! Whom the kernel's own OOM killer takes, told by a program at `oom/mark_victim` that stays attached through its pins: what
//! is killed while no daemon runs waits in the ring buffer for the next one.
//!
//! [`OomKills::load`] belongs into the loader's child; [`OomKills::open`] is light. Nothing runs but at a kill.

use super::{
    build_pins::BuildPins,
    error::BpfError,
    map::Map,
    object::Plan,
    pins::number,
    ring::Ring,
    select::OnlineCpus,
    site::Table as _,
    types::{Features, hands_over},
};
use plimsoll_wire::marked::{self, MARKED_BYTES, Marked};
use std::{os::fd::BorrowedFd, path::Path};

/// Tells the programs from those of another build.
const BUILD: u64 = number(env!("PLIMSOLL_OOM_BUILD"));

/// In `marked_counts` (bpf/oom.bpf.c).
const LOST: u32 = 1;
const TOLD: u32 = 2;

/// How much this kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomOffers {
    /// The victim with all that is asked for.
    Victims,
    /// Its number; more only where it is the process that needed memory itself (before 6.1.79, 6.6.18, 6.8).
    Numbers,
}

/// The program that is handed the victim, and the one that is told a number.
const ON_MARK: &str = "on_mark";
const ON_MARK_NUMBER: &str = "on_mark_number";

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "oom", BUILD)
}

pub(super) fn plan(cpus: u32, kernel: Features, by_number: bool) -> Plan {
    let (attached, left_out) = if by_number { (ON_MARK_NUMBER, ON_MARK) } else { (ON_MARK, ON_MARK_NUMBER) };
    Plan {
        name: "oom",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/oom.bpf.o")),
        left_out: vec![left_out],
        attached: vec![attached],
        ..Plan::of_counters(cpus, kernel)
    }
}

/// The one for this kernel.
pub(super) fn plan_here(cpus: u32) -> Result<Plan, BpfError> {
    Ok(plan(cpus, Features::read()?, !hands_over("mark_victim", "task_struct")?))
}

/// The pinned ring of victims. One reader at a time.
#[derive(Debug)]
pub struct OomKills {
    ring: Ring,
    counts: Map,
    online: OnlineCpus,
    undecodable: u64,
    offers: OomOffers,
}

impl OomKills {
    /// Loads, pins and attaches below `root/oom`, for a machine of `cpus` possible CPUs, unless this build's program is
    /// there. Those of other builds go; what they had to tell and nobody read is lost. Heavy: for the loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses, or this is no initial pid namespace; [`BpfError::Pin`].
    pub fn load(root: &Path, cpus: u32) -> Result<(), BpfError> {
        pins(root).load(|| Ok(vec![plan_here(cpus)?])).map(drop)
    }

    /// Has the kernel verify the program that is for it, and lets go of it.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses it.
    pub fn verify(cpus: u32) -> Result<(), BpfError> {
        plan_here(cpus)?.verify()
    }

    /// Removes all pins below `root/oom`, of whichever build. Returns whether there were any.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Opens what [`OomKills::load`] pinned. Records of the time when nobody read are there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when this build's programs are not there.
    pub fn open(root: &Path) -> Result<Self, BpfError> {
        let pins = pins(root);
        Ok(Self {
            ring: Ring::open(&pins.path("marked"), "marked")?,
            counts: Map::open(&pins.path("marked_counts"), "marked_counts")?,
            online: OnlineCpus::open(&pins)?,
            undecodable: 0,
            offers: if pins.has(ON_MARK_NUMBER) { OomOffers::Numbers } else { OomOffers::Victims },
        })
    }

    /// How much this kernel tells.
    #[must_use]
    pub const fn offers(&self) -> OomOffers {
        self.offers
    }

    /// To be polled for input; readable for as long as something was not given back.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The next victim, oldest first. Those read stay in the ring until [`OomKills::give_back`].
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it; [`BpfError::Scan`].
    pub fn next_victim(&mut self) -> Result<Option<Marked>, BpfError> {
        while let Some(place) = self.ring.next()? {
            let mut bytes = [0; MARKED_BYTES];
            let looseness = self.online.looseness()?;
            let copied = self.ring.copy(place, &mut bytes);
            match marked::decode(&bytes, looseness) {
                Ok(marked) if copied => return Ok(Some(marked)),
                Ok(_) | Err(_) => self.undecodable = self.undecodable.saturating_add(1),
            }
        }
        Ok(None)
    }

    /// Those read are in safe hands.
    ///
    /// # Errors
    /// [`BpfError::Events`]
    pub fn give_back(&self) -> Result<(), BpfError> {
        self.ring.give_back()
    }

    /// How many victims found no room in the ring and were not told of yet, also to earlier daemons.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn lost(&self) -> Result<u64, BpfError> {
        Ok(self.count(LOST)?.saturating_sub(self.count(TOLD)?))
    }

    /// So many of the lost were told of.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn told_lost(&self, count: u64) -> Result<(), BpfError> {
        let told = self.count(TOLD)?.saturating_add(count);
        self.counts.write(&TOLD.to_ne_bytes(), &told.to_ne_bytes())
    }

    /// Records dropped because they could not be decoded: a fault of ours.
    #[must_use]
    pub const fn undecodable(&self) -> u64 {
        self.undecodable
    }

    fn count(&self, which: u32) -> Result<u64, BpfError> {
        let mut value = [0; 8];
        self.counts.read(&which.to_ne_bytes(), &mut value)?;
        Ok(u64::from_ne_bytes(value))
    }
}

#[cfg(test)]
mod tests;
