//! What must hold at every step, worked out from the machine itself and not from what the guard believes.

use super::{
    accounting::{Entry, NEVER},
    world::{DAEMON, INIT, World},
};
use plimsoll_policy::{
    incident::{Incident, Outcome},
    preference::Judgement,
    victim::{KILL_DEADLINE, Signal},
};
use plimsoll_sys::bpf::VictimMark;
use plimsoll_wire::record::{Record, RecordKind};
use std::collections::{BTreeMap, BTreeSet};

/// Over its line, with somebody to kill: by then somebody is dying, whatever was lost. The daemon's own look comes once a
/// second; a scan may be slow, and a stalled daemon comes back.
pub(super) const SOMEBODY_DIES_WITHIN_NS: u64 = 2_500_000_000;

/// Between the daemon's look at its clock and the signal's arrival.
const MOMENT_NS: u64 = 100_000_000;

/// A victim taken.
#[derive(Debug, Clone)]
struct Claim {
    pid: u32,
    start_ns: u64,
    signalled: Option<u64>,
    /// When SIGKILL was sent.
    killed: Option<u64>,
    expired: bool,
    by_daemon: bool,
}

/// What was sent to one victim, and what was told of it.
#[derive(Debug, Clone, Default)]
struct Story {
    terms: u32,
    kills: u32,
    term_incidents: u32,
    kill_incidents: u32,
    /// The record was dropped, or the daemon died before it could write it down.
    untold: bool,
    started_anew: bool,
    in_turn: u64,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// By the address space's life.
    claims: BTreeMap<u64, Claim>,
    /// Everybody who ever was.
    taken: BTreeSet<(u32, u64)>,
    waited_for: BTreeSet<(u32, u64)>,
    stories: BTreeMap<(u32, u64), Story>,
    /// Ends that no event told of, and when.
    phantoms: BTreeMap<u64, u64>,
    pub(super) walk_began: u64,
    /// When the daemon had read every record.
    pub(super) heard_all_at: u64,
    /// By account: since when it is over its line with somebody to kill and nobody new dying.
    over: BTreeMap<u32, u64>,
    pub(super) turn: u64,
    /// Accounts that asked in this turn, over their line, and the lives of those who could be killed.
    asked: BTreeMap<u32, BTreeSet<u64>>,
    /// The first thing that did not hold.
    pub(super) broken: Option<String>,
}

impl Oracle {
    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub(super) fn phantom(&mut self, life: u64, now: u64) {
        self.phantoms.insert(life, now);
    }

    pub(super) fn ended(&mut self, life: u64) {
        self.claims.remove(&life);
    }

    /// A line was taken away: who was dying for it is nobody's victim any more, and may become another line's.
    pub(super) fn forgotten(&mut self, life: u64) {
        if let Some(claim) = self.claims.remove(&life)
            && let Some(story) = self.stories.get_mut(&(claim.pid, claim.start_ns))
        {
            story.started_anew = true;
        }
    }

    /// A process that was asked to end became another program instead, which may be a victim of its own.
    pub(super) fn became_another(&mut self, pid: u32, start_ns: u64) {
        self.stories.entry((pid, start_ns)).or_default().started_anew = true;
    }

    /// The programs are removed with this record: nobody could hear it who had heard all before.
    pub(super) fn unheard(&mut self, record: &Record) {
        let story = self.stories.get_mut(&(record.process.pid.0, record.process.start_ns));
        if let Some(story) = story.filter(|_| record.time.0 >= self.heard_all_at) {
            story.untold = true;
        }
    }

    /// A record left the ring buffer: with a daemon that dies in this turn, it goes.
    pub(super) fn taken_out(&mut self, record: &Record) {
        if let Some(story) = self.stories.get_mut(&(record.process.pid.0, record.process.start_ns)) {
            story.in_turn = self.turn;
        }
    }

    /// The daemon died: what it did in this turn it may not have written down.
    pub(super) fn daemon_died(&mut self) {
        let turn = self.turn;
        // Claimed and not signalled: the next daemon sees to it.
        self.claims.values_mut().for_each(|claim| claim.by_daemon = false);
        self.stories.values_mut().filter(|story| story.in_turn == turn).for_each(|story| story.untold = true);
        self.over.clear();
        self.asked.clear();
    }

