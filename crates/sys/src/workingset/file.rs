//! A file that is held: its chunks, mapped and locked.

use super::{
    Locks, Refusal,
    arena::Slot,
    open::{length_bytes, links},
};
use crate::process::page_size;
use plimsoll_policy::{
    units::Pages,
    workingset::{Blocks, CHUNK_PAGES, FileId, Tier},
};
use std::{
    collections::BTreeMap,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A file, open for locking. Unlocks what it holds when it is dropped.
#[derive(Debug)]
pub struct HotFile {
    id: FileId,
    file: OwnedFd,
    page_bytes: u64,
    chunks: BTreeMap<u32, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    tier: Tier,
    blocks: Blocks,
    slot: Slot,
    pages: usize,
}

impl Chunk {
    /// What of it is locked now.
    fn held(&self) -> u64 {
        if self.slot.is_held() { u64::try_from(self.pages).unwrap_or(0) } else { 0 }
    }

    /// Holds no more than these blocks of it.
    fn narrow(&mut self, blocks: Blocks) {
        if blocks.covers(self.blocks) {
            return;
        }
        self.slot.narrow(blocks);
        self.blocks = self.blocks & blocks;
        let most = self.blocks.pages(Pages(u64::try_from(self.slot.pages()).unwrap_or(CHUNK_PAGES))).0;
        self.pages =
            self.slot.mapped().unwrap_or_else(|| self.pages.min(usize::try_from(most).unwrap_or(usize::MAX)));
    }

    /// Locks what came into memory.
    fn capture(&mut self) -> Result<(), Refusal> {
        self.pages = self.slot.capture(self.blocks)?;
        Ok(())
    }
}

impl HotFile {
    pub(super) fn new(id: FileId, file: OwnedFd) -> Self {
        Self { id, file, page_bytes: page_size().bytes().0, chunks: BTreeMap::new() }
    }

    /// Which file it is.
    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    /// Locks what is in memory of some blocks of each of a range of chunks, in a tier; what was in the other one changes
    /// over, and other blocks of these chunks are let go. What comes into memory later is locked by [`HotFile::capture`].
    /// Gives how many pages are locked in these chunks.
    ///
    /// # Errors
    /// [`Refusal`]: chunks before the one that failed stay locked. [`Refusal::Released`] when the tier was released
    /// meanwhile.
    pub fn lock(
        &mut self,
        locks: &Locks,
        chunks: Range<u32>,
        blocks: Blocks,
        tier: Tier,
    ) -> Result<Pages, Refusal> {
        let pages = length_bytes(&self.file)?.div_ceil(self.page_bytes);
        let mut locked = 0_u64;
        for number in chunks {
            let first = u64::from(number).saturating_mul(CHUNK_PAGES);
            let length = pages.saturating_sub(first).min(CHUNK_PAGES);
            if length == 0 {
                break;
            }
            let length = usize::try_from(length).map_err(|_narrow| Refusal::Full)?;
            let kept = self
                .chunks
                .get_mut(&number)
                .filter(|chunk| chunk.tier == tier && chunk.slot.is_held() && chunk.slot.pages() == length);
            match kept {
                Some(chunk) if chunk.blocks == blocks => {}
                Some(chunk) => {
                    chunk.narrow(blocks);
                    chunk.blocks = blocks;
                    chunk.capture()?;
                }
                None => {
                    let offset = first.saturating_mul(self.page_bytes);
                    let slot = Slot::map(locks.arena(tier), self.file.as_fd(), offset, length)?;
                    let mut chunk = Chunk { tier, blocks, slot, pages: 0 };
                    // The new one is locked before the old one goes.
                    chunk.capture()?;
                    self.chunks.insert(number, chunk);
                }
            }
            let held = self.chunks.get(&number).map_or(0, Chunk::held);
            locked = locked.saturating_add(held);
        }
        Ok(Pages(locked))
    }

    /// Locks pages that came into memory since, wherever a chunk is held; gives how many pages are locked in all.
    pub fn capture(&mut self) -> Pages {
        self.capture_in(0..u32::MAX);
        self.pages()
    }

    /// As [`HotFile::capture`], for some chunks. Costs a look at each page of them, some 50 ns.
    ///
    /// Not only for what came into memory: where the kernel splits a large folio of a file, as compaction does that finds no
    /// room for all of it, it unmaps the folio though it is locked, to be faulted back on demand (`unmap_folio`,
    /// mm/huge_memory.c, 7.2), and then takes it.
    pub fn capture_in(&mut self, chunks: Range<u32>) {
        for chunk in self.chunks.range_mut(chunks).map(|(_, chunk)| chunk) {
            if chunk.slot.is_held() {
                // Where that fails it is as it was, and the next time may do.
                chunk.capture().unwrap_or_default();
            }
        }
    }

    /// As [`HotFile::capture_in`], where other pages are mapped than were locked last. Costs 1 us a chunk where none are.
    pub fn recapture_in(&mut self, chunks: Range<u32>) {
        for chunk in self.chunks.range_mut(chunks).map(|(_, chunk)| chunk) {
            if chunk.slot.is_held() && chunk.slot.mapped() != Some(chunk.pages) {
                chunk.capture().unwrap_or_default();
            }
        }
    }

    /// Lets go of all but some blocks of a chunk, if it is held.
    pub fn narrow(&mut self, number: u32, blocks: Blocks) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.narrow(blocks);
        }
    }

    /// What of a chunk is held now, in which tier.
    #[must_use]
    pub fn holds(&self, number: u32) -> Option<(Blocks, Tier)> {
        self.chunks.get(&number).filter(|chunk| chunk.slot.is_held()).map(|chunk| (chunk.blocks, chunk.tier))
    }

    /// Has more blocks of a chunk held, if it is; they are locked by the next capture.
    pub fn widen(&mut self, number: u32, blocks: Blocks) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.blocks |= blocks;
        }
    }

    /// Unlocks a range of chunks and lets go of them.
    pub fn unlock(&mut self, chunks: Range<u32>) {
        self.chunks.retain(|number, _| !chunks.contains(number));
    }

    /// Lets go of what the release of a tier has unlocked already; gives how many chunks are still held.
    pub fn forget_released(&mut self) -> usize {
        self.chunks.retain(|_, chunk| chunk.slot.is_held());
        self.chunks.len()
    }

    /// How many pages are locked now.
    #[must_use]
    pub fn pages(&self) -> Pages {
        Pages(self.chunks.values().map(Chunk::held).fold(0, u64::saturating_add))
    }

    /// As [`HotFile::pages`], in one tier.
    #[must_use]
    pub fn pages_in(&self, tier: Tier) -> Pages {
        let chunks = self.chunks.values().filter(|chunk| chunk.tier == tier);
        Pages(chunks.map(Chunk::held).fold(0, u64::saturating_add))
    }

    /// The chunks that are held now, in order: number, what of it is held in which tier, and locked pages of each.
    pub fn chunks(&self) -> impl Iterator<Item = (u32, (Blocks, Tier), Pages)> {
        let held = self.chunks.iter().filter(|(_, chunk)| chunk.slot.is_held());
        held.map(|(number, chunk)| (*number, (chunk.blocks, chunk.tier), Pages(chunk.held())))
    }

    /// How many names it has: without any, what holds it holds its disk space, too.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links(&self) -> Result<u32, Refusal> {
        links(self.file.as_fd())
    }

    /// Where the pages of the chunks that are held lie in this process's addresses: number, first address and bytes.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u32, (u64, u64))> {
        let held = self.chunks.iter().filter(|(_, chunk)| chunk.slot.is_held());
        held.map(|(number, chunk)| (*number, chunk.slot.range()))
    }
}

impl AsFd for HotFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
