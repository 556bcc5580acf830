//! The limits programs at the kernel's events and the daemon's calls, on the maps of [`super::accounting`].

use super::{
    accounting::{
        ASK_AGAIN_NS, DYING, EXPIRED, Entry, Event, Family, LEFT, NEVER, NO_LINE, PROTECTED, RANK_NONE,
        UNANSWERED_NS, unsigned,
    },
    world::World,
};
use plimsoll_policy::units::{Nanos, Pid, Uid};
use plimsoll_sys::bpf::{Holder, VictimMark};
use plimsoll_wire::record::{Record, RecordKind, RecordProcess};

/// The programs at the kernel's events.
impl World {
    fn emit(&mut self, ev: &Event, kind: RecordKind) -> bool {
        let Some(e) = self.accounting.entries.get(&ev.mm) else { return false };
        let (mut pid, mut start_ns) = (e.pid, e.start_ns);
        if !ev.remote {
            (pid, start_ns) = (ev.task, self.processes.get(&ev.task).map_or(0, |task| task.start_ns));
        }
        let pages = unsigned(e.pages());
        let a = &self.accounting.accounts[ev.account as usize];
        let record = Record {
            kind,
            time: Nanos(ev.time),
            signal_time: ev.signal.map(Nanos),
            uid: Uid(a.uid),
            usage: unsigned(ev.usage),
            hard: unsigned(a.hard),
            effective: unsigned(a.effective),
            dying: unsigned(a.dying),
            charged: unsigned(ev.delta),
            process: RecordProcess {
                mm: ev.mm,
                pid: Pid(pid),
                start_ns,
                pages,
                cgroup_id: None,
                weight: e.weight.unwrap_or_default(),
                comm: None,
                cmdline: None,
            },
            signal: a.signal,
            signal_errno: ev.errno,
            other: false,
            largest: ev.largest,
            unanswered: ev.unanswered,
            mm_shared: ev.mm_shared,
        };
        if self.accounting.ring.len() >= self.accounting.ring_max {
            self.accounting.counters.records_dropped += 1;
            self.trace(format!("dropped {kind:?} of uid {}", record.uid));
            return false;
        }
        self.trace(format!("record {kind:?} of uid {} pid {pid} usage {}", record.uid, ev.usage));
        self.accounting.ring.push_back(record);
        true
    }

    pub(super) fn tell(&mut self, mm: u64, account: u32, kind: RecordKind) {
        let Some(usage) = self.accounting.account(account).map(|a| a.usage) else { return };
        let ev = Event { remote: true, ..self.event(0, mm, account, (usage, 0)) };
        self.emit(&ev, kind);
    }

    const fn event(&self, task: u32, mm: u64, account: u32, (usage, delta): (i64, i64)) -> Event {
        Event {
            task,
            mm,
            account,
            usage,
            delta,
            time: self.now,
            signal: None,
            errno: None,
            remote: false,
            largest: false,
            unanswered: false,
            mm_shared: false,
        }
    }

    /// Enters an address space, uncharged.
    fn track(&mut self, pid: u32, mm: u64, account: u32) -> bool {
        if self.accounting.entries.contains_key(&mm) {
            return false;
        }
        let (process, memory) = (&self.processes[&pid], &self.memories[&mm]);
        let protected = pid == 1 || memory.protected;
        let entry = Entry {
            life: memory.life,
            pid,
            start_ns: process.start_ns,
            uid: process.uid,
            account,
            own: 0,
            shared: 0,
            reserved: 0,
            granted: 0,
            family: 0,
            seen: 0,
            flags: if protected { PROTECTED } else { 0 },
            dying: 0,
            epoch: 0,
            scan: self.accounting.scan_id,
            tracked: self.now,
            weight: None,
            judged: false,
        };
        self.accounting.entries.insert(mm, entry);
        if let Some(a) = self.accounting.account(account) {
            a.processes += 1;
        }
        true
    }

