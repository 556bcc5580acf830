//! All of several blocks, or none: one request for the sum.
//!
//! The blocks of a transaction lie under one grant, so two transactions never hold a part each and wait for the other's.

use crate::{
    arena, cache,
    class::{self, PAYLOAD_BYTES_MAX},
    client::{self, Patience, Refusal},
    daemonless, heap, large, pages, region,
};
use std::ptr::{self, NonNull};

/// The first list of sizes has room for so many.
const SIZES_MIN: usize = 16;
/// How much of the small blocks one region takes.
const PIECE_BYTES: usize = 16 << 20;
const _: () = assert!(PIECE_BYTES + 2 * PAYLOAD_BYTES_MAX < region::DATA_BYTES_MAX);

/// Sizes that were asked for, and nothing held until [`Transaction::commit`].
#[derive(Debug)]
pub struct Transaction {
    /// In a block of this library.
    sizes: *mut usize,
    count: usize,
    room: usize,
}

// SAFETY: the list is the transaction's own, and blocks belong to no thread.
unsafe impl Send for Transaction {}

impl Transaction {
    /// Begins one.
    #[must_use]
    pub const fn begin() -> Self {
        Self { sizes: ptr::null_mut(), count: 0, room: 0 }
    }

    /// Adds a block of `size` bytes; its place among the blocks. `None`: there is no memory to note it in.
    pub fn reserve(&mut self, size: usize) -> Option<usize> {
        if self.count == self.room {
            self.make_room()?;
        }
        // SAFETY: the list has room for more than `count`.
        unsafe { self.sizes.add(self.count).write(size) };
        self.count += 1;
        Some(self.count - 1)
    }

    /// How many blocks it is for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether it is for no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all blocks, in order, or none. `false`: refused.
    ///
    /// # Panics
    /// Never; `blocks` shorter than [`Self::len`] are refused.
    pub fn commit(self, blocks: &mut [*mut u8]) -> bool {
        let Some(blocks) = blocks.get_mut(..self.count) else { return false };
        blocks.fill(ptr::null_mut());
        let taken = self.take_free(blocks) || self.ask(blocks);
        if !taken {
            give_all_back(blocks);
        }
        taken
    }

    /// Small blocks only, of which there are enough here: nobody has to be asked.
    fn take_free(&self, blocks: &mut [*mut u8]) -> bool {
        self.sizes().iter().all(|size| *size <= PAYLOAD_BYTES_MAX)
            && (self.take(blocks, |_| true, cache::take_free) || {
                give_all_back(blocks);
                false
            })
    }

    /// One grant for all, as much as it takes if nothing were free here.
    fn ask(&self, blocks: &mut [*mut u8]) -> bool {
        let Some(bytes) = self.cost() else { return false };
        let growing = arena::growing(Patience::None);
        match client::reserve(bytes, Patience::None) {
            Ok(grant) => {
                let mut left = grant.bytes;
                let arena = cache::own_arena();
                let opened = self.small_pieces().all(|piece| arena::open_under(&mut left, arena, piece))
                    && self.take(blocks, is_large, |size| large::allocate_under(&mut left, size));
                client::settled(&grant);
                drop(growing);
                // Another thread of the same arena may have been quicker: then it is asked for again.
                opened
                    && self.take(
                        blocks,
                        |size| !is_large(size),
                        |size| cache::take_free(size).or_else(|| heap::allocate(size)),
                    )
            }
            Err(refusal) => {
                drop(growing);
                refusal == Refusal::NoDaemon
                    && daemonless::pass()
                    && self.take(blocks, |_| true, heap::allocate)
            }
        }
    }

    fn sizes(&self) -> &[usize] {
        if self.sizes.is_null() {
            return &[];
        }
        // SAFETY: the list holds `count` sizes.
        unsafe { std::slice::from_raw_parts(self.sizes, self.count) }
    }

    /// Takes those blocks that are `wanted`. `false`: one could not be had.
    fn take(
        &self,
        blocks: &mut [*mut u8],
        wanted: impl Fn(usize) -> bool,
        mut take: impl FnMut(usize) -> Option<NonNull<u8>>,
    ) -> bool {
        let pairs = self.sizes().iter().zip(blocks).filter(|(size, _)| wanted(**size));
        pairs.into_iter().all(|(size, block)| {
            *block = heap::or_null(take(*size));
            !block.is_null()
        })
    }

    /// What the small blocks need opened, in pieces that a region has room for.
    fn small_pieces(&self) -> impl Iterator<Item = usize> {
        let small = self.sizes().iter().filter(|size| **size <= PAYLOAD_BYTES_MAX);
        let classes = small.map(|size| class::class_of(*size));
        let blocks: usize = classes.clone().map(class::block_bytes).sum();
        // Blocks are carved off one after the other, and each free block is good for a size on its list only: the last one
        // of a piece needs as much as if it came alone.
        let last = classes.max().map_or(0, region::data_bytes_for);
        (0..blocks).step_by(PIECE_BYTES).map(move |at| {
            let piece = PIECE_BYTES.min(blocks - at);
            piece.next_multiple_of(pages::size()) + last
        })
    }

    /// What committing populates at most, in bytes.
    fn cost(&self) -> Option<usize> {
        let large = self.sizes().iter().filter(|size| **size > PAYLOAD_BYTES_MAX);
        let mut large = large.map(|size| large::cost(*size));
        let large = large.try_fold(0_usize, |sum, cost| sum.checked_add(cost?))?;
        self.small_pieces().map(region::cost_of_new).try_fold(large, usize::checked_add)
    }

    fn make_room(&mut self) -> Option<()> {
        let room = (self.room * 2).max(SIZES_MIN);
        let bytes = room.checked_mul(size_of::<usize>())?;
        let block = match NonNull::new(self.sizes) {
            None => heap::allocate(bytes)?,
            // SAFETY: the list is the transaction's own block.
            Some(sizes) => unsafe { heap::resize(sizes.cast(), bytes, heap::ALIGNMENT_MIN)? },
        };
        self.sizes = block.as_ptr().cast();
        self.room = room;
        Some(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(sizes) = NonNull::new(self.sizes) {
            // SAFETY: the list is the transaction's own block, and it ends here.
            unsafe { heap::free(sizes.cast()) };
        }
    }
}

fn is_large(size: usize) -> bool {
    size > PAYLOAD_BYTES_MAX
}

fn give_all_back(blocks: &mut [*mut u8]) {
    for block in blocks {
        if let Some(taken) = NonNull::new(*block) {
            // SAFETY: taken above, and shown to nobody.
            unsafe { heap::free(taken) };
        }
        *block = ptr::null_mut();
    }
}
