//! What the programs' maps say of accounts and address spaces, decoded.

use plimsoll_policy::{
    selection::Weight,
    units::{Pages, Pid, Uid},
};
use plimsoll_wire::abi;

/// With so many copies that are nowhere to be charged a survey is asked for.
pub const STRAYS_MOST: Pages = Pages(abi::PLIMSOLL_STRAYS_MOST as u64);

/// An account as the programs keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountFacts {
    /// Its number.
    pub index: u32,
    /// Whose.
    pub uid: Uid,
    /// Charged now.
    pub usage: Pages,
    /// The line as set.
    pub hard: Pages,
    /// The soft limit.
    pub soft: Pages,
    /// The line in force; `None` while it is open.
    pub effective: Option<Pages>,
    /// Of usage, what is dying, as far as the line leaves it out: see `remaining()` in bpf/limits/account.h.
    pub dying: Pages,
    /// So much of what is dying the line leaves out at most.
    pub dying_most: Pages,
    /// Address spaces.
    pub processes: u32,
    /// At or above the soft limit.
    pub near: bool,
    /// Every event is settled.
    pub exact: bool,
    /// Since when it waits for an answer, on `CLOCK_MONOTONIC`.
    pub unanswered_ns: Option<u64>,
    /// What crossing sends.
    pub signal: u32,
    /// Made from the default line.
    pub from_default: bool,
    /// What copy-on-write could still add to usage.
    pub copyable: Pages,
    /// Copies that are nowhere to be charged, since a survey read all who may have made them.
    pub strays: Pages,
    /// Victims taken by the programs.
    pub kills: u32,
    /// Of those, how many were only counted, since their number was written down: [`super::Limits::folded_told`].
    pub folded: u32,
    /// Of usage, what was granted and is not touched yet.
    pub reserved: Pages,
    /// The largest usage seen at or above the soft limit, or at a grant, since the line was drawn.
    pub peak: Pages,
}

/// A tracked address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, as the programs keep them")]
pub struct AddressSpace {
    /// Opaque key.
    pub mm: u64,
    /// The account's number.
    pub account: u32,
    /// Thread-group leader.
    pub pid: Pid,
    /// Its start since boot in nanoseconds.
    pub start_ns: u64,
    /// Real uid of the process.
    pub uid: Uid,
    /// Whose account it is charged to: not `uid` where that is a subordinate one.
    pub user: Uid,
    /// The family that it shares pages with since a fork; 0: none.
    pub family: u64,
    /// Pages charged to the account for it alone.
    pub own: Pages,
    /// Pages it has from a fork, charged to its family.
    pub shared: Pages,
    /// At most so many of its family's copies are its own.
    pub copied: Pages,
    /// Never a victim, by its executable.
    pub protected: bool,
    /// Never a victim, as [`super::Limits::weigh`] said.
    pub never: bool,
    /// Its user's session ends with it, as [`super::Limits::weigh`] said.
    pub session: bool,
    /// What each of its pages counts, as [`super::Limits::weigh`] said of it or of what it was forked from; `None`: as neutral.
    pub weight: Option<Weight>,
    /// A signal that ends it was sent, or nobody runs in it any more.
    pub dying: bool,
    /// Nobody runs in it any more.
    pub left: bool,
    /// SIGKILL was sent to it, or is about to be: to whoever runs in it. Not [`Self::dying`] any more after its deadline.
    pub condemned: bool,
    /// It was signalled by the programs, which only counted that: no record says so, nor that it ended.
    pub folded: bool,
    /// When it was entered, on `CLOCK_MONOTONIC`: tells it from another at the same address later.
    pub tracked_ns: u64,
    /// The last walk that found a living task of it, or that had begun when it was entered.
    pub walk: u32,
    /// The process in it that the programs sent SIGKILL, which may be on its way still.
    pub sent: Option<Pid>,
    /// Granted to it and not touched yet.
    pub reserved: Pages,
    /// What it holds by grants, touched or not.
    pub granted: Pages,
}