    /// What of its counter was not charged yet.
    pub(super) fn settle(&mut self, mm: u64) -> i64 {
        let Some(pages) = self.memories.get(&mm).map(|memory| memory.pages) else { return 0 };
        self.accounting.entries.get_mut(&mm).map_or(0, |e| pages - std::mem::replace(&mut e.seen, pages))
    }

    fn first_sight(&mut self, pid: u32, mm: u64, inherits: bool) {
        let Some(process) = self.processes.get(&pid) else { return };
        let (uid, forked) = (process.uid, process.forked);
        let account = self.accounting.account_of(uid);
        if account == 0 || !self.track(pid, mm, account) {
            return;
        }
        let pages = self.settle(mm);
        let open = self.accounting.accounts[account as usize].effective == NO_LINE;
        if inherits && !open && forked {
            if let Some(e) = self.accounting.entries.get_mut(&mm) {
                e.shared += pages;
            }
        } else {
            self.accounting.charge(mm, pages);
        }
        if self.accounting.need_exact(account) {
            self.tell(mm, account, RecordKind::Exact);
        }
    }

    /// `tp_btf/rss_stat`: `task` changed a counter of `mm`.
    pub(super) fn on_rss_stat(&mut self, task: u32, mm: u64, folded: bool) {
        if !self.accounting.loaded {
            return;
        }
        let Some((uid, own)) = self.processes.get(&task).map(|task| (task.uid, task.mm == Some(mm))) else {
            return;
        };
        if self.accounting.may_be_limited(uid) {
            let index = self.accounting.by_uid.get(&uid).copied().unwrap_or(0);
            if !folded && self.accounting.account(index).is_none_or(|a| a.exact == 0) {
                return;
            }
        }
        if !self.accounting.entries.contains_key(&mm) {
            if own && self.accounting.may_be_limited(uid) {
                self.first_sight(task, mm, true);
            }
            return;
        }
        if own {
            self.follow_user(task, mm);
            if self.accounting.entries[&mm].family != 0 {
                self.accounting.absorb_family(mm);
            }
        }
        self.judge_event(task, mm);
    }

    fn judge_event(&mut self, task: u32, mm: u64) {
        let delta = self.settle(mm);
        if delta == 0 {
            return;
        }
        let Some((index, mut usage)) = self.accounting.charge(mm, delta) else { return };
        let exact = self.accounting.accounts[index as usize].exact;
        if (exact == 0 || delta < 0) && self.accounting.need_exact(index) {
            self.tell(mm, index, RecordKind::Exact);
        }
        let epoch = self.accounting.accounts[index as usize].exact;
        if let Some(e) = self.accounting.entries.get_mut(&mm)
            && epoch != 0
            && e.epoch != epoch
        {
            e.epoch = epoch;
            let pages = self.settle(mm);
            usage = self.accounting.charge(mm, pages).map_or(usage, |(_, usage)| usage);
        }
        if delta > 0 && usage >= self.accounting.accounts[index as usize].soft {
            self.near(task, mm, index, (usage, delta));
        } else if delta < 0 && self.accounting.becomes_far(index) {
            self.tell(mm, index, RecordKind::Far);
        }
    }

    /// Usage is at or above the soft limit.
    fn near(&mut self, task: u32, mm: u64, index: u32, after: (i64, i64)) {
        let (usage, _) = after;
        let mut ev = self.event(task, mm, index, after);
        ev.remote = self.processes.get(&task).is_none_or(|task| task.mm != Some(mm));
        if !self.accounting.accounts[index as usize].near {
            self.accounting.accounts[index as usize].near = true;
            self.accounting.find_largest(index, self.now);
            self.accounting.need_exact(index);
            self.emit(&ev, RecordKind::Near);
        }
        if self.accounting.note_largest(index, mm) {
            self.tell(mm, index, RecordKind::Judge);
        }
        let a = &self.accounting.accounts[index as usize];
        if usage - a.dying > a.effective {
            self.crossed(&mut ev);
        }
    }

