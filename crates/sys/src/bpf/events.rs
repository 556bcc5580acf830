//! The ring buffer of the limits programs.

use super::{error::BpfError, map::Map};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use plimsoll_wire::record::{self, Record};
use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    os::fd::{BorrowedFd, RawFd},
    path::Path,
    rc::Rc,
};

/// Records taken out of the ring buffer at once: as many as it holds of ours (256 KiB / 272 bytes).
const BATCH_RECORDS: usize = 1024;

/// The reading end. One reader at a time, by the kernel's rules: two would share the records between them.
pub struct Events {
    ring: RingBuffer<'static>,
    queue: Rc<RefCell<Queue>>,
}

#[derive(Debug)]
struct Queue {
    records: VecDeque<Record>,
    undecodable: u64,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn open(path: &Path) -> Result<Self, BpfError> {
        let map = Map::open(path, "records")?;
        let queue =
            Rc::new(RefCell::new(Queue { records: VecDeque::with_capacity(BATCH_RECORDS), undecodable: 0 }));
        let filled = Rc::clone(&queue);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map.handle(), move |bytes| {
                let mut queue = filled.borrow_mut();
                match record::decode(bytes) {
                    Ok(record) => queue.records.push_back(record),
                    Err(_) => queue.undecodable = queue.undecodable.saturating_add(1),
                }
                0
            })
            .map_err(|error| BpfError::Events(error.to_string()))?;
        let ring = builder.build().map_err(|error| BpfError::Events(error.to_string()))?;
        Ok(Self { ring, queue })
    }

    /// To be polled for input.
    pub fn raw_fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// The same, borrowed.
    #[expect(unsafe_code, reason = "the descriptor lives in libbpf's ring buffer")]
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: libbpf closes the descriptor when `ring` is dropped, which the borrow of `self` outlives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// The next record, oldest first.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, BpfError> {
        let waiting = self.queue.borrow_mut().records.pop_front();
        if waiting.is_some() {
            return Ok(waiting);
        }
        self.ring.consume().map_err(|error| BpfError::Events(error.to_string()))?;
        Ok(self.queue.borrow_mut().records.pop_front())
    }

    /// Records dropped because they could not be decoded.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.queue.borrow().undecodable
    }
}
