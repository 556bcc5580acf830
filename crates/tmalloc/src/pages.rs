//! Every call on address space. Sizes are bytes and multiples of [`size`], addresses begin a page, unless said otherwise.

use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Linux 5.14; `libc` names it on some targets only.
const MADV_POPULATE_WRITE: libc::c_int = 23;

static SIZE: AtomicUsize = AtomicUsize::new(0);

/// A page of this machine, in bytes.
pub(crate) fn size() -> usize {
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: takes a number, returns a number.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = usize::try_from(size).unwrap_or(4096);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// `bytes` made whole pages; `None` where that is no number any more.
pub(crate) fn round_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(size())
}

/// A new mapping, at `at` if there is room; null when there is none. By the system call: where the library stands in for
/// malloc(3), mmap(2) is the library's own, too.
pub(crate) fn map(at: *mut u8, length: usize, protection: libc::c_int, flags: libc::c_int) -> *mut u8 {
    // SAFETY: without MAP_FIXED a new mapping replaces nothing.
    let at = unsafe {
        libc::syscall(libc::SYS_mmap, at, length, protection, flags & !libc::MAP_FIXED, -1, 0_usize)
    };
    usize::try_from(at).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// Address space nobody can touch, starting at a multiple of `alignment` (a power of two, at least a page); null when
/// there is none.
pub(crate) fn take_space(length: usize, alignment: usize) -> *mut u8 {
    let Some(longer) = length.checked_add(alignment) else { return ptr::null_mut() };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let at = map(ptr::null_mut(), longer, libc::PROT_NONE, flags);
    if at.is_null() {
        return at;
    }
    let before = at.align_offset(alignment);
    let start = at.wrapping_add(before);
    give_space(at, before);
    give_space(start.wrapping_add(length), alignment - before);
    start
}

/// Unmaps; the pages in it are free from here on. Nothing happens for a length of 0.
pub(crate) fn give_space(at: *mut u8, length: usize) {
    if length > 0 {
        // SAFETY: the range was mapped by this module, and whoever owned it says that it is used no more.
        unsafe { libc::syscall(libc::SYS_munmap, at, length) };
    }
}

/// Makes a part of what [`take_space`] gave readable and writable.
pub(crate) fn open(at: *mut u8, length: usize) -> bool {
    // SAFETY: the range belongs to this library; more rights take nothing from anybody.
    unsafe { libc::mprotect(at.cast(), length, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Keeps the kernel from backing the range by more than is touched.
pub(crate) fn small_pages_only(at: *mut u8, length: usize) {
    // SAFETY: advice about a range of this library; contents stay. A kernel without huge pages refuses: as well.
    unsafe { libc::madvise(at.cast(), length, libc::MADV_NOHUGEPAGE) };
}

/// Backs every page of an open range. `false` when the kernel has none; a part may be backed then.
pub(crate) fn populate(at: *mut u8, length: usize) -> bool {
    if length == 0 {
        return true;
    }
    loop {
        // SAFETY: an open range of this library; contents stay.
        if unsafe { libc::madvise(at.cast(), length, MADV_POPULATE_WRITE) } == 0 {
            return true;
        }
        match errno() {
            libc::EINTR | libc::EAGAIN => {}
            libc::EINVAL => return touch(at, length),
            _ => return false,
        }
    }
}

/// What kernels before 5.14 need.
fn touch(at: *mut u8, length: usize) -> bool {
    for offset in (0..length).step_by(size()) {
        // SAFETY: inside an open range that holds nothing yet.
        unsafe { at.wrapping_add(offset).write_volatile(0) };
    }
    true
}

/// Gives the pages back and keeps the space: what is read there next is 0, and what is written is charged anew. `false`: they
/// stay, as in a program that locks its memory.
pub(crate) fn drop_pages(at: *mut u8, length: usize) -> bool {
    // SAFETY: a range of this library in which nothing is kept.
    length == 0 || unsafe { libc::madvise(at.cast(), length, libc::MADV_DONTNEED) } == 0
}

/// The same after a part of the range was populated. Bytes that were and are no more.
pub(crate) fn drop_populated(at: *mut u8, length: usize) -> usize {
    let bytes = populated_bytes(at, length);
    if drop_pages(at, length) { bytes } else { 0 }
}

/// How much of a mapped range is backed by pages, in bytes.
pub(crate) fn populated_bytes(at: *mut u8, length: usize) -> usize {
    let mut backed = [0_u8; 1024];
    let piece = backed.len() * size();
    let mut pages = 0;
    for offset in (0..length).step_by(piece) {
        let bytes = piece.min(length - offset);
        // SAFETY: the kernel writes a byte for each page of the piece, for which there is room.
        let told = unsafe { libc::mincore(at.wrapping_add(offset).cast(), bytes, backed.as_mut_ptr()) } == 0;
        if told {
            pages += backed.iter().take(bytes.div_ceil(size())).filter(|page| **page & 1 == 1).count();
        }
    }
    pages * size()
}

/// Moves a mapping onto space taken by [`take_space`], page by page without a copy. `false`: nothing moved, but the space may
/// be somebody else's by now, since the kernel unmaps what it would replace before it looks any further.
pub(crate) fn carry(from: *mut u8, length: usize, to: *mut u8) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges belong to this library, and nothing is kept in the one that is replaced.
    unsafe { libc::syscall(libc::SYS_mremap, from, length, length, flags, to) != -1 }
}

/// The calling thread's errno.
pub(crate) fn errno() -> libc::c_int {
    // SAFETY: the thread's own errno always exists.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(code: libc::c_int) {
    // SAFETY: the thread's own errno always exists.
    unsafe { *libc::__errno_location() = code };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_populated_is_counted_and_nothing_else() {
        let length = 3000 * size();
        let at = take_space(length, size());
        assert!(!at.is_null() && populated_bytes(at, length) == 0);
        assert!(open(at, length));
        small_pages_only(at, length);
        assert!(populate(at.wrapping_add(1020 * size()), 10 * size()));
        assert_eq!(populated_bytes(at, length), 10 * size());
        assert_eq!(drop_populated(at, length), 10 * size());
        assert_eq!(populated_bytes(at, length), 0);
        give_space(at, length);
    }
}