    fn crossed(&mut self, ev: &mut Event) {
        let flags = self.accounting.entries[&ev.mm].flags;
        if flags & DYING != 0 {
            return;
        }
        let a = &mut self.accounting.accounts[ev.account as usize];
        if a.signal == 0 {
            if !std::mem::replace(&mut a.notified, true) {
                self.emit(ev, RecordKind::Notify);
            }
            return;
        }
        if ev.remote || flags & (PROTECTED | NEVER | EXPIRED) != 0 || !self.faults.kernel_takes {
            self.ask(ev);
        } else if self.accounting.is_largest(ev) {
            ev.largest = true;
            self.take(ev);
        } else if self.nobody_answers(ev) && !self.goes_after_another(ev) {
            ev.unanswered = true;
            self.take(ev);
        } else {
            self.ask(ev);
        }
    }

    fn nobody_answers(&self, ev: &Event) -> bool {
        let a = &self.accounting.accounts[ev.account as usize];
        a.unanswered != 0 && ev.time.saturating_sub(a.unanswered) > UNANSWERED_NS && ev.time >= a.hold_until
    }

    fn goes_after_another(&self, ev: &Event) -> bool {
        let top = self.accounting.accounts[ev.account as usize].top;
        let rank = |mm| self.accounting.entries.get(mm).map_or(RANK_NONE, Entry::rank);
        self.accounting.entries[&ev.mm].keeps_to_grants() && rank(&top) >= 0
    }

    fn ask(&mut self, ev: &Event) {
        let a = &mut self.accounting.accounts[ev.account as usize];
        if ev.time < a.hold_until || ev.time.saturating_sub(a.asked) < ASK_AGAIN_NS {
            return;
        }
        a.asked = ev.time;
        if a.unanswered == 0 {
            a.unanswered = ev.time;
        }
        self.emit(ev, RecordKind::Crossed);
    }

    fn take(&mut self, ev: &mut Event) {
        if !self.accounting.claim(ev.account) {
            return;
        }
        if self.random.one_in(self.faults.kernel_signal_fails) {
            ev.errno = Some(11);
            self.accounting.counters.signals_failed += 1;
        } else {
            self.claimed(ev.account, ev.mm, Some(ev.task));
            let signal = self.accounting.accounts[ev.account as usize].signal;
            ev.signal = Some(self.now);
            self.accounting.mark_dying(ev.mm, ev.account);
            self.accounting.accounts[ev.account as usize].kills += 1;
            self.accounting.counters.kills += 1;
            ev.mm_shared = self.memories[&ev.mm].users.len() > 1;
            self.send_from_kernel(ev.task, signal);
        }
        let told = self.emit(ev, RecordKind::Acted);
        if !told && ev.signal.is_some() {
            self.kill_untold(ev.task);
        }
    }

    fn follow_user(&mut self, pid: u32, mm: u64) {
        let Some(uid) = self.processes.get(&pid).map(|process| process.uid) else { return };
        let Some((old, own, dying, known, reserved)) =
            self.accounting.entries.get(&mm).map(|e| (e.account, e.own, e.dying, e.uid, e.reserved))
        else {
            return;
        };
        if known == uid {
            return;
        }
        let index = self.accounting.account_of(uid);
        let protected = pid == 1 || self.memories[&mm].protected;
        if let Some(e) = self.accounting.entries.get_mut(&mm) {
            (e.account, e.uid) = (index, uid);
            e.forget_judgement();
            if !protected {
                e.flags &= !PROTECTED;
            }
        }
        if old == index {
            return;
        }
        for (account, sign) in [(old, -1), (index, 1)] {
            self.accounting.account_add(account, sign * (own + reserved));
            if let Some(a) = self.accounting.account(account) {
                a.reserved += sign * reserved;
                a.dying += sign * dying;
                a.processes = a.processes.saturating_add_signed(if sign < 0 { -1 } else { 1 });
            }
        }
    }

