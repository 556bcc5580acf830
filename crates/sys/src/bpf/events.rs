//! The ring buffer of the limits programs: a record is given back to the ring when the next one is asked for.

use super::{error::BpfError, ring::Ring};
use plimsoll_wire::{
    abi,
    record::{self, Record},
};
use std::{os::fd::BorrowedFd, path::Path};

/// The reading end. One reader at a time, by the kernel's rules: two would share the records between them.
#[derive(Debug)]
pub struct Events {
    ring: Ring,
    undecodable: u64,
}

impl Events {
    pub(super) fn open(path: &Path) -> Result<Self, BpfError> {
        Ok(Self { ring: Ring::open(path, "records")?, undecodable: 0 })
    }

    /// To be polled for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// The next record, oldest first; the one before is given back.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it.
    pub fn next_record(&mut self) -> Result<Option<Record>, BpfError> {
        self.ring
            .next_decoded::<{ size_of::<abi::plimsoll_record>() }, _>(&mut self.undecodable, record::decode)
    }

    /// Records dropped because they could not be decoded.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.undecodable
    }
}
