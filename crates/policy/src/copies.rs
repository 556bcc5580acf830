//! What copy-on-write added to a family of forked processes, worked out from readings: no counter of the kernel tells it.
//!
//! A family is charged once for what its members share since a fork, and each member for what it allocated since. A
//! page that a member writes to becomes its own copy without any counter changing. The kernel's proportional sizes
//! (`Pss_Anon`, `SwapPss`) part each page among those who map it, so their sum over the family is what it really
//! holds; what that has beyond the charges are copies.

use crate::units::Pages;

/// One member, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Anonymous and swapped pages, each parted among those who have it.
    pub proportional: Pages,
    /// What it is charged for itself: the larger of the charges before and after the reading, so that what it
    /// allocated meanwhile is never taken for a copy.
    pub own: Pages,
}

impl Member {
    /// One that was not read, of a family of `members`, that shares `shared` pages and is known to have made `copied` copies:
    /// of the others it has its part.
    #[must_use]
    pub fn unread(own: Pages, shared: Pages, copied: Pages, members: u64) -> Self {
        let copied = copied.min(shared);
        let part = shared.saturating_sub(copied).0.checked_div(members.max(1)).unwrap_or_default();
        let held = copied.0.saturating_add(part);
        Self { proportional: Pages(own.0.saturating_add(held)), own }
    }

    /// What it has copied of the `shared` pages of a family of `members`, each shared with all of them or its alone.
    #[must_use]
    pub fn copies(&self, shared: Pages, members: u64) -> Pages {
        // part = copies + (shared - copies) / members
        let (part, members) = (u128::from(self.part().0), u128::from(members));
        let alone = part.saturating_mul(members).saturating_sub(shared.0.into());
        let copies = alone.checked_div(members.saturating_sub(1)).unwrap_or_default();
        Pages(u64::try_from(copies).unwrap_or(u64::MAX)).min(shared)
    }

    /// What it holds of the family's pages, its copies among them: at most so many copies go when it goes.
    #[must_use]
    pub fn part(&self) -> Pages {
        self.proportional.saturating_sub(self.own)
    }
}

/// The copies in a family that is charged `charged` for what it shares and could hold `shares` if every member had copied
/// everything. Members that are left out make it less, never more.
#[must_use]
pub fn copied(charged: Pages, shares: Pages, members: &[Member]) -> Pages {
    let held: Pages = members.iter().map(|member| member.proportional).sum();
    let own = members.iter().map(|member| member.own).sum();
    held.saturating_sub(own).saturating_sub(charged).min(shares.saturating_sub(charged))
}

#[cfg(test)]
mod tests;
