//! Regions: [`REGION_BYTES`] of address space, opened from the front, with one allocator ([TLSF](rlsf::Tlsf)) inside.
//!
//! ```text
//! 0             tags                            data                    end             32 MiB
//! | header, TLSF | a byte per granule of 32      | blocks ... free ...   | closed        |
//! ```
//! Everything that is open is populated, so a block is memory that was granted. Idle memory is given back as **holes**:
//! free blocks that are taken from the allocator, less the pages inside, until somebody asks for those pages again.

use crate::{
    class::{self, GRANULE_BYTES},
    pages,
};
use rlsf::Tlsf;
use std::{
    alloc::Layout,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

/// Regions begin at multiples of this, and so does every large block's mapping: a pointer leads to its header.
pub(crate) const REGION_BYTES: usize = 32 << 20;

const REGION_MAGIC: u64 = 0x746d_616c_6c6f_6331;
/// What a hole is made of: the smallest that is sure to hold a whole page has three.
const HOLE_BYTES_MAX: usize = 1 << 20;
const HOLE_PAGES_MIN: usize = 3;
/// What the allocator keeps behind the last block.
const SENTINEL_BYTES: usize = GRANULE_BYTES;

/// Raised in a forked child: memory of an earlier generation is the parent's, and copied when it is written.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// The present one.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// From here on everything that exists was inherited.
pub(crate) fn next_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Where the mapping around a pointer of ours begins. Never the pointer itself.
#[inline]
pub(crate) fn base_of(block: *mut u8) -> *mut u8 {
    block.map_addr(|address| (address - 1) & !(REGION_BYTES - 1))
}

/// The first words of a region and of a large block's mapping.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) magic: u64,
    pub(crate) generation: u32,
    /// Granted by a coordinator, who is told when it is held no longer.
    pub(crate) asked: bool,
}

impl Head {
    #[inline]
    pub(crate) fn is_region(&self) -> bool {
        self.magic == REGION_MAGIC
    }
}

/// A free block without its inner pages; lies in the first bytes of its own payload.
#[derive(Debug)]
pub(crate) struct Hole {
    next: *mut Hole,
    payload_bytes: usize,
}

impl Hole {
    /// The pages that it is without, each with their bytes: those inside of the block, and those that have the tags of
    /// nothing else.
    fn pages(this: *mut Self) -> [(*mut u8, usize); 2] {
        let page = pages::size();
        let block = this.cast::<u8>();
        // SAFETY: a hole is written before anybody is shown it.
        let end = block.wrapping_add(unsafe { (*this).payload_bytes });
        let tagged = page * GRANULE_BYTES;
        let base = base_of(block);
        let offset = |at: *mut u8| at.addr() - base.addr();
        let first_tag = offset(block).next_multiple_of(tagged) / GRANULE_BYTES;
        let last_tag = offset(end) / tagged * tagged / GRANULE_BYTES;
        let tags = (base.wrapping_add(TAGS_AT + first_tag), last_tag.saturating_sub(first_tag));
        let first = block.map_addr(|address| (address + size_of::<Self>()).next_multiple_of(page));
        let last = end.map_addr(|address| address / page * page);
        [(first, last.addr().saturating_sub(first.addr())), tags]
    }

    fn bytes(this: *mut Self) -> usize {
        Self::pages(this).iter().map(|(_, length)| length).sum()
    }

    /// Backs it again. `false`: the kernel has no more, and a part may be backed.
    pub(crate) fn populate(this: *mut Self) -> bool {
        Self::pages(this).into_iter().all(|(at, length)| pages::populate(at, length))
    }

    /// What [`Self::populate`] backed in vain goes back. Bytes that were backed and are no more.
    pub(crate) fn drop_populated(this: *mut Self) -> usize {
        Self::pages(this).into_iter().map(|(at, length)| pages::drop_populated(at, length)).sum()
    }

    /// `false`: its pages stay.
    fn drop_pages(this: *mut Self) -> bool {
        let dropped = Self::pages(this).into_iter().all(|(at, length)| pages::drop_pages(at, length));
        if !dropped {
            Self::populate(this);
        }
        dropped
    }
}

/// Several holes, in one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holes(pub(crate) *mut Hole);

impl Iterator for Holes {
    type Item = *mut Hole;

    fn next(&mut self) -> Option<*mut Hole> {
        let hole = self.0;
        if hole.is_null() {
            return None;
        }
        // SAFETY: a hole in a list lies in memory of its region that nobody else uses.
        self.0 = unsafe { (*hole).next };
        Some(hole)
    }
}

