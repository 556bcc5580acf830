//! What is remembered of the use of files: how often each chunk was gone through lately, halved every minute.
//!
//! A chunk is what is counted, its blocks are what is used of it: a program needs a third of its libraries to start, and
//! what lies between was only read ahead.
//!
//! A chunk's warmth counts pages used; over the pages of its blocks that is *passes*. One reading of a whole file leaves
//! one pass, so whoever has more than one was read again. With a half-life of a minute, a file that is read every 95
//! s or more often comes to 1.5 passes, from where on it counts as reused.

use super::{
    Barred, Blocks, CHUNK_PAGES, ChunkId, FileId, Use,
    bars::{Bars, lasts},
    chunk_pages, decay,
};
use crate::units::{Nanos, PageSize, Pages};
use alloc::{collections::BTreeMap, vec::Vec};

/// How long until half of a chunk's use is forgotten.
pub const HALF_LIFE: Nanos = Nanos(60_000_000_000);

/// How many chunks are remembered: 16 GiB of files with 4 KiB pages.
pub const CHUNKS_MAX: usize = 8192;

/// How many go at a time when there is no room: finding out which is worth it for many.
const SWEEP: usize = CHUNKS_MAX >> 3;

/// Bits of fraction in passes and in warmth.
pub(super) const FRACTION: u32 = 20;

/// 1.5 passes: used again.
pub(super) const REUSED: u64 = 3 << (FRACTION - 1);

/// How long until a block is forgotten that is not used when others of its chunk are; at most twice that. Long, as what is in
/// somebody's page tables is used without being seen.
const FORGOTTEN: Nanos = Nanos(300_000_000_000);

/// What comes in ahead of a reader is read within so long, or not by that reader: 8 MiB, as much as is read ahead on some
/// machines, at 1.6 MB/s.
const AHEAD: Nanos = Nanos(5_000_000_000);

/// How long a fault waits for its page at most, nearly always: two turns.
const FAULT: Nanos = Nanos(1_000_000_000);

/// How long an executable counts as running when the list of those is not renewed.
const RUNNING: Nanos = Nanos(30_000_000_000);

/// How long it is known of a file that more of it is reused than is remembered.
const OVERFLOWED: Nanos = Nanos(120_000_000_000);

/// How long memory counts as short after reclaim took pages of files.
const PRESSED: Nanos = Nanos(30_000_000_000);

/// How much more a chunk is worth to be remembered when it was used again.
const REUSE_WORTH: u64 = 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// Pages used, with [`FRACTION`], as of `at`.
    warmth: u64,
    at: Nanos,
    /// Pages that came in ahead of a reader, were counted for that, and were not seen being read yet.
    ahead: u64,
    ahead_until: Nanos,
    /// Blocks of which a fault was counted that may not be over: where its page had to be read, it is told once more when that
    /// is there.
    faulted: Blocks,
    faulted_until: Nanos,
    /// What was used since `turned`, and what was before.
    blocks: Blocks,
    before: Blocks,
    turned: Nanos,
    /// Those of them that were seen being used; the others came in with them.
    seen: Blocks,
    /// Had [`REUSED`] passes at some time.
    again: bool,
    /// Not to be held, though its file may be.
    withheld: Option<(Barred, Nanos)>,
}

/// What one drain tells of a chunk, in pages.
#[derive(Debug, Clone, Copy)]
struct Drained {
    /// Used, seen or inferred.
    accessed: u64,
    seen: u64,
    /// Came in ahead of a reader.
    ahead: u64,
    /// Not all that was used was seen.
    blind: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileFacts {
    bytes: u64,
    chunks: usize,
    running_until: Nanos,
    mapped_until: Nanos,
    overflowed_until: Nanos,
}

/// What is remembered. Bounded by [`CHUNKS_MAX`].
#[derive(Debug, Clone)]
pub struct Heat {
    page_size: PageSize,
    files: BTreeMap<FileId, FileFacts>,
    chunks: BTreeMap<(FileId, u32), Chunk>,
    bars: Bars,
    pressed_until: Nanos,
    /// When accesses were last not watched.
    blind: Option<Nanos>,
}

impl Heat {
    /// Nothing remembered yet, on a machine with such pages.
    #[must_use]
    pub fn new(page_size: PageSize) -> Self {
        Self {
            page_size,
            files: BTreeMap::new(),
            chunks: BTreeMap::new(),
            bars: Bars::default(),
            pressed_until: Nanos(0),
            blind: None,
        }
    }

