//! A ring buffer, read in place: a record is given back to the ring when its reader says so, so that one which was being
//! dealt with when the daemon died is there for the next daemon.
//!
//! libbpf's reader gives a record back before whoever asked has seen it.

use super::{error::BpfError, map::Map, shared::Shared, site::Table as _};
use plimsoll_wire::RecordError;
use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
    sync::atomic::{Ordering, fence},
};

/// Length and page number before each record (kernel/bpf/ringbuf.c: `BPF_RINGBUF_HDR_SZ`).
const HEADER_BYTES: u64 = 8;
/// In the length: not committed yet, or taken back.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The reading end. One reader at a time, by the kernel's rules: two would share the records between them.
#[derive(Debug)]
pub(super) struct Ring {
    map: Map,
    /// What the reader has given back: the first word of the first page.
    consumer: Shared,
    /// How far the programs have come: the first word; the ring follows a page later, twice, so that no record is split.
    producer: Shared,
    page_bytes: usize,
    /// The end of the record that was read last.
    read: u64,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    start: usize,
    /// Of what the program wrote.
    pub(super) length: usize,
}

fn failed(error: &dyn std::fmt::Display) -> BpfError {
    BpfError::Events(error.to_string())
}

impl Ring {
    pub(super) fn open(path: &Path, name: &'static str) -> Result<Self, BpfError> {
        let map = Map::open(path, name)?;
        let page_bytes = rustix::param::page_size();
        let ring_bytes = map.entries_max() as usize;
        let fd = map.handle().as_fd();
        let consumer = Shared::map(fd, 0, page_bytes, true).map_err(|error| failed(&error))?;
        let length = ring_bytes.saturating_mul(2).saturating_add(page_bytes);
        let producer = Shared::map(fd, page_bytes as u64, length, false).map_err(|error| failed(&error))?;
        let read = position(&consumer)?;
        Ok(Self { map, consumer, producer, page_bytes, read })
    }

    /// To be polled for input.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.map.handle().as_fd()
    }

    /// The next record, oldest first; those read before stay in the ring.
    pub(super) fn next(&mut self) -> Result<Option<Place>, BpfError> {
        loop {
            if self.read >= position(&self.producer)? {
                return Ok(None);
            }
            let mask = u64::from(self.map.entries_max()).saturating_sub(1);
            let start =
                usize::try_from(self.read & mask).unwrap_or(usize::MAX).saturating_add(self.page_bytes);
            let header =
                self.producer.half_word(start).ok_or_else(|| failed(&"a record outside the ring"))?;
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return Ok(None);
            }
            let length = header & !DISCARDED;
            self.read =
                self.read.saturating_add(u64::from(length).next_multiple_of(8)).saturating_add(HEADER_BYTES);
            if header & DISCARDED == 0 {
                return Ok(Some(Place { start: start.saturating_add(8), length: length as usize }));
            }
        }
    }

    /// The next record that is one, oldest first; the one before is given back. Those that are none are counted and passed
    /// over.
    pub(super) fn next_decoded<const BYTES: usize, T>(
        &mut self,
        undecodable: &mut u64,
        decode: impl Fn(&[u8]) -> Result<T, RecordError>,
    ) -> Result<Option<T>, BpfError> {
        loop {
            self.give_back()?;
            let Some(place) = self.next()? else {
                return Ok(None);
            };
            let mut bytes = [0; BYTES];
            let copied = self.copy(place, &mut bytes);
            match decode(&bytes) {
                Ok(record) if copied => return Ok(Some(record)),
                Ok(_) | Err(_) => *undecodable = undecodable.saturating_add(1),
            }
        }
    }

    /// Copies a record that was read and not given back; false when `bytes` is not as long as it is.
    pub(super) fn copy(&self, place: Place, bytes: &mut [u8]) -> bool {
        place.length == bytes.len() && self.producer.read(place.start, bytes)
    }

    /// Gives back all that was read. The programs look here for room, and whether the reader has to be woken; the reader
    /// looks for more after it.
    pub(super) fn give_back(&self) -> Result<(), BpfError> {
        let word = self.consumer.word(0).ok_or_else(|| failed(&"no consumer position"))?;
        word.store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        Ok(())
    }
}

fn position(page: &Shared) -> Result<u64, BpfError> {
    let word = page.word(0).ok_or_else(|| BpfError::Events(io::ErrorKind::UnexpectedEof.to_string()))?;
    Ok(word.load(Ordering::Acquire))
}
