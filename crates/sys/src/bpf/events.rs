//! The ring buffer of the limits programs: a record is given back to the ring when the next one is asked for.

use super::{
    error::BpfError,
    ring::{Place, Ring},
};
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
        loop {
            self.ring.give_back()?;
            let Some(place) = self.ring.next()? else {
                return Ok(None);
            };
            match self.decode(place) {
                Some(record) => return Ok(Some(record)),
                None => self.undecodable = self.undecodable.saturating_add(1),
            }
        }
    }

    fn decode(&self, place: Place) -> Option<Record> {
        let mut bytes = [0; size_of::<abi::plimsoll_record>()];
        self.ring.copy(place, &mut bytes).then_some(())?;
        record::decode(&bytes).ok()
    }

    /// Records dropped because they could not be decoded.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.undecodable
    }
}
