//! What to hold: the ranking cut to the budget.

use super::{
    Barred, Blocks, FileId,
    heat::Heat,
    rank::{self, Piece},
};
use crate::units::{Nanos, Pages};
use alloc::{collections::BTreeMap, vec::Vec};
use core::{cmp::Reverse, fmt};
use serde::{Deserialize, Serialize};

/// How many files are held at once: each takes an open file of the daemon's.
pub const FILES_MAX: usize = 1024;

/// How long what is held may still be coming into the cache. Until then it is reckoned with as if all of it were there, and
/// all that is held of a chunk stays; after that as what it is, and what is used of it.
const SETTLED: Nanos = Nanos(20_000_000_000);

/// How much may be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// In the hard tier.
    pub hard: Pages,
    /// In the soft tier, on top of it.
    pub soft: Pages,
}

impl Budget {
    /// Both tiers together.
    #[must_use]
    pub const fn total(self) -> Pages {
        self.hard.saturating_add(self.soft)
    }
}

/// How firmly something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// While it is hot.
    Hard,
    /// While it is hot and reclaim makes progress.
    Soft,
}

/// Neighbouring chunks of one file, of which the same blocks are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Whose.
    pub file: FileId,
    /// The first of them.
    pub first: u32,
    /// How many.
    pub chunks: u32,
    /// What is held of each of them.
    pub blocks: Blocks,
    /// How firmly.
    pub tier: Tier,
}

/// What is held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Where.
    pub extent: Extent,
    /// What is really locked of it: pages that were not in the cache are not.
    pub pages: Pages,
    /// Since when.
    pub since: Nanos,
}

/// Why a file is held, or is not though it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It is read again and again.
    Reused,
    /// A part of it is used more than the rest.
    HotPart,
    /// Running processes have it mapped executable.
    Running,
    /// It is read again and again, and larger than the budget: its beginning is held where room is left.
    TooLarge,
    /// It was read lately, memory is short, and there is room.
    Recent,
    /// Others are used more and take the budget.
    NoRoom,
    /// More files are used than can be held at once.
    TooMany,
    /// It must not be held.
    Barred(Barred),
}

impl Why {
    /// The stable text, as in `protect show --json`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::HotPart => "hot-part",
            Self::Running => "running",
            Self::TooLarge => "too-large",
            Self::Recent => "recent",
            Self::NoRoom => "no-room",
            Self::TooMany => "too-many",
            Self::Barred(barred) => barred.text(),
        }
    }
}

impl fmt::Display for Why {
    /// In plain words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reused => f.write_str("it is read again and again"),
            Self::HotPart => f.write_str("a part of it is used more than the rest"),
            Self::Running => f.write_str("running programs are made of it"),
            Self::TooLarge => f.write_str("it is read again and again, and larger than the budget"),
            Self::Recent => f.write_str("it was read lately, memory is short, and there is room"),
            Self::NoRoom => f.write_str("other files are used more and take the budget"),
            Self::TooMany => f.write_str("more files are used than can be held at once"),
            Self::Barred(barred) => barred.fmt(f),
        }
    }
}

/// What a plan makes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlan {
    /// Which.
    pub file: FileId,
    /// Pages of it that are to be held in the hard tier, as reckoned with.
    pub hard: Pages,
    /// In the soft tier.
    pub soft: Pages,
    /// Pages of it that are worth holding.
    pub wanted: Pages,
    /// Why it is held, or why not.
    pub why: Why,
}

/// What to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Everything to hold, in order of file and place; what is not in it is to be let go.
    pub extents: Vec<Extent>,
    /// Each file that is worth holding, in order.
    pub files: Vec<FilePlan>,
}

impl Plan {
    /// What of the budget it takes.
    #[must_use]
    pub fn taken(&self) -> Budget {
        let hard = self.files.iter().map(|file| file.hard).sum();
        Budget { hard, soft: self.files.iter().map(|file| file.soft).sum() }
    }
}

/// Decides what to hold, by what is remembered and by what is held already.
///
/// Worth doing three times a second while memory is short ([`Heat::is_pressed`]): what was just read is gone again
/// within a second. Otherwise once a second will do. It takes 0.5 ms with as many chunks as can be remembered in a
/// few files, 3 ms with each in a file of its own.
#[must_use]
pub fn plan(heat: &Heat, held: &[Holding], budget: Budget, now: Nanos) -> Plan {
    let held = Held::new(held, now);
    let mut pieces = rank::pieces(heat, &held, budget, now);
    let kept = keep_files(&pieces);
    pieces.sort_unstable_by_key(|one| (one.class, Reverse(one.rate), one.file, one.chunk));
    let mut left = budget;
    let mut chosen: Vec<(FileId, u32, Blocks, Tier)> = Vec::new();
    let mut files: BTreeMap<FileId, FilePlan> = BTreeMap::new();
    for piece in &pieces {
        let kept = kept.as_ref().is_none_or(|kept| kept.binary_search(&piece.file).is_ok());
        let tier = if kept { left.take(piece.cost) } else { None };
        let missed = if kept { Why::NoRoom } else { Why::TooMany };
        let file = files.entry(piece.file).or_insert_with(|| FilePlan::of(piece, missed));
        file.add(piece, tier);
        chosen.extend(tier.map(|tier| (piece.file, piece.chunk, piece.blocks, tier)));
    }
    chosen.sort_unstable();
    Plan { extents: extents(&chosen), files: files.into_values().collect() }
}

