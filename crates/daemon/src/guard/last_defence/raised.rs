//! `oom_score_adj` of the largest process of each account that is near: raised, watched, put back.

use super::{
    messages::{ArrangedKill, Large, LineFacts, NearFacts},
    record::{RaisedEntry, Record},
};
use plimsoll_policy::{
    last_defence::ranking::{Compared, RAISED_MAX, Raised, choose, put_back, share},
    reason::Reason,
    units::{Bytes, Pages, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{
    HeldFolder, PidFd, ProcRoot, ProcessError, clock_boottime_ns, oom_kills, tick_ns,
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, BorrowedFd},
};

/// The process that is raised for an account.
#[derive(Debug)]
struct Holder {
    id: VictimId,
    usage: Pages,
    /// Until it has ended.
    pidfd: Option<PidFd>,
    /// OOM kills of the whole machine when last looked at; `None` where the kernel does not tell.
    oom_kills: Option<u64>,
}

/// All that are raised.
#[derive(Debug)]
pub(super) struct RaisedProcesses {
    proc: ProcRoot,
    holders: BTreeMap<Uid, Holder>,
    ram_and_swap: Bytes,
}

impl RaisedProcesses {
    /// `mem_total` is the machine's RAM.
    pub(super) fn new(mut proc: ProcRoot, mem_total: Bytes) -> Self {
        // Swap that is added later changes the share a little, and is seen at the next start.
        let swap = proc.read_meminfo().ok().and_then(|info| info.swap_total).unwrap_or_default();
        let ram_and_swap = Bytes(mem_total.0.saturating_add(swap.0));
        Self { proc, holders: BTreeMap::new(), ram_and_swap }
    }

    /// Ends of those that are raised.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.holders.values().filter_map(|holder| holder.pidfd.as_ref().map(|pidfd| pidfd.as_fd()))
    }

    /// An account is near: its largest process is raised, and one that was before and is not any more is put back.
    pub(super) fn near(&mut self, facts: &NearFacts, record: &mut Record) {
        let LineFacts { uid, hard, .. } = facts.line;
        let entry = record.raised.iter().find(|one| one.uid == uid).copied();
        let compared = self.compare(facts, entry.as_ref());
        let holder = entry.map(|entry| entry.raised.id);
        let share = share(hard, self.ram_and_swap);
        let chosen = choose(&compared, holder, share);
        if let (Some(chosen), Some(entry)) = (chosen, entry)
            && chosen.id == entry.raised.id
            && self.stands(&entry, &compared)
        {
            self.look_again(uid, facts);
            return;
        }
        if entry.is_some() {
            self.put_back(uid, record);
        }
        if let Some(chosen) = chosen.filter(|_| record.raised.len() < RAISED_MAX) {
            let entry = RaisedEntry { uid, raised: chosen, since_ns: clock_boottime_ns() };
            self.raise(entry, facts, record);
        }
    }

    /// The largest processes, each with its own adjustment: what we set, and what was inherited from there, is not its own.
    fn compare(&self, facts: &NearFacts, entry: Option<&RaisedEntry>) -> Vec<Compared> {
        let own = |large: &Large| {
            let now = HeldFolder::open(&self.proc, large.id).and_then(|held| held.oom_score_adj()).ok()?;
            Some(entry.and_then(|entry| entry.before(large.id, now)).unwrap_or(now))
        };
        let largest = facts.largest.iter().flatten();
        largest
            .filter_map(|large| {
                let own = own(large)?;
                Some(Compared { id: large.id, usage: large.usage, own, protected: large.protected })
            })
            .collect()
    }

    /// Nobody changed it since, and it is still above all others.
    fn stands(&self, entry: &RaisedEntry, compared: &[Compared]) -> bool {
        let RaisedEntry { raised: Raised { id, set, .. }, .. } = *entry;
        let now = HeldFolder::open(&self.proc, id).and_then(|held| held.oom_score_adj());
        let above = compared.iter().all(|one| one.id == id || one.protected || one.own < set);
        // What somebody else changed since is theirs: it is not raised again while the account stays near.
        above || !now.is_ok_and(|now| now == set)
    }

    fn look_again(&mut self, uid: Uid, facts: &NearFacts) {
        if let Some(holder) = self.holders.get_mut(&uid) {
            let large = facts.largest.iter().flatten().find(|large| large.id == holder.id);
            holder.usage = large.map_or(holder.usage, |large| large.usage);
            holder.oom_kills = oom_kills().ok();
        }
    }

    fn raise(&mut self, entry: RaisedEntry, facts: &NearFacts, record: &mut Record) {
        let (uid, Raised { id, set, .. }) = (entry.uid, entry.raised);
        let large = facts.largest.iter().flatten().find(|large| large.id == id);
        let pidfd = match PidFd::open_verified(&self.proc, id.pid, id.start_ns) {
            Ok(pidfd) => pidfd,
            Err(ProcessError::Vanished(_)) => return,
            Err(error) => return record.notices.once("last defence", &error),
        };
        record.raised.push(entry);
        let written = record.save()
            && match HeldFolder::open(&self.proc, id).and_then(|held| held.set_oom_score_adj(set)) {
                Ok(()) => true,
                Err(ProcessError::Vanished(_)) => false,
                Err(error) => {
                    record.notices.once("last defence", &error);
                    false
                }
            };
        if !written {
            record.raised.retain(|one| one.uid != uid);
            record.save();
            return;
        }
        let holder = Holder {
            id,
            usage: large.map_or(Pages(0), |large| large.usage),
            pidfd: Some(pidfd),
            oom_kills: oom_kills().ok(),
        };
        self.holders.insert(uid, holder);
    }

    /// Puts the account's raised process back where nobody else changed it since, and those that it has forked meanwhile.
    pub(super) fn put_back(&mut self, uid: Uid, record: &mut Record) {
        self.holders.remove(&uid);
        let entries: Vec<RaisedEntry> = record.raised.iter().filter(|one| one.uid == uid).copied().collect();
        for entry in &entries {
            self.restore(entry.raised.id, entry, record);
            for heir in self.heirs(entry) {
                self.restore(heir, entry, record);
            }
        }
        if !entries.is_empty() {
            record.raised.retain(|one| one.uid != uid);
            record.save();
        }
    }

    /// Puts everything back that is written down: an earlier daemon's, too.
    pub(super) fn put_all_back(&mut self, record: &mut Record) {
        let users: Vec<Uid> = record.raised.iter().map(|one| one.uid).collect();
        for uid in users {
            self.put_back(uid, record);
        }
    }

    fn restore(&self, id: VictimId, entry: &RaisedEntry, record: &mut Record) {
        let Raised { before, set, .. } = entry.raised;
        let restored = HeldFolder::open(&self.proc, id).and_then(|held| {
            put_back(held.oom_score_adj()?, before, set).map_or(Ok(()), |own| held.set_oom_score_adj(own))
        });
        match restored {
            Ok(()) | Err(ProcessError::Vanished(_)) => {}
            Err(error) => record.notices.once("last defence", &error),
        }
    }

    /// Processes of the account that started after the raise: those of them that have the value inherited it.
    fn heirs(&mut self, entry: &RaisedEntry) -> Vec<VictimId> {
        let mut heirs = Vec::new();
        let listed = self.proc.processes(|process| {
            let id = VictimId { pid: process.pid, start_ns: process.start_ns };
            if process.uid == entry.uid && id.pid != entry.raised.id.pid && entry.is_before(id.start_ns) {
                heirs.push(id);
            }
        });
        // Without the list, those it has forked keep what they inherited, as they would without us knowing of them.
        if listed.is_err() {
            heirs.clear();
        }
        heirs
    }

    /// Who of the raised has ended, and did so while the kernel's own OOM killer was at work. `watched`: the slice's own
    /// counts tell of this account.
    pub(super) fn ended(&mut self, watched: impl Fn(Uid) -> bool) -> Vec<ArrangedKill> {
        let mut deeds = Vec::new();
        for (uid, holder) in &mut self.holders {
            let gone = holder.pidfd.as_ref().is_some_and(|pidfd| pidfd.has_exited().unwrap_or(true));
            if !gone {
                continue;
            }
            holder.pidfd = None;
            let now = oom_kills().ok();
            if now > holder.oom_kills && holder.oom_kills.is_some() && !watched(*uid) {
                let victim = Some((holder.id, holder.usage));
                deeds.push(ArrangedKill { uid: *uid, reason: Reason::LastDefenceOutOfMemory, victim });
            }
            holder.oom_kills = now;
        }
        deeds
    }

    /// The raised process of an account, if it is on its way out or gone, and was not asked for before.
    pub(super) fn take_dying(&mut self, uid: Uid) -> Option<(VictimId, Pages)> {
        let holder = self.holders.get(&uid)?;
        let ending = match self.proc.process(holder.id.pid) {
            Ok(process) => {
                let same =
                    process.start_ns.checked_div(tick_ns()) == holder.id.start_ns.checked_div(tick_ns());
                !same || process.dying || process.is_zombie()
            }
            Err(ProcessError::Vanished(_)) => true,
            Err(_) => false,
        };
        if !ending {
            return None;
        }
        self.holders.remove(&uid).map(|holder| (holder.id, holder.usage))
    }

    pub(super) fn count(&self) -> usize {
        self.holders.values().filter(|holder| holder.pidfd.is_some()).count()
    }
}
