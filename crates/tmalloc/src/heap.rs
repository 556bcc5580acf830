//! Blocks: taken, resized, given back. Small ones come from thread caches and arenas, others have mappings of their own.
//!
//! A pointer says where it belongs: whatever it is rounded down to is the header of a region or of a large block, and a small
//! block's class is its tag. Blocks of regions begin 16 bytes behind a multiple of 32; a pointer that does not was aligned
//! further inside of its block, whose address stands right before it.

use crate::{
    cache,
    class::{self, BLOCK_HEADER_BYTES, GRANULE_BYTES, PAYLOAD_BYTES_MAX},
    client::Patience,
    large::{self, Large},
    pages,
    region::{self, Head, Region},
};
use std::{
    alloc::Layout,
    ptr::{self, NonNull},
};

/// What every block is aligned to.
pub(crate) const ALIGNMENT_MIN: usize = 16;

/// The same, of what is free in the thread's cache.
#[inline(always)]
pub(crate) fn cached(size: usize) -> Option<NonNull<u8>> {
    if size > PAYLOAD_BYTES_MAX { None } else { cache::pop(cache::current(), class::class_of(size)) }
}

/// A block of `size` bytes, aligned to [`ALIGNMENT_MIN`].
#[inline(always)]
pub(crate) fn allocate(size: usize) -> Option<NonNull<u8>> {
    if size > PAYLOAD_BYTES_MAX {
        return allocate_large(size, ALIGNMENT_MIN, Patience::None);
    }
    let class = class::class_of(size);
    cache::pop(cache::current(), class).or_else(|| cache::refill(class, Patience::None))
}

/// The same, waiting for it.
pub(crate) fn allocate_patiently(size: usize, patience: Patience) -> Option<NonNull<u8>> {
    if size > PAYLOAD_BYTES_MAX {
        return allocate_large(size, ALIGNMENT_MIN, patience);
    }
    let class = class::class_of(size);
    cache::pop(cache::current(), class).or_else(|| cache::refill(class, patience))
}

/// A block of zeros.
pub(crate) fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    let (block, zeroed) = if size > PAYLOAD_BYTES_MAX {
        large::allocate(size, ALIGNMENT_MIN, Patience::None).ok()?
    } else {
        (allocate(size)?, false)
    };
    if !zeroed {
        // SAFETY: the block has room for that much, and is ours.
        unsafe { block.write_bytes(0, size) };
    }
    Some(block)
}

/// A block aligned to any power of two.
pub(crate) fn allocate_aligned(layout: Layout) -> Option<NonNull<u8>> {
    let (size, alignment) = (layout.size(), layout.align());
    if alignment <= ALIGNMENT_MIN {
        return allocate(size);
    }
    let longer = size.checked_add(alignment)?;
    if longer > PAYLOAD_BYTES_MAX {
        return allocate_large(size, alignment, Patience::None);
    }
    let block = allocate(longer)?.as_ptr();
    let before = block.align_offset(alignment);
    let aligned = block.wrapping_add(before);
    // SAFETY: a block is never aligned to 32, so the pointer is 16 bytes at least into it.
    unsafe { aligned.cast::<*mut u8>().sub(1).write(block) };
    NonNull::new(aligned)
}

#[cold]
fn allocate_large(size: usize, alignment: usize, patience: Patience) -> Option<NonNull<u8>> {
    large::allocate(size, alignment, patience).ok().map(|(block, _zeroed)| block)
}

/// Gives a block back.
///
/// # Safety
/// It came from here, and nobody uses it.
#[inline(always)]
pub(crate) unsafe fn free(pointer: NonNull<u8>) {
    // SAFETY: as the caller promised.
    match unsafe { find(pointer) } {
        Found::Small { block, class } => {
            let cache = cache::current();
            if !cache::push(cache, class, block) {
                keeping_errno(|| cache::overflow(cache, class, block));
            }
        }
        // SAFETY: as above.
        Found::Large(large) => keeping_errno(|| unsafe { large::free(large) }),
        // SAFETY: as above.
        Found::Inherited(block, bytes) => keeping_errno(|| unsafe { drop_inherited(block, bytes) }),
    }
}

/// Giving back changes no errno, as with free(3): programs clean up before they look at it.
fn keeping_errno(give_back: impl FnOnce()) {
    let before = pages::errno();
    give_back();
    pages::set_errno(before);
}

