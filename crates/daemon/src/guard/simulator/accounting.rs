//! The limits programs as a model: their maps, and what `bpf/limits.bpf.c` and its headers do with them, in their words.
//! What they do at the kernel's events is in [`super::programs`].
//!
//! One thing is left to the integration tests: that two CPUs are never in the same event at once here. What lies between
//! two calls of the daemon does happen in between.

use plimsoll_policy::{
    selection::Weight,
    units::{Pages, Pid, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, DefaultLine, Enforce, LineSet, Weighing};
use plimsoll_wire::{abi, record::Record};
use std::collections::{BTreeMap, VecDeque};

pub(super) const NO_LINE: i64 = i64::MAX;
pub(super) const PROTECTED: u32 = abi::PLIMSOLL_MM_PROTECTED;
pub(super) const DYING: u32 = abi::PLIMSOLL_MM_DYING;
pub(super) const LEFT: u32 = abi::PLIMSOLL_MM_LEFT;
pub(super) const EXPIRED: u32 = abi::PLIMSOLL_MM_EXPIRED;
pub(super) const NEVER: u32 = abi::PLIMSOLL_MM_NEVER;
pub(super) const NO_VICTIM: u32 = PROTECTED | NEVER | DYING | EXPIRED;

/// How far an address space may be from its charge while its account is not exact.
pub(super) const LOOSE_PAGES: i64 = 64;
pub(super) const UNANSWERED_NS: u64 = 100_000_000;
pub(super) const ASK_AGAIN_NS: u64 = 2_000_000;
pub(super) const SEARCH_AGAIN_NS: u64 = 1_000_000;
/// Below every rank; those of the lower tier are just above it (`bpf/limits/rank.h`).
pub(super) const RANK_NONE: i64 = -(1 << 62);
/// What a process may have beyond its grants and be in the lower tier.
const ALLOWANCE_PAGES: i64 = 100;

/// `struct plimsoll_mm`.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Which address space it was made for: the address may be another's by now.
    pub(super) life: u64,
    pub(super) pid: u32,
    pub(super) start_ns: u64,
    pub(super) uid: u32,
    pub(super) account: u32,
    pub(super) own: i64,
    pub(super) shared: i64,
    /// Of the account's usage, granted and not touched yet.
    pub(super) reserved: i64,
    pub(super) granted: i64,
    pub(super) family: u64,
    /// What was seen of the kernel's counter.
    pub(super) seen: i64,
    pub(super) flags: u32,
    pub(super) dying: i64,
    pub(super) epoch: u32,
    pub(super) scan: u32,
    pub(super) tracked: u64,
    pub(super) weight: Option<Weight>,
    /// User space weighed it, or was told of it.
    pub(super) judged: bool,
}

impl Entry {
    pub(super) const fn pages(&self) -> i64 {
        self.own + self.shared
    }

    pub(super) const fn keeps_to_grants(&self) -> bool {
        self.granted > 0 && self.pages() <= self.granted + ALLOWANCE_PAGES
    }

    /// `rank_of`
    pub(super) fn rank(&self) -> i64 {
        let tier = if self.keeps_to_grants() { RANK_NONE } else { 0 };
        match self.pages() {
            1.. => tier + self.pages() * i64::from(self.weight.unwrap_or_default().permille()),
            _ => RANK_NONE,
        }
    }

    pub(super) const fn is_dying(&self) -> bool {
        self.flags & DYING != 0
    }

    pub(super) const fn dying(&self) -> i64 {
        self.dying
    }

    pub(super) const fn is_protected(&self) -> bool {
        self.flags & (PROTECTED | NEVER) != 0
    }

    /// `forget_judgement`
    pub(super) const fn forget_judgement(&mut self) {
        (self.weight, self.judged) = (None, false);
        self.flags &= !NEVER;
    }
}

/// `struct plimsoll_family`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) pages: i64,
    pub(super) shares: i64,
    pub(super) dying: i64,
    pub(super) members: u32,
    pub(super) account: u32,
}