/// One region. Its arena's lock guards everything but `head`, `arena` and tags of blocks in use.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) head: Head,
    /// The mapping, of which this is the beginning.
    base: *mut u8,
    pub(crate) arena: u32,
    /// Somebody is opening more of it.
    pub(crate) growing: bool,
    pub(crate) next: *mut Region,
    /// Blocks that are used or in a thread's cache, and lists of holes that are being populated.
    live: usize,
    /// Offsets: up to where tags and data are open.
    tags_end: usize,
    data_end: usize,
    /// No free block is as large, as far as is known.
    none_from: usize,
    holes: *mut Hole,
    /// Bytes inside of holes.
    hole_bytes: usize,
    tlsf: Tlsf<'static, u64, u16, 59, 16>,
}

/// Where the tags begin: a multiple of any page size, behind the header.
const TAGS_AT: usize = 64 << 10;
/// Where the data begins.
const DATA_AT: usize = TAGS_AT + REGION_BYTES / GRANULE_BYTES;

const _: () = assert!(size_of::<Region>() <= 8192 && DATA_AT.is_multiple_of(64 << 10));

/// What a region has room for.
pub(crate) const DATA_BYTES_MAX: usize = REGION_BYTES - DATA_AT;

/// What the header takes, in whole pages.
fn header_bytes() -> usize {
    size_of::<Region>().next_multiple_of(pages::size())
}

/// Where the tags of granules before the offset `data_end` end, in whole pages.
fn tags_end_for(data_end: usize) -> usize {
    TAGS_AT + (data_end / GRANULE_BYTES).next_multiple_of(pages::size())
}

/// Where the first page with a tag of data begins.
fn tags_start() -> usize {
    TAGS_AT + (DATA_AT / GRANULE_BYTES) / pages::size() * pages::size()
}

/// Bytes that opening `data_bytes` of a new region takes in all.
pub(crate) fn cost_of_new(data_bytes: usize) -> usize {
    header_bytes() + tags_end_for(DATA_AT + data_bytes) - tags_start() + data_bytes
}

/// What must be opened so that a block of this class is free for certain, in bytes.
pub(crate) fn data_bytes_for(class: usize) -> usize {
    (class::block_bytes(class) + 2 * SENTINEL_BYTES).next_multiple_of(pages::size())
}

/// Maps a region and opens its first `data_bytes`. `asked`: populated as well. `Err`: the kernel has no more, or a region no
/// room for them; bytes that were populated in vain, and are unmapped again.
pub(crate) fn create(data_bytes: usize, asked: bool, arena: u32) -> Result<*mut Region, usize> {
    if data_bytes > DATA_BYTES_MAX {
        return Err(0);
    }
    let base = pages::take_space(REGION_BYTES, REGION_BYTES);
    if base.is_null() {
        return Err(0);
    }
    pages::small_pages_only(base, REGION_BYTES);
    let data_end = DATA_AT + data_bytes;
    let opened = open(base, 0, header_bytes(), asked)
        && open(base, tags_start(), tags_end_for(data_end), asked)
        && open(base, DATA_AT, data_end, asked);
    if !opened {
        let bytes = pages::populated_bytes(base, REGION_BYTES);
        pages::give_space(base, REGION_BYTES);
        return Err(bytes);
    }
    let region = base.cast::<Region>();
    // SAFETY: the header's pages are open, aligned to more than a region needs, and nobody else knows of them.
    unsafe {
        region.write(Region {
            head: Head { magic: REGION_MAGIC, generation: generation(), asked },
            base,
            arena,
            growing: false,
            next: ptr::null_mut(),
            live: 0,
            tags_end: tags_end_for(data_end),
            data_end,
            none_from: usize::MAX,
            holes: ptr::null_mut(),
            hole_bytes: 0,
            tlsf: Tlsf::new(),
        });
    }
    let data = ptr::slice_from_raw_parts_mut(base.wrapping_add(DATA_AT), data_bytes);
    // SAFETY: the data is open, unused, and lives as long as the region.
    unsafe { (*region).tlsf.insert_free_block_ptr(NonNull::new_unchecked(data)) };
    Ok(region)
}

fn open(base: *mut u8, from: usize, to: usize, populate: bool) -> bool {
    let at = base.wrapping_add(from);
    pages::open(at, to - from) && (!populate || pages::populate(at, to - from))
}

impl Region {
    /// The tag of a block: its class plus one, 0 where no block begins. Blocks are pointers into the region's mapping, and so
    /// reach all of it, as a reference to a region would not.
    #[inline]
    pub(crate) fn tag(block: *mut u8) -> *mut u8 {
        block.map_addr(|address| {
            let offset = address & (REGION_BYTES - 1);
            address - offset + TAGS_AT + offset / GRANULE_BYTES
        })
    }

    /// Bytes that can still be opened.
    pub(crate) fn room(&self) -> usize {
        REGION_BYTES - self.data_end
    }

    /// What opening `data_bytes` more takes in all.
    pub(crate) fn cost_of_more(&self, data_bytes: usize) -> usize {
        tags_end_for(self.data_end + data_bytes) - self.tags_end + data_bytes
    }