pub(super) fn field<const N: usize>(value: &[u8], offset: usize) -> [u8; N] {
    // Values are as long as the wire structures, checked when the maps are opened and read.
    value.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

macro_rules! wire_u16 {
    ($value:expr, $structure:ident, $field:ident) => {
        u16::from_ne_bytes($crate::bpf::facts::field(
            $value,
            core::mem::offset_of!(plimsoll_wire::abi::$structure, $field),
        ))
    };
}

macro_rules! wire_u32 {
    ($value:expr, $structure:ident, $field:ident) => {
        u32::from_ne_bytes($crate::bpf::facts::field(
            $value,
            core::mem::offset_of!(plimsoll_wire::abi::$structure, $field),
        ))
    };
}

macro_rules! wire_u64 {
    ($value:expr, $structure:ident, $field:ident) => {
        u64::from_ne_bytes($crate::bpf::facts::field(
            $value,
            core::mem::offset_of!(plimsoll_wire::abi::$structure, $field),
        ))
    };
}

pub(super) use {wire_u32, wire_u64};

/// A signed page count that may dip below 0 for an instant, when a release is seen before its charge.
pub(super) fn pages(raw: i64) -> Pages {
    Pages(raw.max(0).unsigned_abs())
}

pub(super) fn wire_pages(pages: Pages) -> i64 {
    i64::try_from(pages.0).unwrap_or(i64::MAX)
}

pub(super) fn account_facts(index: u32, value: &[u8]) -> AccountFacts {
    let signed = |raw: u64| pages(raw.cast_signed());
    let effective = wire_u64!(value, plimsoll_account, effective_pages).cast_signed();
    let unanswered = wire_u64!(value, plimsoll_account, unanswered_ns);
    let signal = u32::from(wire_u16!(value, plimsoll_account, signal));
    // As dying_bound() in bpf/limits/account.h.
    let hard = wire_u64!(value, plimsoll_account, hard_pages).cast_signed();
    let grace = if signal == 15 { hard >> abi::PLIMSOLL_GRACE_SHIFT } else { 0 };
    let most = i64::from(wire_u32!(value, plimsoll_account, dying_most)).saturating_add(grace);
    AccountFacts {
        index,
        uid: Uid(wire_u32!(value, plimsoll_account, uid)),
        usage: signed(wire_u64!(value, plimsoll_account, usage_pages)),
        hard: pages(hard),
        soft: signed(wire_u64!(value, plimsoll_account, soft_pages)),
        effective: (effective != i64::MAX).then(|| pages(effective)),
        dying: pages(wire_u64!(value, plimsoll_account, dying_pages).cast_signed().min(most)),
        dying_most: pages(most),
        processes: wire_u32!(value, plimsoll_account, processes),
        near: wire_u32!(value, plimsoll_account, near) != 0,
        exact: wire_u32!(value, plimsoll_account, exact) != 0,
        unanswered_ns: (unanswered != 0).then_some(unanswered),
        signal,
        from_default: wire_u16!(value, plimsoll_account, from_default) != 0,
        copyable: signed(wire_u64!(value, plimsoll_account, copyable_pages)),
        strays: Pages(wire_u32!(value, plimsoll_account, stray_pages).into()),
        kills: wire_u32!(value, plimsoll_account, kills),
        folded: wire_u32!(value, plimsoll_account, folded),
        reserved: signed(wire_u64!(value, plimsoll_account, reserved_pages)),
        peak: signed(wire_u64!(value, plimsoll_account, peak_pages)),
    }
}

/// The pages in a word that also names an account.
fn word_pages(word: u64) -> Pages {
    let biased = (word & abi::PLIMSOLL_WORD_MASK).cast_signed();
    pages(biased.wrapping_sub(abi::PLIMSOLL_WORD_BIAS.cast_signed()))
}

pub(super) fn address_space(mm: u64, value: &[u8]) -> AddressSpace {
    let word = wire_u64!(value, plimsoll_mm, word);
    let flags = wire_u32!(value, plimsoll_mm, flags);
    AddressSpace {
        mm,
        account: u32::try_from(word >> abi::PLIMSOLL_WORD_SHIFT).unwrap_or(abi::PLIMSOLL_NOBODY),
        pid: Pid(wire_u32!(value, plimsoll_mm, tgid)),
        start_ns: wire_u64!(value, plimsoll_mm, start_ns),
        uid: Uid(wire_u32!(value, plimsoll_mm, uid)),
        user: Uid(wire_u32!(value, plimsoll_mm, user)),
        family: wire_u64!(value, plimsoll_mm, family),
        own: word_pages(word),
        shared: pages(
            wire_u64!(value, plimsoll_mm, shared_pages)
                .wrapping_add(wire_u64!(value, plimsoll_mm, inherited_pages))
                .cast_signed(),
        ),
        copied: pages(wire_u64!(value, plimsoll_mm, copied_pages).cast_signed()),
        protected: flags & abi::PLIMSOLL_MM_PROTECTED != 0,
        never: flags & abi::PLIMSOLL_MM_NEVER != 0,
        session: flags & abi::PLIMSOLL_MM_SESSION != 0,
        weight: u16::try_from(flags >> abi::PLIMSOLL_MM_WEIGHT_SHIFT).ok().and_then(Weight::from_permille),
        dying: flags & abi::PLIMSOLL_MM_DYING != 0,
        left: flags & abi::PLIMSOLL_MM_LEFT != 0,
        condemned: flags & abi::PLIMSOLL_MM_CONDEMNED != 0,
        folded: flags & abi::PLIMSOLL_MM_FOLDED != 0,
        tracked_ns: wire_u64!(value, plimsoll_mm, tracked_ns),
        walk: wire_u32!(value, plimsoll_mm, walk),
        sent: Some(Pid(wire_u32!(value, plimsoll_mm, sent))).filter(|pid| pid.0 != 0),
        reserved: word_pages(wire_u64!(value, plimsoll_mm, reserved)),
        granted: pages(wire_u64!(value, plimsoll_mm, granted_pages).cast_signed()),
    }
}
