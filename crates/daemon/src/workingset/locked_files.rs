//! The files that are held: what a plan asks for is locked, what it does not ask for is let go.

use super::{
    locking::Locking,
    opener::{Opened, Opener},
};
use plimsoll_policy::{
    units::{Nanos, Pages},
    workingset::{CHUNK_PAGES, ChunkId, Extent, FileId, Holding, Plan, Tier, Use},
};
use plimsoll_sys::workingset::{HotFile, Locks, Mounts, Refusal};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, Range},
    path::PathBuf,
};

/// Chunks that are locked at a time: 32 MiB of 4 KiB pages, some milliseconds.
const STRIDE: u32 = 16;

/// In how many turns a chunk is looked at for what came into the cache in the first: what is read ahead is there before it has
/// been read, and cannot be locked yet. A disk of 150 MB/s that others use as well takes 0.1 s for 8 MiB.
const COMING: u32 = 5;

/// Chunks that are looked at in each turn, whether the kernel has let go of any of their pages: 20 us where it has not.
const CHECKED: usize = 16;

/// One file, open.
#[derive(Debug)]
struct LockedFile {
    file: HotFile,
    path: Option<PathBuf>,
    /// Since when each chunk is held.
    since: BTreeMap<u32, Nanos>,
}

impl LockedFile {
    /// Locks some chunks of an extent; gives how many pages of its tier are locked that were not, whether or not all could be.
    fn lock(
        &mut self,
        locks: &Locks,
        chunks: Range<u32>,
        extent: &Extent,
        now: Nanos,
    ) -> (Pages, Result<(), Refusal>) {
        let before = self.file.pages_in(extent.tier);
        let result = self.file.lock(locks, chunks.clone(), extent.blocks, extent.tier);
        // Those before one that failed are held, too.
        for chunk in chunks.filter(|chunk| self.file.holds(*chunk).is_some()) {
            self.since.entry(chunk).or_insert(now);
        }
        let more = self.file.pages_in(extent.tier).0.saturating_sub(before.0);
        (Pages(more), result.map(drop))
    }
}

/// Why something could not be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) file: FileId,
    pub(super) why: Refusal,
}

/// The files that are held, by file.
#[derive(Debug)]
pub(super) struct LockedFiles {
    locks: Locks,
    files: BTreeMap<FileId, LockedFile>,
    /// Chunks that something is coming into, and in how many turns more they are looked at for it.
    coming: BTreeMap<ChunkId, u32>,
    /// The last chunk that was checked.
    checked: Option<ChunkId>,
}

impl LockedFiles {
    pub(super) const fn new(locks: Locks) -> Self {
        Self { locks, files: BTreeMap::new(), coming: BTreeMap::new(), checked: None }
    }

