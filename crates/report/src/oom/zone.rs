//! A zone of a node: its free blocks, its watermarks, and whether it could have served.

use super::gfp::ZoneKind;
use plimsoll_policy::units::Bytes;

/// What free blocks of one size are for, as the letters in the report say (`show_migration_types`, 3.9 and later).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockKinds {
    letters: u32,
}

impl BlockKinds {
    /// From the letters between the parentheses; others than A to Z are passed over.
    #[must_use]
    pub fn of(letters: &[u8]) -> Self {
        Self { letters: letters.iter().fold(0, |bits, letter| bits | Self::bit(*letter)) }
    }

    const fn bit(letter: u8) -> u32 {
        if letter.is_ascii_uppercase() { 1 << (letter - b'A') } else { 0 }
    }

    /// Whether `letter` is among them: U unmovable, M movable, E reclaimable, R reserve, C CMA, H high-atomic, I isolated.
    #[must_use]
    pub const fn has(self, letter: u8) -> bool {
        self.letters & Self::bit(letter) != 0
    }

    /// Whether the report says nothing of them (older kernels, or no block of that size).
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        self.letters == 0
    }

    /// Whether blocks of that size only wait for atomic requests.
    #[must_use]
    pub fn is_reserved_only(self) -> bool {
        self == Self::of(b"H")
    }

    /// Whether an ordinary request may take one: movable ones from CMA areas, too.
    #[must_use]
    pub fn serve(self, movable: bool) -> bool {
        self.is_unknown() || b"UME".iter().any(|letter| self.has(*letter)) || movable && self.has(b'C')
    }
}

/// Free blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// How many.
    pub count: u64,
    /// How large each is.
    pub size: Bytes,
    /// What for.
    pub kinds: BlockKinds,
}

impl Block {
    fn bytes(&self) -> Bytes {
        Bytes(self.count.saturating_mul(self.size.0))
    }
}

/// What a zone is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The widest zone that may serve.
    pub widest: ZoneKind,
    /// The widest of these that the machine has.
    pub top: ZoneKind,
    /// Whether the pages may be moved later.
    pub movable: bool,
    /// How much, in one piece.
    pub size: Bytes,
    /// One page.
    pub page: Bytes,
    /// Whether this is a 32-bit machine with memory that the kernel does not address directly.
    pub has_highmem: bool,
    /// Whether the kernel judges blocks as it did before 4.4.
    pub by_old_rule: bool,
}

/// One zone of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Zone {
    /// The node; 0 where the report names none (kernels without NUMA).
    pub node: u32,
    /// Which.
    pub kind: ZoneKind,
    /// Free pages.
    pub free: Option<Bytes>,
    /// Below this only the kernel's own emergencies are served.
    pub min: Option<Bytes>,
    /// Below this reclaim begins.
    pub low: Option<Bytes>,
    /// Up to this reclaim goes on.
    pub high: Option<Bytes>,
    /// Part of `free` kept for atomic requests.
    pub reserved_highatomic: Option<Bytes>,
    /// Part of `free` for movable requests only.
    pub free_cma: Option<Bytes>,
    /// Anonymous pages.
    pub anon: Option<Bytes>,
    /// Page cache.
    pub file: Option<Bytes>,
    /// Slab, on kernels that count it by zone (before 4.8).
    pub slab: Option<Bytes>,
    /// Pages there are.
    pub present: Option<Bytes>,
    /// Pages that can be given to anybody.
    pub managed: Option<Bytes>,
    /// What is kept back from requests that could use a wider zone (`lowmem_reserve[]`), in pages by widest zone.
    pub reserve_pages: Vec<u64>,
    /// Free blocks, smallest first.
    pub blocks: Vec<Block>,
}

/// Pages that can be given to anybody, or at least are there, in all of these zones.
pub(super) fn managed<'a>(zones: impl IntoIterator<Item = &'a Zone>) -> Bytes {
    zones.into_iter().filter_map(|zone| zone.managed.or(zone.present)).sum()
}

