//! Memory promised before it is touched: the arithmetic of a grant, and who counts as one that asked.
//!
//! The programs in the kernel do the same with one compare-and-swap (`bpf/limits/grants.h`, `bpf/limits/rank.h`); this is
//! what they are to agree with.

use crate::units::{Bytes, Pages};
use serde::{Deserialize, Serialize};

/// What stays free below a line for what nobody asks for (stacks, libc, the companions of page tables), unless the
/// configuration says another amount.
pub const HEADROOM: Bytes = Bytes(1 << 20);

/// What a process may have beyond its grants and still be in the lower tier.
pub const ALLOWANCE: Bytes = Bytes(4 << 20);

/// What grants leave free besides, for the copies that forked processes may still make of the pages they share (`copyable`):
/// no event tells of these. For each process of the account no more than the allowance, which is what one that keeps to its
/// grants may have besides.
#[must_use]
pub fn kept_for_copies(copyable: Pages, processes: u32, allowance: Pages) -> Pages {
    copyable.min(Pages(allowance.0.saturating_mul(processes.into())))
}

/// Whether a request is granted: usage, what was granted and is not touched yet among it, and what is kept for copies, stays
/// at or below the line less the headroom.
#[must_use]
pub const fn fits(usage: Pages, request: Pages, headroom: Pages, hard: Pages) -> bool {
    match usage.0.checked_add(request.0) {
        Some(after) => match after.checked_add(headroom.0) {
            Some(reach) => reach <= hard.0,
            None => false,
        },
        None => false,
    }
}

/// What would be granted now.
#[must_use]
pub const fn room(usage: Pages, headroom: Pages, hard: Pages) -> Pages {
    hard.saturating_sub(headroom).saturating_sub(usage)
}

/// In which order processes of one account are victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Its user's session ends with it: a victim only when nobody else is left.
    Session,
    /// It asked for its memory and keeps to what it was granted: a victim only when nobody is in the upper tier.
    Lower,
    /// Everybody else.
    #[default]
    Upper,
}

impl Tier {
    /// Of a process that has `pages`, inherited ones among them, and holds `granted` of them by grants. Who holds none did
    /// not ask, however small it is.
    #[must_use]
    pub const fn of(pages: Pages, granted: Pages, allowance: Pages) -> Self {
        if granted.0 > 0 && pages.0 <= granted.0.saturating_add(allowance.0) {
            Self::Lower
        } else {
            Self::Upper
        }
    }
}

#[cfg(test)]
mod tests;
