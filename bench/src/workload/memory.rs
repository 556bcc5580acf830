//! Anonymous memory, touched page by page.

use crate::error::BenchError;
use memmap2::{Advice, MmapMut};

/// No mapping of a workload is larger, nor all that one is told to hold: 6 GiB.
pub(super) const BYTES_MAX: u64 = 6 << 30;

pub(crate) use rustix::param::page_size as page_length;

/// The size of a huge page on the architectures with 4 KiB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maps `bytes` of anonymous memory, untouched.
pub(crate) fn map(bytes: u64) -> Result<MmapMut, BenchError> {
    let length = usize::try_from(bytes)
        .ok()
        .filter(|_| bytes > 0 && bytes <= BYTES_MAX)
        .ok_or_else(|| BenchError::malformed("the size of a mapping", &bytes.to_string()))?;
    MmapMut::map_anon(length).map_err(BenchError::io(format!("map {bytes} bytes")))
}

/// Maps `bytes` that prefer huge pages.
pub(crate) fn map_huge(bytes: u64) -> Result<MmapMut, BenchError> {
    let mapping = map(bytes)?;
    mapping.advise(Advice::HugePage).map_err(BenchError::io("madvise MADV_HUGEPAGE"))?;
    Ok(mapping)
}

/// Writes one byte to each unit (a page) of the memory; gives the number of units.
pub(crate) fn touch(memory: &mut [u8], unit_length: usize) -> u64 {
    let mut count = 0;
    for page in memory.chunks_mut(unit_length) {
        if let Some(byte) = page.first_mut() {
            *byte = 1;
            count += 1;
        }
    }
    std::hint::black_box(&memory);
    count
}