    /// Opens `data_bytes` behind what is open, for a region marked as growing. The arena's lock is not needed: nobody
    /// else reads or writes what this does. `Err`: the kernel has no more; bytes that were populated in vain, and are not
    /// any more.
    pub(crate) fn open_more(this: *mut Self, data_bytes: usize) -> Result<(), usize> {
        // SAFETY: who marked the region as growing is the only one to change these two.
        let (tags_end, data_end) = unsafe { ((*this).tags_end, (*this).data_end) };
        let base = this.cast::<u8>();
        // SAFETY: as above; `asked` never changes.
        let asked = unsafe { (*this).head.asked };
        let new_end = data_end + data_bytes;
        let opened = open(base, data_end, new_end, asked)
            && (tags_end == tags_end_for(new_end) || open(base, tags_end, tags_end_for(new_end), asked));
        if opened {
            return Ok(());
        }
        Err(pages::drop_populated(base.wrapping_add(data_end), data_bytes)
            + pages::drop_populated(base.wrapping_add(tags_end), tags_end_for(new_end) - tags_end))
    }

    /// What [`Self::open_more`] opened is the allocator's.
    pub(crate) fn add(&mut self, data_bytes: usize) {
        let data = ptr::slice_from_raw_parts_mut(self.base.wrapping_add(self.data_end), data_bytes);
        // SAFETY: the data is open, unused, follows what the allocator has, and lives as long as the region.
        unsafe { self.tlsf.append_free_block_ptr(NonNull::new_unchecked(data)) };
        self.data_end += data_bytes;
        self.tags_end = tags_end_for(self.data_end);
        self.none_from = usize::MAX;
    }

    /// A block of this class, if one is free.
    pub(crate) fn allocate(&mut self, class: usize) -> Option<NonNull<u8>> {
        let bytes = class::block_bytes(class);
        if bytes >= self.none_from {
            return None;
        }
        let Some(block) = self.take(class::payload_bytes(class)) else {
            self.none_from = bytes;
            return None;
        };
        self.live += 1;
        let tag = Self::tag(block.as_ptr());
        // SAFETY: tags of opened data are open; this block's is nobody else's.
        unsafe { tag.write(u8::try_from(class + 1).unwrap_or(u8::MAX)) };
        Some(block)
    }

