//! Units that must not be mixed up: pages, bytes, nanoseconds, process and user numbers.
//!
//! Pages are the machine's own (4, 16 or 64 KiB): a [`PageSize`] turns them into bytes, nothing assumes 4 KiB.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit!(/** A number of pages of the machine's own size. */ Pages, u64);
unit!(/** A number of bytes. */ Bytes, u64);
unit!(/** A span, or a point on a monotonic clock, in nanoseconds. */ Nanos, u64);
unit!(/** A process: the thread-group leader's number in the daemon's pid namespace. */ Pid, u32);
unit!(/** A user number in the initial user namespace (the kernel's `kuid`). */ Uid, u32);

impl Uid {
    /// The superuser's.
    pub const ROOT: Self = Self(0);
}

unit!(/** A group number in the initial user namespace (the kernel's `kgid`). */ Gid, u32);
unit!(/** A job's number; none is given twice. 0 is no job's. */ JobId, u32);

macro_rules! measure {
    ($($name:ident)*) => {$(
        impl $name {
            /// Both together, and never more than the largest number there is.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// `self - other`, 0 where `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl core::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self(0), Self::saturating_add)
            }
        }
    )*};
}

measure!(Pages Bytes Nanos);

/// `whole * share / of`, rounded down; `None` where `of` is 0 or that is too large for a number.
#[must_use]
pub fn part(whole: u64, share: u64, of: u64) -> Option<u64> {
    let product = u128::from(whole).saturating_mul(u128::from(share));
    product.checked_div(u128::from(of)).and_then(|part| u64::try_from(part).ok())
}

/// The machine's page size, as a shift (12 for 4 KiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// From a size in bytes; `None` unless it is a power of two between 4 KiB and 64 KiB, the sizes Linux has.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= 4096 && bytes <= 65536 {
            Some(Self { shift: bytes.trailing_zeros() })
        } else {
            None
        }
    }

    /// The power of two that a page's size in bytes is.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.shift
    }

    /// The size of one page.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(1 << self.shift)
    }

    /// Pages to bytes, saturating at `u64::MAX`.
    #[must_use]
    pub const fn to_bytes(self, pages: Pages) -> Bytes {
        Bytes(pages.0.saturating_mul(1 << self.shift))
    }

    /// Bytes to whole pages, rounded down: a line never lies above what was asked for.
    #[must_use]
    pub const fn to_pages(self, bytes: Bytes) -> Pages {
        Pages(bytes.0 >> self.shift)
    }
}

#[cfg(test)]
mod tests;