    /// Takes in what happened since the last call. `executables` are all files that running processes have mapped
    /// executable, in any order; empty where nobody looked this time (there are always some).
    pub fn observe(&mut self, uses: &[Use], executables: &[FileId], now: Nanos) {
        // What is mapped first: of those files, what comes in is not what is used.
        let (mapped, read): (Vec<&Use>, Vec<&Use>) = uses.iter().partition(|one| one.mapped);
        for one in mapped.into_iter().chain(read) {
            self.take(one, now);
        }
        for file in executables {
            if let Some(facts) = self.files.get_mut(file) {
                facts.running_until = now.saturating_add(RUNNING);
            }
        }
    }

    /// Says that accesses were not watched all the time since the last call of [`Heat::observe`]: what was not seen may have
    /// been used all the same.
    pub const fn was_blind(&mut self, now: Nanos) {
        self.blind = Some(now);
    }

    /// Says that a file cannot be held, until a time when that may have changed.
    pub fn bar(&mut self, file: FileId, why: Barred, until: Nanos) {
        self.bars.bar(file, why, until);
    }

    /// Says that a chunk cannot be held though the rest of its file may be, until a time when that may have changed.
    pub fn withhold(&mut self, chunk: ChunkId, why: Barred, until: Nanos) {
        if let Some(known) = self.chunks.get_mut(&(chunk.file, chunk.chunk)) {
            known.withheld = Some((why, until));
        }
    }

    /// Forgets all files of a device (the kernel's encoding, as in [`FileId::device`]): it is gone, or going.
    pub fn forget_device(&mut self, device: u32) {
        self.files.retain(|file, _| file.device != device);
        self.chunks.retain(|(file, _), _| file.device != device);
        self.bars.forget_device(device);
    }

    /// Whether a file is barred now, and why.
    #[must_use]
    pub fn barred(&self, file: FileId, now: Nanos) -> Option<Barred> {
        self.bars.get(file, now)
    }

    /// How many files are barred now, as a whole or in part, by reason.
    #[must_use]
    pub fn barred_counts(&self, now: Nanos) -> Vec<(Barred, u64)> {
        let mut counts = self.bars.counts(now);
        let mut last = None;
        for (&(file, _), chunk) in &self.chunks {
            let Some(why) = chunk.withheld(now).filter(|_| last != Some(file)) else { continue };
            last = Some(file);
            match counts.iter_mut().find(|(barred, _)| *barred == why) {
                Some((_, count)) => *count = count.saturating_add(1),
                None => counts.push((why, 1)),
            }
        }
        counts.sort_unstable();
        counts
    }

    /// How many chunks are remembered.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// How many files are remembered.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The size of a file that is remembered, in bytes.
    #[must_use]
    pub fn file_bytes(&self, file: FileId) -> Option<u64> {
        self.files.get(&file).map(|facts| facts.bytes)
    }

    /// Whether reclaim took pages of files lately.
    #[must_use]
    pub const fn is_pressed(&self, now: Nanos) -> bool {
        lasts(self.pressed_until, now)
    }

    /// The machine's page size.
    #[must_use]
    pub const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Each file with its remembered chunks, in order.
    pub(super) fn each(&self) -> impl Iterator<Item = (FileId, &FileFacts)> {
        self.files.iter().map(|(file, facts)| (*file, facts))
    }

    /// Each remembered chunk with its file, in the same order.
    pub(super) fn all(&self) -> impl Iterator<Item = (FileId, u32, &Chunk)> {
        self.chunks.iter().map(|((file, chunk), facts)| (*file, *chunk, facts))
    }

