//! What must hold at every step, worked out from the machine itself and not from what the guard believes.

use super::{
    entries::{Entry, Maps, NEVER, NO_LINE, SESSION, dying_bound},
    world::{DAEMON, INIT, Process, World},
};
use plimsoll_policy::{
    incident::{Incident, Outcome},
    preference::Judgement,
    victim::{KILL_DEADLINE, Signal},
};
use plimsoll_sys::bpf::VictimMark;
use plimsoll_wire::{
    abi,
    record::{Record, RecordKind},
};
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
    account: u32,
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
    /// The daemon died before it could write it down.
    untold: bool,
    /// The programs sent it; whether they told of it is counted apart.
    by_event: bool,
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
    /// When the daemon started: for whom one before it killed, the deadline runs from then on.
    pub(super) daemon_since: u64,
    /// Accounts that asked in this turn, over their line, and the lives of those who could be killed.
    asked: BTreeMap<u32, BTreeSet<u64>>,
    /// So many of the programs' actions found no room in the ring: the daemon was told of their number.
    pub(super) dropped: u64,
    /// Pages that came or went since no CPU was in the middle of anything.
    moved: i64,
    /// By account: the most that it had without what was dying, since then.
    most: BTreeMap<u32, i64>,
    /// The first thing that did not hold.
    pub(super) broken: Option<String>,
}

impl Oracle {
    pub(super) fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// An address space has so many pages more, or fewer.
    pub(super) const fn moved(&mut self, delta: i64) {
        self.moved += delta.abs();
    }

    pub(super) fn come_to_rest(&mut self) {
        self.moved = 0;
        self.forget_usage();
    }