    /// `tp_btf/exit_mmap`.
    pub(super) fn on_exit_mmap(&mut self, mm: u64) {
        let Some(e) = self.accounting.entries.get(&mm) else { return };
        let (dying, index) = (e.flags & (DYING | EXPIRED) != 0, e.account);
        let mut ev = self.event(0, mm, index, (0, 0));
        ev.remote = true;
        // The record is made from the entry, which goes: so it is told first, as if settled.
        if dying && index != 0 {
            ev.usage = self.accounting.accounts[index as usize].usage - e.own;
            self.emit(&ev, RecordKind::Freed);
        }
        let entry = self.accounting.entries[&mm].clone();
        let index = self.accounting.settle_gone(mm);
        if index == 0 {
            return;
        }
        if self.accounting.becomes_far(index) {
            // Told of an entry that is still there in the programs.
            self.accounting.entries.insert(mm, entry);
            self.tell(mm, index, RecordKind::Far);
            self.accounting.entries.remove(&mm);
        } else {
            let a = &self.accounting.accounts[index as usize];
            if a.near && (a.top == 0 || a.top == mm) {
                self.accounting.find_largest(index, self.now);
            }
        }
        self.accounting.need_exact(index);
    }

    fn drop_stale(&mut self, mm: u64) {
        if self.accounting.entries.contains_key(&mm) {
            self.accounting.settle_gone(mm);
        }
    }

    /// `tp_btf/sched_process_fork`, of a child with an address space of its own.
    pub(super) fn on_fork(&mut self, parent: u32, child: u32) {
        let (Some(parent_mm), Some(mm)) = (self.processes[&parent].mm, self.processes[&child].mm) else {
            return;
        };
        if !self.accounting.loaded {
            return;
        }
        self.drop_stale(mm);
        let uid = self.processes[&child].uid;
        if !self.accounting.may_be_limited(uid) {
            return;
        }
        let account = self.accounting.account_of(uid);
        if account == 0 {
            return;
        }
        if !self.accounting.entries.contains_key(&parent_mm) {
            self.first_sight(parent, parent_mm, true);
        }
        if !self.track(child, mm, account) {
            return;
        }
        let pages = self.settle(mm);
        if self.accounting.entries.contains_key(&parent_mm) {
            let unsettled = self.settle(parent_mm);
            self.accounting.charge(parent_mm, unsettled);
            self.share_on_fork(parent_mm, mm, pages);
        } else {
            self.accounting.charge(mm, pages);
        }
        if self.accounting.need_exact(account) {
            self.tell(mm, account, RecordKind::Exact);
        }
    }

    fn share_on_fork(&mut self, parent: u64, child: u64, pages: i64) {
        let accounting = &mut self.accounting;
        let p = &accounting.entries[&parent];
        let (mut id, own, from, shared) = (p.family, p.own, p.account, p.shared);
        if let Some(family) = accounting.families.get_mut(&id) {
            family.members += 1;
        } else {
            accounting.next_family += 1;
            id = accounting.next_family;
            let fresh = Family { pages: 0, shares: shared, dying: 0, members: 2, account: from };
            accounting.families.insert(id, fresh);
        }
        let family = accounting.families.get_mut(&id).unwrap();
        family.shares += pages;
        let to = family.account;
        if own > 0 {
            family.shares += own;
            family.pages += own;
            if to != from {
                accounting.account_add(from, -own);
                accounting.account_add(to, own);
            }
        }
        let p = accounting.entries.get_mut(&parent).unwrap();
        let (said, never, uid) = (p.weight, p.flags & NEVER, p.uid);
        p.family = id;
        if own > 0 {
            p.shared += own;
            p.own -= own;
            let dying = p.dying.min(own).max(0);
            p.dying -= dying;
            if let Some(a) = accounting.account(from) {
                a.dying -= dying;
            }
        }
        let c = accounting.entries.get_mut(&child).unwrap();
        if c.uid == uid {
            c.weight = said;
            c.flags |= never;
        }
        c.shared += pages;
        c.family = id;
        accounting.settle_dying(id);
    }

    /// `tp_btf/sched_process_exec`.
    pub(super) fn on_exec(&mut self, pid: u32) {
        let Some(mm) = self.processes[&pid].mm.filter(|_| self.accounting.loaded) else { return };
        self.drop_stale(mm);
        if self.accounting.may_be_limited(self.processes[&pid].uid) {
            self.first_sight(pid, mm, false);
        }
    }

