//! The tree, and one cgroup of it, by descriptor.

use super::{
    CgroupError, CgroupErrorKind,
    handle::{CgroupId, open_by_id},
    members::find_id,
    mounts::CgroupMount,
};
use core::fmt;
use plimsoll_wire::text::Printable;
use rustix::{
    fs::{CWD, Mode, OFlags, Stat, fstat, fstatfs, openat, readlink},
    io::Errno,
};
use std::{
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The cgroup v2 tree, by descriptor: as seen from the caller's cgroup namespace, so that it fits the paths of
/// `/proc/PID/cgroup`.
#[derive(Debug)]
pub struct CgroupRoot {
    dir: OwnedFd,
    id: CgroupId,
}

/// One cgroup, by descriptor.
#[derive(Debug)]
pub struct Cgroup {
    dir: OwnedFd,
    id: CgroupId,
    path: Box<[u8]>,
}

impl CgroupRoot {
    /// The mounted tree; the one with the memory controller, where several are mounted. A mount of a part of the tree
    /// (a bind mount) is passed over.
    ///
    /// # Errors
    /// [`CgroupErrorKind::Unsupported`] where cgroup v2 is not mounted: there is only v1, whose kill scope, marks and
    /// reclaim are not used.
    pub fn open() -> Result<Self, CgroupError> {
        let mounts = CgroupMount::all().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            CgroupError::of("look for the mount", b"", errno)
        })?;
        // One that is mounted and cannot be opened is not one that is missing.
        let mut failure = None;
        let mut roots: Vec<Self> = mounts
            .iter()
            .filter(|mount| mount.unified && mount.whole)
            .filter_map(|mount| Self::at(&mount.place).map_err(|error| failure = Some(error)).ok())
            .collect();
        let with_memory = roots.iter().position(Self::has_memory).unwrap_or(0);
        if roots.is_empty() {
            let missing = CgroupErrorKind::Unsupported("cgroup v2 is not mounted here: v1 is not used");
            return Err(failure.unwrap_or_else(|| CgroupError::new("look for the mount", b"", missing)));
        }
        Ok(roots.swap_remove(with_memory))
    }

    /// The tree mounted at `path`.
    ///
    /// # Errors
    /// [`CgroupErrorKind::Unsupported`] when it is not a cgroup v2 tree, otherwise by what the kernel says.
    pub fn at(path: &Path) -> Result<Self, CgroupError> {
        let failed = |errno| CgroupError::of("open the tree", b"", errno);
        let dir = openat(CWD, path, FOLDER, Mode::empty()).map_err(failed)?;
        let kind = fstatfs(&dir).map_err(failed)?.f_type;
        if u64::try_from(kind) != Ok(CGROUP2_MAGIC) {
            let other = CgroupErrorKind::Unsupported("it is not a cgroup v2 tree: v1 is not used");
            return Err(CgroupError::new("open the tree", b"", other));
        }
        let id = CgroupId(fstat(&dir).map_err(failed)?.st_ino);
        Ok(Self { dir, id })
    }

    /// Whether the memory controller is this tree's: without it there are no memory files in any of its cgroups.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        let mut text = [0; 512];
        super::read::read_small(self.dir.as_fd(), c"cgroup.controllers", &mut text)
            .is_ok_and(|text| text.split(u8::is_ascii_whitespace).any(|name| name == b"memory"))
    }

    /// Opens the cgroup at a path as `/proc/PID/cgroup` tells it (`/user.slice/x.scope`; a leading `/` may be
    /// missing).
    ///
    /// # Errors
    /// [`CgroupErrorKind::Gone`] when there is none, [`CgroupErrorKind::Failed`] with `EINVAL` for a path with `.`,
    /// `..`, an empty name or a NUL in it; otherwise by what the kernel says (`ENOTDIR` for a file, `EXDEV` for
    /// what is mounted over a part of the tree).
    pub fn cgroup(&self, path: &[u8]) -> Result<Cgroup, CgroupError> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let failed = |errno| CgroupError::of("open the folder", path, errno);
        let dir = open_below(self.dir.as_fd(), path).map_err(failed)?;
        let id = CgroupId(fstat(&dir).map_err(failed)?.st_ino);
        Ok(Cgroup { dir, id, path: path.into() })
    }

    /// Opens the cgroup that has this id. One system call by file handle where the caller has
    /// `CAP_DAC_READ_SEARCH`; else the tree is walked, which lists every folder on the way to it: some milliseconds
    /// for a desktop's few hundred.
    ///
    /// # Errors
    /// [`CgroupErrorKind::Gone`] when there is none in this tree, otherwise by what the kernel says.
    pub fn by_id(&self, id: CgroupId) -> Result<Cgroup, CgroupError> {
        let failed = |errno| CgroupError::of("find by its id", b"", errno);
        let path = match open_by_id(self.dir.as_fd(), id) {
            Ok(dir) => self.path_of(&dir).map_err(failed)?,
            Err(Errno::STALE) => return Err(failed(Errno::NOENT)),
            // Without the right, or with a filter of system calls around.
            Err(_unsupported) => find_id(self.dir.as_fd(), id).map_err(failed)?,
        };
        // By path once more: a handle can name a cgroup outside of what is mounted here.
        let cgroup = self.cgroup(&path)?;
        if cgroup.id == id { Ok(cgroup) } else { Err(failed(Errno::NOENT)) }
    }

    /// Where a folder of this tree is, from the root on.
    fn path_of(&self, dir: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let name = |dir: &OwnedFd| readlink(format!("/proc/self/fd/{}", dir.as_raw_fd()), Vec::new());
        let (root, whole) = (name(&self.dir)?, name(dir)?);
        whole.to_bytes().strip_prefix(root.to_bytes()).map(<[u8]>::to_vec).ok_or(Errno::NOENT)
    }

    /// The id of the root itself.
    #[must_use]
    pub const fn id(&self) -> CgroupId {
        self.id
    }
}

impl Cgroup {
    /// Which it is.
    #[must_use]
    pub const fn id(&self) -> CgroupId {
        self.id
    }

    /// Where it was when it was opened, below the root and without a leading `/`; empty for the root. Raw bytes:
    /// whoever may make a cgroup chooses its name. Shown by `Display` as [`Printable`] text.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Its last name; empty for the root.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or(&[])
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.dir)
    }

    pub(super) fn failed(&self, operation: &'static str, errno: Errno) -> CgroupError {
        CgroupError::of(operation, &self.path, errno)
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", Printable(&self.path))
    }
}

/// A folder below another, without leaving it: name by name, none of them a link, nothing mounted in between.
/// `openat2(2)` would do it in one call, but systemd's `RestrictSUIDSGID=` takes that away (`ENOSYS`).
pub(super) fn open_below(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut folder = openat(dir, c".", FOLDER, Mode::empty())?;
    let names = || path.split(|byte| *byte == b'/').filter(|_| !path.is_empty());
    if names().any(|name| matches!(name, b"" | b"." | b"..") || name.contains(&0)) {
        return Err(Errno::INVAL);
    }
    for name in names() {
        folder = openat(&folder, name, FOLDER.union(OFlags::NOFOLLOW), Mode::empty())?;
    }
    if fstat(&folder)?.st_dev == fstat(dir)?.st_dev { Ok(folder) } else { Err(Errno::XDEV) }
}

#[cfg(test)]
mod tests;
