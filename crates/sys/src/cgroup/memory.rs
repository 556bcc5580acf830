//! One memory cgroup of either version as a bound on memory: its limit, what it holds, who is in it.
//!
//! Only root's configuration names it; it is read, never written.

use super::CgroupMount;
use plimsoll_policy::{
    last_defence::slice::Max,
    units::{Bytes, Pid},
};
use plimsoll_wire::text::{FileStat, parse_file_stat, parse_memory_max};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::{DirEntryExt as _, FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A limit from here on is none: version 1 writes the largest number of pages that fits.
const UNLIMITED: u64 = 1 << 62;

/// Cgroups below that are looked into for processes, at most.
const BELOW_MAX: usize = 4096;

/// So many are read one by one, some 50 ms; and so deep.
const SETTLED_MAX: usize = 1024;
const DEPTH_MAX: usize = 32;

/// What the kernel says of a file of a cgroup that was removed: ENODEV.
const GONE: i32 = 19;

/// What programs hold in a cgroup. Its parts (`memory.stat`) are added up by the kernel up to 2 s late where the cgroup has
/// others below it, and all of it together (`memory.current`) at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Programs {
    /// All that is charged now, less files and the kernel's memory as they were added up last: too much where one of those grew
    /// since, too little where it shrank.
    pub usage: Bytes,
    /// As it was added up last.
    pub settled: Bytes,
    /// Of both, what is mapped of files and shared memory.
    pub mapped: Bytes,
}

/// One memory cgroup, by path.
#[derive(Debug)]
pub struct MemoryCgroup {
    /// Its inode when it was opened.
    opened_as: Option<u64>,
    folder: PathBuf,
    version_1: bool,
    limit: Kept,
    usage: Kept,
    stat: Kept,
    /// Swapped memory, or in version 1 the kernel's own.
    beside: Kept,
}

impl Clone for MemoryCgroup {
    /// With open files of its own: whoever reads waits for no other reader.
    fn clone(&self) -> Self {
        Self { opened_as: self.opened_as, ..Self::at(self.folder.clone(), self.version_1) }
    }
}

impl MemoryCgroup {
    /// The cgroup at `path`, from the root of whichever hierarchy has the memory controller.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where there is no such memory cgroup; what the kernel says of `/proc/self/mountinfo`.
    pub fn open(path: &str) -> io::Result<Self> {
        let below = path.trim_start_matches('/');
        let whole = CgroupMount::all()?.into_iter().filter(|mount| mount.whole);
        whole
            .map(|mount| mount.place.join(below))
            .find(|folder| folder.join("memory.stat").exists())
            .map(|folder| {
                let version_1 = folder.join("memory.limit_in_bytes").exists();
                let opened_as = fs::metadata(&folder).ok().map(|metadata| metadata.ino());
                Self { opened_as, ..Self::at(folder, version_1) }
            })
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such memory cgroup"))
    }

    fn at(folder: PathBuf, version_1: bool) -> Self {
        Self {
            opened_as: None,
            folder,
            version_1,
            limit: Kept::default(),
            usage: Kept::default(),
            stat: Kept::default(),
            beside: Kept::default(),
        }
    }

    /// Its inode, by which the kernel's programs know it.
    ///
    /// # Errors
    /// What the kernel says, [`io::ErrorKind::NotFound`] when it was removed.
    pub fn inode(&self) -> io::Result<u64> {
        fs::metadata(&self.folder).map(|metadata| metadata.ino())
    }

    /// Whether it is what was at its path when it was opened: with version 1 a cgroup can be renamed, and another made there.
    #[must_use]
    pub fn is_at_its_path(&self) -> bool {
        self.inode().ok() == self.opened_as
    }

