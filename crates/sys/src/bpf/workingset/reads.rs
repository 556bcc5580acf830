//! The programs at what is read and mapped, attached for as long as whoever wants to know can afford it.

use super::{
    super::{error::BpfError, map::Map},
    attach_all,
};
use libbpf_rs::{MapCore as _, MapFlags};
use plimsoll_wire::abi;
use std::{io, os::fd::OwnedFd};
use zerocopy::FromBytes as _;

/// The programs that tell of reads, by either way.
const READS: [&str; 2] = ["on_read", "on_read_call"];

#[derive(Debug)]
pub(super) struct Reads {
    reads: Vec<(&'static str, OwnedFd)>,
    /// Faults are far fewer than reads, and which blocks of a program are used only they tell: they stay attached.
    faults: Vec<(&'static str, OwnedFd)>,
    attached: Vec<OwnedFd>,
    faults_attached: Vec<OwnedFd>,
    /// By CPU.
    recents: Map,
}

impl Reads {
    pub(super) fn new(programs: Vec<(&'static str, OwnedFd)>, recents: Map) -> Self {
        let (reads, faults) = programs.into_iter().partition(|(name, _)| READS.contains(name));
        Self { reads, faults, attached: Vec::new(), faults_attached: Vec::new(), recents }
    }

    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.reads.is_empty() {
            return Err(BpfError::Missing("use of files"));
        }
        if self.faults_attached.is_empty() {
            self.faults_attached = attach_all(&self.faults)?;
        }
        if self.attached.is_empty() {
            self.attached = attach_all(&self.reads)?;
        }
        Ok(())
    }

    /// Of faults it goes on telling.
    pub(super) fn rest(&mut self) {
        self.attached.clear();
    }

    pub(super) fn detach(&mut self) {
        self.rest();
        self.faults_attached.clear();
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
        let counts = copies.iter().flatten().flat_map(|copy| abi::plimsoll_recent::read_from_prefix(copy));
        Ok(counts.fold(0, |sum, (of_cpu, _)| sum.wrapping_add(of_cpu.events)))
    }
}