    fn take(&mut self, one: &Use, now: Nanos) {
        let file = one.chunk.file;
        if one.evicted > 0 {
            self.pressed_until = now.saturating_add(PRESSED);
        }
        self.bars.look(file, one.barred, now);
        if self.bars.get(file, now).is_some() {
            return;
        }
        let pages = chunk_pages(one.file_bytes, one.chunk.chunk, self.page_size);
        let mut is_mapped = one.mapped;
        if let Some(facts) = self.files.get_mut(&file) {
            facts.bytes = one.file_bytes;
            is_mapped |= lasts(facts.mapped_until, now);
        }
        if one.evicted > 0 {
            // What comes in again is for another fault.
            self.end_faults(one.chunk);
        }
        // Faults are always seen, if they are ever, and bring in far more than is used.
        if is_mapped && one.blocks.is_empty() {
            return;
        }
        // What is read ahead of a reader will be read, and may be gone again by then. Around a fault most is for nothing.
        let ahead = if is_mapped { 0 } else { one.added };
        let blocks = if ahead > 0 || one.blocks.is_empty() { Blocks::ALL } else { one.blocks };
        let most = blocks.pages(pages).0;
        // A fault maps what is in memory of a block; all of it is what is held for that.
        let by_fault = one.mapped && !one.blocks.is_empty();
        let key = (file, one.chunk.chunk);
        let accessed = match self.chunks.get_mut(&key) {
            _ if !by_fault => one.accessed.min(most),
            // A fault that was waited for was counted when it began.
            Some(chunk) => chunk.begin_faults(one, now).pages(pages).0,
            None => most,
        };
        let ahead = ahead.min(most);
        if accessed.max(ahead) == 0 {
            return;
        }
        let seen = if one.blocks.is_empty() { 0 } else { accessed };
        let drained = Drained { accessed, seen, ahead, blind: self.blind == Some(now) };
        if let Some(chunk) = self.chunks.get_mut(&key) {
            chunk.add(blocks, pages, self.blind, now);
            chunk.warm(drained, pages, now);
            chunk.seen |= one.blocks;
            self.note_mapped(one, now);
            return;
        }
        if self.chunks.len() >= CHUNKS_MAX {
            self.sweep(now);
        }
        let facts = self.files.entry(file).or_default();
        facts.bytes = one.file_bytes;
        facts.chunks = facts.chunks.saturating_add(1);
        let mut chunk = Chunk {
            warmth: 0,
            at: now,
            ahead: 0,
            ahead_until: now,
            faulted: Blocks::default(),
            faulted_until: now,
            blocks,
            before: Blocks::default(),
            turned: now,
            seen: one.blocks,
            again: false,
            withheld: None,
        };
        if by_fault {
            chunk.begin_faults(one, now);
        }
        chunk.warm(drained, pages, now);
        self.chunks.insert(key, chunk);
        self.note_mapped(one, now);
    }

    fn end_faults(&mut self, chunk: ChunkId) {
        if let Some(known) = self.chunks.get_mut(&(chunk.file, chunk.chunk)) {
            known.faulted = Blocks::default();
        }
    }

    fn note_mapped(&mut self, one: &Use, now: Nanos) {
        let Some(facts) = self.files.get_mut(&one.chunk.file).filter(|_| one.mapped) else { return };
        let was = lasts(facts.mapped_until, now);
        facts.mapped_until = now.saturating_add(FORGOTTEN);
        if !was {
            self.forget_guesses(one.chunk.file, now);
        }
    }

    /// A file turns out to be mapped: what came in before the fault was done, it was for, is not what is used.
    fn forget_guesses(&mut self, file: FileId, now: Nanos) {
        let mut unused = Vec::new();
        for ((_, index), chunk) in self.chunks.range_mut((file, 0)..=(file, u32::MAX)) {
            if !chunk.forget_guesses(now) {
                unused.push(*index);
            }
        }
        unused.into_iter().for_each(|index| self.drop_chunk((file, index), now));
    }

    /// Makes room: the chunks that are worth least go. Much of one file is worth less each, so that the largest files
    /// do not crowd out all others; and what was used again is worth more than what was used once, however lately.
    fn sweep(&mut self, now: Nanos) {
        let mut worths: Vec<(u64, (FileId, u32))> = Vec::with_capacity(self.chunks.len());
        let mut last: Option<(FileId, FileFacts)> = None;
        for (&(file, index), chunk) in &self.chunks {
            let facts = match last {
                Some((same, facts)) if same == file => facts,
                Some(_) | None => self.files.get(&file).copied().unwrap_or_default(),
            };
            last = Some((file, facts));
            let pages = chunk_pages(facts.bytes, index, self.page_size);
            let running = if facts.is_running(now) { REUSED } else { 0 };
            let again = if chunk.again { REUSE_WORTH } else { 1 };
            let share = u64::try_from(facts.chunks >> 8).unwrap_or(u64::MAX).saturating_add(1);
            let worth = chunk.passes(pages, now).max(running).saturating_mul(again);
            worths.push((worth.checked_div(share).unwrap_or(0), (file, index)));
        }
        if worths.len() > SWEEP {
            worths.select_nth_unstable(SWEEP);
            worths.truncate(SWEEP);
        }
        for (_, key) in worths {
            self.drop_chunk(key, now);
        }
    }