    /// Its own limit; `None`: it has none.
    ///
    /// # Errors
    /// As [`Self::inode`]; [`io::ErrorKind::InvalidData`] for what is no limit.
    pub fn limit(&self) -> io::Result<Option<Bytes>> {
        let file = if self.version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        let limit = parse_memory_max(&self.limit.read(&self.folder.join(file))?).map_err(io::Error::other)?;
        Ok(match limit {
            Max::At(bytes) if bytes.0 < UNLIMITED => Some(bytes),
            Max::At(_) | Max::Unlimited => None,
        })
    }

    /// All that is charged to it and to those below.
    ///
    /// # Errors
    /// As [`Self::limit`].
    pub fn usage(&self) -> io::Result<Bytes> {
        let file = if self.version_1 { "memory.usage_in_bytes" } else { "memory.current" };
        match parse_memory_max(&self.usage.read(&self.folder.join(file))?).map_err(io::Error::other)? {
            Max::At(bytes) => Ok(bytes),
            Max::Unlimited => Err(io::Error::other("usage without a number")),
        }
    }

    /// What it holds, with those below.
    ///
    /// # Errors
    /// As [`Self::limit`].
    pub fn stat(&self) -> io::Result<FileStat> {
        parse_file_stat(&self.stat.read(&self.folder.join("memory.stat"))?).map_err(io::Error::other)
    }

    /// What programs hold in it and in those below: anonymous memory, resident or swapped out, each page once; with
    /// `mapped` also the file pages and the shared memory that they have mapped.
    ///
    /// # Errors
    /// As [`Self::limit`].
    pub fn programs(&self, mapped: bool) -> io::Result<Programs> {
        // First: what grows meanwhile is then in both or in the second.
        let charged = self.usage()?;
        let stat = self.stat()?;
        let anonymous = stat.anon.ok_or_else(|| io::Error::other("memory.stat without anonymous memory"))?;
        let (swapped, kernel) = if self.version_1 {
            // What has been read back is not counted as swapped.
            (stat.swap.unwrap_or_default(), self.number("memory.kmem.usage_in_bytes")?)
        } else {
            let cached = stat.swap_cached.unwrap_or_default();
            let swapped = self.number("memory.swap.current")?;
            (swapped.saturating_sub(cached), stat.kernel.unwrap_or_default())
        };
        let others = kernel.saturating_add(stat.file.unwrap_or_default());
        let others = others.saturating_add(stat.sock.unwrap_or_default());
        let mapped = stat.mapped.filter(|_| mapped).unwrap_or_default();
        let with = |resident: Bytes| resident.saturating_add(swapped).saturating_add(mapped);
        Ok(Programs { usage: with(charged.saturating_sub(others)), settled: with(anonymous), mapped })
    }

    /// As [`Programs::settled`], but as it is now. The kernel adds what is in the cgroups below up late where they were read
    /// by themselves, and each of them at once (`memcg_rstat_updated` of mm/memcontrol.c; on 6.18 a cgroup was 350 MiB behind
    /// for a second while the one two levels down was right).
    ///
    /// # Errors
    /// As [`Self::limit`]; [`io::ErrorKind::OutOfMemory`] when there are more than 1,024 below, or more
    /// than 32 in each other.
    pub fn settled_now(&self, mapped: bool) -> io::Result<Bytes> {
        let mut left = SETTLED_MAX;
        settled_now(&self.folder, self.version_1, mapped, (&mut left, DEPTH_MAX))
    }

    /// A number that not every kernel has a file for.
    fn number(&self, file: &str) -> io::Result<Bytes> {
        match self.beside.read(&self.folder.join(file)) {
            Ok(text) => match parse_memory_max(&text).map_err(io::Error::other)? {
                Max::At(bytes) => Ok(bytes),
                Max::Unlimited => Err(io::Error::other("no number")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Bytes(0)),
            Err(error) => Err(error),
        }
    }

    /// How much of the machine's free swap it may take; `None`: as much as there is.
    ///
    /// # Errors
    /// As [`Self::limit`].
    pub fn swap_room(&self) -> io::Result<Option<Bytes>> {
        if self.version_1 {
            return Ok(None);
        }
        let read = |file: &str| match fs::read(self.folder.join(file)) {
            Ok(text) => parse_memory_max(&text).map(Some).map_err(io::Error::other),
            // No swap was built into this kernel.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok(match (read("memory.swap.max")?, read("memory.swap.current")?) {
            (Some(Max::At(most)), Some(Max::At(used))) => Some(most.saturating_sub(used)),
            (Some(Max::At(most)), _) => Some(most),
            (Some(Max::Unlimited) | None, _) => None,
        })
    }

