//! Mounts by the kernel's device number, each held by a private clone while its device is mounted anywhere.

use super::{
    Refusal,
    clone::{self, PrivateMount},
    foreign::{Foreign, read_bounded},
    handle::Format,
};
use crate::file_handle::FileHandle;
use plimsoll_policy::workingset::FileId;
use plimsoll_wire::text::{WriteLease, parse_mount, parse_write_lease, unescape};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Filesystems whose files are opened: they have a page cache of their own, name files by inode and generation, and ask
/// nobody but a disk. Not FUSE, not what a network is needed for, not what lives in memory.
const FILESYSTEMS: [&[u8]; 8] = [b"ext4", b"ext3", b"ext2", b"xfs", b"btrfs", b"f2fs", b"squashfs", b"erofs"];

/// Mounts of one device that are tried; subvolumes of one btrfs that are.
const PLACES_MAX: usize = 8;
const FORMATS_MAX: usize = 64;

/// Of the kernel's number of a device, those that tell which of its major number it is (`MKDEV`, linux/kdev_t.h).
const MINOR_BITS: u32 = 20;

/// A disk may lie on others, so many deep.
const LAYERS_MAX: u8 = 4;

/// Device (as `stat` tells it) and inode of files that are swapped to.
pub(super) type SwapFiles = BTreeSet<(u32, u32, u64)>;

/// One device as it is reached.
#[derive(Debug)]
pub(super) struct Device {
    mount: Arc<PrivateMount>,
    /// One, or for btrfs one for each subvolume that is mounted.
    formats: Vec<Format>,
    is_foreign: bool,
}

impl Device {
    pub(super) fn mount(&self) -> Arc<PrivateMount> {
        Arc::clone(&self.mount)
    }

    /// What a file may be called here.
    pub(super) fn handles(&self, file: FileId) -> impl Iterator<Item = FileHandle> {
        self.formats.iter().filter_map(move |format| format.handle(file))
    }
}

/// What became of mounts since the last look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refreshed {
    /// Devices that nobody has mounted any more. Their clones are closed: drop every file of theirs at once. Until that
    /// is done their filesystems stay in use, unseen.
    pub gone: Vec<u32>,
}

/// The mounts of this machine, as far as files were opened on them.
#[derive(Debug)]
pub struct Mounts {
    notice: File,
    text: Vec<u8>,
    devices: BTreeMap<u32, Result<Device, Refusal>>,
    foreign: Option<Foreign>,
    leases: BTreeSet<(u32, u64)>,
    swap_files: Arc<SwapFiles>,
}

impl Mounts {
    /// Reads what is mounted now; clones nothing yet.
    ///
    /// # Errors
    /// What the kernel says where `/proc/self/mountinfo` cannot be read.
    pub fn new() -> io::Result<Self> {
        let mut mounts = Self {
            notice: File::open("/proc/self/mountinfo")?,
            text: Vec::new(),
            devices: BTreeMap::new(),
            foreign: None,
            leases: BTreeSet::new(),
            swap_files: Arc::default(),
        };
        mounts.refresh()?;
        Ok(mounts)
    }