    pub(super) fn tell(&mut self, incident: &Incident) {
        for victim in &incident.victims {
            let id = (victim.pid.0, victim.start_ns);
            let Some(story) = self.stories.get_mut(&id) else {
                if matches!(incident.action, Outcome::Kill | Outcome::Term) {
                    self.breaks(format!("incident {} of {}, who was sent nothing", incident.id, victim.pid));
                }
                continue;
            };
            match incident.action {
                Outcome::Kill => story.kill_incidents += 1,
                Outcome::Term => story.term_incidents += 1,
                Outcome::Deny | Outcome::Notify | Outcome::Refuse => {}
            }
            if !story.started_anew && (story.kill_incidents > 1 || story.term_incidents > 1) {
                let text = format!("more than one incident of one signal to {}: {story:?}", victim.pid);
                self.breaks(text);
            }
        }
    }

    pub(super) fn all_told(&mut self) {
        let missing = self.stories.iter().find(|(_, story)| {
            !story.untold
                && !story.started_anew
                && (story.kills.min(1) != story.kill_incidents || story.terms.min(1) != story.term_incidents)
        });
        if let Some((id, story)) = missing {
            let text = format!("not every signal to {id:?} has its incident: {story:?}");
            self.breaks(text);
        }
    }

    pub(super) fn signals(&self) -> usize {
        self.stories.len()
    }
}

impl World {
    fn lives(&self, mm: u64, life: u64) -> bool {
        self.memories.get(&mm).is_some_and(|memory| memory.life == life)
    }

    /// Usage of an account without what is dying, and without what is no longer there since before `known`.
    fn remaining(&self, account: u32, known: u64) -> i64 {
        let counts = |mm: u64, life: u64| {
            self.lives(mm, life) || self.oracle.phantoms.get(&life).is_some_and(|lost| *lost >= known)
        };
        let entries = &self.accounting.entries;
        let own = entries.iter().filter(|(mm, e)| e.account == account && counts(**mm, e.life));
        let own = own.filter(|(_, e)| self.oracle.claims.get(&e.life).is_none_or(|claim| claim.expired));
        let own: i64 = own
            .map(|(mm, e)| {
                let unsettled = self
                    .memories
                    .get(mm)
                    .filter(|memory| memory.life == e.life)
                    .map_or(0, |m| m.pages - e.seen);
                e.own + unsettled.max(e.reserved)
            })
            .sum();
        let families = self.accounting.families.iter().filter(|(id, family)| {
            family.account == account && entries.iter().any(|(mm, e)| e.family == **id && counts(*mm, e.life))
        });
        own + families.map(|(_, family)| family.pages).sum::<i64>()
    }