/// `struct plimsoll_account`.
#[expect(clippy::struct_excessive_bools, reason = "the fields of the C structure")]
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    pub(super) usage: i64,
    pub(super) effective: i64,
    pub(super) hard: i64,
    pub(super) soft: i64,
    pub(super) dying: i64,
    pub(super) processes: u32,
    pub(super) exact: u32,
    pub(super) near: bool,
    pub(super) uid: u32,
    pub(super) top: u64,
    pub(super) runner_up: i64,
    pub(super) asked: u64,
    pub(super) unanswered: u64,
    pub(super) hold_until: u64,
    pub(super) in_use: bool,
    pub(super) signal: u32,
    pub(super) from_default: bool,
    pub(super) notified: bool,
    pub(super) nobody: u64,
    pub(super) kills: u32,
    pub(super) reserved: i64,
    pub(super) peak: i64,
}

/// All maps.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    pub(super) loaded: bool,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) families: BTreeMap<u64, Family>,
    pub(super) accounts: Vec<Account>,
    pub(super) by_uid: BTreeMap<u32, u32>,
    pub(super) default: Option<DefaultLine>,
    pub(super) ring: VecDeque<Record>,
    pub(super) ring_max: usize,
    pub(super) counters: abi::plimsoll_counters,
    pub(super) scan_id: u32,
    pub(super) next_epoch: u32,
    pub(super) next_family: u64,
}

/// One charge being judged.
#[expect(clippy::struct_excessive_bools, reason = "the flags of a record")]
pub(super) struct Event {
    /// The task that runs.
    pub(super) task: u32,
    pub(super) mm: u64,
    pub(super) account: u32,
    pub(super) usage: i64,
    pub(super) delta: i64,
    pub(super) time: u64,
    pub(super) signal: Option<u64>,
    pub(super) errno: Option<i32>,
    pub(super) remote: bool,
    pub(super) largest: bool,
    pub(super) unanswered: bool,
    pub(super) mm_shared: bool,
}

pub(super) const ACCOUNTS_MAX: u32 = 8;

impl Accounting {
    pub(super) fn load(&mut self, ring_max: usize) {
        *self = Self {
            loaded: true,
            accounts: vec![Account::default(); ACCOUNTS_MAX as usize],
            ring_max,
            ..Self::default()
        };
    }

    pub(super) fn free_account(&mut self) -> Option<u32> {
        (1..ACCOUNTS_MAX).find(|index| !self.accounts[*index as usize].in_use)
    }

    pub(super) fn account(&mut self, index: u32) -> Option<&mut Account> {
        if index == 0 { None } else { self.accounts.get_mut(index as usize) }
    }

    pub(super) fn may_be_limited(&self, uid: u32) -> bool {
        self.by_uid.contains_key(&uid)
            || self.default.is_some_and(|line| (line.uid_min.0..=line.uid_max.0).contains(&uid))
    }

    pub(super) fn need_exact(&mut self, index: u32) -> bool {
        let epoch = self.next_epoch + 1;
        let Some(a) = self.account(index) else { return false };
        if a.soft == NO_LINE {
            return false;
        }
        let loose = i64::from(a.processes) * LOOSE_PAGES;
        let room = a.soft - a.usage - loose;
        if room <= 0 && a.exact == 0 {
            a.exact = epoch;
            self.next_epoch = epoch;
            return true;
        }
        if room > (a.soft >> 6) + loose {
            a.exact = 0;
        }
        false
    }

    pub(super) fn account_of(&mut self, uid: u32) -> u32 {
        if let Some(index) = self.by_uid.get(&uid) {
            return *index;
        }
        let Some(line) = self.default.filter(|line| (line.uid_min.0..=line.uid_max.0).contains(&uid)) else {
            return 0;
        };
        let Some(index) = self.free_account() else {
            self.counters.accounts_full += 1;
            return 0;
        };
        self.accounts[index as usize] = Account {
            uid,
            hard: signed(line.hard),
            effective: signed(line.hard),
            soft: signed(line.soft),
            signal: line.signal,
            from_default: true,
            in_use: true,
            ..Account::default()
        };
        self.by_uid.insert(uid, index);
        self.need_exact(index);
        index
    }