    /// `iter/task`, at one task.
    pub(super) fn scan_task(&mut self, pid: u32) -> Option<Holder> {
        let process = self.processes.get(&pid)?;
        let (mm, start_ns, uid) = (process.mm?, process.start_ns, process.uid);
        if !self.accounting.entries.contains_key(&mm) {
            if !self.accounting.may_be_limited(uid) {
                return None;
            }
            let account = self.accounting.account_of(uid);
            if account == 0 || !self.track(pid, mm, account) {
                return None;
            }
        }
        self.follow_user(pid, mm);
        if self.accounting.entries[&mm].family != 0 {
            self.accounting.absorb_family(mm);
        }
        let pages = self.settle(mm);
        if pages != 0
            && let Some((index, _)) = self.accounting.charge(mm, pages)
        {
            self.accounting.need_exact(index);
        }
        let scan = self.accounting.scan_id;
        let e = self.accounting.entries.get_mut(&mm)?;
        if e.scan != scan {
            if e.pid != pid {
                e.forget_judgement();
            }
            (e.pid, e.start_ns) = (pid, start_ns);
        }
        e.scan = scan;
        (e.flags & (DYING | EXPIRED) != 0).then_some(Holder { mm, pid: Pid(pid), start_ns, uid: Uid(uid) })
    }

    /// `line_clear`
    pub(super) fn line_clear(&mut self, uid: Uid) -> bool {
        let Some(index) = self.accounting.by_uid.remove(&uid.0) else { return false };
        let its: Vec<u64> =
            self.accounting.entries.iter().filter(|(_, e)| e.account == index).map(|(key, _)| *key).collect();
        for key in its {
            let life = self.accounting.entries[&key].life;
            self.oracle.forgotten(life);
            self.accounting.settle_gone(key);
        }
        self.accounting.families.values_mut().filter(|f| f.account == index).for_each(|f| {
            (f.account, f.dying) = (0, 0);
        });
        self.accounting.accounts[index as usize] = super::accounting::Account::default();
        true
    }

    /// `verify`: what nobody runs in any more is dying.
    pub(super) fn verify(&mut self, index: u32) {
        let left: Vec<u64> = self
            .accounting
            .entries
            .iter()
            .filter(|(mm, e)| {
                e.account == index
                    && e.flags & DYING == 0
                    && self.memories.get(mm).is_none_or(|memory| memory.life != e.life)
            })
            .map(|(mm, _)| *mm)
            .collect();
        for mm in left {
            self.accounting.mark_dying(mm, index);
            self.accounting.entries.get_mut(&mm).unwrap().flags |= LEFT;
        }
    }

    /// `mark_victim`.
    pub(super) fn mark_victim(&mut self, mm: u64, pid: Pid, mark: VictimMark) -> bool {
        let Some(e) = self.accounting.entries.get(&mm).filter(|e| e.pid == pid.0) else { return false };
        let (index, flags, dying) = (e.account, e.flags, e.dying);
        if let VictimMark::Dying { account } = mark {
            if index != account {
                return false;
            }
            let life = e.life;
            let runs = |memory: &&super::world::Memory| memory.life == life && memory.users.contains(&pid.0);
            if self.memories.get(&mm).filter(runs).is_none() {
                return false;
            }
            let claimed = self.accounting.claim(index);
            self.accounting.accounts[index as usize].unanswered = 0;
            if !claimed || flags & DYING != 0 {
                return false;
            }
            self.claimed(index, mm, None);
            self.accounting.mark_dying(mm, index);
            return true;
        }
        self.unclaimed(mm, mark);
        let e = self.accounting.entries.get_mut(&mm).unwrap();
        if mark == VictimMark::Expired {
            e.flags |= EXPIRED;
        }
        e.flags &= !DYING;
        e.dying = 0;
        let family = e.family;
        if let Some(a) = self.accounting.account(index) {
            a.dying -= dying;
        }
        self.accounting.settle_dying(family);
        true
    }
}