    /// Whoever claims decides: from here on it is the account's victim. From an event: the task that runs, which may be
    /// another than the one that the address space is entered for.
    pub(super) fn claimed(&mut self, account: u32, mm: u64, task: Option<u32>) {
        let by_daemon = task.is_none();
        let mut e = self.accounting.entries[&mm].clone();
        // Who it is entered for is waited for as well, where several run in it.
        self.oracle.waited_for.insert((e.pid, e.start_ns));
        if let Some(task) = task {
            (e.pid, e.start_ns) = (task, self.processes[&task].start_ns);
        }
        let (effective, uid) = {
            let a = &self.accounting.accounts[account as usize];
            (a.effective, a.uid)
        };
        // The programs cannot walk all tasks in an event: only the daemon can know of a lost exit.
        let known = if by_daemon { self.oracle.walk_began } else { 0 };
        let remaining = self.remaining(account, known);
        self.trace(format!(
            "claim of {} by {}: {remaining} of {effective}",
            e.pid,
            if by_daemon { "the daemon" } else { "the event" }
        ));
        if remaining <= effective {
            self.oracle.breaks(format!(
                "{} of uid {uid} is taken, though {remaining} pages remain under {effective}",
                e.pid
            ));
        }
        if e.is_protected() || e.pid == INIT || e.pid == DAEMON {
            self.oracle.breaks(format!("{} is taken, who is protected", e.pid));
        }
        if let Some(process) =
            self.processes.get(&e.pid).filter(|one| one.start_ns == e.start_ns && one.mm == Some(mm))
            && process.uid != uid
            // Memory that users of two uids share is charged to whoever touched it last.
            && !self.memories[&mm].shared
            && process.uid_since < self.oracle.walk_began
            && by_daemon
        {
            let text = format!("{} of uid {} is taken for the line of {uid}", e.pid, process.uid);
            self.oracle.breaks(text);
        }
        if let Some(process) =
            self.processes.get(&e.pid).filter(|one| one.start_ns == e.start_ns && one.mm != Some(mm))
            && process.mm.is_some()
            && by_daemon
        {
            if process.mm_since < self.oracle.walk_began {
                let text = format!("{} is taken for memory that it left before", e.pid);
                self.oracle.breaks(text);
            }
            self.oracle.became_another(e.pid, e.start_ns);
        }
        if self.oracle.claims.contains_key(&e.life) {
            self.oracle.breaks(format!("{} is taken, who is dying already", e.pid));
        }
        let claim = Claim {
            pid: e.pid,
            start_ns: e.start_ns,
            signalled: None,
            killed: None,
            expired: false,
            by_daemon,
        };
        self.oracle.taken.insert((e.pid, e.start_ns));
        if self.lives(mm, e.life) {
            self.oracle.claims.insert(e.life, claim);
        }
        self.oracle.over.remove(&account);
        self.oracle.asked.remove(&account);
    }

    /// A victim that is not one any more.
    pub(super) fn unclaimed(&mut self, mm: u64, mark: VictimMark) {
        let life = self.accounting.entries[&mm].life;
        let Some(claim) = self.oracle.claims.get_mut(&life) else { return };
        if mark == VictimMark::Expired {
            claim.expired = true;
            let waited = claim.signalled.map(|signalled| self.now - signalled);
            // Another program of the same process may have been waited for before.
            let another =
                self.oracle.stories.get(&(claim.pid, claim.start_ns)).is_some_and(|one| one.started_anew);
            // A daemon that died between claim and signal left it so, and it takes none.
            let left = claim.signalled.is_none() && !claim.by_daemon;
            if !another && !left && waited.is_none_or(|waited| waited + MOMENT_NS < KILL_DEADLINE.0) {
                let text = format!("{} is given up after {waited:?} ns", claim.pid);
                self.oracle.breaks(text);
            }
        } else if claim.killed.is_some()
            && self.processes.get(&claim.pid).is_none_or(|one| one.start_ns != claim.start_ns)
        {
            // It has ended, and others live in its memory: who has to go now is decided anew.
            self.oracle.claims.remove(&life);
        } else if claim.killed.is_some() {
            let text = format!("{} was signalled, and counts as living again", claim.pid);
            self.oracle.breaks(text);
        } else {
            // Asked by SIGTERM, and whoever knew it died with it: it may be selected, and asked, again.
            if claim.signalled.is_some()
                && let Some(story) = self.oracle.stories.get_mut(&(claim.pid, claim.start_ns))
            {
                story.started_anew = true;
            }
            self.oracle.claims.remove(&life);
        }
    }

    /// A signal was sent to a process, or rather is being sent.
    pub(super) fn signalled(&mut self, pid: u32, start_ns: u64, signal: Signal, by_daemon: bool) {
        let process = &self.processes[&pid];
        let memory = process.mm.map(|mm| &self.memories[&mm]);
        let life = memory.map(|memory| memory.life);
        // Each scan sends what a victim was sent to all that share its memory.
        let shares = memory.is_some_and(|memory| memory.shared);
        let now = self.now;
        let mut victim = false;
        let mut owed = false;
        for (claimed, claim) in &mut self.oracle.claims {
            if (claim.pid, claim.start_ns) == (pid, start_ns) {
                claim.signalled.get_or_insert(now);
                if signal == Signal::Kill {
                    claim.killed.get_or_insert(now);
                }
                victim = true;
            }
            owed |= Some(*claimed) == life;
        }
        // Also one that has ended, or become another program, since it was taken.
        victim |= self.oracle.taken.contains(&(pid, start_ns));
        // One that has exited takes a signal and ignores it; one that execs just now cannot be told from one that stays.
        owed |= process.mm.is_none() || process.mm_since >= self.oracle.walk_began;
        if pid <= DAEMON || !(victim || owed) {
            self.oracle.breaks(format!("{} to {pid}, who was not taken", signal.name()));
        }
        if !victim {
            // Shares a victim's memory: ended with it, by an incident of its own or by the victim's.
            self.oracle.stories.entry((pid, start_ns)).or_default().untold = true;
            return;
        }
        let turn = self.oracle.turn;
        let story = self.oracle.stories.entry((pid, start_ns)).or_default();
        match signal {
            Signal::Term => story.terms += 1,
            Signal::Kill => story.kills += 1,
        }
        // It may have been ended with another, whose incident tells.
        story.untold |= shares && by_daemon;
        story.in_turn = if by_daemon { turn } else { 0 };
    }