    pub(super) fn account_add(&mut self, index: u32, delta: i64) -> i64 {
        let Some(a) = self.account(index) else { return 0 };
        a.usage += delta;
        if delta < 0 && a.effective != a.hard && a.usage < a.effective && a.effective != NO_LINE {
            a.effective = a.usage.max(a.hard);
        }
        a.usage
    }

    pub(super) fn give_up_shares(&mut self, id: u64, pages: i64) {
        let Some(family) = self.families.get_mut(&id) else { return };
        let before = family.shares;
        family.shares -= pages;
        let over = (pages - before + family.pages).min(family.pages);
        if over > 0 {
            family.pages -= over;
            let account = family.account;
            self.account_add(account, -over);
            self.settle_dying(id);
        }
    }

    /// `settle_dying`: who lives in it is looked up, where the programs count.
    pub(super) fn settle_dying(&mut self, id: u64) {
        let lives = self.entries.values().any(|e| e.family == id && !e.is_dying());
        let Some(family) = self.families.get_mut(&id) else { return };
        let before = std::mem::replace(&mut family.dying, if lives { 0 } else { family.pages });
        let (account, change) = (family.account, family.dying - before);
        if let Some(a) = self.account(account) {
            a.dying += change;
        }
    }

    /// `end_family`
    fn end_family(&mut self, id: u64) {
        let Some(Family { account, pages, dying, .. }) = self.families.remove(&id) else { return };
        self.account_add(account, -pages);
        if let Some(a) = self.account(account) {
            a.dying -= dying;
        }
    }

    pub(super) fn charge(&mut self, key: u64, delta: i64) -> Option<(u32, i64)> {
        self.charge_as(key, delta, true)
    }

    /// `charge_as`
    fn charge_as(&mut self, key: u64, mut delta: i64, touched: bool) -> Option<(u32, i64)> {
        let e = self.entries.get_mut(&key)?;
        e.own += delta;
        if e.own < 0 && e.shared > 0 {
            let back = (-e.own).min(e.shared);
            e.shared -= back;
            e.own += back;
            delta += back;
            let family = e.family;
            self.give_up_shares(family, back);
        }
        let e = self.entries.get_mut(&key)?;
        let (index, dying) = (e.account, e.flags & DYING != 0);
        if dying {
            e.dying += delta;
        }
        if index == 0 {
            return None;
        }
        let taken = if touched { self.take_reserved(key, delta) } else { 0 };
        let usage = self.account_add(index, delta - taken);
        if dying {
            self.account(index)?.dying += delta;
        }
        Some((index, usage))
    }

    pub(super) fn leave_family(&mut self, key: u64) {
        let Some(e) = self.entries.get_mut(&key) else { return };
        let (id, shared) = (std::mem::take(&mut e.family), std::mem::take(&mut e.shared));
        if id == 0 {
            return;
        }
        self.settle_dying(id);
        self.give_up_shares(id, shared);
        let Some(family) = self.families.get_mut(&id) else { return };
        family.members -= 1;
        if family.members == 0 {
            self.end_family(id);
        }
    }

    pub(super) fn absorb_family(&mut self, key: u64) {
        let Some(e) = self.entries.get_mut(&key) else { return };
        let id = e.family;
        if self.families.get(&id).is_none_or(|family| family.members != 1) {
            return;
        }
        e.family = 0;
        let shared = std::mem::take(&mut e.shared);
        self.charge_as(key, shared, false);
        self.end_family(id);
    }

    /// Ends the tracking of an address space.
    pub(super) fn settle_gone(&mut self, key: u64) -> u32 {
        self.release_reserved(key);
        self.leave_family(key);
        let Some(e) = self.entries.remove(&key) else { return 0 };
        if e.account == 0 {
            return 0;
        }
        self.account_add(e.account, -e.own);
        if let Some(a) = self.account(e.account) {
            a.dying -= e.dying;
            a.processes -= 1;
        }
        e.account
    }