    /// What is held now, neighbours of the same age together.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let mut holdings: Vec<Holding> = Vec::new();
        for (id, kept) in &self.files {
            for (chunk, (blocks, tier), pages) in kept.file.chunks() {
                let since = kept.since.get(&chunk).copied().unwrap_or_default();
                let one = Extent { file: *id, first: chunk, chunks: 1, blocks, tier };
                match holdings.last_mut() {
                    Some(last) if joins(last, &one, since) => {
                        last.extent.chunks = last.extent.chunks.saturating_add(1);
                        last.pages = Pages(last.pages.0.saturating_add(pages.0));
                    }
                    Some(_) | None => holdings.push(Holding { extent: one, pages, since }),
                }
            }
        }
        holdings
    }

    /// Lets go of what the plan leaves out, whole chunks and parts of them. Soft chunks that were released count as such.
    pub(super) fn let_go(&mut self, plan: &Plan) {
        // They are in the same order as the chunks here.
        let mut extents = plan.extents.iter().peekable();
        self.files.retain(|id, kept| {
            while extents.next_if(|extent| extent.file < *id).is_some() {}
            if extents.peek().is_none_or(|extent| extent.file != *id) {
                return false;
            }
            let LockedFile { file, since, .. } = kept;
            since.retain(|chunk, _| {
                let ends = |extent: &Extent| extent.first.saturating_add(extent.chunks);
                while extents.next_if(|extent| extent.file == *id && ends(extent) <= *chunk).is_some() {}
                let stays = extents.peek().filter(|extent| covers(extent, *id, *chunk));
                match stays {
                    Some(extent) => file.narrow(*chunk, extent.blocks),
                    None => file.unlock(*chunk..chunk.saturating_add(1)),
                }
                stays.is_some()
            });
            file.forget_released();
            true
        });
    }

    /// Locks what the plan asks for and is not held, until it is enough of a tier; the rest is for the next turn, and so is
    /// what has to be opened first.
    pub(super) fn hold(
        &mut self,
        plan: &Plan,
        (mounts, opener): (&mut Mounts, &mut Opener),
        now: Nanos,
        locking: &Locking,
    ) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut given_up = BTreeSet::new();
        for extent in &plan.extents {
            if locking.is_enough(extent.tier) {
                continue;
            }
            if given_up.contains(&extent.file) {
                continue;
            }
            let held = if self.files.contains_key(&extent.file) {
                self.lock(extent, now, locking)
            } else {
                ask(extent.file, mounts, opener)
            };
            if let Err(why) = held {
                refused.push(Refused { file: extent.file, why });
                given_up.insert(extent.file);
                if matches!(why, Refusal::Full) {
                    break;
                }
            }
        }
        refused
    }

    /// Takes in a file that was opened, and locks what the plan asks for of it; nothing is kept of one that it does not ask
    /// for any more.
    ///
    /// # Errors
    /// [`Refusal`]
    pub(super) fn take(
        &mut self,
        opened: Opened,
        plan: &Plan,
        now: Nanos,
        locking: &Locking,
    ) -> Result<(), Refusal> {
        let id = opened.file.id();
        let mut extents = plan.extents.iter().filter(|extent| extent.file == id).peekable();
        if extents.peek().is_none() {
            return Ok(());
        }
        let Opened { file, path } = opened;
        self.files.entry(id).or_insert(LockedFile { file, path, since: BTreeMap::new() });
        extents.try_for_each(|extent| self.lock(extent, now, locking))
    }

    fn lock(&mut self, extent: &Extent, now: Nanos, locking: &Locking) -> Result<(), Refusal> {
        let Some(kept) = self.files.get_mut(&extent.file) else {
            return Ok(());
        };
        let wanted = Some((extent.blocks, extent.tier));
        let of_each = extent.blocks.pages(Pages(CHUNK_PAGES)).0;
        let end = extent.first.saturating_add(extent.chunks);
        let mut next = extent.first;
        while next < end && !locking.is_enough(extent.tier) {
            let chunks = next..next.saturating_add(STRIDE).min(end);
            next = chunks.end;
            let missing = chunks.clone().filter(|chunk| kept.file.holds(*chunk) != wanted);
            let most = missing.fold(0_u64, |sum, _| sum.saturating_add(of_each));
            if most == 0 {
                continue;
            }
            let locks = &self.locks;
            locking.lock(extent.tier, Pages(most), || kept.lock(locks, chunks, extent, now))?;
        }
        Ok(())
    }

    /// Locks what came into memory since, of chunks that are held; and, of some each time, what the kernel has unlocked
    /// ([`HotFile::recapture_in`]).
    pub(super) fn capture(&mut self, uses: &[Use]) {
        for used in uses.iter().filter(|used| used.added > 0 || used.evicted > 0) {
            let Some(kept) = self.files.get_mut(&used.chunk.file) else { continue };
            kept.file.widen(used.chunk.chunk, used.blocks);
            let times = if used.added > 0 { COMING } else { 1 };
            let left = self.coming.entry(used.chunk).or_default();
            *left = times.max(*left);
        }
        let files = &mut self.files;
        self.coming.retain(|ChunkId { file, chunk }, times| {
            let Some(kept) = files.get_mut(file).filter(|kept| kept.since.contains_key(chunk)) else {
                return false;
            };
            kept.file.capture_in(*chunk..chunk.saturating_add(1));
            *times = times.saturating_sub(1);
            *times > 0
        });
        for ChunkId { file, chunk } in self.next_checked() {
            if let Some(kept) = self.files.get_mut(&file) {
                kept.file.recapture_in(chunk..chunk.saturating_add(1));
            }
        }
    }

    /// The chunks whose turn it is to be checked, round and round.
    fn next_checked(&mut self) -> Vec<ChunkId> {
        let last = self.checked;
        let of_file = |file: FileId, kept: &LockedFile, after: Option<u32>| -> Vec<ChunkId> {
            let first = after.map_or(Bound::Unbounded, Bound::Excluded);
            let chunks = kept.since.range((first, Bound::Unbounded));
            chunks.take(CHECKED).map(|(chunk, _)| ChunkId { file, chunk: *chunk }).collect()
        };
        let mut next: Vec<ChunkId> = Vec::new();
        let from = last.map_or(Bound::Unbounded, |last| Bound::Included(last.file));
        for (file, kept) in self.files.range((from, Bound::Unbounded)) {
            let after = last.filter(|last| last.file == *file).map(|last| last.chunk);
            next.extend(of_file(*file, kept, after));
            if next.len() >= CHECKED {
                break;
            }
        }
        next.truncate(CHECKED);
        // The end was reached: the next time it begins anew.
        self.checked = next.last().copied().filter(|_| next.len() == CHECKED);
        next
    }

    /// Lets go of files that lost their last name: nothing else would give back their disk space.
    pub(super) fn drop_unlinked(&mut self) -> Vec<FileId> {
        let mut dropped = Vec::new();
        self.files.retain(|id, kept| {
            let linked = kept.file.links().is_ok_and(|links| links > 0);
            if !linked {
                dropped.push(*id);
            }
            linked
        });
        dropped
    }

    /// The files that are open.
    pub(super) fn files(&self) -> impl Iterator<Item = &HotFile> {
        self.files.values().map(|kept| &kept.file)
    }

    /// Since when a chunk is held.
    pub(super) fn since(&self, chunk: ChunkId) -> Option<Nanos> {
        self.files.get(&chunk.file)?.since.get(&chunk.chunk).copied()
    }

    /// Lets go of a chunk.
    pub(super) fn drop_chunk(&mut self, chunk: ChunkId) {
        if let Some(kept) = self.files.get_mut(&chunk.file) {
            kept.file.unlock(chunk.chunk..chunk.chunk.saturating_add(1));
            kept.since.remove(&chunk.chunk);
        }
    }

    /// Lets go of a file.
    pub(super) fn drop_file(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Lets go of all files of a device.
    pub(super) fn drop_device(&mut self, device: u32) {
        self.files.retain(|id, _| id.device != device);
    }

    /// Pages that are locked, of one file.
    pub(super) fn pages_of(&self, file: FileId, tier: Tier) -> Pages {
        self.files.get(&file).map_or(Pages(0), |kept| kept.file.pages_in(tier))
    }

    /// Pages that are locked, of all.
    pub(super) fn pages(&self, tier: Tier) -> Pages {
        let pages = self.files.values().map(|kept| kept.file.pages_in(tier).0);
        Pages(pages.fold(0, u64::saturating_add))
    }

    /// Where a file was when it was opened.
    pub(super) fn path(&self, file: FileId) -> Option<PathBuf> {
        self.files.get(&file).and_then(|kept| kept.path.clone())
    }
}

/// Has a file opened, unless it is being opened.
fn ask(file: FileId, mounts: &mut Mounts, opener: &mut Opener) -> Result<(), Refusal> {
    if !opener.is_asked(file) && opener.has_room() {
        opener.ask(mounts.way(file)?);
    }
    Ok(())
}

fn covers(extent: &Extent, file: FileId, chunk: u32) -> bool {
    extent.file == file && chunk >= extent.first && chunk.saturating_sub(extent.first) < extent.chunks
}

fn joins(last: &Holding, next: &Extent, since: Nanos) -> bool {
    let Extent { file, first, chunks, blocks, tier } = last.extent;
    let alike = (file, blocks, tier) == (next.file, next.blocks, next.tier);
    alike && last.since == since && first.saturating_add(chunks) == next.first
}
