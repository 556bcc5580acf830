//! Which parts of a chunk are used: what the kernel maps around a fault, and what is read, is known by the block.

use crate::units::Pages;
use core::ops::{BitAnd, BitOr, BitOrAssign};

/// Pages in a chunk, the piece that files are counted by: 2 MiB where a page is 4 KiB.
pub const CHUNK_PAGES: u64 = 512;

/// Pages in a block: 64 KiB where a page is 4 KiB, which is what a fault maps at once (`fault_around_pages`, mm/memory.c,
/// 6.1 to 7.2).
pub const BLOCK_PAGES: u64 = CHUNK_PAGES / 32;

/// A set of blocks of one chunk: the lowest bit is the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blocks(pub u32);

impl Blocks {
    /// The whole chunk.
    pub const ALL: Self = Self(u32::MAX);

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a page, counted from the chunk's first, is in one of them.
    #[must_use]
    pub fn contains(self, page: u64) -> bool {
        let block = u32::try_from(page / BLOCK_PAGES).unwrap_or(u32::MAX);
        self.0.checked_shr(block).is_some_and(|rest| rest & 1 != 0)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn covers(self, others: Self) -> bool {
        others.without(self).is_empty()
    }

    /// Those of them that are not among others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// How many pages they have, of a chunk of so many.
    #[must_use]
    pub fn pages(self, of: Pages) -> Pages {
        let of = of.0.min(CHUNK_PAGES);
        let (whole, rest) = (of / BLOCK_PAGES, of % BLOCK_PAGES);
        let below = u32::try_from((1_u64 << whole).saturating_sub(1)).unwrap_or(u32::MAX);
        let of_whole = u64::from((self.0 & below).count_ones()).saturating_mul(BLOCK_PAGES);
        let of_rest = if self.contains(whole.saturating_mul(BLOCK_PAGES)) { rest } else { 0 };
        Pages(of_whole.saturating_add(of_rest))
    }
}

impl BitAnd for Blocks {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Blocks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Blocks {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

#[cfg(test)]
mod tests;