    /// Has an exceptional condition (`POLLPRI`) after each change of this mount namespace: time for
    /// [`Mounts::refresh`]. Of other namespaces nothing tells: refresh every second while
    /// [`Mounts::has_foreign`].
    #[must_use]
    pub fn changed(&self) -> BorrowedFd<'_> {
        self.notice.as_fd()
    }

    /// Whether a clone is held of a mount that only another namespace has.
    #[must_use]
    pub fn has_foreign(&self) -> bool {
        self.devices.values().any(|device| device.as_ref().is_ok_and(|device| device.is_foreign))
    }

    /// Reads anew what is mounted, which files are swapped to and which are leased; closes the clones of what
    /// nobody has mounted any more. What was refused for want of a mount gets another chance.
    ///
    /// # Errors
    /// What the kernel says where `/proc/self/mountinfo` cannot be read; nothing was closed then.
    pub fn refresh(&mut self) -> io::Result<Refreshed> {
        self.text = read_bounded("/proc/self/mountinfo")?;
        self.leases = write_leases();
        self.swap_files = Arc::new(swap_files());
        let here = self.devices_here();
        let had_foreign = self.has_foreign();
        self.foreign = had_foreign.then(|| Foreign::look(&here));
        let mut refreshed = Refreshed::default();
        let foreign = self.foreign.as_ref();
        self.devices.retain(|number, device| match device {
            Ok(_) if here.contains(number) => true,
            Ok(device) if device.is_foreign && foreign.is_some_and(|seen| seen.get(*number).is_some()) => {
                true
            }
            Ok(_) => {
                refreshed.gone.push(*number);
                false
            }
            Err(_) => false,
        });
        Ok(refreshed)
    }

    /// The way to a device, found and cloned when it is asked for the first time.
    pub(super) fn device(&mut self, number: u32) -> Result<&Device, Refusal> {
        if !self.devices.contains_key(&number) {
            let found = self.find(number);
            self.devices.insert(number, found);
        }
        match self.devices.get(&number) {
            Some(Ok(device)) => Ok(device),
            Some(Err(refusal)) => Err(*refusal),
            None => Err(Refusal::Unreachable),
        }
    }

    /// Whether opening the file would break somebody's lease, as of the last refresh.
    pub(super) fn is_leased(&self, file: FileId) -> bool {
        self.leases.contains(&(file.device, file.inode))
    }

    /// The files that the kernel swaps to, as of the last refresh.
    pub(super) fn swap_files(&self) -> Arc<SwapFiles> {
        Arc::clone(&self.swap_files)
    }

    fn devices_here(&self) -> BTreeSet<u32> {
        let lines = self.text.split(|byte| *byte == b'\n');
        lines.filter_map(|line| parse_mount(line).ok()).map(|mount| mount.device).collect()
    }

    fn find(&mut self, number: u32) -> Result<Device, Refusal> {
        let here = self.find_here(number)?;
        if let Some(device) = here {
            return Ok(device);
        }
        let known = self.devices_here();
        let foreign = self.foreign.get_or_insert_with(|| Foreign::look(&known));
        let sighting = foreign.get(number).ok_or(Refusal::Unreachable)?;
        if !is_protected(&sighting.filesystem) {
            return Err(Refusal::FileSystem);
        }
        if is_removable(number, &sighting.source) {
            return Err(Refusal::Removable);
        }
        let mount = sighting.clone_mount()?;
        let formats = vec![learn(mount.tree())?.ok_or(Refusal::NoHandle)?];
        Ok(Device { mount: Arc::new(mount), formats, is_foreign: true })
    }

    /// By this namespace's own mounts; `None` where it has none of the device.
    fn find_here(&self, number: u32) -> Result<Option<Device>, Refusal> {
        let lines = self.text.split(|byte| *byte == b'\n');
        let mut places: Vec<_> =
            lines.filter_map(|line| parse_mount(line).ok()).filter(|mount| mount.device == number).collect();
        let Some((filesystem, source)) = places.first().map(|mount| (mount.filesystem, mount.source)) else {
            return Ok(None);
        };
        if !is_protected(filesystem) {
            return Err(Refusal::FileSystem);
        }
        if !places.iter().any(|mount| mount.mount_point == b"/") && is_removable(number, source) {
            return Err(Refusal::Removable);
        }
        // The whole of it before a folder of it.
        places.sort_by_key(|mount| mount.root.len());
        let limit = if filesystem == b"btrfs" { FORMATS_MAX } else { PLACES_MAX };
        let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| Refusal::of("open the root folder", errno))?;
        let mut found: Option<Device> = None;
        let mut last = Refusal::Unreachable;
        for mount in places.iter().take(limit) {
            let Some(path) = unescape(mount.mount_point) else { continue };
            let place = match clone::find(root.as_fd(), &path, mount.id) {
                Ok(place) => place,
                Err(refusal) => {
                    last = refusal;
                    continue;
                }
            };
            match (&mut found, learn(place.as_fd())) {
                (Some(device), Ok(Some(format))) if !device.formats.contains(&format) => {
                    device.formats.push(format);
                }
                (None, Ok(Some(format))) => match clone::of(place.as_fd()) {
                    Ok(mount) => {
                        found =
                            Some(Device { mount: Arc::new(mount), formats: vec![format], is_foreign: false });
                    }
                    Err(errno) => last = Refusal::of("clone a mount", errno),
                },
                (None, Ok(None)) => last = Refusal::NoHandle,
                (Some(_), Ok(_)) => {}
                (_, Err(refusal)) => last = refusal,
            }
            if found.is_some() && filesystem != b"btrfs" {
                break;
            }
        }
        found.map(Some).ok_or(last)
    }
}

