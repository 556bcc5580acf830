//! The times of a victim's touches, in memory that outlives it: a memfd shared between the victim and the bench.
//!
//! The victim writes the time of each touch just before the touch (`pwrite`, about 0.3 us on the development
//! machine, memory that is charged to nobody since nobody maps it), so that the last stamp before its death is the
//! touch that killed it. A mapping would save the call, but needs code that the compiler cannot check.

use crate::error::BenchError;
use plimsoll_sys::process::clock_monotonic_ns;
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::{File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::FileExt},
};

/// Bytes of one stamp.
const STAMP_BYTES: usize = size_of::<u64>();

/// The bench's side.
#[derive(Debug)]
pub(crate) struct Stamps {
    file: File,
    capacity: usize,
}

impl Stamps {
    /// Room for `capacity` stamps, all 0.
    pub(crate) fn create(capacity: usize) -> Result<Self, BenchError> {
        let fd = memfd_create("plimsoll-bench-stamps", MemfdFlags::CLOEXEC)
            .map_err(BenchError::io("memfd_create"))?;
        let stamps = Self { file: File::from(fd), capacity };
        stamps.clear()?;
        Ok(stamps)
    }

    /// The path under which another process of root opens it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Sets all stamps to 0, which also brings the pages in, so that the victim does not pay for them.
    pub(crate) fn clear(&self) -> Result<(), BenchError> {
        self.file
            .write_all_at(&vec![0; self.capacity * STAMP_BYTES], 0)
            .map_err(BenchError::io("clear the stamps"))
    }

    /// All stamps that were written, by index, with gaps left out.
    pub(crate) fn read(&self) -> Result<Vec<u64>, BenchError> {
        let mut bytes = vec![0; self.capacity * STAMP_BYTES];
        self.file.read_exact_at(&mut bytes, 0).map_err(BenchError::io("read the stamps"))?;
        let (stamps, _) = bytes.as_chunks::<STAMP_BYTES>();
        Ok(stamps.iter().map(|stamp| u64::from_ne_bytes(*stamp)).filter(|stamp| *stamp != 0).collect())
    }
}

/// The victim's side.
#[derive(Debug)]
pub(crate) struct Stamper {
    file: File,
}

impl Stamper {
    /// Opens the bench's stamps; before the victim gives up root.
    pub(crate) fn open(path: &str) -> Result<Self, BenchError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(BenchError::io(format!("open {path}")))?;
        Ok(Self { file })
    }

    /// Stamps the time now at `index`.
    pub(crate) fn stamp(&self, index: u64) -> Result<(), BenchError> {
        let now_ns = clock_monotonic_ns();
        self.file
            .write_all_at(&now_ns.to_ne_bytes(), index * (STAMP_BYTES as u64))
            .map_err(BenchError::io("write a stamp"))
    }
}

#[cfg(test)]
mod tests;
