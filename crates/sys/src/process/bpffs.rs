//! The filesystem that pinned BPF programs and maps live in.

use super::ProcessError;
use rustix::{
    fs::statfs,
    io::Errno,
    mount::{MountFlags, mount},
};
use std::path::Path;

/// Where every distribution mounts it, and the only place where it is mounted by us.
pub const BPFFS_PATH: &str = "/sys/fs/bpf";

/// `BPF_FS_MAGIC` (include/uapi/linux/magic.h).
const BPFFS_MAGIC: u32 = 0xcafe_4a11;

/// What [`try_mount_bpffs`] found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bpffs {
    /// The path lies in such a filesystem.
    Present,
    /// It does now: the filesystem was mounted at [`BPFFS_PATH`].
    Mounted,
    /// The path lies in another filesystem, at a place where nothing is mounted by us.
    Elsewhere,
}

/// Sees to it that `path` lies in a BPF filesystem. `path` itself need not exist yet: its nearest folder that does is
/// looked at. Only below [`BPFFS_PATH`] is anything mounted, and only where there is none.
///
/// # Errors
/// [`ProcessError::Denied`] without `CAP_SYS_ADMIN`, [`ProcessError::Unsupported`] where [`BPFFS_PATH`] does not exist
/// or the kernel has no such filesystem.
pub fn try_mount_bpffs(path: &Path) -> Result<Bpffs, ProcessError> {
    if is_bpffs(path)? {
        return Ok(Bpffs::Present);
    }
    if !path.starts_with(BPFFS_PATH) {
        return Ok(Bpffs::Elsewhere);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("bpf", BPFFS_PATH, "bpf", flags, c"mode=0700") {
        Ok(()) => Ok(Bpffs::Mounted),
        // Somebody else was faster.
        Err(Errno::BUSY) if is_bpffs(path)? => Ok(Bpffs::Present),
        Err(Errno::NODEV) => Err(ProcessError::Unsupported { operation: "mount a BPF filesystem" }),
        Err(errno) => Err(ProcessError::of_machine("mount a BPF filesystem", errno)),
    }
}

/// Whether `path`, or its nearest folder that exists, lies in a BPF filesystem.
///
/// # Errors
/// By what the kernel says.
pub fn is_bpffs(path: &Path) -> Result<bool, ProcessError> {
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        match statfs(folder) {
            Ok(found) => return Ok(u32::try_from(found.f_type) == Ok(BPFFS_MAGIC)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(ProcessError::of_machine("find the filesystem", errno)),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