/// How a mounted filesystem names files.
fn learn(folder: BorrowedFd<'_>) -> Result<Option<Format>, Refusal> {
    Format::learn(folder).map_err(|errno| Refusal::of("learn how files are named", errno))
}

fn is_protected(filesystem: &[u8]) -> bool {
    FILESYSTEMS.contains(&filesystem)
}

/// Whether a disk can be pulled out, or lies on one that can: it would be while its `umount` seems to be done and a
/// lock of ours has not been dropped yet.
fn is_removable(number: u32, source: &[u8]) -> bool {
    if number >> MINOR_BITS != 0 {
        return is_removable_at(
            &block_device(number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1)),
            LAYERS_MAX,
        );
    }
    // btrfs has a number of its own, and is named by one of its disks, of which nobody is waited for. Another is left alone.
    let disk = unescape(source).filter(|path| path.starts_with(b"/dev/"));
    let disk = disk.and_then(|path| statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE).ok());
    disk.filter(|disk| FileType::from_raw_mode(disk.stx_mode.into()) == FileType::BlockDevice).is_none_or(
        |disk| is_removable_at(&block_device(disk.stx_rdev_major, disk.stx_rdev_minor), LAYERS_MAX),
    )
}

fn block_device(major: u32, minor: u32) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn is_removable_at(folder: &Path, depth: u8) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Ok(folder) = folder.canonicalize() else { return false };
    let is_on =
        |disk: &Path| std::fs::read(disk.join("removable")).is_ok_and(|text| text.trim_ascii() == b"1");
    let is_usb = folder.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"usb"));
    let below = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let image = std::fs::read(folder.join("loop/backing_file")).ok();
    let image = image.and_then(|path| look_up(path.trim_ascii_end(), StatxFlags::TYPE));
    is_usb
        || is_on(&folder)
        || image.is_some_and(|image| {
            is_removable_at(&block_device(image.stx_dev_major, image.stx_dev_minor), depth)
        })
        || (folder.join("partition").exists() && folder.parent().is_some_and(is_on))
        || below.take(16).any(|slave| is_removable_at(&slave.path(), depth))
}

fn write_leases() -> BTreeSet<(u32, u64)> {
    let text = read_bounded("/proc/locks").unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(parse_write_lease);
    lines.map(|WriteLease { device, inode }| (device, inode)).collect()
}

/// The files that are swapped to. Their names are in the kernel's cache as long as
/// they are in use, so nobody is waited for.
fn swap_files() -> SwapFiles {
    let text = read_bounded("/proc/swaps").unwrap_or_default();
    text.split(|byte| *byte == b'\n').skip(1).filter_map(swap_file).collect()
}

fn swap_file(line: &[u8]) -> Option<(u32, u32, u64)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let path = unescape(words.next()?)?;
    if words.next()? != b"file" {
        return None;
    }
    let found = look_up(&path, StatxFlags::INO)?;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// What is at a path, if all of it is in the kernel's cache of names: nobody is waited for.
fn look_up(path: &[u8], what: StatxFlags) -> Option<Statx> {
    let place =
        openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED).ok()?;
    statx(place, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, what).ok()
}

#[cfg(test)]
mod tests;
