//! Memory for what cannot wait for the library: a fixed piece, handed out from its beginning and never taken back. A process
//! needs a few KiB of it.

use std::{
    cell::UnsafeCell,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

const BYTES: usize = 256 << 10;
/// Before each block: its size.
const HEADER_BYTES: usize = 16;

#[repr(C, align(4096))]
struct Piece(UnsafeCell<[u8; BYTES]>);

// SAFETY: parts of it are handed out, each once.
unsafe impl Sync for Piece {}

static PIECE: Piece = Piece(UnsafeCell::new([0; BYTES]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A block of zeros; `None` when nothing is left.
pub(crate) fn allocate(size: usize, alignment: usize) -> Option<NonNull<u8>> {
    let alignment = alignment.max(HEADER_BYTES);
    let mut place = 0;
    let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
        place = taken.checked_add(HEADER_BYTES)?.checked_next_multiple_of(alignment)?;
        let end = place.checked_add(size)?.checked_next_multiple_of(HEADER_BYTES)?;
        (alignment <= align_of::<Piece>() && end <= BYTES).then_some(end)
    });
    taken.ok()?;
    let block = PIECE.0.get().cast::<u8>().wrapping_add(place);
    // SAFETY: inside of the piece, a header's room behind what was taken before, and aligned to 16.
    unsafe { block.sub(HEADER_BYTES).cast::<usize>().write(size) };
    NonNull::new(block)
}

/// How many bytes a block of here has; `None`: it is none.
#[inline]
pub(crate) fn bytes_of(block: *const u8) -> Option<usize> {
    let offset = block.addr().wrapping_sub(PIECE.0.get().addr());
    if offset >= BYTES {
        return None;
    }
    // SAFETY: a block of here has its size before it.
    Some(unsafe { block.sub(HEADER_BYTES).cast::<usize>().read() })
}
