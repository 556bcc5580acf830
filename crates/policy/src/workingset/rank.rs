//! Which chunks are worth holding, and how they compare.
//!
//! A file's chunks are parted into *levels* of like use. What is read from end to end, round after round, is one
//! level: a chunk whose turn in this round has not come yet has one pass less than one whose turn has, which is at
//! least a third of it where that one has 1.5. A hot part of a database is a level of its own above the rest.
//!
//! A level stands or falls as a whole: held by halves, a file that is read in rounds is as slow as its other half. So
//! a level that is larger than the budget, however often it is read, comes after every one that fits. That is a
//! stream, and a part of it is held only where room is left.
//!
//! What is still left goes, while memory is short, to what was used once and is of a file that fits: the first round of
//! what may turn out to be many. And to what that round comes to next, which is gone again before the next plan otherwise:
//! a slow disk would need two rounds and a half until all of it is held.

use super::{
    Blocks, Budget, FileId, Tier, Why, chunk_count, chunk_pages,
    heat::Heat,
    heat::REUSED,
    plan::{Held, HeldChunk},
};
use crate::units::{Nanos, Pages};
use alloc::vec::Vec;

/// Chunks of one level are at least this fraction as warm as its warmest: a third as above, and some slack for rounds
/// of unequal length.
const LEVEL: u64 = 4;

/// So much of a level has to be reused for all of it to count: with an eighth of a file in its second round, the rest
/// of it will have its turn.
const EVIDENCE: u64 = 8;

/// What executables of running processes are worth more.
const RUNNING_WORTH: u64 = 4;

/// A chunk that was gone through about once, within the last minute, is this warm.
const RECENT: u64 = REUSED / 3;

/// So many chunks after what was just used are held though they were not, those at the file's beginning after its last: what a
/// disk of 400 MB/s reads from one plan to the next while what may be held is taken.
const AHEAD: u32 = 64;

/// Files of fewer pages are not worth opening until they are used again.
const RECENT_FILE_PAGES: u64 = 256;

/// How a chunk compares with all others; the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Reused, and its level fits the budget.
    Fitting,
    /// Its level is larger than the budget.
    TooLarge,
    /// Used once.
    Recent,
}

/// A chunk that could be held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) file: FileId,
    pub(super) chunk: u32,
    /// What of it is to be held.
    pub(super) blocks: Blocks,
    /// What it takes of the budget.
    pub(super) cost: Pages,
    pub(super) class: Class,
    /// Passes of its level, on average, with what makes it worth more.
    pub(super) rate: u64,
    pub(super) why: Why,
}

#[derive(Debug, Clone, Copy)]
struct Warm {
    chunk: u32,
    blocks: Blocks,
    /// Of those, and of all that it has.
    pages: Pages,
    whole: Pages,
    passes: u64,
    /// It was used again at some time.
    again: bool,
    held: Option<HeldChunk>,
}

/// All chunks worth holding, unordered; only of files that are not barred.
pub(super) fn pieces(heat: &Heat, held: &Held, budget: Budget, now: Nanos) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut warm, mut withheld): (Vec<Warm>, Vec<u32>) = (Vec::new(), Vec::new());
    // Files and chunks are in the same order: one walk through both.
    let mut chunks = heat.all().peekable();
    for (file, facts) in heat.each() {
        let barred = heat.barred(file, now).is_some();
        let running = facts.is_running(now);
        warm.clear();
        withheld.clear();
        while let Some((_, chunk, one)) = chunks.next_if(|(whose, _, _)| *whose == file) {
            if barred || one.withheld(now).is_some() {
                withheld.push(chunk);
                continue;
            }
            let whole = chunk_pages(facts.bytes(), chunk, heat.page_size());
            let passes = one.passes(whole, now).max(if running { REUSED } else { 0 });
            let held = held.get(file, chunk);
            let stays = held.filter(|held| !held.settled).map_or(Blocks::default(), |held| held.blocks);
            let blocks = one.blocks(whole) | stays;
            let pages = blocks.pages(whole);
            let blocks = if pages == whole { Blocks::ALL } else { blocks };
            if pages.0 > 0 && passes > 0 {
                warm.push(Warm { chunk, blocks, pages, whole, passes, again: one.again() || running, held });
            }
        }
        warm.sort_unstable_by(|one, other| other.passes.cmp(&one.passes).then(one.chunk.cmp(&other.chunk)));
        let of = Of { file, running, overflowed: facts.is_overflowed(now), known: warm.len(), budget };
        let begin = pieces.len();
        let mut rest = warm.as_slice();
        while let Some(first) = rest.first() {
            let least = first.passes.checked_div(LEVEL).unwrap_or(0);
            let count = rest.partition_point(|one| one.passes >= least).max(1);
            let (level, after) = rest.split_at(count.min(rest.len()));
            rest = after;
            let whole = Pages(facts.bytes().checked_shr(heat.page_size().shift()).unwrap_or(0));
            let fits = (RECENT_FILE_PAGES..=budget.total().0).contains(&whole.0);
            if is_reused(level) {
                take_level(&mut pieces, level, of);
            } else if fits && heat.is_pressed(now) {
                take_recent(&mut pieces, level, file);
            }
        }
        let count = chunk_count(facts.bytes(), heat.page_size());
        let ahead = ahead_of(pieces.get(begin..).unwrap_or_default(), &withheld, count, |chunk| {
            let pages = chunk_pages(facts.bytes(), chunk, heat.page_size());
            let held = held.get(file, chunk);
            Warm { chunk, blocks: Blocks::ALL, pages, whole: pages, passes: 0, again: false, held }
        });
        pieces.extend(ahead);
    }
    pieces
}

