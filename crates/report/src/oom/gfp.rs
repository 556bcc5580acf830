//! How memory was asked for: the request's flags.

use plimsoll_policy::texts;

texts! {
    /// Zones in the order in which a request falls back, from the narrowest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub enum ZoneKind {
        /// The first 16 MiB on x86, the first GiB or so on some arm boards.
        Dma = "DMA",
        /// Below 4 GiB.
        Dma32 = "DMA32",
        /// What the kernel itself can address directly.
        #[default]
        Normal = "Normal",
        /// Beyond that, on 32-bit machines.
        HighMem = "HighMem",
        /// For what can be moved only.
        Movable = "Movable",
        /// On devices; never part of a request.
        Device = "Device",
    }
    /// The kernel's name.
    fn name
}

impl ZoneKind {
    /// From the kernel's name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The request's flags. Their numbers change between kernels; only the lowest four, which choose the zone, never did
/// (`include/linux/gfp.h`, `gfp_types.h`, 2.6.24 to 7.0).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gfp {
    /// The number.
    pub bits: u64,
    /// The names, where the kernel printed them (4.6 and later), as `GFP_KERNEL|__GFP_ZERO`.
    pub names: Option<String>,
}

impl Gfp {
    const DMA: u64 = 1;
    const HIGHMEM: u64 = 2;
    const DMA32: u64 = 4;
    const MOVABLE: u64 = 8;
    /// `__GFP_ZERO` before 4.4, where the names are not printed.
    const ZERO_OLD: u64 = 0x8000;

    /// The widest zone that may serve the request (`gfp_zone()`).
    #[must_use]
    pub const fn widest_zone(&self) -> ZoneKind {
        if self.bits & Self::DMA != 0 {
            ZoneKind::Dma
        } else if self.bits & Self::DMA32 != 0 {
            ZoneKind::Dma32
        } else if self.bits & Self::HIGHMEM != 0 {
            if self.bits & Self::MOVABLE != 0 { ZoneKind::Movable } else { ZoneKind::HighMem }
        } else {
            ZoneKind::Normal
        }
    }

    /// Whether the pages can be moved later, so that CMA areas may serve.
    #[must_use]
    pub const fn is_movable(&self) -> bool {
        self.bits & Self::MOVABLE != 0
    }

    /// Whether zeroed memory was asked for: `kcalloc` and `kzalloc` rather than `kmalloc`.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        match &self.names {
            Some(names) => names.contains("__GFP_ZERO"),
            None => self.bits & Self::ZERO_OLD != 0,
        }
    }

    /// Whether it is memory for a user's process rather than for the kernel itself.
    #[must_use]
    pub fn is_for_users(&self) -> bool {
        match &self.names {
            Some(names) => names.contains("GFP_HIGHUSER") || names.contains("GFP_USER"),
            None => self.bits & (Self::HIGHMEM | Self::MOVABLE) != 0,
        }
    }
}
