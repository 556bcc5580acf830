//! What the programs' maps hold, as the oracle reads them.

use plimsoll_policy::selection::Weight;
use plimsoll_testkit::FakeKernel;
use plimsoll_wire::abi;
use std::{collections::BTreeMap, rc::Rc};

pub(super) const NO_LINE: i64 = i64::MAX;
const GONE: u32 = abi::PLIMSOLL_MM_GONE;
pub(super) const NEVER: u32 = abi::PLIMSOLL_MM_NEVER;
pub(super) const SESSION: u32 = abi::PLIMSOLL_MM_SESSION;

/// Of what is dying no more than a line's worth is left out, and a quarter more where it may only have been asked.
pub(super) fn dying_bound(a: &abi::plimsoll_account) -> i64 {
    let grace = if a.signal == 15 { a.hard_pages >> abi::PLIMSOLL_GRACE_SHIFT } else { 0 };
    i64::from(a.dying_most) + grace
}

/// The pages in a word that also names an account.
fn pages(word: u64) -> i64 {
    (word & abi::PLIMSOLL_WORD_MASK).cast_signed() - abi::PLIMSOLL_WORD_BIAS.cast_signed()
}

fn account(word: u64) -> u32 {
    u32::try_from(word >> abi::PLIMSOLL_WORD_SHIFT).unwrap()
}

/// Accounts that are charged for what this one is; 0 is none.
fn numbers_above(a: &abi::plimsoll_account) -> impl Iterator<Item = u32> + use<> {
    let (above, mask) = (a.above, (1 << abi::PLIMSOLL_ABOVE_BITS) - 1);
    let places = 0..abi::PLIMSOLL_ABOVE_MOST;
    places.map(move |place| u32::try_from(above >> (place * abi::PLIMSOLL_ABOVE_BITS) & mask).unwrap())
}

/// `struct plimsoll_mm`.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Which address space it was made for: the address may be another's by now.
    pub(super) life: u64,
    pub(super) pid: u32,
    pub(super) start_ns: u64,
    pub(super) uid: u32,
    pub(super) account: u32,
    /// Of its account's `exact`, in which it was settled.
    pub(super) epoch: u32,
    pub(super) own: i64,
    pub(super) shared: i64,
    /// From somebody who was not charged for it.
    pub(super) inherited: i64,
    /// Of the account's usage, granted and not touched yet; and of which account.
    pub(super) reserved: i64,
    pub(super) reserved_of: u32,
    pub(super) granted: i64,
    pub(super) family: u64,
    /// What was seen of the kernel's counters.
    pub(super) seen: i64,
    pub(super) flags: u32,
    pub(super) pins: u32,
    pub(super) shifts: u32,
    pub(super) dying: i64,
    pub(super) dying_of: u32,
    pub(super) tracked_ns: u64,
    pub(super) weight: Option<Weight>,
}

impl Entry {
    fn of(space: &plimsoll_testkit::Space) -> Self {
        let value = &space.value;
        Self {
            life: space.serial,
            pid: value.tgid,
            start_ns: value.start_ns,
            uid: value.uid,
            account: account(value.word),
            epoch: value.epoch,
            own: pages(value.word),
            shared: value.shared_pages,
            inherited: value.inherited_pages,
            reserved: pages(value.reserved),
            reserved_of: account(value.reserved),
            granted: value.granted_pages,
            family: value.family,
            seen: value.last.iter().sum::<i64>() + space.remainders,
            flags: value.flags,
            pins: value.pins & 0xffff,
            shifts: value.shifts & 0xffff,
            dying: pages(value.dying),
            dying_of: account(value.dying),
            tracked_ns: value.tracked_ns,
            weight: u16::try_from(value.flags >> abi::PLIMSOLL_MM_WEIGHT_SHIFT)
                .ok()
                .and_then(Weight::from_permille),
        }
    }

    /// Those that are entered: not those that are being made, nor those of which only the deletion is outstanding.
    pub(super) fn all(kernel: &Rc<FakeKernel>) -> BTreeMap<u64, Self> {
        let entered = |space: &&plimsoll_testkit::Space| {
            space.value.word != 0 && space.value.mm == space.key && space.value.flags & GONE == 0
        };
        kernel.spaces().iter().filter(entered).map(|space| (space.key, Self::of(space))).collect()
    }

    pub(super) const fn is_dying(&self) -> bool {
        self.flags & abi::PLIMSOLL_MM_DYING != 0
    }

