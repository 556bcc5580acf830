//! An allocator of C, by the names of its two functions: whichever library has put them into this process. It lets the
//! benches put the same calls to each allocator; nothing that guards uses it.
#![expect(unsafe_code, reason = "C functions are found by name, and called")]

use core::{
    ffi::{CStr, c_void},
    mem,
    ptr::NonNull,
};

/// Which pair of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// `malloc` and `free`: the C library's, or those of a library loaded before it (`LD_PRELOAD`).
    Malloc,
    /// `tmalloc` and `tfree`.
    Tmalloc,
}

impl Names {
    const fn symbols(self) -> (&'static CStr, &'static CStr) {
        match self {
            Self::Malloc => (c"malloc", c"free"),
            Self::Tmalloc => (c"tmalloc", c"tfree"),
        }
    }
}

/// The two functions.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

/// A block of memory; freed when dropped.
#[derive(Debug)]
pub struct Block<'a> {
    start: NonNull<u8>,
    size_bytes: usize,
    allocator: &'a Allocator,
}

impl Allocator {
    /// Those of this name; `None` where no loaded library has both.
    #[must_use]
    pub fn find(names: Names) -> Option<Self> {
        let (allocate, free) = names.symbols();
        let (allocate, free) = (address_of(allocate)?, address_of(free)?);
        // SAFETY: the C standard's malloc, and the same signature in tmalloc.h; whoever loads a library of these names
        // that means something else has changed what C means in this process.
        let allocate = unsafe {
            mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(usize) -> *mut c_void>(allocate)
        };
        // SAFETY: as above, for free.
        let free = unsafe { mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void)>(free) };
        Some(Self { allocate, free })
    }

    /// So many bytes with any content; `None` where they are refused.
    #[inline]
    #[must_use]
    pub fn allocate(&self, size_bytes: usize) -> Option<Block<'_>> {
        // SAFETY: malloc takes any size.
        let start = unsafe { (self.allocate)(size_bytes) };
        NonNull::new(start.cast()).map(|start| Block { start, size_bytes, allocator: self })
    }
}

impl Block<'_> {
    /// Writes the first byte and one each `step_bytes`. A block that does not begin with a page may end in one that this
    /// leaves out: [`Self::touch_all`] does not.
    #[inline]
    pub fn touch(&mut self, step_bytes: usize) {
        for offset in (0..self.size_bytes).step_by(step_bytes.max(1)) {
            self.write(offset);
        }
    }

    /// As [`Self::touch`], and the last byte too, so that no page of it is left out.
    pub fn touch_all(&mut self, page_bytes: usize) {
        self.touch(page_bytes);
        if let Some(last) = self.size_bytes.checked_sub(1) {
            self.write(last);
        }
    }

    #[inline]
    fn write(&mut self, offset: usize) {
        debug_assert!(offset < self.size_bytes, "outside of the block");
        // SAFETY: both callers stay below the size, and so within the allocation.
        let byte = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: the byte is this block's alone; volatile, since nobody reads it and it must be written.
        unsafe { byte.write_volatile(1) };
    }
}

impl Drop for Block<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this allocator gave it, nobody else has it, and it is freed once.
        unsafe { (self.allocator.free)(self.start.as_ptr().cast()) };
    }
}

// SAFETY: the block is this value's alone, and both allocators take a block back on any thread.
unsafe impl Send for Block<'_> {}

fn address_of(symbol: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: RTLD_DEFAULT is the handle of everything that is loaded; the name ends with its zero.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) })
}

#[cfg(test)]
mod tests;
