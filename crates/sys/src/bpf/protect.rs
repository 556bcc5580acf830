//! Executables that are never victims, as the programs recognise them.

use plimsoll_wire::abi;
use rustix::fs::{FileType, StatFs};
use std::path::Path;

/// File systems whose `stat` tells another device number than the kernel's super block (btrfs subvolumes, overlayfs,
/// bcachefs; magic numbers of include/uapi/linux/magic.h): there the inode number alone decides.
const DEVICE_DIFFERS: [u64; 3] = [0x9123_683e, 0x794c_7630, 0xca45_1a4e];

/// A root-owned executable, by inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExeKey {
    inode: u64,
    device: u32,
}

impl ExeKey {
    /// The executable at `path`, links followed. `None` when it is absent, no regular file, or not root's: a file that
    /// a user owns protects nobody.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let stat = rustix::fs::stat(path).ok()?;
        if stat.st_uid != 0 || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let device_differs = rustix::fs::statfs(path).is_ok_and(|fs: StatFs| {
            u64::try_from(fs.f_type).is_ok_and(|kind| DEVICE_DIFFERS.contains(&kind))
        });
        let device =
            rustix::fs::major(stat.st_dev).wrapping_shl(20) | (rustix::fs::minor(stat.st_dev) & 0x000f_ffff);
        Some(Self { inode: stat.st_ino, device: if device_differs { 0 } else { device } })
    }

    pub(super) fn raw(self) -> [u8; size_of::<abi::plimsoll_exe>()] {
        let mut raw = [0; size_of::<abi::plimsoll_exe>()];
        let (inode, rest) = raw.split_at_mut(8);
        inode.copy_from_slice(&self.inode.to_ne_bytes());
        let (device, _padding) = rest.split_at_mut(4);
        device.copy_from_slice(&self.device.to_ne_bytes());
        raw
    }
}