    /// The programs have found that nobody runs in it.
    pub(super) const fn is_left(&self) -> bool {
        self.flags & abi::PLIMSOLL_MM_LEFT != 0
    }

    const fn pages(&self) -> i64 {
        self.own + self.shared + self.inherited
    }

    fn weighed(&self) -> i64 {
        self.pages() * i64::from(self.weight.unwrap_or_default().permille())
    }

    const fn tier(&self, hard: i64) -> i64 {
        let keeps_to_grants = self.granted > 0 && self.pages() <= self.granted + super::ALLOWANCE_PAGES;
        if self.carries_session(hard) {
            -(4 << 60)
        } else if keeps_to_grants {
            -(1 << 60)
        } else {
            0
        }
    }

    /// Whether it goes before a larger one when it allocates while much is dying.
    pub(super) fn goes_before(&self, larger: &Self, hard: i64) -> bool {
        let is_fork = self.family != 0 && self.family == larger.family;
        self.tier(hard) == larger.tier(hard) && (is_fork || 2 * self.weighed() >= larger.weighed())
    }

    /// Its user's session ends with it, and it holds a quarter of the line at most.
    pub(super) const fn carries_session(&self, hard: i64) -> bool {
        self.flags & SESSION != 0 && self.pages() <= hard / 4
    }

    /// Nobody whom anything protects, and nobody whom something was sent.
    pub(super) const fn may_be_a_victim(&self) -> bool {
        const NO_VICTIM: u32 =
            abi::PLIMSOLL_MM_PROTECTED | NEVER | abi::PLIMSOLL_MM_DYING | abi::PLIMSOLL_MM_CONDEMNED;
        self.flags & NO_VICTIM == 0
    }

    pub(super) const fn is_protected(&self) -> bool {
        self.flags & (abi::PLIMSOLL_MM_PROTECTED | NEVER) != 0
    }
}

/// All that the maps hold.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) families: BTreeMap<u64, abi::plimsoll_family>,
    /// By number; those in use.
    pub(super) accounts: BTreeMap<u32, abi::plimsoll_account>,
    /// Of their usage, what lies in their trees.
    kept: BTreeMap<u32, Vec<i64>>,
    pub(super) by_uid: BTreeMap<u32, u32>,
    /// Entries, as the programs count them.
    counted: u64,
}

impl Maps {
    pub(super) fn read(kernel: &Rc<FakeKernel>) -> Self {
        let numbers = kernel.numbers();
        let user = |key: u64| u32::try_from(key).ok();
        let by_uid = numbers.iter().filter_map(|(key, index)| Some((user(*key)?, *index))).collect();
        Self {
            entries: Entry::all(kernel),
            families: kernel.families().into_iter().collect(),
            accounts: numbers.iter().map(|(_, index)| (*index, kernel.account(*index))).collect(),
            kept: numbers.iter().map(|(_, index)| (*index, kernel.kept_of(*index))).collect(),
            by_uid,
            counted: kernel.counters().entries,
        }
    }

    /// The line in force for a user.
    pub(super) fn in_force(&self, uid: u32) -> Option<i64> {
        let account = self.accounts.get(self.by_uid.get(&uid)?)?;
        Some(account.effective_pages)
    }

    fn gives_back(&self, e: &Entry) -> i64 {
        let family =
            self.families.get(&e.family).filter(|family| family.account == e.account && family.living <= 1);
        e.own + e.reserved + family.map_or(0, |family| family.pages)
    }

    /// What it counts, as bpf/limits/rank.h has it, under a line of so many pages.
    pub(super) fn rank(&self, e: &Entry, hard: i64) -> i64 {
        let counts = e.pages().min(8 * self.gives_back(e));
        counts * i64::from(e.weight.unwrap_or_default().permille()) + e.tier(hard)
    }

    /// Whether its account is at its line or below, with what is dying gone, once it is gone too.
    pub(super) fn is_enough(&self, e: &Entry) -> bool {
        let comes_back = |a: &abi::plimsoll_account| {
            a.usage_pages - a.dying_pages.min(dying_bound(a)) - self.gives_back(e) <= a.effective_pages
        };
        self.accounts.get(&e.account).is_some_and(comes_back)
    }

