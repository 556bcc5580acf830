//! What the programs' maps say of accounts and address spaces, decoded.

use super::{error::BpfError, site::Table};
use plimsoll_policy::{
    account::Counted,
    selection::Weight,
    units::{Pages, Pid, Uid},
};
use plimsoll_wire::{abi, counted, pages};
use zerocopy::FromBytes as _;

/// With so many copies that are nowhere to be charged a survey is asked for.
pub const STRAYS_MOST: Pages = Pages(abi::PLIMSOLL_STRAYS_MOST as u64);

/// The accounts that one may be below.
pub const ABOVE_MOST: usize = abi::PLIMSOLL_ABOVE_MOST as usize;

/// An account as the programs keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountFacts {
    /// Its number.
    pub index: u32,
    /// Whose.
    pub whose: Counted,
    /// Whose processes are charged to it; `None`: nobody runs as a group.
    pub user: Option<Uid>,
    /// The numbers of the accounts that are charged besides; 0 is none.
    pub above: [u32; ABOVE_MOST],
    /// What those above count as well.
    pub counts: Counts,
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
    /// Of usage, shared memory of the user's that ends with its processes.
    pub shared: Pages,
    /// Besides usage: shared memory of the user's that no end of its processes gives back for sure.
    pub lasting: Pages,
    /// The largest usage seen at or above the soft limit, or at a grant, since the line was drawn.
    pub peak: Pages,
}

/// What an account counts, as it is there: of a group the sum of its members', as soon as no event is in the middle of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Pages charged.
    pub usage: i64,
    /// Of these, what is dying, with what the line does not leave out.
    pub dying: i64,
    /// Address spaces.
    pub processes: i64,
    /// As [`AccountFacts::copyable`].
    pub copyable: i64,
    /// As [`AccountFacts::reserved`].
    pub reserved: i64,
    /// As [`AccountFacts::shared`].
    pub ending: i64,
    /// As [`AccountFacts::lasting`].
    pub lasting: i64,
}

impl Counts {
    /// Each count of both, put together.
    #[must_use]
    pub fn with(self, other: Self, both: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            usage: both(self.usage, other.usage),
            dying: both(self.dying, other.dying),
            processes: both(self.processes, other.processes),
            copyable: both(self.copyable, other.copyable),
            reserved: both(self.reserved, other.reserved),
            ending: both(self.ending, other.ending),
            lasting: both(self.lasting, other.lasting),
        }
    }
}