    fn drop_chunk(&mut self, key: (FileId, u32), now: Nanos) {
        let Some(chunk) = self.chunks.remove(&key) else { return };
        let Some(facts) = self.files.get_mut(&key.0) else { return };
        facts.chunks = facts.chunks.saturating_sub(1);
        if chunk.again && facts.chunks > 0 {
            facts.overflowed_until = now.saturating_add(OVERFLOWED);
        }
        if facts.chunks == 0 {
            self.files.remove(&key.0);
        }
    }
}

impl Chunk {
    /// These blocks were used. Those that were not for a while in which others were, and all was seen, are forgotten, with
    /// what warmth they brought. `pages`: all that it has.
    fn add(&mut self, used: Blocks, pages: Pages, blind: Option<Nanos>, now: Nanos) {
        if now.saturating_sub(self.turned) >= FORGOTTEN {
            if blind.is_some_and(|blind| blind >= self.turned) {
                self.before |= self.blocks;
            } else {
                let all = (self.blocks | self.before).pages(pages);
                let kept = self.warmth.saturating_mul(self.blocks.pages(pages).0).checked_div(all.0);
                (self.warmth, self.before) = (kept.unwrap_or(0), self.blocks);
            }
            (self.blocks, self.turned) = (Blocks::default(), now);
        }
        self.blocks |= used;
    }

    /// What of it is used. Where that is most of it, it is all: a read that meets a page which is still on its way tells
    /// nothing of the pages before it (`filemap_get_pages`, mm/filemap.c, 6.12 to 7.2). `pages`: all that it has.
    pub(super) fn blocks(&self, pages: Pages) -> Blocks {
        let used = self.blocks | self.before;
        let most = pages.0.saturating_sub(pages.0 >> 2);
        if used.pages(pages).0 >= most { Blocks::ALL } else { used }
    }

    /// What was used of it since the last drain. What came in ahead of a reader then, and is read now, is no other pass.
    /// `pages`: all that it has.
    fn warm(&mut self, drained: Drained, pages: Pages, now: Nanos) {
        let Drained { accessed, seen, ahead, blind } = drained;
        let known = if lasts(self.ahead_until, now) { self.ahead } else { 0 };
        // Where it was not seen whether that was read, what comes again is taken for read.
        let comes = if blind { ahead } else { ahead.min(pages.0.saturating_sub(known)) };
        let used = accessed.saturating_sub(known).max(comes);
        let counted = if ahead > 0 { used } else { 0 };
        if counted > 0 {
            self.ahead_until = now.saturating_add(AHEAD);
        }
        self.ahead = known.saturating_add(counted).saturating_sub(seen).min(pages.0);
        self.warmth = self.warmth_at(now).saturating_add(used << FRACTION);
        self.at = now;
        self.again |= self.passes(pages, now) >= REUSED;
    }

    /// Notes faults, which may wait for their pages where something came in. Gives the blocks that were not waited for before.
    fn begin_faults(&mut self, one: &Use, now: Nanos) -> Blocks {
        let known = if lasts(self.faulted_until, now) { self.faulted } else { Blocks::default() };
        let new = one.blocks.without(known);
        // What was waited for is there.
        self.faulted = known.without(one.blocks);
        if one.added > 0 && !new.is_empty() {
            self.faulted |= new;
            self.faulted_until = now.saturating_add(FAULT);
        }
        new
    }

    /// Keeps what was seen being used of it, as used once. Whether anything was.
    fn forget_guesses(&mut self, now: Nanos) -> bool {
        if self.seen.covers(self.blocks | self.before) {
            return true;
        }
        (self.blocks, self.before) = (self.blocks & self.seen, self.before & self.seen);
        let once = (self.blocks | self.before).pages(Pages(CHUNK_PAGES)).0 << FRACTION;
        (self.warmth, self.at, self.ahead) = (self.warmth_at(now).min(once), now, 0);
        self.again = false;
        once > 0
    }

    fn warmth_at(&self, now: Nanos) -> u64 {
        decay::left(self.warmth, now.saturating_sub(self.at), HALF_LIFE)
    }

    /// Why it is not to be held, if so.
    pub(super) fn withheld(&self, now: Nanos) -> Option<Barred> {
        self.withheld.filter(|(_, until)| lasts(*until, now)).map(|(why, _)| why)
    }

    /// Whether it was ever used again, as far as is remembered.
    pub(super) const fn again(&self) -> bool {
        self.again
    }

    /// How often what is used of it was gone through, with [`FRACTION`]. `pages`: all that it has.
    pub(super) fn passes(&self, pages: Pages, now: Nanos) -> u64 {
        self.warmth_at(now).checked_div(self.blocks(pages).pages(pages).0).unwrap_or(0)
    }
}

impl FileFacts {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a running process has it mapped executable.
    pub(super) const fn is_running(&self, now: Nanos) -> bool {
        lasts(self.running_until, now)
    }

    /// Whether reused chunks of it had to be forgotten: more of it is reused than is known.
    pub(super) const fn is_overflowed(&self, now: Nanos) -> bool {
        lasts(self.overflowed_until, now)
    }
}

#[cfg(test)]
mod tests;
