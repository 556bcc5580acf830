//! A cgroup by its number alone: `open_by_handle_at(2)`.

use crate::file_handle::FileHandle;
use core::fmt;
use rustix::{fs::OFlags, io::Errno};
use std::os::fd::{BorrowedFd, OwnedFd};

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

/// Opens the folder of a cgroup. `tree` is any folder of the mounted tree. `ESTALE` when no cgroup has the number.
pub(crate) fn open_by_id(tree: BorrowedFd<'_>, id: CgroupId) -> Result<OwnedFd, Errno> {
    let handle = FileHandle::new(FILEID_KERNFS, &[&id.0.to_ne_bytes()]).ok_or(Errno::STALE)?;
    handle.open(tree, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
}
