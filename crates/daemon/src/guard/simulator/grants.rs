//! Memory granted before it is touched, as a model: `bpf/limits/grants.h` and `reserved.h`.

use super::{
    accounting::{Accounting, DYING, NO_LINE},
    world::World,
};
use plimsoll_wire::record::RecordKind;

/// What stays free below a line.
const HEADROOM_PAGES: i64 = 50;

impl Accounting {
    /// `take_reserved`
    pub(super) fn take_reserved(&mut self, key: u64, touched: i64) -> i64 {
        let Some(e) = self.entries.get_mut(&key) else { return 0 };
        let taken = e.reserved.min(touched).max(0);
        e.reserved -= taken;
        let index = e.account;
        if let Some(a) = self.account(index) {
            a.reserved -= taken;
        }
        taken
    }

    /// `release_reserved`
    pub(super) fn release_reserved(&mut self, key: u64) -> i64 {
        let Some(e) = self.entries.get_mut(&key) else { return 0 };
        let (index, pages) = (e.account, std::mem::take(&mut e.reserved));
        if let Some(a) = self.account(index) {
            a.reserved -= pages;
        }
        self.account_add(index, -pages);
        pages
    }
}

impl World {
    /// A process asks for memory. Whether it will touch it, in part or at all, is another matter.
    pub(super) fn ask_for_memory(&mut self, pid: u32) {
        let pages = self.random.within(1, 600).cast_signed();
        let Some(mm) = self.processes[&pid].mm else { return };
        if self.reserve(mm, pages) {
            self.trace(format!("{pid} is granted {pages} pages"));
        }
    }

    /// `reserve`
    fn reserve(&mut self, mm: u64, pages: i64) -> bool {
        let Some(e) = self.accounting.entries.get(&mm) else { return false };
        let (index, flags) = (e.account, e.flags);
        let lives = self.memories.get(&mm).is_some_and(|memory| memory.life == e.life);
        if index == 0 || flags & DYING != 0 || !lives {
            return false;
        }
        let seen = self.settle(mm);
        self.accounting.charge(mm, seen);
        let a = &mut self.accounting.accounts[index as usize];
        if a.effective == NO_LINE || a.usage + pages > a.hard - HEADROOM_PAGES {
            return false;
        }
        a.usage += pages;
        a.reserved += pages;
        a.peak = a.peak.max(a.usage);
        let turns_near = a.usage >= a.soft && !a.near;
        a.near |= turns_near;
        let e = self.accounting.entries.get_mut(&mm).unwrap();
        e.reserved += pages;
        e.granted += pages;
        if self.accounting.need_exact(index) {
            self.tell(mm, index, RecordKind::Exact);
        }
        if turns_near {
            self.accounting.accounts[index as usize].nobody = 0;
            self.accounting.find_largest(index, self.now);
            self.tell(mm, index, RecordKind::Near);
        }
        true
    }

    /// `settle`, and now and then `give_up`.
    pub(super) fn settle_grant(&mut self, pid: u32) {
        let Some(mm) = self.processes[&pid].mm.filter(|mm| self.accounting.entries.contains_key(mm)) else {
            return;
        };
        let seen = self.settle(mm);
        self.accounting.charge(mm, seen);
        let gives_up = if self.random.one_in(3) { self.random.below(600).cast_signed() } else { 0 };
        let back = self.accounting.release_reserved(mm) + gives_up;
        let e = self.accounting.entries.get_mut(&mm).unwrap();
        let index = e.account;
        e.granted = (e.granted - back).max(0);
        if self.accounting.account(index).is_none() {
            return;
        }
        if self.accounting.accounts[index as usize].near && self.accounting.note_largest(index, mm) {
            self.tell(mm, index, RecordKind::Judge);
        }
        if self.accounting.need_exact(index) {
            self.tell(mm, index, RecordKind::Exact);
        }
        if self.accounting.becomes_far(index) {
            self.tell(mm, index, RecordKind::Far);
        }
    }
}