/// The files to hold where there are more than can be, in order: those with most use in all; `None`: all of them. The
/// pieces come file by file.
fn keep_files(pieces: &[Piece]) -> Option<Vec<FileId>> {
    let mut files: Vec<(Reverse<u128>, FileId)> = Vec::new();
    for one in pieces {
        let weight = u128::from(one.rate).saturating_mul(u128::from(one.cost.0));
        match files.last_mut() {
            Some((sum, file)) if *file == one.file => sum.0 = sum.0.saturating_add(weight),
            Some(_) | None => files.push((Reverse(weight), one.file)),
        }
    }
    if files.len() <= FILES_MAX {
        return None;
    }
    files.select_nth_unstable(FILES_MAX);
    files.truncate(FILES_MAX);
    let mut kept: Vec<FileId> = files.into_iter().map(|(_, file)| file).collect();
    kept.sort_unstable();
    Some(kept)
}

impl Budget {
    /// Takes a piece out of the first tier that has room for all of it.
    fn take(&mut self, cost: Pages) -> Option<Tier> {
        for (left, tier) in [(&mut self.hard, Tier::Hard), (&mut self.soft, Tier::Soft)] {
            if cost <= *left {
                *left = left.saturating_sub(cost);
                return Some(tier);
            }
        }
        None
    }
}

impl FilePlan {
    const fn of(piece: &Piece, missed: Why) -> Self {
        Self { file: piece.file, hard: Pages(0), soft: Pages(0), wanted: Pages(0), why: missed }
    }

    fn add(&mut self, piece: &Piece, tier: Option<Tier>) {
        let more = |pages: Pages| pages.saturating_add(piece.cost);
        self.wanted = more(self.wanted);
        // A file's pieces come in the order of their worth: the first that is held says why.
        if tier.is_some() && self.hard == Pages(0) && self.soft == Pages(0) {
            self.why = piece.why;
        }
        match tier {
            Some(Tier::Hard) => self.hard = more(self.hard),
            Some(Tier::Soft) => self.soft = more(self.soft),
            None => {}
        }
    }
}

fn extents(chosen: &[(FileId, u32, Blocks, Tier)]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for &(file, chunk, blocks, tier) in chosen {
        match extents.last_mut() {
            Some(last)
                if last.file == file
                    && (last.blocks, last.tier) == (blocks, tier)
                    && last.first.saturating_add(last.chunks) == chunk =>
            {
                last.chunks = last.chunks.saturating_add(1);
            }
            Some(_) | None => extents.push(Extent { file, first: chunk, chunks: 1, blocks, tier }),
        }
    }
    extents
}

/// What is held, to be asked by chunk.
#[derive(Debug)]
pub(super) struct Held(BTreeMap<(FileId, u32), (u32, HeldChunk)>);

/// How one chunk is held.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldChunk {
    pub(super) tier: Tier,
    pub(super) blocks: Blocks,
    /// Nothing of it is on its way into the cache any more.
    pub(super) settled: bool,
    /// Locked of it: more than its blocks have where the kernel maps all of a large folio.
    pages: Pages,
}

impl HeldChunk {
    /// What it takes of the budget when these blocks are held, of a chunk of so many pages.
    pub(super) fn cost(self, blocks: Blocks, whole: Pages) -> Pages {
        let stays = (blocks & self.blocks).pages(whole);
        let kept = match (self.settled, blocks.covers(self.blocks)) {
            (true, true) => self.pages,
            (true, false) => self.pages.min(stays),
            (false, _) => self.pages.max(stays),
        };
        kept.saturating_add(blocks.without(self.blocks).pages(whole)).min(whole)
    }
}

impl Held {
    fn new(holdings: &[Holding], now: Nanos) -> Self {
        let mut held = BTreeMap::new();
        for Holding { extent, pages, since } in holdings {
            let settled = now.saturating_sub(*since) >= SETTLED;
            let each = pages.0.div_ceil(u64::from(extent.chunks.max(1)));
            let how = HeldChunk { tier: extent.tier, blocks: extent.blocks, settled, pages: Pages(each) };
            held.insert((extent.file, extent.first), (extent.first.saturating_add(extent.chunks), how));
        }
        Self(held)
    }

    /// How a chunk is held, if it is.
    pub(super) fn get(&self, file: FileId, chunk: u32) -> Option<HeldChunk> {
        let (_, &(end, how)) = self.0.range((file, 0)..=(file, chunk)).next_back()?;
        (chunk < end).then_some(how)
    }
}

#[cfg(test)]
mod tests;