/// What a level's pieces have in common.
#[derive(Debug, Clone, Copy)]
struct Of {
    file: FileId,
    running: bool,
    overflowed: bool,
    /// Chunks of the file that are remembered.
    known: usize,
    budget: Budget,
}

/// Whether so much of a level is reused that the rest of it will be.
fn is_reused(level: &[Warm]) -> bool {
    // What is held because it was used again counts twice, so that it is not given up for one round that is late.
    // What is held and was used once stays what it is.
    let reused = sum(level, |one| if one.again && one.doubled() >= REUSED { one.pages.0 } else { 0 });
    reused > 0 && reused.saturating_mul(EVIDENCE) >= sum(level, |one| one.pages.0)
}

fn sum(level: &[Warm], pick: fn(&Warm) -> u64) -> u64 {
    level.iter().fold(0_u64, |sum, one| sum.saturating_add(pick(one)))
}

fn take_level(pieces: &mut Vec<Piece>, level: &[Warm], of: Of) {
    let pages = sum(level, |one| one.pages.0);
    let warmth = sum(level, |one| one.passes.saturating_mul(one.pages.0));
    let rate = warmth.checked_div(pages).unwrap_or(0);
    let rate = if of.running { rate.saturating_mul(RUNNING_WORTH) } else { rate };
    let too_large = of.overflowed || pages > of.budget.total().0;
    let why = if too_large {
        Why::TooLarge
    } else if of.running {
        Why::Running
    } else if level.len() < of.known >> 1 {
        Why::HotPart
    } else {
        Why::Reused
    };
    let class = if too_large { Class::TooLarge } else { Class::Fitting };
    pieces.extend(level.iter().map(|one| one.piece(of.file, rate, (class, why))));
}

fn take_recent(pieces: &mut Vec<Piece>, level: &[Warm], file: FileId) {
    let recent = level.iter().filter(|one| one.doubled() >= RECENT);
    pieces.extend(recent.map(|one| one.piece(file, one.passes, (Class::Recent, Why::Recent))));
}

/// What comes after chunks of one file of so many that were used once and from end to end, and is neither among the pieces
/// already nor withheld. A round begins where the last one ended.
fn ahead_of(taken: &[Piece], withheld: &[u32], count: u32, warm: impl Fn(u32) -> Warm) -> Vec<Piece> {
    let Some(file) = taken.first().map(|piece| piece.file) else { return Vec::new() };
    let mut there: Vec<u32> = taken.iter().map(|piece| piece.chunk).chain(withheld.iter().copied()).collect();
    there.sort_unstable();
    let mut recent: Vec<u32> =
        taken.iter().filter(|piece| piece.is_read_through()).map(|piece| piece.chunk).collect();
    recent.sort_unstable();
    let (mut ahead, mut end): (Vec<u32>, u32) = (Vec::new(), 0);
    for chunk in recent {
        let first = chunk.saturating_add(1);
        ahead.extend(first.max(end)..first.saturating_add(AHEAD).min(count));
        end = first.saturating_add(AHEAD);
    }
    ahead.extend(0..end.saturating_sub(count).min(count));
    ahead.sort_unstable();
    ahead.dedup();
    ahead.retain(|chunk| there.binary_search(chunk).is_err());
    ahead.into_iter().map(|chunk| warm(chunk).piece(file, 0, (Class::Recent, Why::Recent))).collect()
}

impl Piece {
    fn is_read_through(&self) -> bool {
        self.class == Class::Recent && self.blocks == Blocks::ALL
    }
}

impl Warm {
    /// What is held is given up only for what is clearly hotter, and changes its tier not for a little either.
    fn piece(&self, file: FileId, rate: u64, (class, why): (Class, Why)) -> Piece {
        let rate = match self.held.map(|held| held.tier) {
            Some(Tier::Hard) => rate.saturating_mul(2),
            Some(Tier::Soft) => rate.saturating_add(rate >> 1),
            None => rate,
        };
        let cost = self.held.map_or(self.pages, |held| held.cost(self.blocks, self.whole));
        Piece { file, chunk: self.chunk, blocks: self.blocks, cost, class, rate, why }
    }

    /// Its passes, twice where it is held.
    const fn doubled(&self) -> u64 {
        if self.held.is_some() { self.passes.saturating_mul(2) } else { self.passes }
    }
}
