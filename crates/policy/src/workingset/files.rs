//! Files, the pieces that they are counted by, and what happened to one.

use super::{
    barred::Barred,
    blocks::{Blocks, CHUNK_PAGES},
};
use crate::units::{PageSize, Pages};
use core::fmt;
use serde::{Deserialize, Serialize};

/// A file as the kernel's page cache knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// The device of its superblock in the kernel's own encoding, `major << 20 | minor` (include/linux/kdev_t.h): on
    /// btrfs and overlayfs another than `st_dev`.
    pub device: u32,
    /// Its inode number.
    pub inode: u64,
    /// Tells it from an earlier file of the same number; 0 on file systems that have none.
    pub generation: u32,
}

impl FileId {
    /// The device as people write it: major and minor number.
    #[must_use]
    pub const fn device_numbers(self) -> (u32, u32) {
        (self.device >> 20, self.device & 0xf_ffff)
    }
}

impl fmt::Display for FileId {
    /// `254:0 inode 1234`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device_numbers();
        write!(f, "{major}:{minor} inode {}", self.inode)
    }
}

/// A piece of a file: pages `chunk * CHUNK_PAGES` and on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId {
    /// Whose.
    pub file: FileId,
    /// Which, counted from 0.
    pub chunk: u32,
}

/// What happened to one chunk since it was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which.
    pub chunk: ChunkId,
    /// Pages read through the page cache or mapped from it, as they were counted: one drain counts as one pass
    /// through the blocks at most.
    pub accessed: u64,
    /// Where those pages are; empty where that was not seen.
    pub blocks: Blocks,
    /// Some of them were mapped, not read.
    pub mapped: bool,
    /// Pages that came into the cache.
    pub added: u64,
    /// Pages that reclaim took out of it.
    pub evicted: u64,
    /// The size of the file, in bytes.
    pub file_bytes: u64,
    /// Why the file must not be held, as far as the kernel side saw it.
    pub barred: Option<Barred>,
}

impl Use {
    /// Has what came into the cache stand for what was used, where nothing was seen of that: accesses were not watched all
    /// the time. What is read ahead and never used passes for used then.
    pub fn infer(&mut self) {
        if self.blocks.is_empty() {
            self.accessed = self.accessed.max(self.added);
        }
    }
}

/// Pages of a file that fall into one of its chunks; 0 beyond its end.
#[must_use]
pub fn chunk_pages(file_bytes: u64, chunk: u32, page_size: PageSize) -> Pages {
    let whole = file_bytes.div_ceil(page_size.bytes().0.max(1));
    let before = u64::from(chunk).saturating_mul(CHUNK_PAGES);
    Pages(whole.saturating_sub(before).min(CHUNK_PAGES))
}

/// How many chunks a file has.
#[must_use]
pub fn chunk_count(file_bytes: u64, page_size: PageSize) -> u32 {
    let chunk = page_size.to_bytes(Pages(CHUNK_PAGES)).0.max(1);
    u32::try_from(file_bytes.div_ceil(chunk)).unwrap_or(u32::MAX)
}
