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

/// Names of flags and of usual sums of them, in the order in which they are looked for (`__def_gfpflag_names`,
/// include/trace/events/mmflags.h, and include/linux/gfp_types.h, 6.1 to 7.2).
const FLAGS: &[(u32, &str)] = &[
    (0x1c_24ca, "GFP_TRANSHUGE"),
    (0x1c_20ca, "GFP_TRANSHUGE_LIGHT"),
    (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
    (0x10_0cc2, "GFP_HIGHUSER"),
    (0x10_0cc0, "GFP_USER"),
    (0x40_0cc0, "GFP_KERNEL_ACCOUNT"),
    (0xcc0, "GFP_KERNEL"),
    (0xc40, "GFP_NOFS"),
    (0xa20, "GFP_ATOMIC"),
    (0x820, "GFP_ATOMIC"),
    (0xc00, "GFP_NOIO"),
    (0x800, "GFP_NOWAIT"),
    (0x1, "__GFP_DMA"),
    (0x2, "__GFP_HIGHMEM"),
    (0x4, "__GFP_DMA32"),
    (0x8, "__GFP_MOVABLE"),
    (0x10, "__GFP_RECLAIMABLE"),
    (0x20, "__GFP_HIGH"),
    (0x40, "__GFP_IO"),
    (0x80, "__GFP_FS"),
    (0x100, "__GFP_ZERO"),
    (0x400, "__GFP_DIRECT_RECLAIM"),
    (0x1000, "__GFP_WRITE"),
    (0x2000, "__GFP_NOWARN"),
    (0x4000, "__GFP_RETRY_MAYFAIL"),
    (0x8000, "__GFP_NOFAIL"),
    (0x1_0000, "__GFP_NORETRY"),
    (0x2_0000, "__GFP_MEMALLOC"),
    (0x4_0000, "__GFP_COMP"),
    (0x8_0000, "__GFP_NOMEMALLOC"),
    (0x10_0000, "__GFP_HARDWALL"),
    (0x20_0000, "__GFP_THISNODE"),
    (0x40_0000, "__GFP_ACCOUNT"),
];

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

    /// The flags of a request on a kernel from 6.1 to 7.2, which have the same numbers, by the names that the kernel itself
    /// prints them with. Those without a name are put as a number.
    #[must_use]
    pub fn of_running(bits: u32) -> Self {
        let mut left = bits;
        let mut names: Vec<String> = Vec::new();
        for (flags, name) in FLAGS {
            if left & flags == *flags {
                left &= !flags;
                names.push(String::from(*name));
            }
        }
        if left != 0 || names.is_empty() {
            names.push(format!("{left:#x}"));
        }
        Self { bits: u64::from(bits), names: Some(names.join("|")) }
    }

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
