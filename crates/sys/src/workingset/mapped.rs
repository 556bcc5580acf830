//! How many pages of a range of this process's addresses are mapped, as `/proc/self/pagemap` tells: a tenth of what it costs
//! to map them again.
#![expect(unsafe_code, reason = "an ioctl that fills a buffer")]

use crate::process::{checked, page_size};
use rustix::ioctl::opcode;
use std::{
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
};

/// Of an entry of the file itself (Documentation/admin-guide/mm/pagemap.rst), and of a region.
const PRESENT: u64 = 1 << 63;
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// Regions that are told of at a time: as many as a chunk has when every second block of it is held.
const REGIONS_MAX: usize = 17;

/// `struct page_region` (include/uapi/linux/fs.h).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`, likewise.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_max: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `/proc/self/pagemap`, and how it is asked.
#[derive(Debug)]
pub(super) struct Mapped {
    map: File,
    /// The kernel counts (`PAGEMAP_SCAN`, Linux 6.7): 1 us for a chunk of 4 KiB pages; else each page is looked at here, 6 us.
    scans: bool,
    page_bytes: u64,
}

impl Mapped {
    /// # Errors
    /// What the kernel says; it need not have the file (`CONFIG_PROC_PAGE_MONITOR`).
    pub(super) fn open() -> io::Result<Self> {
        let map = File::open("/proc/self/pagemap")?;
        let scans = scan(&map, (0, 0), &mut []).is_ok();
        Ok(Self { map, scans, page_bytes: page_size().bytes().0 })
    }

    /// Pages of a range, first address and bytes, that are mapped; `None`: that is not told.
    pub(super) fn pages(&self, range: (u64, u64)) -> Option<u64> {
        if self.scans { self.scan(range) } else { self.read(range) }
    }

    fn scan(&self, range: (u64, u64)) -> Option<u64> {
        let mut regions = [Region::default(); REGIONS_MAX];
        let found = scan(&self.map, range, &mut regions).ok().filter(|found| *found < REGIONS_MAX)?;
        let bytes = regions.iter().take(found).map(|region| region.end.saturating_sub(region.start));
        bytes.fold(0, u64::saturating_add).checked_div(self.page_bytes)
    }

    fn read(&self, (start, bytes): (u64, u64)) -> Option<u64> {
        let first = start.checked_div(self.page_bytes)?;
        let pages = usize::try_from(bytes.checked_div(self.page_bytes)?).ok()?;
        let mut entries = vec![0; pages.checked_mul(8)?];
        self.map.read_exact_at(&mut entries, first.checked_mul(8)?).ok()?;
        let (entries, _) = entries.as_chunks::<8>();
        let present = entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0);
        u64::try_from(present.count()).ok()
    }
}

/// Finds the regions of mapped pages in a range; gives how many there are, at most as many as there is room for.
fn scan(map: &File, (start, bytes): (u64, u64), regions: &mut [Region]) -> io::Result<usize> {
    let number = |size: usize| u64::try_from(size).unwrap_or(0);
    let mut request = Scan {
        size: number(size_of::<Scan>()),
        start,
        end: start.saturating_add(bytes),
        regions: number(regions.as_mut_ptr().expose_provenance()),
        regions_max: number(regions.len()),
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..Scan::default()
    };
    let code = libc::Ioctl::from(opcode::read_write::<Scan>(b'f', 16));
    // SAFETY: the kernel reads and writes the request, which has the size it names, and writes as many regions as
    // `regions_max` says at most; both outlive the call.
    let found = unsafe { libc::ioctl(map.as_raw_fd(), code, &raw mut request) };
    Ok(checked(found.into())?)
}

#[cfg(test)]
mod tests;
