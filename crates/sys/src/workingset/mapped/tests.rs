use super::*;
use crate::workingset::testing::PAGE_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

#[test]
fn pages_that_are_mapped_are_counted_in_both_ways() {
    let bytes = usize::try_from(16 * PAGE_BYTES).unwrap();
    let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping where the kernel likes, which nothing else refers to.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }.unwrap();
    for (first, pages) in [(2, 3), (9, 1)] {
        let place = start.wrapping_byte_add(first * 4096);
        // SAFETY: makes pages of this mapping present.
        unsafe { madvise(place, pages * 4096, Advice::LinuxPopulateWrite) }.unwrap();
    }
    let mapped = Mapped::open().unwrap();
    let range = (u64::try_from(start.expose_provenance()).unwrap(), 16 * PAGE_BYTES);
    assert_eq!(mapped.read(range), Some(4));
    assert_eq!(mapped.pages(range), Some(4));
    if !mapped.scans {
        crate::process::testing::skip("the kernel counts no pages (PAGEMAP_SCAN, Linux 6.7)");
    }
    // SAFETY: nothing refers to it any more.
    unsafe { munmap(start, bytes) }.unwrap();
}