    /// Nobody came in between since usage was noted.
    pub(super) fn forget_usage(&mut self) {
        self.most.clear();
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

    /// The programs are removed: nobody is waited for.
    pub(super) fn all_forgotten(&mut self) {
        let lives: Vec<u64> = self.claims.keys().copied().collect();
        lives.into_iter().for_each(|life| self.forgotten(life));
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

    /// So many of the programs' actions found no room in the ring, and the daemon was not told of that.
    pub(super) fn all_told(&mut self, untold: u64) {
        let is_missing = |story: &Story| {
            !story.untold
                && !story.started_anew
                && (story.kills.min(1) != story.kill_incidents || story.terms.min(1) != story.term_incidents)
        };
        let mut missing = self.stories.iter().filter(|(_, story)| is_missing(story));
        let by_events = missing.clone().filter(|(_, story)| story.by_event).count() as u64;
        let first = missing.find(|(_, story)| !story.by_event || by_events > untold + self.dropped);
        if let Some((id, story)) = first {
            let text = format!("not every signal to {id:?} has its incident: {story:?}");
            self.breaks(text);
        }
    }

    pub(super) fn signals(&self) -> usize {
        self.stories.len()
    }
}

impl World {
    /// Somebody stops in the middle of something, or goes on.
    pub(super) fn note_usage(&mut self) {
        for index in 1..self.faults.accounts_max {
            let account = self.kernel.account(index);
            let most = self.oracle.most.entry(index).or_default();
            *most = (account.usage_pages - account.dying_pages).max(*most);
        }
    }

    fn lives(&self, mm: u64, life: u64) -> bool {
        self.memories.get(&mm).is_some_and(|memory| memory.life == life)
    }

    /// Usage of an account without what is dying, and without what is no longer there since before `known`.
    fn remaining(&self, maps: &Maps, account: u32, known: u64) -> i64 {
        let counts = |mm: u64, life: u64| {
            self.lives(mm, life) || self.oracle.phantoms.get(&life).is_some_and(|lost| *lost >= known)
        };
        let entries = &maps.entries;
        // What nobody runs in counts as dying once the programs know; and a count that moved on another CPU when it was settled
        // last can leave less than nothing of it.
        let own =
            entries.iter().filter(|(mm, e)| e.account == account && !e.is_left() && counts(**mm, e.life));
        // Asked by SIGTERM, for a line that kills by now, it may live again as well.
        let kills = maps.accounts.get(&account).is_some_and(|a| a.signal == 9);
        let lives_again =
            |claim: &Claim, mm: u64| kills && claim.killed.is_none() || self.has_left(claim, mm);
        let own = own.filter(|(mm, e)| {
            let claim = self.oracle.claims.get(&e.life);
            claim.is_none_or(|claim| claim.expired || !e.is_dying() && lives_again(claim, **mm))
        });
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
        // What nobody runs in is looked for among those whom the account is charged for.
        let families = maps.families.iter().filter(|(id, family)| {
            let is_there =
                |(mm, e): (&u64, &Entry)| e.family == **id && (e.account != account || counts(*mm, e.life));
            family.account == account && entries.iter().any(is_there)
        });
        own + families.map(|(_, family)| family.pages + family.copied_pages).sum::<i64>()
    }

    /// A program sends a signal to a process: it is the victim from here on, unless a daemon that died had claimed it, or
    /// another in the same memory.
    pub(super) fn taken_by_event(&mut self, pid: u32) {
        let Some(mm) = self.processes[&pid].mm else {
            // It exited since it was looked at: the signal does nothing.
            let start_ns = self.processes[&pid].start_ns;
            self.oracle.taken.insert((pid, start_ns));
            if !self.disturbed {
                self.oracle.breaks(format!("{pid} is taken, who has no memory"));
            }
            return;
        };
        let Some(entry) = self.entry(mm) else {
            return self.oracle.breaks(format!("{pid} is taken, whose memory is not tracked"));
        };
        let now = self.now;
        match self.oracle.claims.get_mut(&entry.life) {
            // Killed already: two threads of it, or the daemon in the middle of this event.
            Some(claim) if claim.killed.is_none() || claim.pid != pid || self.disturbed => {
                let shares = claim.pid != pid || self.memories[&mm].shared;
                // Also where the daemon could not signal whom it claimed.
                claim.signalled.get_or_insert(now);
                let claimed = claim.pid;
                self.trace(format!("the claim of {claimed} is finished with {pid}"));
                let start_ns = self.processes[&pid].start_ns;
                self.oracle.taken.insert((pid, start_ns));
                // The first one's incident tells.
                self.oracle.stories.entry((pid, start_ns)).or_default().untold |= shares;
            }
            // Whose claim it is, the daemon's or this event's, is known when the daemon's call is over.
            None if self.marking.is_some_and(|(marked, _)| marked == mm) => {
                let start_ns = self.processes[&pid].start_ns;
                self.oracle.taken.insert((pid, start_ns));
                self.marking = Some((mm, Some(pid)));
            }
            _ => {
                self.check_largest(&entry);
                self.claimed(entry.account, mm, &entry, Some(pid));
            }
        }
    }

    /// A fork of who was asked to end is asked as well.
    pub(super) fn forked(&mut self, mm: u64) {
        let Some(entry) = self.entry(mm).filter(|e| e.is_dying() && !e.is_left()) else { return };
        self.oracle.waited_for.insert((entry.pid, entry.start_ns));
        self.oracle.claims.entry(entry.life).or_insert(Claim {
            pid: entry.pid,
            start_ns: entry.start_ns,
            account: entry.account,
            signalled: Some(self.now),
            killed: None,
            expired: false,
            by_daemon: false,
        });
    }

    /// An event sent the signal to whom the daemon claimed, which may not be able to.
    pub(super) fn finished(&mut self, life: u64) {
        if let Some(claim) = self.oracle.claims.get_mut(&life) {
            claim.signalled.get_or_insert(self.now);
        }
    }

    /// While a daemon answers, an event takes the account's largest or nobody, of those whose end is enough if there are any;
    /// while much is dying, who allocates.
    /// Who has inherited pages is not compared: it comes from another account with them, and is seen in its new one at its next
    /// event.
    fn check_largest(&mut self, taken: &Entry) {
        let waits = self.kernel.account(taken.account).unanswered_ns != 0;
        if self.faults.stops || waits || !self.attended {
            return;
        }
        let maps = Maps::read(&self.kernel);
        let of_account = || {
            let its = maps.entries.iter().filter(|(_, e)| e.account == taken.account && e.may_be_a_victim());
            its.filter(|(mm, e)| self.lives(**mm, e.life)).map(|(_, e)| e)
        };
        let (hard, dying) =
            maps.accounts.get(&taken.account).map_or((0, 0), |a| (a.hard_pages, a.dying_pages));
        let standing = |e: &Entry| (!e.carries_session(hard), maps.is_enough(e), maps.rank(e, hard));
        let larger = of_account()
            .filter(|e| e.own > 0 && e.shared == 0 && standing(e) > standing(taken))
            .max_by_key(|e| standing(e));
        let goes_before = |larger: &Entry| {
            dying > hard >> abi::PLIMSOLL_DYING_SHIFT
                && of_account().any(|e| standing(e) >= standing(larger) && taken.goes_before(e, hard))
        };
        if let Some(larger) = larger
            && !goes_before(larger)
        {
            let text = format!("{} is taken, and {} is larger: {taken:?} {larger:?}", taken.pid, larger.pid);
            self.oracle.breaks(text);
        }
    }

    /// Whoever claims decides: from here on it is the account's victim. From an event: the task that is taken, which may be
    /// another than the one that the address space is entered for.
    pub(super) fn claimed(&mut self, account: u32, mm: u64, entry: &Entry, task: Option<u32>) {
        let by_daemon = task.is_none();
        let mut e = entry.clone();
        self.lives_again(mm, entry);
        let maps = Maps::read(&self.kernel);
        // Who it is entered for is waited for as well, where several run in it.
        self.oracle.waited_for.insert((e.pid, e.start_ns));
        if let Some(task) = task {
            (e.pid, e.start_ns) = (task, self.processes[&task].start_ns);
        }
        let Some((effective, uid)) = maps.accounts.get(&account).map(|a| (a.effective_pages, a.id)) else {
            return self.oracle.breaks(format!("{} is taken for nobody's line", e.pid));
        };
        // The programs cannot walk all tasks in an event: only the daemon can know of a lost exit.
        let known = if by_daemon { self.oracle.walk_began } else { 0 };
        // What was reserved for the victim has gone back by the time that the daemon is told of the claim.
        let released = if by_daemon { entry.reserved } else { 0 };
        let remaining = self.remaining(&maps, account, known) + released;
        self.trace(format!(
            "claim of {} by {}: {remaining} of {effective}",
            e.pid,
            if by_daemon { "the daemon" } else { "the event" }
        ));
        // What others did in the middle of it, or before the daemon's call, was not there yet, or no more, when it was decided.
        let moved = if self.disturbed || by_daemon { self.oracle.moved } else { 0 };
        let remaining = self.oracle.most.get(&account).copied().unwrap_or_default().max(remaining);
        // It became another user's in the middle of it.
        let left = if by_daemon {
            self.entry(mm).is_some_and(|e| e.account != account)
        } else {
            self.kernel.account(account).taking == 0
        };
        let counted = maps.accounts.get(&account);
        let held = counted.map_or(i64::MIN, |a| a.usage_pages + released + moved - dying_bound(a));
        if !left && remaining.saturating_add(moved) <= effective && held <= effective {
            let its = maps.entries.iter().filter(|(_, e)| e.account == account);
            its.for_each(|(mm, e)| self.trace(format!("{mm:x} {e:?}")));
            self.trace(format!("{:?}", self.oracle.claims));
            self.trace(format!("{:?}", maps.accounts.get(&account)));
            self.oracle.breaks(format!(
                "{} of uid {uid} is taken, though {remaining} pages remain under {effective}",
                e.pid
            ));
        }
        if e.is_protected() && !self.disturbed || e.pid == INIT || e.pid == DAEMON {
            self.oracle.breaks(format!("{} is taken, who is protected", e.pid));
        }
        self.check_whose(mm, &e, uid, by_daemon);
        if self.oracle.claims.contains_key(&e.life) {
            self.oracle.breaks(format!("{} is taken, who is dying already", e.pid));
        }
        let claim = Claim {
            pid: e.pid,
            start_ns: e.start_ns,
            account,
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

    /// Who was killed in it has ended, or left it; or others run in it whom a daemon would have killed as well.
    fn has_left(&self, claim: &Claim, mm: u64) -> bool {
        let memory = self.memories.get(&mm).filter(|memory| memory.shared);
        let lives = |pid: &u32| *pid != claim.pid && !self.processes[pid].killed;
        let is_anothers = memory.is_some_and(|one| !self.attended || one.users.first().is_some_and(lives));
        let runs = |one: &Process| one.mm == Some(mm) && !is_anothers;
        claim.killed.is_some() && !self.processes.get(&claim.pid).is_some_and(runs)
    }

    /// The programs find out by themselves that nobody is to be waited for: whoever was killed has ended, or others live in
    /// its memory; or it was asked by SIGTERM, for a line that kills by now.
    fn lives_again(&mut self, mm: u64, before: &Entry) {
        let life = before.life;
        let Some(claim) = self.oracle.claims.get(&life) else { return };
        // Let go because no signal came for too long: the daemon that claimed it stalled, and died.
        let unsent = claim.signalled.is_none() && !before.is_dying();
        // Also one that the daemon could not signal, while it says so.
        let asked = claim.killed.is_none() && (claim.signalled.is_some() || self.disturbed);
        if asked && let Some(story) = self.oracle.stories.get_mut(&(claim.pid, claim.start_ns)) {
            story.started_anew = true;
        }
        if asked || unsent || self.has_left(claim, mm) {
            self.oracle.claims.remove(&life);
        }
    }

    /// Whether who the daemon takes is whom it means.
    fn check_whose(&mut self, mm: u64, e: &Entry, uid: u32, by_daemon: bool) {
        let process = self.processes.get(&e.pid).filter(|one| one.start_ns == e.start_ns && by_daemon);
        let Some(process) = process else { return };
        let walk_began = self.oracle.walk_began;
        // Memory that users of two uids share is charged to whoever touched it last.
        let shared = self.memories.get(&mm).is_some_and(|memory| memory.shared);
        if process.mm == Some(mm) && process.uid != uid && !shared && process.uid_since < walk_began {
            let text = format!("{} of uid {} is taken for the line of {uid}", e.pid, process.uid);
            self.oracle.breaks(text);
        } else if process.mm.is_some() && process.mm != Some(mm) {
            if process.mm_since < walk_began {
                let text = format!("{} is taken for memory that it left before", e.pid);
                self.oracle.breaks(text);
            }
            self.oracle.became_another(e.pid, e.start_ns);
        }
    }

    /// A victim that is not one any more.
    pub(super) fn unclaimed(&mut self, mm: u64, entry: &Entry, mark: VictimMark) {
        let life = entry.life;
        // An event took it again meanwhile.
        if self.disturbed && self.entry(mm).is_some_and(|now| now.is_dying()) {
            return;
        }
        // Or the walk came upon another who runs in it.
        let claim = self.oracle.claims.get(&life);
        let has_left = claim.is_some_and(|claim| {
            self.has_left(claim, mm) || claim.killed.is_some() && claim.pid != entry.pid
        });
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
        } else if has_left {
            // It has ended, and others live in its memory: who has to go now is decided anew.
            self.oracle.claims.remove(&life);
        } else if claim.killed.is_some() && !self.disturbed {
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

    /// Whom the daemon claimed, and the programs let go because no signal came, is not signalled late: they may have taken
    /// another meanwhile.
    pub(super) fn check_claim_holds(&mut self, pid: u32, start_ns: u64) {
        // Who became another user's just now is let go as well.
        let entry = self.processes[&pid].mm.and_then(|mm| self.entry(mm));
        let let_go = self.oracle.claims.iter().any(|(life, claim)| {
            claim.by_daemon
                && claim.signalled.is_none()
                && (claim.pid, claim.start_ns) == (pid, start_ns)
                && entry
                    .as_ref()
                    .is_some_and(|e| (e.life, e.account) == (*life, claim.account) && !e.is_dying())
        });
        if let_go && !self.disturbed {
            self.oracle.breaks(format!("{pid} is signalled for a claim that was let go"));
        }
    }

    /// A signal was sent to a process, or rather is being sent.
    pub(super) fn signalled(&mut self, pid: u32, start_ns: u64, signal: Signal, by_daemon: bool) {
        let process = &self.processes[&pid];
        let memory = process.mm.map(|mm| &self.memories[&mm]);
        let life = memory.map(|memory| memory.life);
        // Each scan sends what a victim was sent to all that share its memory; one that has exited may have.
        let shares = memory.is_none_or(|memory| memory.shared);
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
        // One that has exited takes a signal and ignores it. One that is forked or execs just now, or that the programs have
        // heard of since the walk, cannot be told from one that was there before, at an address whose end was lost.
        owed |= process.busy || process.mm_since >= self.oracle.walk_began;
        owed |= process
            .mm
            .and_then(|mm| self.entry(mm))
            .is_none_or(|entry| entry.tracked_ns >= self.oracle.walk_began);
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
        story.by_event |= !by_daemon;
        match signal {
            Signal::Term => story.terms += 1,
            Signal::Kill => story.kills += 1,
        }
        // It may have been ended with another, whose incident tells.
        story.untold |= shares && by_daemon;
        story.in_turn = if by_daemon { turn } else { 0 };
    }

    /// What is said of an address space is said of the program that runs in it, or of the one that it was forked from,
    /// which is the same: never of what ran there before, nor of what its process runs by now.
    fn compare_weights(&self, maps: &Maps) -> Option<String> {
        maps.entries.iter().find_map(|(mm, e)| {
            let memory = self.memories.get(mm).filter(|memory| memory.life == e.life)?;
            // Before Linux 6.2 nobody can tell that who is named there runs something else by now; the next walk does.
            if memory.doubtful && !self.faults.finds_tasks {
                return None;
            }
            let Judgement { weight, protection, session, .. } = memory.judgement;
            // What is said of a parent holds for its child, but not that.
            if e.weight.is_some_and(|said| said != weight || protection.is_some() != (e.flags & NEVER != 0))
                || (e.flags & SESSION != 0 && !session)
            {
                return Some(format!("{mm:x} of {} counts {:?}, its program {weight:?}", e.pid, e.weight));
            }
            (e.weight.is_none() && e.flags & (NEVER | SESSION) != 0)
                .then(|| format!("{mm:x} of {} is protected by nobody", e.pid))
        })
    }

    /// What the kernel counts is charged: all of it, or all but what CPUs keep to themselves while the line is far.
    fn unsettled(&self, maps: &Maps) -> Option<String> {
        maps.entries.iter().find_map(|(mm, e)| {
            let memory = self.memories.get(mm).filter(|memory| memory.life == e.life)?;
            let stayed = |one: &Process| one.uid == e.uid && one.uid_since < e.tracked_ns;
            let is_its_users = |pid: &u32| self.processes.get(pid).is_some_and(stayed);
            // Of somebody who changed the user some events went by unheard.
            if memory.shared || !memory.users.iter().all(is_its_users) {
                return None;
            }
            let exact = maps.accounts.get(&e.account).map_or(0, |a| a.exact);
            // Where two CPUs settle at once, the next event settles what they left.
            let raced = self.faults.stops;
            let most = if exact != 0 && e.epoch == exact && !raced { 0 } else { self.loose_pages };
            let unsettled = memory.pages - e.seen;
            (unsettled.abs() > most).then(|| format!("{unsettled} pages of {} are not charged: {e:?}", e.pid))
        })
    }

    /// A grant leaves room below the line.
    pub(super) fn granted(&mut self, mm: u64, usage: u64, headroom: u64) {
        let Some(account) =
            self.entry(mm).filter(|_| !self.disturbed).map(|e| self.kernel.account(e.account))
        else {
            return;
        };
        let most = account.processes * super::ALLOWANCE_PAGES;
        let kept = account.copyable_pages.clamp(0, most).cast_unsigned();
        // Also what the programs did not know of.
        let usage = usage.max(account.usage_pages.max(0).cast_unsigned());
        if usage + kept + headroom > account.hard_pages.cast_unsigned() {
            self.oracle.breaks(format!("granted up to {usage} of {account:?}"));
        }
    }

    /// With no CPU in the middle of anything, the maps agree with each other.
    pub(super) fn maps_agree(&mut self, maps: &Maps) {
        let broken =
            self.unsettled(maps).or_else(|| self.compare_weights(maps)).or_else(|| maps.disagreement());
        if let Some(broken) = broken {
            self.oracle.breaks(broken);
        }
    }

    /// Over the line with somebody to kill is not left so.
    pub(super) fn watch_lines(&mut self, maps: &Maps) {
        for (index, a) in &maps.accounts {
            let over = a.signal != 0
                && a.effective_pages != NO_LINE
                && self.remaining_settled(maps, *index) > a.effective_pages;
            if !over || self.killable(maps, *index).is_empty() {
                self.oracle.over.remove(index);
                continue;
            }
            let since =
                *self.oracle.over.entry(*index).or_insert(self.now).max(&mut self.oracle.daemon_since);
            if self.now - since > SOMEBODY_DIES_WITHIN_NS {
                let text = format!(
                    "uid {} is over its line for {} ms and nobody dies",
                    a.id,
                    (self.now - since) / 1_000_000
                );
                self.oracle.breaks(text);
            }
        }
    }

    /// Those of an account who could be killed, by the lives of their memory.
    fn killable(&self, maps: &Maps, index: u32) -> BTreeSet<u64> {
        let killable = maps.entries.iter().filter(|(mm, e)| {
            let held = self.processes.get(&e.pid).filter(|one| one.start_ns == e.start_ns);
            e.account == index
                && e.own > 0
                && !e.is_protected()
                && self.lives(**mm, e.life)
                && !self.oracle.claims.contains_key(&e.life)
                && !self.oracle.waited_for.contains(&(e.pid, e.start_ns))
                && held.is_some_and(|one| !one.refuses && one.spared_until < self.now && one.mm == Some(**mm))
        });
        killable.map(|(_, e)| e.life).collect()
    }

    /// What the programs have been told of, without those that may still be dying.
    fn remaining_settled(&self, maps: &Maps, account: u32) -> i64 {
        let stays = |claim: &Claim| {
            let waited = |killed: u64| self.now - killed.max(self.oracle.daemon_since) > KILL_DEADLINE.0;
            claim.expired || claim.killed.is_some_and(waited)
        };
        let living = maps.entries.iter().filter(|(mm, e)| {
            let claim = self.oracle.claims.get(&e.life);
            // Who was asked to end and became another program instead is waited for all the same.
            let another = claim.is_none() && self.oracle.waited_for.contains(&(e.pid, e.start_ns));
            e.account == account && !another && self.lives(**mm, e.life) && claim.is_none_or(stays)
        });
        living.map(|(_, e)| e.own + e.reserved).sum()
    }

    fn is_over(&self, maps: &Maps, index: u32) -> bool {
        maps.accounts
            .get(&index)
            .is_some_and(|a| a.signal != 0 && self.remaining_settled(maps, index) > a.effective_pages)
    }

    /// Whether nobody of an account is waited for, nor shares memory with one who may be, nor has ended without an event: two
    /// walks half a second apart find that.
    fn is_plain(&self, maps: &Maps, index: u32) -> bool {
        let its = maps.entries.iter().filter(|(_, e)| e.account == index);
        its.into_iter().all(|(mm, e)| {
            let shared = self.memories.get(mm).is_some_and(|memory| memory.shared);
            !shared && self.lives(*mm, e.life) && !self.oracle.waited_for.contains(&(e.pid, e.start_ns))
        })
    }

    /// The daemon takes out a record by which an account asks for a victim: in this turn it takes one.
    pub(super) fn asked_for(&mut self, record: &Record) {
        if record.kind != RecordKind::Crossed || !self.is_quiet() {
            return;
        }
        let maps = Maps::read(&self.kernel);
        if let Some(index) = record.whose.user().and_then(|uid| maps.by_uid.get(&uid.0)).copied()
            && self.is_over(&maps, index)
            && self.is_plain(&maps, index)
        {
            let killable = self.killable(&maps, index);
            self.oracle.asked.insert(index, killable);
        }
    }

    /// Whoever falls below its line, or ends, asks no more.
    pub(super) fn watch_those_asked_for(&mut self) {
        if self.oracle.asked.is_empty() {
            return;
        }
        if !self.is_quiet() {
            // What is seen in the middle of something is none of what holds before and after.
            return self.oracle.asked.clear();
        }
        let maps = Maps::read(&self.kernel);
        let mut asked = std::mem::take(&mut self.oracle.asked);
        asked.retain(|index, killable| {
            let still = self.killable(&maps, *index);
            killable.retain(|life| still.contains(life));
            self.is_over(&maps, *index) && self.is_plain(&maps, *index) && !killable.is_empty()
        });
        self.oracle.asked = asked;
    }

    /// The daemon goes to sleep, or to its next turn where it has not finished.
    pub(super) fn turn_is_over(&mut self, finished: bool) {
        self.watch_those_asked_for();
        if finished && let Some((index, _)) = std::mem::take(&mut self.oracle.asked).first_key_value() {
            let uid = self.kernel.account(*index).id;
            self.oracle.breaks(format!("uid {uid} asked, and nobody was taken"));
        }
        let unsent = self.oracle.claims.iter().find(|(life, claim)| {
            let process = self.processes.get(&claim.pid).filter(|one| one.start_ns == claim.start_ns);
            // It may have ended, or called exec, since.
            let lives = process.and_then(|one| one.mm).is_some_and(|mm| self.lives(mm, **life));
            claim.by_daemon && claim.signalled.is_none() && lives
        });
        if let Some((_, claim)) = unsent {
            let text = format!("{} counts as dying and was sent nothing", claim.pid);
            self.oracle.breaks(text);
        }
    }

    /// So many of the programs' actions found no room in the ring, and nobody was told.
    pub(super) fn untold_actions(&self) -> u64 {
        if self.loaded { self.kernel.counters().actions_dropped } else { 0 }
    }

    /// The end: everybody has gone.
    pub(super) fn nothing_is_left(&mut self) {
        if !self.loaded {
            return;
        }
        let maps = Maps::read(&self.kernel);
        let left = maps.accounts.values().find(|a| {
            a.usage_pages != 0
                || a.reserved_pages != 0
                || a.dying_pages != 0
                // Root's stay: the first process, and the daemon.
                || (a.processes != 0 && a.id != 0 && a.of == abi::PLIMSOLL_OF_USER)
                || a.near != 0
        });
        if let Some(a) = left {
            let text = format!("left at the end: {a:?}");
            self.oracle.breaks(text);
        }
    }
}