    pub(super) fn becomes_far(&mut self, index: u32) -> bool {
        let Some(a) = self.account(index) else { return false };
        if !a.near || a.usage >= a.soft - (a.soft >> 6) {
            return false;
        }
        (a.near, a.notified, a.unanswered) = (false, false, 0);
        true
    }

    pub(super) fn claim(&mut self, index: u32) -> bool {
        self.account(index).is_some_and(|a| a.usage - a.dying > a.effective)
    }

    pub(super) fn mark_dying(&mut self, key: u64, index: u32) {
        let Some(e) = self.entries.get_mut(&key) else { return };
        e.flags |= DYING;
        e.dying += e.own;
        let own = e.own;
        if let Some(a) = self.account(index) {
            a.dying += own;
            a.top = 0;
            a.unanswered = 0;
        }
        let family = self.entries.get(&key).map_or(0, |e| e.family);
        self.settle_dying(family);
        self.release_reserved(key);
    }

    pub(super) fn find_largest(&mut self, index: u32, now: u64) {
        let Some(a) = self.account(index) else { return };
        if now.saturating_sub(a.nobody) < SEARCH_AGAIN_NS {
            return;
        }
        let (mut top, mut top_rank, mut runner_up) = (0, RANK_NONE, RANK_NONE);
        for (key, e) in &self.entries {
            if e.account != index || e.flags & NO_VICTIM != 0 {
                continue;
            }
            if e.rank() > top_rank {
                (runner_up, top_rank, top) = (top_rank, e.rank(), *key);
            } else {
                runner_up = runner_up.max(e.rank());
            }
        }
        if let Some(a) = self.account(index) {
            (a.runner_up, a.top) = (runner_up, top);
            a.nobody = if top == 0 { now } else { 0 };
        }
    }

    pub(super) fn is_largest(&mut self, ev: &Event) -> bool {
        let Some(a) = self.account(ev.account) else { return false };
        if a.processes == 1 {
            return true;
        }
        let (top, runner_up) = (a.top, a.runner_up);
        let known = self
            .entries
            .get(&top)
            .is_some_and(|e| e.account == ev.account && e.flags & NO_VICTIM == 0 && e.rank() >= runner_up);
        if !known {
            self.find_largest(ev.account, ev.time);
        }
        self.account(ev.account).is_some_and(|a| a.top == ev.mm)
    }

    /// Whether it came to be the largest, and nobody has weighed it.
    pub(super) fn note_largest(&mut self, index: u32, mm: u64) -> bool {
        let Some((rank, flags, judged)) = self.entries.get(&mm).map(|e| (e.rank(), e.flags, e.judged)) else {
            return false;
        };
        let Some(a) = self.account(index) else { return false };
        let top = a.top;
        if flags & NO_VICTIM != 0 || top == 0 || top == mm || rank <= a.runner_up {
            return false;
        }
        let top_rank = self.entries.get(&top).map_or(RANK_NONE, Entry::rank);
        let Some(a) = self.account(index) else { return false };
        if rank <= top_rank {
            a.runner_up = rank;
            return false;
        }
        (a.runner_up, a.top) = (top_rank, mm);
        if let Some(e) = self.entries.get_mut(&mm) {
            e.judged = true;
        }
        !judged
    }

    /// `weigh`
    pub(super) fn weigh(&mut self, said: &Weighing) -> bool {
        let same = |e: &&mut Entry| {
            (e.pid, e.start_ns, e.tracked, e.uid) == (said.pid.0, said.start_ns, said.tracked_ns, said.uid.0)
        };
        let Some(e) = self.entries.get_mut(&said.mm).filter(same) else { return false };
        e.forget_judgement();
        (e.weight, e.judged) = (Some(said.weight), true);
        e.flags |= if said.never { NEVER } else { 0 };
        let index = e.account;
        if self.account(index).is_some_and(|a| a.near) {
            self.note_largest(index, said.mm);
        }
        true
    }