impl AccountFacts {
    /// Whether what is charged to it is charged to the account of this number as well.
    #[must_use]
    pub fn is_below(&self, account: u32) -> bool {
        account != 0 && self.above.contains(&account)
    }
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
    /// The number of the account for whose line it was claimed last; 0: it never was.
    pub claimed: u32,
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

pub(super) fn wire_pages(pages: Pages) -> i64 {
    i64::try_from(pages.0).unwrap_or(i64::MAX)
}

/// `None`: of a kind that this version does not know.
pub(super) fn account_facts(index: u32, account: &abi::plimsoll_account) -> Option<AccountFacts> {
    let signal = u32::from(account.signal);
    // As dying_bound() in bpf/limits/account.h.
    let grace = if signal == 15 { account.hard_pages >> abi::PLIMSOLL_GRACE_SHIFT } else { 0 };
    let most = i64::from(account.dying_most).saturating_add(grace);
    let place = |place: usize| {
        let mask = (1_u64 << abi::PLIMSOLL_ABOVE_BITS) - 1;
        let number =
            account.above.checked_shr(abi::PLIMSOLL_ABOVE_BITS * u32::try_from(place).unwrap_or(u32::MAX));
        number.map_or(0, |number| u32::try_from(number & mask).unwrap_or(0))
    };
    Some(AccountFacts {
        index,
        whose: counted(account.of, account.id)?,
        user: Some(Uid(account.user)).filter(|user| user.0 != abi::PLIMSOLL_NO_UID),
        above: core::array::from_fn(place),
        counts: Counts {
            usage: account.usage_pages,
            dying: account.dying_pages,
            processes: account.processes,
            copyable: account.copyable_pages,
            reserved: account.reserved_pages,
            ending: account.ending_pages,
            lasting: account.lasting_pages,
        },
        usage: pages(account.usage_pages),
        hard: pages(account.hard_pages),
        soft: pages(account.soft_pages),
        effective: (account.effective_pages != i64::MAX).then(|| pages(account.effective_pages)),
        dying: pages(account.dying_pages.min(most)),
        dying_most: pages(most),
        processes: u32::try_from(account.processes).unwrap_or(0),
        near: account.near != 0,
        exact: account.exact != 0,
        unanswered_ns: (account.unanswered_ns != 0).then_some(account.unanswered_ns),
        signal,
        from_default: account.from_default != 0,
        copyable: pages(account.copyable_pages),
        strays: Pages(account.stray_pages.into()),
        kills: account.kills,
        folded: account.folded,
        reserved: pages(account.reserved_pages),
        shared: pages(account.ending_pages),
        lasting: pages(account.lasting_pages),
        peak: pages(account.peak_pages),
    })
}

/// As the programs have it.
pub(super) const fn kind_and_id(whose: Counted) -> (u32, u32) {
    match whose {
        Counted::User(uid) => (abi::PLIMSOLL_OF_USER, uid.0),
        Counted::Group(gid) => (abi::PLIMSOLL_OF_GROUP, gid.0),
        Counted::Job(id) => (abi::PLIMSOLL_OF_JOB, id.0),
    }
}

/// As `key_of()` in bpf/limits/account.h.
fn key_of(whose: Counted) -> u64 {
    let (of, id) = kind_and_id(whose);
    u64::from(of) << 32 | u64::from(id)
}

/// An account, by its number and as `read` reads it; `None` when there is none.
pub(super) fn account_of(
    whose: Counted,
    account_numbers: &impl Table,
    read: impl FnOnce(u32) -> Result<Option<abi::plimsoll_account>, BpfError>,
) -> Result<Option<AccountFacts>, BpfError> {
    let Some(index) = account_numbers.get::<u32>(&key_of(whose).to_ne_bytes())? else {
        return Ok(None);
    };
    Ok(read(index)?.and_then(|account| account_facts(index, &account)))
}

/// The pages in a word that also names an account.
fn word_pages(word: u64) -> Pages {
    let biased = (word & abi::PLIMSOLL_WORD_MASK).cast_signed();
    pages(biased.wrapping_sub(abi::PLIMSOLL_WORD_BIAS.cast_signed()))
}

/// `value` goes on with what each CPU keeps.
pub(super) fn address_space(mm: u64, value: &[u8]) -> AddressSpace {
    let entry = abi::plimsoll_mm::read_from_prefix(value).map(|(entry, _)| entry).unwrap_or_default();
    let has = |flag: u32| entry.flags & flag != 0;
    let weight = u16::try_from(entry.flags >> abi::PLIMSOLL_MM_WEIGHT_SHIFT);
    AddressSpace {
        mm,
        account: u32::try_from(entry.word >> abi::PLIMSOLL_WORD_SHIFT).unwrap_or(abi::PLIMSOLL_NOBODY),
        pid: Pid(entry.tgid),
        start_ns: entry.start_ns,
        uid: Uid(entry.uid),
        user: Uid(entry.user),
        claimed: entry.claimed,
        family: entry.family,
        own: word_pages(entry.word),
        shared: pages(entry.shared_pages.wrapping_add(entry.inherited_pages)),
        copied: pages(entry.copied_pages),
        protected: has(abi::PLIMSOLL_MM_PROTECTED),
        never: has(abi::PLIMSOLL_MM_NEVER),
        session: has(abi::PLIMSOLL_MM_SESSION),
        weight: weight.ok().and_then(Weight::from_permille),
        dying: has(abi::PLIMSOLL_MM_DYING),
        left: has(abi::PLIMSOLL_MM_LEFT),
        condemned: has(abi::PLIMSOLL_MM_CONDEMNED),
        folded: has(abi::PLIMSOLL_MM_FOLDED),
        tracked_ns: entry.tracked_ns,
        walk: entry.walk,
        sent: Some(Pid(entry.sent)).filter(|pid| pid.0 != 0),
        reserved: word_pages(entry.reserved),
        granted: pages(entry.granted_pages),
    }
}