    /// What of them does not fit what else is there: nothing is charged twice, lost, or left behind.
    pub(super) fn disagreement(&self) -> Option<String> {
        let entry = self.entries.iter().find_map(|(mm, e)| e.disagreement(*mm));
        let family = || self.families.iter().find_map(|(id, family)| self.of_a_family(*id, family));
        let account =
            || self.accounts.iter().find_map(|(index, account)| self.of_an_account(*index, account));
        let counted = || {
            let there = self.entries.len();
            (self.counted != there as u64)
                .then(|| format!("{} entries are counted, there are {there}", self.counted))
        };
        entry.or_else(family).or_else(account).or_else(counted)
    }

    fn of_a_family(&self, id: u64, family: &abi::plimsoll_family) -> Option<String> {
        let members: Vec<&Entry> = self.entries.values().filter(|e| e.family == id).collect();
        let shares: i64 = members.iter().map(|e| e.shared).sum();
        let living = members.iter().filter(|e| !e.is_dying()).count();
        let known = ((family.members & 0xffff_ffff) as usize, family.living as usize, family.shares);
        if known != (members.len(), living, shares) {
            let found = (members.len(), living, shares);
            return Some(format!(
                "family {id} counts {known:?} members, living, shares; there are {found:?}"
            ));
        }
        (family.pages > family.shares)
            .then(|| format!("family {id} is charged more than is shared: {family:?}"))
    }

    /// Whether what is charged to one account is charged to the other.
    fn is_charged(&self, leaf: u32, index: u32) -> bool {
        leaf == index || self.accounts.get(&leaf).is_some_and(|a| numbers_above(a).any(|one| one == index))
    }

    fn of_an_account(&self, index: u32, a: &abi::plimsoll_account) -> Option<String> {
        let its = || self.entries.values().filter(move |e| self.is_charged(e.account, index));
        let families = || self.families.values().filter(move |family| self.is_charged(family.account, index));
        let reserved = self.entries.values().filter(|e| self.is_charged(e.reserved_of, index));
        let reserved: i64 = reserved.map(|e| e.reserved).sum();
        let own: i64 = its().map(|e| e.own).sum();
        let shared: i64 = families().map(|family| family.pages + family.copied_pages).sum();
        let copyable: i64 = families().map(|family| family.shares - family.pages - family.copied_pages).sum();
        let dying: i64 =
            self.entries.values().filter(|e| self.is_charged(e.dying_of, index)).map(|e| e.dying).sum();
        let dying = dying + families().map(|family| family.dying_pages).sum::<i64>();
        let named = self.entries.values().filter(|e| e.account == index).count()
            + self.families.values().filter(|family| family.account == index).count();
        let compare = |what: &str, known: i64, found: i64| {
            (known != found)
                .then(|| format!("account {index}, of {}, counts {known} {what}, there are {found}", a.id))
        };
        // These machines have so few CPUs that their trees have leaves alone.
        let over = |kept: &&i64| kept.abs() >= i64::from(a.batch.max(1));
        let over = self.kept.get(&index).and_then(|kept| kept.iter().find(over));
        let over =
            over.map(|kept| format!("account {index}: {kept} pages in a leaf, for {} at most", a.batch));
        over.or_else(|| compare("pages", a.usage_pages, own + shared + reserved))
            .or_else(|| compare("pages reserved", a.reserved_pages, reserved))
            .or_else(|| compare("pages that may be copied", a.copyable_pages, copyable))
            .or_else(|| compare("pages dying", a.dying_pages, dying))
            .or_else(|| compare("processes", a.processes, its().count().try_into().unwrap()))
            .or_else(|| compare("names", a.named.into(), named.try_into().unwrap()))
            .or_else(|| compare("claims under way", a.taking.into(), 0))
            .or_else(|| (a.effective_pages < a.hard_pages).then(|| format!("uid {}: {a:?}", a.id)))
    }
}

impl Entry {
    fn disagreement(&self, mm: u64) -> Option<String> {
        if self.pins != 0 || self.shifts != 0 {
            return Some(format!("{mm:x} of {} is held by nobody: {self:?}", self.pid));
        }
        if self.own + self.shared + self.inherited != self.seen {
            return Some(format!("{mm:x} of {} is charged what was not seen: {self:?}", self.pid));
        }
        // What is dying is what its dying processes have: else it is over its line unseen, or not over it.
        let dying = if self.is_dying() { self.own } else { 0 };
        (self.dying != dying)
            .then(|| format!("{mm:x} of {} counts {} pages as dying: {self:?}", self.pid, self.dying))
    }
}
