//! One pinned map, read and written without allocating: the kill path uses it.

#![expect(unsafe_code, reason = "libbpf's map calls take raw pointers")]

use super::{
    error::BpfError,
    site::{Table, in_batches},
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, libbpf_sys};
use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

/// A map and its sizes, as the kernel tells them.
#[derive(Debug)]
pub struct Map {
    handle: MapHandle,
    name: &'static str,
}

/// `bpf_map_lookup_batch` or one of its kin.
type BatchOperation = unsafe extern "C" fn(
    i32,
    *mut core::ffi::c_void,
    *mut core::ffi::c_void,
    *mut core::ffi::c_void,
    *mut core::ffi::c_void,
    *mut u32,
    *const libbpf_sys::bpf_map_batch_opts,
) -> i32;

fn outcome(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.saturating_neg())) } else { Ok(()) }
}

impl Map {
    pub(super) fn open(path: &Path, name: &'static str) -> Result<Self, BpfError> {
        MapHandle::from_pinned_path(path).map(|handle| Self { handle, name }).map_err(|error| BpfError::Pin {
            path: path.to_path_buf(),
            operation: "open map",
            cause: error.to_string(),
        })
    }

    pub(super) fn handle(&self) -> &MapHandle {
        &self.handle
    }

    pub(super) fn error(&self, source: io::Error) -> BpfError {
        BpfError::Map { map: self.name, source }
    }

    /// As [`Table::each`], and takes the entries out of the map.
    pub(super) fn take_each<const KEY: usize>(
        &self,
        room: (&mut [u8], &mut [u8]),
        visit: impl FnMut(&[u8; KEY], &[u8]) -> Result<(), BpfError>,
    ) -> Result<(), BpfError> {
        let take = libbpf_sys::bpf_map_lookup_and_delete_batch;
        let batch = |from, keys: &mut [u8], values: &mut [u8]| self.batch(take, from, keys, values);
        in_batches(room, self.value_bytes(), batch, visit)
    }

    fn batch(
        &self,
        operation: BatchOperation,
        cursor: Option<u64>,
        keys: &mut [u8],
        values: &mut [u8],
    ) -> Result<(usize, Option<u64>), BpfError> {
        let room = (keys.len() / self.handle.key_size() as usize).min(values.len() / self.value_bytes());
        let mut count = u32::try_from(room).unwrap_or(u32::MAX);
        let mut cursor_in = cursor.unwrap_or_default();
        let mut cursor_out = 0_u64;
        let start = if cursor.is_some() { (&raw mut cursor_in).cast() } else { std::ptr::null_mut() };
        // SAFETY: `count` entries fit both slices; the cursors are 8 bytes, as long as the longest key read so.
        let result = unsafe {
            operation(
                self.handle.as_fd().as_raw_fd(),
                start,
                (&raw mut cursor_out).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        match outcome(result) {
            Ok(()) => Ok((count as usize, Some(cursor_out))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((count as usize, None)),
            Err(error) => Err(self.error(error)),
        }
    }
}

impl Table for Map {
    fn name(&self) -> &'static str {
        self.name
    }

    fn value_bytes(&self) -> usize {
        self.handle.value_size() as usize
    }

    fn entries_max(&self) -> u32 {
        self.handle.max_entries()
    }

    /// From the `fdinfo` of its descriptor.
    fn memory_bytes(&self) -> Option<u64> {
        let path = format!("/proc/self/fdinfo/{}", self.handle.as_fd().as_raw_fd());
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
    }

    fn read(&self, key: &[u8], value: &mut [u8]) -> Result<bool, BpfError> {
        assert_eq!(key.len(), self.handle.key_size() as usize, "key of map {}", self.name);
        assert_eq!(value.len(), self.value_bytes(), "value of map {}", self.name);
        // SAFETY: both slices are as long as the map's keys and values, checked above, and outlive the call.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.handle.as_fd().as_raw_fd(),
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        };
        match outcome(result) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        self.handle
            .update(key, value, MapFlags::ANY)
            .map_err(|error| self.error(io::Error::other(error.to_string())))
    }

    fn delete(&self, key: &[u8]) -> Result<(), BpfError> {
        self.handle.delete(key).map_err(|error| self.error(io::Error::other(error.to_string())))
    }

    fn read_batch(
        &self,
        cursor: Option<u64>,
        keys: &mut [u8],
        values: &mut [u8],
    ) -> Result<(usize, Option<u64>), BpfError> {
        self.batch(libbpf_sys::bpf_map_lookup_batch, cursor, keys, values)
    }
}
