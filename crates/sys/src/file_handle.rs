//! Files by handles alone: `name_to_handle_at(2)` and `open_by_handle_at(2)`.
#![expect(unsafe_code, reason = "no safe wrapper of these calls exists")]

use crate::process::checked;
use rustix::{fs::OFlags, io::Errno};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `MAX_HANDLE_SZ` of `linux/exportfs.h`.
const BYTES_MAX: usize = 128;

/// `struct file_handle`, with room for any.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHandle {
    bytes: u32,
    kind: i32,
    data: [u8; BYTES_MAX],
}

impl FileHandle {
    /// Of these parts, one after the other; `None` where there is no room for them.
    pub(crate) fn new(kind: i32, parts: &[&[u8]]) -> Option<Self> {
        let whole = parts.concat();
        let mut data = [0; BYTES_MAX];
        data.get_mut(..whole.len())?.copy_from_slice(&whole);
        Some(Self { bytes: u32::try_from(whole.len()).ok()?, kind, data })
    }

    /// Of an open file or folder.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut handle = Self { bytes: u32::try_from(BYTES_MAX).unwrap_or(0), kind: 0, data: [0; BYTES_MAX] };
        let mut mount: libc::c_int = 0;
        // SAFETY: name_to_handle_at(dirfd, path, handle, mount_id, flags) reads the empty path, writes at most as many
        // bytes of handle as its first field says, which `data` has, and one int. The descriptor is open while it is
        // borrowed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        checked(result).map(|_| handle)
    }

    /// In which way its filesystem puts handles together.
    pub(crate) const fn kind(&self) -> i32 {
        self.kind
    }

    /// What that way makes of the file.
    pub(crate) fn data(&self) -> &[u8] {
        usize::try_from(self.bytes).ok().and_then(|bytes| self.data.get(..bytes)).unwrap_or_default()
    }

    /// Opens what it names. `mount` is anything open on the same filesystem, by a mount that allows it. `ESTALE` when there is
    /// no such inode, or its generation is another.
    pub(crate) fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = libc::c_int::try_from(flags.bits()).unwrap_or(libc::O_PATH);
        // SAFETY: open_by_handle_at(mount_fd, handle, flags) reads the handle, whose first field says no more bytes than
        // `data` has, and writes nothing. The descriptor is open while it is borrowed.
        let result = unsafe {
            libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), std::ptr::from_ref(self), flags)
        };
        let descriptor = i32::try_from(checked(result)?).map_err(|_too_large| Errno::BADF)?;
        // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows of it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}
