//! The programs at what is read and mapped, attached for as long as whoever wants to know can afford it.

use super::{
    super::{error::BpfError, map::Map},
    attach_all,
};
use libbpf_rs::{MapCore as _, MapFlags};
use plimsoll_wire::abi;
use std::{io, mem::offset_of, os::fd::OwnedFd};

#[derive(Debug)]
pub(super) struct Reads {
    programs: Vec<(&'static str, OwnedFd)>,
    attached: Vec<OwnedFd>,
    /// By CPU.
    recents: Map,
}

impl Reads {
    pub(super) const fn new(programs: Vec<(&'static str, OwnedFd)>, recents: Map) -> Self {
        Self { programs, attached: Vec::new(), recents }
    }

    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.programs.is_empty() {
            return Err(BpfError::Missing("use of files"));
        }
        if self.attached.is_empty() {
            self.attached = attach_all(&self.programs)?;
        }
        Ok(())
    }

    pub(super) fn detach(&mut self) {
        self.attached.clear();
    }

    pub(super) const fn are_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// How often the programs ran, on all CPUs.
    pub(super) fn events(&self) -> Result<u64, BpfError> {
        let copies = self
            .recents
            .handle()
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| self.recents.error(io::Error::other(error.to_string())))?;
        let place = offset_of!(abi::plimsoll_recent, events);
        let of_cpu = |copy: &Vec<u8>| copy.get(place..).and_then(|rest| rest.first_chunk().copied());
        Ok(copies.iter().flatten().filter_map(of_cpu).map(u64::from_ne_bytes).fold(0, u64::wrapping_add))
    }
}
