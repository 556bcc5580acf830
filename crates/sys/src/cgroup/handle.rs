//! A cgroup by its number alone: `open_by_handle_at(2)`.
#![expect(unsafe_code, reason = "no safe wrapper of open_by_handle_at(2) exists")]

use core::fmt;
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Which cgroup: the number of its folder, which is the kernel's own cgroup id (`bpf_get_current_cgroup_id()`).
/// 64-bit kernels give no number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(
    /// The number.
    pub u64,
);

impl fmt::Display for CgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `FILEID_KERNFS` of `linux/exportfs.h`: the handle is the 64-bit number and nothing else.
const FILEID_KERNFS: i32 = 0xfe;

/// `struct file_handle`, with room for such a handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    id: [u8; 8],
}

/// Opens the folder of a cgroup. `tree` is any folder of the mounted tree. `ESTALE` when no cgroup has the number.
pub(crate) fn open_by_id(tree: BorrowedFd<'_>, id: CgroupId) -> Result<OwnedFd, Errno> {
    let mut handle = Handle { bytes: 8, kind: FILEID_KERNFS, id: id.0.to_ne_bytes() };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: open_by_handle_at(mount_fd, handle, flags) reads the handle: two 32-bit numbers and as many bytes as
    // the first of them says, which is what `Handle` has; it writes nothing. The descriptor is open while it is
    // borrowed.
    let result =
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, tree.as_raw_fd(), &raw mut handle, flags) };
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows of it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        Ok(_) | Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