impl Zone {
    /// Free memory that an ordinary request may count on: without what is kept for atomic requests and, unless it is
    /// movable, without CMA (`__zone_watermark_unusable_free`).
    #[must_use]
    pub fn usable(&self, movable: bool) -> Option<Bytes> {
        let mut usable = self.free?.saturating_sub(self.reserved_highatomic.unwrap_or_default());
        if !movable {
            usable = usable.saturating_sub(self.free_cma.unwrap_or_default());
        }
        Some(usable)
    }

    /// What this zone keeps back from a request that could be served by a wider one. The list goes by the kernel's zone
    /// numbers, and those by which zones it was built with: 64-bit kernels have DMA, DMA32, Normal and Movable (and Device
    /// after it), 32-bit ones DMA, Normal, HighMem and Movable.
    ///
    /// `None`: the report shows no list, and there is a wider zone, for whose sake this one may keep all it has.
    fn reserve(&self, request: &Request) -> Option<Bytes> {
        use ZoneKind::{Dma, Dma32, HighMem, Movable, Normal};
        if self.reserve_pages.is_empty() {
            return (self.kind >= request.top).then_some(Bytes(0));
        }
        let numbers: &[ZoneKind] = match (self.reserve_pages.len(), request.has_highmem) {
            (0..=2, _) => &[Normal, Movable],
            (3, false) => &[Dma, Normal, Movable],
            (3, true) => &[Normal, HighMem, Movable],
            (_, true) => &[Dma, Normal, HighMem, Movable],
            (_, false) => &[Dma, Dma32, Normal, Movable],
        };
        let place = numbers.iter().rposition(|kind| *kind <= request.widest);
        let pages = place.and_then(|place| self.reserve_pages.get(place)).copied().unwrap_or(0);
        Some(Bytes(pages.saturating_mul(request.page.0)))
    }

    /// Whether a single page could have been had above the `min` watermark.
    #[must_use]
    pub fn serves_a_page(&self, request: &Request) -> Option<bool> {
        self.has_above(self.min?, request)
    }

    /// Whether it has more than reclaim would have left (`high`), so that it was not short at all.
    #[must_use]
    pub fn is_ample(&self, request: &Request) -> Option<bool> {
        self.has_above(self.high?, request)
    }

    fn has_above(&self, mark: Bytes, request: &Request) -> Option<bool> {
        Some(self.usable(request.movable)? > mark.saturating_add(self.reserve(request)?))
    }

    /// Whether a free block large enough is there for the request; `None` where no blocks are listed.
    #[must_use]
    pub fn has_block(&self, request: &Request) -> Option<bool> {
        if self.blocks.is_empty() {
            return None;
        }
        if request.by_old_rule {
            return self.has_block_of_old(request);
        }
        let fits = |block: &Block| {
            block.size >= request.size && block.count > 0 && block.kinds.serve(request.movable)
        };
        Some(self.blocks.iter().any(fits))
    }

    /// As the kernel judged before 4.4: of what lies in large enough blocks, enough must be left above a part of `min`
    /// that halves with each order (`__zone_watermark_ok`).
    fn has_block_of_old(&self, request: &Request) -> Option<bool> {
        let mut floor = self.min?.0;
        let mut left = self.usable(request.movable)?.0;
        for block in self.blocks.iter().filter(|block| block.size < request.size) {
            left = left.saturating_sub(block.bytes().0);
            floor >>= 1;
        }
        Some(left > floor)
    }

    /// Free memory in blocks of `size` or more, of any kind, and whether all of them only wait for atomic requests.
    #[must_use]
    pub fn in_blocks_of(&self, size: Bytes) -> (Bytes, bool) {
        let large = || self.blocks.iter().filter(|block| block.size >= size && block.count > 0);
        let sum: Bytes = large().map(Block::bytes).sum();
        (sum, sum.0 > 0 && large().all(|block| block.kinds.is_reserved_only()))
    }
}
