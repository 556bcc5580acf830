//! What is told to the limits programs, and what they answer.

use super::facts::ABOVE_MOST;
use plimsoll_policy::{
    account::Counted,
    lines::SERVICES,
    selection::Weight,
    units::{Nanos, Pages, Pid, Uid},
};
use plimsoll_wire::abi;

/// How a line takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforce {
    /// Effective line = the larger of the line and present usage.
    Ratchet,
    /// No effective line yet: what already runs is still being entered.
    Open,
    /// Effective line = the line.
    Now,
    /// As [`Enforce::Ratchet`], but not above the effective line that there was, unless the line itself is.
    Within,
}

/// A line to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSet {
    /// Whose.
    pub whose: Counted,
    /// Whose processes are charged to it; `None`: nobody runs as a group.
    pub user: Option<Uid>,
    /// The hard limit.
    pub hard: Pages,
    /// The soft limit.
    pub soft: Pages,
    /// What crossing sends; 0 sends nothing.
    pub signal: u32,
    /// How it takes effect.
    pub enforce: Enforce,
    /// It comes from the default line.
    pub from_default: bool,
    /// The numbers of the accounts that are charged besides ([`super::AccountFacts::index`]); 0 is none.
    pub above: [u32; ABOVE_MOST],
}

// The programs leave out whom policy leaves out.
const _: () = assert!(
    SERVICES.start().0 == abi::PLIMSOLL_SERVICES_UID_MIN
        && SERVICES.end().0 == abi::PLIMSOLL_SERVICES_UID_MAX
);

/// The line for users without one of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultLine {
    /// The hard limit.
    pub hard: Pages,
    /// The soft limit.
    pub soft: Pages,
    /// What crossing sends; 0 sends nothing.
    pub signal: u32,
    /// First uid it is for.
    pub uid_min: Uid,
    /// Last uid it is for.
    pub uid_max: Uid,
}

/// Processes that share pages since a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyFacts {
    /// Charged for them, once.
    pub pages: Pages,
    /// What they would be charged if nothing were shared any more.
    pub shares: Pages,
    /// Charged besides: copies that were found.
    pub copied: Pages,
    /// Members that are not dying.
    pub living: u32,
    /// The account that is charged for them: a member may have become another's.
    pub account: u32,
}

/// Of an account's processes that share memory since a fork, who was read since what went uncharged began anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Each.
    All,
    /// Not all yet.
    Some,
    /// Somebody lets nobody read it.
    Hindered,
}

/// What shared memory a user owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPages {
    /// [`super::AccountFacts::shared`].
    pub ending: Pages,
    /// [`super::AccountFacts::lasting`].
    pub lasting: Pages,
    /// When it began to be looked for: what is found first after a line was drawn was there before.
    pub begun: Nanos,
}

/// What of its family's copies may be one member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiesPart {
    /// The address space.
    pub mm: u64,
    /// Its process.
    pub pid: Pid,
    /// At most so many.
    pub copied: Pages,
}

/// A living process that uses a dying address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The address space.
    pub mm: u64,
    /// [`super::AddressSpace::tracked_ns`].
    pub tracked_ns: u64,
    /// Thread-group leader.
    pub pid: Pid,
    /// Its start since boot in nanoseconds.
    pub start_ns: u64,
    /// Real uid.
    pub uid: Uid,
}

/// What user space tells of a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VictimMark {
    /// It is about to be sent a signal that ends it, as the victim of the account with this [`super::AccountFacts::index`].
    Dying {
        /// Which account is over its line.
        account: u32,
    },
    /// It did not end before its deadline.
    Expired,
    /// The signal could not be sent.
    Spared,
    /// It was asked to end, and was sent SIGKILL.
    Condemned,
}

/// What a process counts, and of which program of it that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighing {
    /// The address space.
    pub mm: u64,
    /// [`super::AddressSpace::tracked_ns`].
    pub tracked_ns: u64,
    /// Its process.
    pub pid: Pid,
    /// The process's start since boot in nanoseconds.
    pub start_ns: u64,
    /// Its real uid when that was found out.
    pub uid: Uid,
    /// What each of its pages counts.
    pub weight: Weight,
    /// It is never a victim.
    pub never: bool,
    /// Its user's session ends with it.
    pub session: bool,
}

/// How full one map is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFacts {
    /// Its name.
    pub name: &'static str,
    /// Its maximum.
    pub entries_max: u32,
    /// Kernel memory it takes; `None` where the kernel does not tell.
    pub memory_bytes: Option<u64>,
}