    pub(super) fn facts(&self, index: u32) -> AccountFacts {
        let a = &self.accounts[index as usize];
        AccountFacts {
            index,
            uid: Uid(a.uid),
            usage: unsigned(a.usage),
            hard: unsigned(a.hard),
            soft: unsigned(a.soft),
            effective: (a.effective != NO_LINE).then(|| unsigned(a.effective)),
            dying: unsigned(a.dying),
            processes: a.processes,
            near: a.near,
            exact: a.exact != 0,
            unanswered_ns: (a.unanswered != 0).then_some(a.unanswered),
            signal: a.signal,
            from_default: a.from_default,
            copyable: Pages(0),
            kills: a.kills,
            reserved: unsigned(a.reserved),
            peak: unsigned(a.peak),
        }
    }

    pub(super) fn spaces(&self) -> Vec<AddressSpace> {
        let space = |(key, e): (&u64, &Entry)| AddressSpace {
            mm: *key,
            account: e.account,
            pid: Pid(e.pid),
            start_ns: e.start_ns,
            uid: Uid(e.uid),
            user: Uid(e.uid),
            family: e.family,
            own: unsigned(e.own),
            shared: unsigned(e.shared),
            copied: Pages(0),
            protected: e.flags & PROTECTED != 0,
            never: e.flags & NEVER != 0,
            weight: e.weight,
            dying: e.flags & DYING != 0,
            left: e.flags & LEFT != 0,
            expired: e.flags & EXPIRED != 0,
            tracked_ns: e.tracked,
            scan: e.scan,
            reserved: unsigned(e.reserved),
            granted: unsigned(e.granted),
        };
        self.entries.iter().map(space).collect()
    }

    pub(super) fn answer(&mut self, index: u32, hold_until: u64) {
        if let Some(a) = self.account(index) {
            (a.hold_until, a.unanswered) = (hold_until, 0);
        }
    }

    /// False when no account is free.
    pub(super) fn line_set(&mut self, line: &LineSet) -> bool {
        let known = self.by_uid.get(&line.uid.0).copied();
        let Some(index) = known.or_else(|| self.free_account()) else { return false };
        if known.is_none() {
            self.accounts[index as usize] =
                Account { effective: NO_LINE, in_use: true, ..Account::default() };
            self.by_uid.insert(line.uid.0, index);
        }
        let hard = signed(line.hard);
        let a = &mut self.accounts[index as usize];
        (a.uid, a.signal, a.from_default) = (line.uid.0, line.signal, line.from_default);
        (a.soft, a.hard) = (signed(line.soft), hard);
        let loose = if self.need_exact(index) { LOOSE_PAGES } else { 0 };
        let a = &mut self.accounts[index as usize];
        let reach = a.usage + i64::from(a.processes) * loose;
        a.effective = match line.enforce {
            Enforce::Ratchet => reach.max(hard),
            Enforce::Open => NO_LINE,
            Enforce::Now => hard,
        };
        (a.hold_until, a.notified) = (0, false);
        true
    }

    pub(super) const fn default_set(&mut self, line: Option<&DefaultLine>) {
        self.default = line.copied();
    }

    pub(super) const fn begin_scan(&mut self) {
        self.scan_id += 1;
    }

    pub(super) fn sweep(&mut self) -> u32 {
        let stale: Vec<u64> =
            self.entries.iter().filter(|(_, e)| self.scan_id - e.scan >= 2).map(|(key, _)| *key).collect();
        for key in &stale {
            self.settle_gone(*key);
            self.counters.phantoms += 1;
        }
        for index in 1..ACCOUNTS_MAX {
            self.becomes_far(index);
        }
        u32::try_from(stale.len()).unwrap()
    }
}

pub(super) const fn signed(pages: Pages) -> i64 {
    pages.0.cast_signed()
}

pub(super) const fn unsigned(pages: i64) -> Pages {
    Pages(if pages > 0 { pages.cast_unsigned() } else { 0 })
}