    /// The processes in it and below.
    ///
    /// # Errors
    /// What the kernel says of the cgroup or of one below, where threads may be apart from their process, for one; those below
    /// that go meanwhile are passed over. [`io::ErrorKind::OutOfMemory`] when there are more than 4,096 below.
    pub fn processes(&self) -> io::Result<BTreeSet<Pid>> {
        let mut found = BTreeSet::new();
        collect(&self.folder, &mut found)?;
        let mut refused = None;
        let all = self.visit_below(|folder, _inode| {
            if let Err(error) = collect(folder, &mut found)
                && !is_gone(&error)
            {
                refused = Some(error);
            }
        });
        match refused {
            Some(error) => Err(error),
            None if !all => Err(too_many()),
            None => Ok(found),
        }
    }

    /// The inodes of it and of those below.
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn inodes(&self) -> io::Result<BTreeSet<u64>> {
        let mut found = BTreeSet::from([self.inode()?]);
        self.visit_below(|_folder, inode| {
            found.insert(inode);
        });
        Ok(found)
    }

    /// Those below, at most [`BELOW_MAX`] of them; whether there are no more.
    fn visit_below(&self, mut visit: impl FnMut(&Path, u64)) -> bool {
        let mut folders = vec![self.folder.clone()];
        let mut seen = 0_usize;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if seen == BELOW_MAX {
                    return false;
                }
                seen = seen.saturating_add(1);
                visit(&entry.path(), entry.ino());
                folders.push(entry.path());
            }
        }
        true
    }
}

/// A file that is kept open: to open it costs more than to read it.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<File>>);

impl Kept {
    /// All of it. When its cgroup was removed it cannot be read any more, and another may have the path.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(text)) = kept.as_ref().map(read_all) {
            return Ok(text);
        }
        *kept = None;
        let file = File::open(path)?;
        let text = read_all(&file)?;
        *kept = Some(file);
        Ok(text)
    }
}

/// From its beginning, wherever it was read to.
fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = file.read_at(&mut piece, u64::try_from(text.len()).unwrap_or(u64::MAX))?;
        match piece.get(..read) {
            Some(more) if !more.is_empty() => text.extend_from_slice(more),
            Some(_) | None => return Ok(text),
        }
    }
}

/// The larger of what a cgroup says and what those below it say together; `left`: how many more may be asked, and how deep.
fn settled_now(folder: &Path, version_1: bool, mapped: bool, left: (&mut usize, usize)) -> io::Result<Bytes> {
    let (count, deep) = left;
    let deeper = deep.checked_sub(1).ok_or_else(too_many)?;
    *count = count.checked_sub(1).ok_or_else(too_many)?;
    let own = MemoryCgroup::at(folder.to_owned(), version_1).programs(mapped)?.settled;
    let mut below = Bytes(0);
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below = match settled_now(&entry.path(), version_1, mapped, (&mut *count, deeper)) {
                Ok(settled) => below.saturating_add(settled),
                Err(error) if is_gone(&error) => below,
                Err(error) => return Err(error),
            };
        }
    }
    Ok(own.max(below))
}

/// It was removed, or has no memory controller.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(GONE)
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, "too many cgroups below it")
}

fn collect(folder: &Path, into: &mut BTreeSet<Pid>) -> io::Result<()> {
    let text = fs::read_to_string(folder.join("cgroup.procs"))?;
    into.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
    Ok(())
}

#[cfg(test)]
mod tests;