    pub(super) fn kill_untold(&mut self, pid: u32) {
        let start_ns = self.processes[&pid].start_ns;
        if let Some(story) = self.oracle.stories.get_mut(&(pid, start_ns)) {
            story.untold = true;
        }
    }

    /// What is said of an address space is said of the program that runs in it, or of the one that it was forked from,
    /// which is the same: never of what ran there before, nor of what its process runs by now.
    pub(super) fn compare_weights(&mut self) {
        for (mm, e) in &self.accounting.entries {
            let Some(memory) = self.memories.get(mm).filter(|memory| memory.life == e.life) else { continue };
            let Judgement { weight, protection, .. } = memory.judgement;
            if e.weight.is_some_and(|said| said != weight || protection.is_some() != (e.flags & NEVER != 0)) {
                let text = format!("{mm:x} of {} counts {:?}, its program {weight:?}", e.pid, e.weight);
                self.oracle.broken.get_or_insert(text);
            }
            if e.weight.is_none() && e.flags & NEVER != 0 {
                let text = format!("{mm:x} of {} is protected by nobody", e.pid);
                self.oracle.broken.get_or_insert(text);
            }
        }
    }

    /// What is dying of an account is what its dying processes have: else it is over its line unseen, or not over it.
    pub(super) fn weigh_the_dying(&mut self) {
        for (mm, e) in &self.accounting.entries {
            if e.is_dying() && e.dying != e.own {
                let text = format!("{mm:x} of {} counts {} pages as dying of {}", e.pid, e.dying, e.own);
                self.oracle.broken.get_or_insert(text);
            }
        }
        for (index, a) in self.accounting.accounts.iter().enumerate() {
            let dying =
                self.accounting.entries.values().filter(|e| e.account as usize == index).map(Entry::dying);
            let families = self.accounting.families.values().filter(|f| f.account as usize == index);
            let dying: i64 = dying.sum::<i64>() + families.map(|f| f.dying).sum::<i64>();
            if index != 0 && dying != a.dying {
                let text = format!("uid {} counts {} pages as dying, its processes {dying}", a.uid, a.dying);
                self.oracle.broken.get_or_insert(text);
            }
        }
    }

    /// Over the line with somebody to kill is not left so.
    pub(super) fn watch_lines(&mut self) {
        let indices: Vec<u32> = self.accounting.by_uid.values().copied().collect();
        for index in indices {
            let a = &self.accounting.accounts[index as usize];
            let (signal, effective, uid) = (a.signal, a.effective, a.uid);
            let killable = !self.killable(index).is_empty();
            if signal == 0 || !killable || self.remaining_settled(index) <= effective {
                self.oracle.over.remove(&index);
                continue;
            }
            let since = *self.oracle.over.entry(index).or_insert(self.now);
            if self.now - since > SOMEBODY_DIES_WITHIN_NS {
                let text = format!(
                    "uid {uid} is over its line for {} ms and nobody dies",
                    (self.now - since) / 1_000_000
                );
                self.oracle.breaks(text);
            }
        }
    }