/// What a block holds, in bytes.
///
/// # Safety
/// It came from here and was not given back.
pub(crate) unsafe fn usable_bytes(pointer: NonNull<u8>) -> usize {
    // SAFETY: as the caller promised.
    match unsafe { find(pointer) } {
        Found::Small { block, class } => class::payload_bytes(class) - offset_in(block, pointer),
        // SAFETY: as above.
        Found::Large(large) => unsafe { (*large).usable_bytes() },
        Found::Inherited(block, bytes) => bytes - offset_in(block, pointer),
    }
}

/// Makes a block hold `size` bytes, moving it where it must. `None`: it is as it was.
///
/// # Safety
/// It came from here, and nobody else uses it.
pub(crate) unsafe fn resize(pointer: NonNull<u8>, size: usize, alignment: usize) -> Option<NonNull<u8>> {
    // SAFETY: as the caller promised.
    let found = unsafe { find(pointer) };
    // SAFETY: as above.
    let usable = unsafe { usable_bytes(pointer) };
    match found {
        Found::Small { .. } if size <= usable && size >= usable / 2 => return Some(pointer),
        Found::Large(large) if size > PAYLOAD_BYTES_MAX && alignment <= ALIGNMENT_MIN => {
            // SAFETY: as above.
            if let Some(resized) = unsafe { large::resize(large, size) } {
                return Some(resized);
            }
        }
        Found::Small { .. } | Found::Large(_) | Found::Inherited(..) => {}
    }
    let layout = Layout::from_size_align(size, alignment).ok()?;
    let Some(other) = allocate_aligned(layout) else {
        // A block that is larger than it must be is better than none.
        return (size <= usable).then_some(pointer);
    };
    // SAFETY: both blocks hold that much, and they are two.
    unsafe { pointer.copy_to_nonoverlapping(other, usable.min(size)) };
    // SAFETY: as above.
    unsafe { free(pointer) };
    Some(other)
}

enum Found {
    Small {
        block: NonNull<u8>,
        class: usize,
    },
    Large(*mut Large),
    /// A small block of the parent's, before a fork, with what it holds.
    Inherited(NonNull<u8>, usize),
}

/// # Safety
/// The pointer came from here and was not given back.
#[inline(always)]
unsafe fn find(pointer: NonNull<u8>) -> Found {
    let base = region::base_of(pointer.as_ptr());
    // SAFETY: whatever came from here has a header there.
    let head = unsafe { &*base.cast::<Head>() };
    if head.is_region() {
        let block = if pointer.as_ptr().addr() & (GRANULE_BYTES - 1) == BLOCK_HEADER_BYTES {
            pointer
        } else {
            // SAFETY: pointers aligned further have their block's address before them.
            unsafe { NonNull::new_unchecked(pointer.cast::<*mut u8>().sub(1).read()) }
        };
        // SAFETY: tags of blocks are open.
        let tag = unsafe { Region::tag(block.as_ptr()).read() };
        if tag == 0 {
            misused();
        }
        let class = usize::from(tag) - 1;
        if head.generation == region::generation() {
            return Found::Small { block, class };
        }
        return Found::Inherited(block, class::payload_bytes(class));
    }
    if !Large::is_one(head) {
        misused();
    }
    Found::Large(base.cast())
}

/// A block that was given back before, or never came from here: going on would give its memory to two.
#[cold]
pub(crate) fn misused() -> ! {
    const TEXT: &[u8] = b"tmalloc: freed twice, or not memory of tmalloc\n";
    // SAFETY: writes a text of that length.
    unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
    std::process::abort();
}

fn offset_in(block: NonNull<u8>, pointer: NonNull<u8>) -> usize {
    pointer.addr().get() - block.addr().get()
}

/// A forked child was granted nothing, and a write to what it inherited is a page that nobody granted: the block is used
/// by nobody again. The pages inside of it are given back, which costs none.
///
/// # Safety
/// Nobody uses the block.
#[cold]
unsafe fn drop_inherited(block: NonNull<u8>, bytes: usize) {
    let page = pages::size();
    let start = block.addr().get().next_multiple_of(page);
    let end = (block.addr().get() + bytes) / page * page;
    if end > start {
        pages::drop_pages(block.as_ptr().with_addr(start), end - start);
    }
}

/// What C calls a pointer.
pub(crate) fn or_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}
