//! To open a file by its inode, sure that it is the one, that it may be locked, and that nobody notices.

use super::{HotFile, Mounts, Refusal, clone::PrivateMount, handle, mounts::SwapFiles};
use crate::file_handle::FileHandle;
use plimsoll_policy::workingset::FileId;
use rustix::{
    fs::{Access, AtFlags, CWD, FileType, OFlags, Statx, StatxAttributes, StatxFlags, accessat, statx},
    io::Errno,
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};
use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// The way to a file: everything that opening it takes, so that another thread than the one that looks after the mounts
/// can do it. While there is one, the filesystem stays in use, unseen.
#[derive(Debug)]
pub struct Way {
    file: FileId,
    mount: Arc<PrivateMount>,
    handles: Vec<FileHandle>,
    swap_files: Arc<SwapFiles>,
}

impl Mounts {
    /// Finds the way to a file. Waits for nobody: what it needs is in the kernel's caches, or it is refused.
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::barred`] says it to policy.
    pub fn way(&mut self, file: FileId) -> Result<Way, Refusal> {
        if self.is_leased(file) {
            return Err(Refusal::Leased);
        }
        let swap_files = self.swap_files();
        let device = self.device(file.device)?;
        Ok(Way { file, mount: device.mount(), handles: device.handles(file).collect(), swap_files })
    }
}

impl Way {
    /// Which file it leads to.
    #[must_use]
    pub const fn file(&self) -> FileId {
        self.file
    }

    /// Opens the file for locking.
    ///
    /// It is looked at first by a descriptor that opens nothing (`O_PATH`), which sets off no driver, breaks no lease
    /// and asks no virus scanner. Opening then waits for no lease (`O_NONBLOCK`), but for a scanner that has a
    /// permission mark on the whole filesystem, and for the disk where the inode is not in memory. A file that is open
    /// for writing is opened, too: that it is one is told by the programs in the kernel, since nothing in user space
    /// finds it out without disturbing the writer (a lease, which does, would make a concurrent open fail).
    ///
    /// # Errors
    /// As [`Mounts::way`].
    pub fn open(&self) -> Result<HotFile, Refusal> {
        let mount = self.mount.folder().map_err(|errno| Refusal::of("open the folder of a mount", errno))?;
        let mut last = Refusal::Unreachable;
        let mut found = None;
        for handle in &self.handles {
            match handle.open(mount, OFlags::PATH | OFlags::CLOEXEC) {
                Ok(path) => {
                    found = Some((path, handle));
                    break;
                }
                Err(errno) => last = refused(errno),
            }
        }
        let (path, handle) = found.ok_or(last)?;
        let seen = look(path.as_fd())?;
        self.judge(&seen)?;
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::LARGEFILE;
        let opened = handle.open(mount, flags).map_err(refused)?;
        check_generation(opened.as_fd(), self.file)?;
        if !tells_residency(opened.as_fd(), &seen) {
            return Err(Refusal::Hidden);
        }
        // It may have been removed since.
        if links(opened.as_fd())? == 0 {
            return Err(Refusal::Unlinked);
        }
        Ok(HotFile::new(self.file, opened))
    }

    /// What speaks against the file itself.
    fn judge(&self, seen: &Statx) -> Result<(), Refusal> {
        if FileType::from_raw_mode(seen.stx_mode.into()) != FileType::RegularFile {
            return Err(Refusal::NotRegular);
        }
        if seen.stx_ino != self.file.inode {
            return Err(Refusal::Gone);
        }
        if seen.stx_nlink == 0 {
            return Err(Refusal::Unlinked);
        }
        if seen.stx_attributes.contains(StatxAttributes::DAX) {
            return Err(Refusal::Direct);
        }
        if self.swap_files.contains(&(seen.stx_dev_major, seen.stx_dev_minor, seen.stx_ino)) {
            return Err(Refusal::SwapFile);
        }
        Ok(())
    }
}

fn refused(errno: Errno) -> Refusal {
    match errno {
        Errno::STALE | Errno::NOENT => Refusal::Gone,
        // A lease was taken since the last look.
        Errno::WOULDBLOCK => Refusal::Leased,
        other => Refusal::of("open a file by its inode", other),
    }
}

fn look(path: BorrowedFd<'_>) -> Result<Statx, Refusal> {
    statx(path, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(|errno| Refusal::of("look at a file", errno))
}

/// The handle has been compared already, where the filesystem compares. It cannot where a number is 0, which means
/// 'any' to ext4.
fn check_generation(opened: BorrowedFd<'_>, file: FileId) -> Result<(), Refusal> {
    match handle::generation(opened) {
        Ok(generation) if generation != file.generation => Err(Refusal::Gone),
        // Not every filesystem tells.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether `mincore(2)` tells the truth to this process (`can_do_mincore`): to who owns the file or could
/// write to it. To others every page is said to be resident, and populating them would read the file from the disk.
fn tells_residency(opened: BorrowedFd<'_>, seen: &Statx) -> bool {
    let is_privileged = || {
        let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
        capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::FOWNER))
            || accessat(CWD, by_number, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    };
    seen.stx_uid == geteuid().as_raw() || is_privileged()
}

/// How many names an open file has.
pub(super) fn links(opened: BorrowedFd<'_>) -> Result<u32, Refusal> {
    let found = statx(opened, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::NLINK)
        .map_err(|errno| Refusal::of("count a file's names", errno))?;
    Ok(found.stx_nlink)
}

/// How long an open file is, in bytes.
pub(super) fn length_bytes(opened: &OwnedFd) -> Result<u64, Refusal> {
    let found = statx(opened, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE)
        .map_err(|errno| Refusal::of("measure a file", errno))?;
    Ok(found.stx_size)
}

#[cfg(test)]
mod tests;