    /// Those of an account who could be killed, by the lives of their memory.
    fn killable(&self, index: u32) -> BTreeSet<u64> {
        let killable = self.accounting.entries.iter().filter(|(mm, e)| {
            let held = self.processes.get(&e.pid).filter(|one| one.start_ns == e.start_ns);
            e.account == index
                && e.own > 0
                && !e.is_protected()
                && self.lives(**mm, e.life)
                && !self.oracle.claims.contains_key(&e.life)
                && !self.oracle.waited_for.contains(&(e.pid, e.start_ns))
                && held.is_some_and(|one| !one.refuses && one.mm == Some(**mm))
        });
        killable.map(|(_, e)| e.life).collect()
    }

    /// What the programs have been told of, without those that may still be dying.
    fn remaining_settled(&self, account: u32) -> i64 {
        let stays = |claim: &Claim| {
            claim.expired || claim.killed.is_some_and(|killed| self.now - killed > KILL_DEADLINE.0)
        };
        let living = self.accounting.entries.iter().filter(|(mm, e)| {
            let claim = self.oracle.claims.get(&e.life);
            // Who was asked to end and became another program instead is waited for all the same.
            let another = claim.is_none() && self.oracle.waited_for.contains(&(e.pid, e.start_ns));
            e.account == account && !another && self.lives(**mm, e.life) && claim.is_none_or(stays)
        });
        living.map(|(_, e)| e.own + e.reserved).sum()
    }

    fn is_over(&self, index: u32) -> bool {
        let a = &self.accounting.accounts[index as usize];
        a.signal != 0 && self.remaining_settled(index) > a.effective
    }

    /// Whether nobody of an account is waited for, nor shares memory with one who may be.
    fn is_plain(&self, index: u32) -> bool {
        let its = self.accounting.entries.iter().filter(|(_, e)| e.account == index);
        its.into_iter().all(|(mm, e)| {
            let shared = self.memories.get(mm).is_some_and(|memory| memory.shared);
            !shared && !self.oracle.waited_for.contains(&(e.pid, e.start_ns))
        })
    }

    /// The daemon takes out a record by which an account asks for a victim: in this turn it takes one.
    pub(super) fn asked_for(&mut self, record: &Record) {
        if record.kind == RecordKind::Crossed
            && let Some(index) = self.accounting.by_uid.get(&record.uid.0).copied()
            && self.is_over(index)
            && self.is_plain(index)
        {
            let killable = self.killable(index);
            self.oracle.asked.insert(index, killable);
        }
    }

    /// Whoever falls below its line, or ends, asks no more.
    pub(super) fn watch_those_asked_for(&mut self) {
        if self.oracle.asked.is_empty() {
            return;
        }
        let mut asked = std::mem::take(&mut self.oracle.asked);
        asked.retain(|index, killable| {
            let still = self.killable(*index);
            killable.retain(|life| still.contains(life));
            self.accounting.accounts.get(*index as usize).is_some_and(|a| a.in_use)
                && self.is_over(*index)
                && !killable.is_empty()
        });
        self.oracle.asked = asked;
    }

    /// The daemon goes to sleep, or to its next turn where it has not finished.
    pub(super) fn turn_is_over(&mut self, finished: bool) {
        self.watch_those_asked_for();
        if finished && let Some((index, _)) = std::mem::take(&mut self.oracle.asked).first_key_value() {
            let uid = self.accounting.accounts[*index as usize].uid;
            self.oracle.breaks(format!("uid {uid} asked, and nobody was taken"));
        }
        let unsent = self.oracle.claims.values().find(|claim| {
            let lives = self.processes.get(&claim.pid).is_some_and(|one| one.start_ns == claim.start_ns);
            claim.by_daemon && claim.signalled.is_none() && lives
        });
        if let Some(claim) = unsent {
            let text = format!("{} counts as dying and was sent nothing", claim.pid);
            self.oracle.breaks(text);
        }
    }

    /// The end: everybody has gone.
    pub(super) fn nothing_is_left(&mut self) {
        let left = self.accounting.accounts.iter().enumerate().find(|(index, a)| {
            *index != 0
                && (a.usage != 0
                    || a.reserved != 0
                    || a.dying != 0
                    || (a.processes != 0 && a.uid != 0)
                    || a.near)
        });
        if let Some((_, a)) = left {
            let text = format!("left at the end: {a:?}");
            self.oracle.breaks(text);
        }
    }
}
