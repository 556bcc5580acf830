//! A piece of a map's memory, shared with the kernel: what is written there outlives this process.

#![expect(unsafe_code, reason = "memory that others write at the same time is reached through raw pointers")]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::{
    io,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

/// Mapped memory. Words in it that others write are reached as atomics; bytes are copied.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: it is owned memory; everything that is shared in it is reached through atomics or by a single owner.
unsafe impl Send for Shared {}
// SAFETY: as above; `write` is the caller's to keep to one thread for each range.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `length` bytes from `offset` of a map.
    pub(super) fn map(fd: BorrowedFd<'_>, offset: u64, length: usize, writable: bool) -> io::Result<Self> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, offset) }?;
        NonNull::new(start.cast())
            .map(|start| Self { start, length, writable })
            .ok_or_else(|| io::Error::other("mapped at address 0"))
    }

    fn at(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: `offset` lies within the mapping, which is one allocation.
        Some(unsafe { self.start.add(offset) })
    }

    /// A word; `None` outside the mapping or not aligned.
    pub(super) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let place = self.at(offset, 8)?.cast::<AtomicU64>();
        if !place.is_aligned() {
            return None;
        }
        // SAFETY: aligned, within the mapping for as long as `self` lives, and everybody reaches it as an atomic.
        Some(unsafe { place.as_ref() })
    }

    /// Half a word.
    pub(super) fn half_word(&self, offset: usize) -> Option<&AtomicU32> {
        let place = self.at(offset, 4)?.cast::<AtomicU32>();
        if !place.is_aligned() {
            return None;
        }
        // SAFETY: as `word`.
        Some(unsafe { place.as_ref() })
    }

    /// Copies bytes out; false outside the mapping.
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, bytes.len()) else {
            return false;
        };
        // SAFETY: both ranges are as long as `bytes`, and ours does not lie in the mapping. Whoever writes this range
        // has done so before the word that told us of it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Copies bytes in; false outside the mapping, or where it is for reading only. One thread at a time for a range.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.at(offset, bytes.len()).filter(|_| self.writable) else {
            return false;
        };
        // SAFETY: both ranges are as long as `bytes`; nobody reads this one before it is told by a word.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the very range that was mapped; no reference into it outlives `self`.
        if let Err(errno) = unsafe { munmap(self.start.as_ptr().cast(), self.length) } {
            debug_assert!(false, "munmap: {errno}");
        }
    }
}
