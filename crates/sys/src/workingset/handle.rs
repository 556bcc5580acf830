//! A file by its inode and generation alone: handles as each filesystem encodes them.
#![expect(unsafe_code, reason = "no safe wrapper of name_to_handle_at(2) and open_by_handle_at(2) exists")]

use plimsoll_policy::workingset::FileId;
use rustix::{
    fs::{AtFlags, OFlags, StatxFlags, statx},
    io::Errno,
    ioctl,
};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `MAX_HANDLE_SZ` of `linux/exportfs.h`.
const HANDLE_BYTES_MAX: usize = 128;

/// `FILEID_BTRFS_WITHOUT_PARENT` of `linux/exportfs.h`.
const FILEID_BTRFS: i32 = 0x4d;

/// `struct file_handle`, with room for any.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

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
        match name(folder) {
            Ok(handle) => Ok(Self::of(&handle, found.stx_ino)),
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn of(handle: &Handle, inode: u64) -> Option<Self> {
        let data = handle.data.get(..usize::try_from(handle.bytes).ok()?)?;
        let word = |at: usize| data.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes);
        let long = |at: usize| data.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes);
        let layout = match (data.len(), handle.kind) {
            (20, FILEID_BTRFS) if long(0)? == inode => Layout::Subvolume(long(8)?),
            (8, _) if u64::from(word(0)?) == inode => Layout::Inode32,
            (12, _) if long(0)? == inode => Layout::Inode64,
            (12, _) if u64::from(word(0)?) << 32 | u64::from(word(4)?) == inode => Layout::Halves,
            _ => return None,
        };
        Some(Self { kind: handle.kind, layout })
    }

    /// The handle of a file; `None` where its inode does not fit.
    pub(super) fn handle(self, file: FileId) -> Option<Handle> {
        let mut data = [0; HANDLE_BYTES_MAX];
        let mut bytes = 0_usize;
        let mut put = |part: &[u8]| -> Option<()> {
            let end = bytes.checked_add(part.len())?;
            data.get_mut(bytes..end)?.copy_from_slice(part);
            bytes = end;
            Some(())
        };
        match self.layout {
            Layout::Inode32 => put(&u32::try_from(file.inode).ok()?.to_ne_bytes())?,
            Layout::Inode64 => put(&file.inode.to_ne_bytes())?,
            Layout::Halves => {
                put(&u32::try_from(file.inode >> 32).ok()?.to_ne_bytes())?;
                put(&u32::try_from(file.inode & u64::from(u32::MAX)).ok()?.to_ne_bytes())?;
            }
            Layout::Subvolume(subvolume) => {
                put(&file.inode.to_ne_bytes())?;
                put(&subvolume.to_ne_bytes())?;
            }
        }
        put(&file.generation.to_ne_bytes())?;
        Some(Handle { bytes: u32::try_from(bytes).ok()?, kind: self.kind, data })
    }
}

/// The handle of an open file or folder.
fn name(of: BorrowedFd<'_>) -> Result<Handle, Errno> {
    let mut handle =
        Handle { bytes: u32::try_from(HANDLE_BYTES_MAX).unwrap_or(0), kind: 0, data: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    // SAFETY: name_to_handle_at(dirfd, path, handle, mount_id, flags) reads the empty path, writes at most as many
    // bytes of handle as its first field says, which `data` has, and one int. The descriptor is open while it is
    // borrowed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            of.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if result == 0 { Ok(handle) } else { Err(last_errno()) }
}

/// Opens what a handle names. `mount` is anything open on the same filesystem, by a mount that allows it. `ESTALE` when
/// there is no such inode, or its generation is another.
pub(super) fn open(mount: BorrowedFd<'_>, handle: &Handle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = libc::c_int::try_from(flags.bits()).unwrap_or(libc::O_PATH);
    // SAFETY: open_by_handle_at(mount_fd, handle, flags) reads the handle, whose first field says no more bytes than
    // `data` has, and writes nothing. The descriptor is open while it is borrowed.
    let result = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), std::ptr::from_ref(handle), flags)
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows of it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        Ok(_) | Err(_) => Err(last_errno()),
    }
}

/// The generation of an open file's inode (`FS_IOC_GETVERSION`). `ENOTTY` where its filesystem does not tell.
pub(super) fn generation(of: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut words = [0_u32; 2];
    let request = ioctl::opcode::read::<libc::c_long>(b'v', 1);
    // SAFETY: the request's number says that up to a `long` is written, for which `words` has room; filesystems write
    // 32 bits of it.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), libc::Ioctl::from(request), words.as_mut_ptr()) };
    match words {
        [generation, _] if result == 0 => Ok(generation),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
