//! Whose memory cgroups locked pages are charged to: `/proc/self/pagemap`, then `/proc/kpagecgroup`.
//!
//! A page of a file is charged to the cgroup of who read it first, and stays so when somebody else locks it. So
//! locks take from what those cgroups can give back, and keep one that is removed from being freed.

use super::{HotFile, Refusal};
use crate::cgroup::{CgroupId, CgroupMount, open_by_id};
use plimsoll_policy::{
    last_defence::slice::Max,
    units::{Bytes, Pages},
    workingset::CHUNK_PAGES,
};
use plimsoll_wire::text::parse_memory_max;
use rustix::{
    fs::{CWD, Mode, OFlags, fstat, openat},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
};

/// Bits of an entry of `pagemap` (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const FRAME_MASK: u64 = (1 << 55) - 1;

/// Ancestors of a cgroup that are looked at: cgroups are rarely nested more than ten deep.
const DEPTH_MAX: usize = 64;

/// Where v1 tells a limit.
const V1_LIMIT: &str = "memory.limit_in_bytes";

/// What v1 says for 'no limit': as many bytes as a counter of pages holds.
const V1_UNLIMITED_BYTES: u64 = 1 << 62;

/// How closely is looked: of so many neighbouring pages one, as they were nearly always read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// One in 16: some 8 ms for 300 MiB.
    Close,
    /// One in 128: some 2 ms for 300 MiB.
    Coarse,
}

impl Sampling {
    const fn pages(self) -> usize {
        match self {
            Self::Close => 16,
            Self::Coarse => 128,
        }
    }
}

/// To whom a chunk that is locked is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// Which chunk of its file.
    pub chunk: u32,
    /// The cgroup that most of it is charged to. To the kernel, what a cgroup that was removed left behind is its
    /// nearest living ancestor's.
    pub cgroup: CgroupId,
    /// How many pages of it are locked.
    pub pages: Pages,
}

/// A cgroup with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Which.
    pub cgroup: CgroupId,
    /// Its own limit.
    pub limit: Bytes,
}

/// Finds owners out.
#[derive(Debug)]
pub struct Owners {
    map: File,
    cgroups: File,
    page_bytes: u64,
    tree: OwnedFd,
    root: CgroupId,
    limit_file: &'static str,
}

