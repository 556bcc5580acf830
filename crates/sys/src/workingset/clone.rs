//! Private clones of mounts: what is open on one does not hold up the `umount` of the mount it was cloned from.
#![expect(unsafe_code, reason = "no safe wrapper of mount_setattr(2) exists")]

use super::Refusal;
use crate::process::checked;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
};
use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

/// How often a look-up is tried again: any rename or mount elsewhere disturbs it, and where containers start there are many
/// at a time. Each takes some microseconds.
const TRIES: u32 = 64;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
#[derive(Debug)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// `MOUNT_ATTR_RDONLY`, `_NOSUID`, `_NODEV`, `_NOEXEC`, `_NOATIME`, `__ATIME` of `linux/mount.h`.
const READ_ONLY: u64 = 0x01;
const NO_SUID: u64 = 0x02;
const NO_DEVICES: u64 = 0x04;
const NO_EXEC: u64 = 0x08;
const NO_ATIME: u64 = 0x10;
const ATIME_MASK: u64 = 0x70;

/// Opens the place of a mount, sure that it is that mount, without waiting for anybody: the whole path has to be in the
/// kernel's cache of names, in which a mount keeps it. So neither an automount is set off nor a server asked that is
/// mounted further up.
pub(super) fn find(root: BorrowedFd<'_>, path: &[u8], id: u32) -> Result<OwnedFd, Refusal> {
    let below = path.strip_prefix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(b".");
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    let place = loop {
        match openat2(root, below, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(place) => break place,
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries = tries.saturating_add(1),
            Err(_) => return Err(Refusal::Unreachable),
        }
    };
    let found = statx(&place, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    match found {
        // Otherwise another is mounted over it.
        Ok(found) if found.stx_mnt_id == u64::from(id) => Ok(place),
        Ok(_) | Err(_) => Err(Refusal::Unreachable),
    }
}

/// A private clone of a mount, without what is mounted below it. It is part of no tree, so nobody sees it
/// and nothing is mounted into it; reading by it changes no time of access, opening a device by it is impossible.
#[derive(Debug)]
pub(super) struct PrivateMount {
    /// Opens nothing (`O_PATH`), and such a descriptor is none to `open_by_handle_at`.
    tree: OwnedFd,
    folder: OnceLock<OwnedFd>,
}

impl PrivateMount {
    /// Opens nothing.
    pub(super) fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Its folder, opened when it is wanted for the first time: that may ask a scanner, or the disk (btrfs).
    pub(super) fn folder(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder.as_fd());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&self.tree, c".", flags, Mode::empty())?;
        Ok(self.folder.get_or_init(|| opened).as_fd())
    }
}

/// Clones a mount for this process alone. Waits for nobody.
pub(super) fn of(place: BorrowedFd<'_>) -> Result<PrivateMount, Errno> {
    // A mount of a single file is of no use here.
    let seen = statx(place, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    if FileType::from_raw_mode(seen.stx_mode.into()) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let clone = open_tree(place, c"", flags)?;
    let attributes = Attributes {
        set: NO_SUID | NO_DEVICES | NO_EXEC | NO_ATIME,
        // A mount that is read-only in this namespace alone would make `access` say that the filesystem is.
        clear: READ_ONLY | ATIME_MASK,
        // A clone of a shared mount is its peer: what is mounted there would be mounted here, too.
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: mount_setattr(dirfd, path, flags, attributes, size) reads the empty path and `size` bytes of attributes,
    // laid out as `struct mount_attr`, and writes nothing. The descriptor is open, and its mount is this process's own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            clone.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    checked(result)?;
    Ok(PrivateMount { tree: clone, folder: OnceLock::new() })
}
