//! Memory that nobody is asked for: a fixed piece, handed out from its beginning and never taken back. What cannot wait for the
//! library has it, of which a process needs a few KiB; and so have a program's first blocks. One that is content with these
//! never connects. It is memory like that of its stack and of the libraries it is linked to, and less.

use std::{
    alloc::Layout,
    cell::UnsafeCell,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

const BYTES: usize = 256 << 10;
/// So much of it is for a program's first blocks.
const FIRST_BYTES: usize = 192 << 10;
/// Before each block: its size.
const HEADER_BYTES: usize = 16;

#[repr(C, align(4096))]
struct Piece(UnsafeCell<[u8; BYTES]>);

// SAFETY: parts of it are handed out, each once.
unsafe impl Sync for Piece {}

static PIECE: Piece = Piece(UnsafeCell::new([0; BYTES]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A block of zeros; `None` when nothing is left.
pub(crate) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    allocate_below(BYTES, layout)
}

/// A block of zeros for a program that has had little so far.
pub(crate) fn allocate_first(layout: Layout) -> Option<NonNull<u8>> {
    // Most calls come when it is all taken.
    if TAKEN.load(Ordering::Relaxed) >= FIRST_BYTES - 2 * HEADER_BYTES {
        return None;
    }
    allocate_below(FIRST_BYTES, layout)
}

fn allocate_below(limit: usize, layout: Layout) -> Option<NonNull<u8>> {
    let (size, alignment) = (layout.size(), layout.align());
    let alignment = alignment.max(HEADER_BYTES);
    let mut place = 0;
    let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
        place = taken.checked_add(HEADER_BYTES)?.checked_next_multiple_of(alignment)?;
        let end = place.checked_add(size)?.checked_next_multiple_of(HEADER_BYTES)?;
        (alignment <= align_of::<Piece>() && end <= limit).then_some(end)
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
