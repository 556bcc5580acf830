//! A page cache in small: parts of 128 pages, least recently used first out, locked ones never.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pages in a part: what readahead brings in at a time.
pub(crate) const PART_PAGES: u64 = 128;
/// Parts in a chunk.
pub(crate) const PARTS: u32 = 4;

/// A part: the file, by its place in a list, and which of the file's.
pub(crate) type Part = (usize, u32);

#[derive(Debug, Clone, Copy)]
struct Resident {
    stamp: u64,
    pages: u64,
    locked: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    room: u64,
    used: u64,
    locked: u64,
    stamp: u64,
    parts: HashMap<Part, Resident>,
    oldest: BTreeMap<u64, Part>,
    wanted: BTreeSet<(usize, u32)>,
    allowed: u64,
    evicted: Vec<(Part, u64)>,
}

impl Cache {
    /// Changes how many pages the cache may have, and evicts what is too much; what is locked stays.
    pub(crate) fn resize(&mut self, room: u64) {
        self.room = room;
        while self.used > self.room {
            let Some((_, part)) = self.oldest.pop_first() else { return };
            let gone = self.parts.remove(&part).unwrap();
            self.used -= gone.pages;
            self.evicted.push((part, gone.pages));
        }
    }

    /// Uses a part of so many pages; whether it was there.
    pub(crate) fn touch(&mut self, part: Part, pages: u64) -> bool {
        self.stamp += 1;
        if let Some(resident) = self.parts.get_mut(&part) {
            if !resident.locked {
                self.oldest.remove(&resident.stamp);
                self.oldest.insert(self.stamp, part);
            }
            resident.stamp = self.stamp;
            return true;
        }
        if pages + self.locked > self.room {
            return false;
        }
        self.parts.insert(part, Resident { stamp: self.stamp, pages, locked: false });
        self.oldest.insert(self.stamp, part);
        self.used += pages;
        self.resize(self.room);
        false
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains_key(&part)
    }

    /// Locks what is there of these chunks, up to so many pages, and unlocks all else.
    pub(crate) fn hold(&mut self, chunks: BTreeSet<(usize, u32)>, allowed: u64) {
        self.wanted = chunks;
        self.allowed = allowed;
        for (part, resident) in &mut self.parts {
            if resident.locked && !self.wanted.contains(&(part.0, part.1 / PARTS)) {
                resident.locked = false;
                self.locked -= resident.pages;
                self.oldest.insert(resident.stamp, *part);
            }
        }
        self.capture();
    }

    /// Locks what came in since.
    pub(crate) fn capture(&mut self) {
        for (part, resident) in &mut self.parts {
            let fits = self.locked + resident.pages <= self.allowed;
            if !resident.locked && fits && self.wanted.contains(&(part.0, part.1 / PARTS)) {
                resident.locked = true;
                self.locked += resident.pages;
                self.oldest.remove(&resident.stamp);
            }
        }
    }

    pub(crate) const fn locked(&self) -> u64 {
        self.locked
    }

    /// Locked pages of a chunk.
    pub(crate) fn locked_in(&self, file: usize, chunk: u32) -> u64 {
        let parts = (chunk * PARTS..(chunk + 1) * PARTS).filter_map(|part| self.parts.get(&(file, part)));
        parts.filter(|part| part.locked).map(|part| part.pages).sum()
    }

    /// What was evicted since the last call.
    pub(crate) fn take_evicted(&mut self) -> Vec<(Part, u64)> {
        std::mem::take(&mut self.evicted)
    }
}