impl Owners {
    /// Opens what tells.
    ///
    /// # Errors
    /// [`Refusal::Failed`] with `ENOENT` where there is no tree of memory cgroups, or the kernel does not tell
    /// (`CONFIG_PROC_PAGE_MONITOR`); [`Refusal::Denied`] without `CAP_SYS_ADMIN`.
    pub fn open() -> Result<Self, Refusal> {
        let open = |path: &str, operation| {
            File::open(path)
                .map_err(|error| Refusal::of(operation, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
        };
        let (tree, limit_file) =
            find_tree().ok_or(Refusal::of("find the tree of memory cgroups", Errno::NOENT))?;
        let root = fstat(&tree).map_err(|errno| Refusal::of("look at the root cgroup", errno))?;
        Ok(Self {
            map: open("/proc/self/pagemap", "read where pages are")?,
            cgroups: open("/proc/kpagecgroup", "read whose pages are")?,
            page_bytes: crate::process::page_size().bytes().0,
            tree,
            root: CgroupId(root.st_ino),
            limit_file,
        })
    }

    /// To whom those chunks of a file are charged that are locked and `wanted`. The first look belongs right after locking:
    /// when the cgroup is removed before it, nothing tells whose the pages were.
    ///
    /// # Errors
    /// [`Refusal::Denied`] without `CAP_SYS_ADMIN`, without which the kernel hides where pages are.
    pub fn look(
        &self,
        file: &HotFile,
        wanted: impl Fn(u32) -> bool,
        sampling: Sampling,
    ) -> Result<Vec<Charged>, Refusal> {
        let mut charged = Vec::new();
        for (chunk, range) in file.ranges().filter(|(chunk, _)| wanted(*chunk)) {
            let owners = self.count(range, sampling)?;
            let pages = Pages(owners.values().fold(0, |sum, pages| sum.saturating_add(pages.0)));
            let most = owners.into_iter().max_by_key(|(_, pages)| *pages);
            charged.extend(most.map(|(cgroup, _)| Charged { chunk, cgroup, pages }));
        }
        Ok(charged)
    }

    /// The limits that hold for a cgroup: its own and those of each one around it, from the inside out. Empty where
    /// none has a limit.
    ///
    /// # Errors
    /// [`Refusal::Gone`] when it was removed; otherwise by what the kernel says.
    pub fn limits(&self, cgroup: CgroupId) -> Result<Vec<Limited>, Refusal> {
        let fail = |errno| match errno {
            Errno::STALE | Errno::NOENT | Errno::NODEV => Refusal::Gone,
            other => Refusal::of("read the limit of a cgroup", other),
        };
        let mut limits = Vec::new();
        let mut folder = open_by_id(self.tree.as_fd(), cgroup).map_err(fail)?;
        for _ in 0..DEPTH_MAX {
            let id = CgroupId(fstat(&folder).map_err(fail)?.st_ino);
            // The root has none; v2 has not even the file.
            if id == self.root {
                break;
            }
            if let Max::At(limit) = self.limit(&folder).map_err(fail)? {
                limits.push(Limited { cgroup: id, limit });
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = openat(&folder, c"..", flags, Mode::empty()).map_err(fail)?;
        }
        Ok(limits)
    }

    fn limit(&self, folder: &OwnedFd) -> Result<Max, Errno> {
        let file = openat(folder, self.limit_file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = Vec::new();
        let read = File::from(file).take(64).read_to_end(&mut text);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        match parse_memory_max(&text).map_err(|_garbled| Errno::INVAL)? {
            Max::At(limit) if limit.0 >= V1_UNLIMITED_BYTES => Ok(Max::Unlimited),
            max @ (Max::At(_) | Max::Unlimited) => Ok(max),
        }
    }

    /// Pages in one range of this process's addresses, by whom they are charged to.
    fn count(
        &self,
        (start, bytes): (u64, u64),
        sampling: Sampling,
    ) -> Result<BTreeMap<CgroupId, Pages>, Refusal> {
        let fail = |error: std::io::Error| {
            Refusal::of("read where pages are", Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let pages = bytes.checked_div(self.page_bytes).unwrap_or(0).min(CHUNK_PAGES);
        let first = start.checked_div(self.page_bytes).unwrap_or(0);
        let mut entries = vec![0; usize::try_from(pages.saturating_mul(8)).unwrap_or(0)];
        self.map.read_exact_at(&mut entries, first.saturating_mul(8)).map_err(fail)?;
        let (entries, _) = entries.as_chunks::<8>();
        let mut owners = BTreeMap::new();
        for group in entries.chunks(sampling.pages()) {
            let present =
                || group.iter().map(|entry| u64::from_ne_bytes(*entry)).filter(|entry| entry & PRESENT != 0);
            let Some(sample) = present().next() else { continue };
            let frame = sample & FRAME_MASK;
            if frame == 0 {
                return Err(Refusal::Denied("read where pages are"));
            }
            let mut cgroup = [0; 8];
            // A page that was taken from the machine meanwhile has no entry.
            if self.cgroups.read_exact_at(&mut cgroup, frame.saturating_mul(8)).is_err() {
                continue;
            }
            let count = u64::try_from(present().count()).unwrap_or(0);
            let total = owners.entry(CgroupId(u64::from_ne_bytes(cgroup))).or_insert(Pages(0));
            *total = Pages(total.0.saturating_add(count));
        }
        Ok(owners)
    }
}

/// The tree that has the memory controller, and where its cgroups tell their limits.
fn find_tree() -> Option<(OwnedFd, &'static str)> {
    let mounts = CgroupMount::all().ok()?;
    let has_limits = |mount: &&CgroupMount| mount.has_memory() || mount.place.join(V1_LIMIT).exists();
    let mount = mounts.iter().filter(|mount| mount.whole).find(has_limits)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, &mount.place, flags, Mode::empty()).ok()?;
    Some((folder, if mount.unified { "memory.max" } else { V1_LIMIT }))
}

#[cfg(test)]
mod tests;