    /// A block that [`Self::allocate`] gave is free again.
    ///
    /// # Safety
    /// It is used by nobody, and is this region's.
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>) {
        // SAFETY: the tag of a block.
        unsafe { Self::tag(block.as_ptr()).write(0) };
        // SAFETY: this allocator gave it, with the alignment of every block.
        unsafe { self.tlsf.deallocate(block, class::BLOCK_HEADER_BYTES) };
        self.live -= 1;
        self.none_from = usize::MAX;
    }

    fn take(&mut self, payload_bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(payload_bytes, class::BLOCK_HEADER_BYTES).ok()?;
        self.tlsf.allocate(layout)
    }

    /// Whether no block of it is used or cached, and nobody opens more.
    pub(crate) fn is_idle(&self) -> bool {
        self.live == 0 && !self.growing
    }

    /// Bytes that are backed by pages.
    pub(crate) fn backed_bytes(&self) -> usize {
        header_bytes() + self.tags_end - tags_start() + self.data_end - DATA_AT - self.hole_bytes
    }

    /// Gives back pages of free blocks until `wanted` bytes are, or no more can be. How many it gave.
    pub(crate) fn punch(&mut self, wanted: usize) -> usize {
        let mut given = 0;
        let mut bytes = HOLE_BYTES_MAX.max(HOLE_PAGES_MIN * pages::size());
        while bytes >= HOLE_PAGES_MIN * pages::size() && given < wanted {
            let payload_bytes = bytes - class::BLOCK_HEADER_BYTES;
            let Some(block) = self.take(payload_bytes) else {
                bytes /= 2;
                continue;
            };
            let hole = block.as_ptr().cast::<Hole>();
            // SAFETY: the block is at least three pages, aligned to 16, and nobody's.
            unsafe { hole.write(Hole { next: self.holes, payload_bytes }) };
            if !Hole::drop_pages(hole) {
                // SAFETY: taken just now, and nobody's.
                unsafe { self.tlsf.deallocate(block, class::BLOCK_HEADER_BYTES) };
                return given;
            }
            self.holes = hole;
            self.hole_bytes += Hole::bytes(hole);
            given += Hole::bytes(hole);
        }
        given
    }

    /// The bytes of its smallest hole that a block of this class fits in.
    pub(crate) fn smallest_hole(&self, class: usize) -> Option<usize> {
        // SAFETY: holes of this region, which its arena's lock guards.
        let fits = |hole: &*mut Hole| unsafe { (**hole).payload_bytes } >= class::payload_bytes(class);
        Holes(self.holes).filter(fits).map(Hole::bytes).min()
    }

    /// Takes holes off the list: one of `first` bytes that a block of this class fits in, then more up to `wanted` bytes.
    /// Until they come back, by [`Self::keep_holes`] or [`Self::fill_holes`], the region counts as used: it is not unmapped
    /// under who populates them without the lock.
    pub(crate) fn take_holes(&mut self, class: usize, first: usize, wanted: usize) -> (Holes, usize) {
        let mut taken = ptr::null_mut();
        let mut bytes = 0;
        let mut link = &raw mut self.holes;
        // SAFETY: links lead through this region's holes, which its arena's lock guards.
        while let Some(hole) = NonNull::new(unsafe { *link }) {
            let hole = hole.as_ptr();
            // SAFETY: as above.
            let fits = unsafe { (*hole).payload_bytes } >= class::payload_bytes(class);
            let inside = Hole::bytes(hole);
            if if bytes == 0 { fits && inside == first } else { bytes + inside <= wanted } {
                bytes += inside;
                // SAFETY: as above; the hole moves from one list to the other.
                unsafe {
                    *link = (*hole).next;
                    (*hole).next = taken;
                }
                taken = hole;
            } else {
                // SAFETY: as above.
                link = unsafe { &raw mut (*hole).next };
            }
        }
        self.live += usize::from(!taken.is_null());
        (Holes(taken), bytes)
    }

    /// Holes come back as they went.
    pub(crate) fn keep_holes(&mut self, holes: Holes) {
        self.live -= usize::from(!holes.0.is_null());
        for hole in holes {
            // SAFETY: the list is read before its link changes; the hole is this region's.
            unsafe { (*hole).next = self.holes };
            self.holes = hole;
        }
    }

    /// Holes whose pages are there again are free blocks.
    pub(crate) fn fill_holes(&mut self, holes: Holes) {
        self.live -= usize::from(!holes.0.is_null());
        for hole in holes {
            self.hole_bytes -= Hole::bytes(hole);
            // SAFETY: the allocator gave the block, with the alignment of every block; nobody uses it.
            unsafe { self.tlsf.deallocate(NonNull::new_unchecked(hole.cast()), class::BLOCK_HEADER_BYTES) };
        }
        self.none_from = usize::MAX;
    }

    /// Unmaps it, and tells how many bytes nobody holds any more.
    ///
    /// # Safety
    /// It is idle, and no list leads to it.
    pub(crate) unsafe fn destroy(this: *mut Self) -> usize {
        // SAFETY: the caller is the only one who knows it.
        let bytes = unsafe { (*this).backed_bytes() };
        pages::give_space(this.cast(), REGION_BYTES);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_whose_holes_are_being_populated_is_not_idle() {
        const CLASS: usize = 0;
        let region = create(4 << 20, true, 0).unwrap_or(ptr::null_mut());
        assert!(!region.is_null());
        // SAFETY: nobody else knows the region.
        let state = unsafe { &mut *region };
        assert!(state.punch(usize::MAX) > 3 << 20 && state.is_idle());
        for fill in [false, true] {
            let first = state.smallest_hole(CLASS).unwrap_or(0);
            let (holes, bytes) = state.take_holes(CLASS, first, 1 << 20);
            assert!(bytes >= first && first > 0 && !state.is_idle());
            if fill {
                assert!(holes.into_iter().all(Hole::populate));
                state.fill_holes(holes);
            } else {
                state.keep_holes(holes);
            }
            assert!(state.is_idle());
        }
        // SAFETY: it is idle.
        unsafe { Region::destroy(region) };
    }

    #[test]
    fn memory_that_is_locked_is_not_said_to_be_given_back() {
        const DATA_BYTES: usize = 2 << 20;
        let region = create(DATA_BYTES, true, 0).unwrap_or(ptr::null_mut());
        assert!(!region.is_null());
        let data = region.cast::<u8>().wrapping_add(DATA_AT);
        // SAFETY: locking changes no contents.
        assert_eq!(unsafe { libc::mlock(data.cast(), DATA_BYTES) }, 0);
        // SAFETY: nobody else knows the region.
        let state = unsafe { &mut *region };
        assert_eq!(state.punch(usize::MAX), 0);
        assert_eq!(pages::populated_bytes(data, DATA_BYTES), DATA_BYTES);
        assert!(state.smallest_hole(0).is_none() && state.take(DATA_BYTES / 2).is_some());
        // SAFETY: nobody uses it.
        unsafe { Region::destroy(region) };
    }

    #[test]
    fn a_region_is_not_opened_past_its_end() {
        assert_eq!(create(DATA_BYTES_MAX + pages::size(), false, 0), Err(0));
    }
}
