//! A file by its inode and generation alone: handles as each filesystem encodes them.
#![expect(unsafe_code, reason = "an ioctl that fills a buffer")]

use crate::{file_handle::FileHandle, process::checked};
use plimsoll_policy::workingset::FileId;
use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::Errno,
    ioctl,
};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `FILEID_BTRFS_WITHOUT_PARENT` of `linux/exportfs.h`.
const FILEID_BTRFS: i32 = 0x4d;

/// In which order a filesystem puts inode and generation into a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// 32 bits of inode, generation: the kernel's own (ext4, f2fs, squashfs, erofs).
    Inode32,
    /// 64 bits of inode, generation: xfs.
    Inode64,
    /// 64 bits of inode with the upper half first, generation: erofs since 6.16.
    Halves,
    /// 64 bits of inode, 64 bits of subvolume, generation: btrfs.
    Subvolume(u64),
}

/// How files of one mounted filesystem are named, learned from the folder that is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    kind: i32,
    layout: Layout,
}

impl Format {
    /// Learned from the handle of a folder whose inode is known. `None` where the filesystem has no handles, or puts
    /// them together in a way that is not known here.
    pub(super) fn learn(folder: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let found = statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
        match FileHandle::of(folder) {
            Ok(handle) => Ok(Self::of(&handle, found.stx_ino)),
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn of(handle: &FileHandle, inode: u64) -> Option<Self> {
        let data = handle.data();
        let word = |at: usize| data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes);
        let long = |at: usize| data.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes);
        let layout = match (data.len(), handle.kind()) {
            (20, FILEID_BTRFS) if long(0)? == inode => Layout::Subvolume(long(8)?),
            (8, _) if u64::from(word(0)?) == inode => Layout::Inode32,
            (12, _) if long(0)? == inode => Layout::Inode64,
            (12, _) if u64::from(word(0)?) << 32 | u64::from(word(4)?) == inode => Layout::Halves,
            _ => return None,
        };
        Some(Self { kind: handle.kind(), layout })
    }

    /// The handle of a file; `None` where its inode does not fit.
    pub(super) fn handle(self, file: FileId) -> Option<FileHandle> {
        let (inode, generation) = (file.inode.to_ne_bytes(), file.generation.to_ne_bytes());
        let half = |half: u64| u32::try_from(half).map(u32::to_ne_bytes);
        match self.layout {
            Layout::Inode32 => FileHandle::new(self.kind, &[&half(file.inode).ok()?, &generation]),
            Layout::Inode64 => FileHandle::new(self.kind, &[&inode, &generation]),
            Layout::Halves => {
                let (upper, lower) =
                    (half(file.inode >> 32).ok()?, half(file.inode & u64::from(u32::MAX)).ok()?);
                FileHandle::new(self.kind, &[&upper, &lower, &generation])
            }
            Layout::Subvolume(subvolume) => {
                FileHandle::new(self.kind, &[&inode, &subvolume.to_ne_bytes(), &generation])
            }
        }
    }
}

/// The generation of an open file's inode (`FS_IOC_GETVERSION`). `ENOTTY` where its filesystem does not tell.
pub(super) fn generation(of: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut words = [0_u32; 2];
    let request = ioctl::opcode::read::<libc::c_long>(b'v', 1);
    // SAFETY: the request's number says that up to a `long` is written, for which `words` has room; filesystems write
    // 32 bits of it.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), libc::Ioctl::from(request), words.as_mut_ptr()) };
    let [generation, _] = words;
    checked(result.into()).map(|_| generation)
}

#[cfg(test)]
mod tests;
