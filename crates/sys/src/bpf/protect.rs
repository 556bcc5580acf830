//! Executables that are never victims, as the programs recognise them.

use super::{error::BpfError, site::Table};
use plimsoll_wire::abi;
use rustix::{
    fs::{FileType, StatFs},
    io::Errno,
};
use std::path::Path;

/// File systems whose `stat` tells another device number than the kernel's super block (btrfs subvolumes, overlayfs,
/// bcachefs; magic numbers of include/uapi/linux/magic.h): there the inode number alone decides.
const DEVICE_DIFFERS: [u64; 3] = [0x9123_683e, 0x794c_7630, 0xca45_1a4e];

/// A root-owned executable, by inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedExe {
    /// Where `stat` finds it: the file system's device number, and the file's number there.
    pub place: (u64, u64),
    /// Protected only while a system user runs it.
    pub of_system: bool,
    /// Replaced by another: only those are protected that run it still. Its number is a new file's once they have ended.
    pub former: bool,
    device_differs: bool,
}

impl ProtectedExe {
    /// The executable at `path`, links followed. `None` when it is absent, no regular file, or not root's: a file that
    /// a user owns protects nobody.
    ///
    /// # Errors
    /// What keeps this from being known.
    pub fn at(path: &Path, of_system: bool) -> Result<Option<Self>, Errno> {
        let stat = match rustix::fs::stat(path) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        if stat.st_uid != 0 || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let device_differs = rustix::fs::statfs(path).is_ok_and(|fs: StatFs| {
            u64::try_from(fs.f_type).is_ok_and(|kind| DEVICE_DIFFERS.contains(&kind))
        });
        Ok(Some(Self { place: (stat.st_dev, stat.st_ino), of_system, former: false, device_differs }))
    }

    /// As it is once another is in its place.
    #[must_use]
    pub const fn replaced(self) -> Self {
        Self { former: true, ..self }
    }

    /// Its key and value in the map.
    pub(super) fn entry(&self) -> ([u8; size_of::<abi::plimsoll_exe>()], u32) {
        let (device, inode) = self.place;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let device = if self.device_differs { 0 } else { major.wrapping_shl(20) | (minor & 0x000f_ffff) };
        let key = zerocopy::transmute!(abi::plimsoll_exe { inode, device, pad: 0 });
        let whose = if self.of_system { abi::PLIMSOLL_EXE_OF_SYSTEM } else { abi::PLIMSOLL_EXE_OF_ANYBODY };
        (key, if self.former { whose | abi::PLIMSOLL_EXE_FORMER } else { whose })
    }
}

/// Has a map of [`abi::PLIMSOLL_PROTECTED_MAX`] entries hold these and no others. What stays is there all the while.
pub(super) fn replace<const N: usize>(
    map: &impl Table,
    wanted: impl Iterator<Item = ([u8; N], u32)> + Clone,
) -> Result<(), BpfError> {
    const MAX: usize = abi::PLIMSOLL_PROTECTED_MAX as usize;
    let (mut keys, mut values) = ([[0; N]; MAX], [0; 4 * MAX]);
    let (count, _all) = map.read_batch(None, keys.as_flattened_mut(), &mut values)?;
    let there = || keys.iter().take(count).zip(values.as_chunks::<4>().0);
    for (key, _) in there() {
        if !wanted.clone().any(|(one, _)| one == *key) {
            map.delete(key)?;
        }
    }
    for (key, value) in wanted {
        if !there().any(|one| one == (&key, &value.to_ne_bytes())) {
            map.write(&key, &value.to_ne_bytes())?;
        }
    }
    Ok(())
}
