//! Requests for memory: granted, recalled for, waiting, refused.
//!
//! Who waits is served in the order of arrival: nobody who came later and waits gets memory before the first has. A request
//! that does not wait is granted whenever it fits, after those who wait had their turn at what is free: a refusal
//! while there is room would be a lie. So a large request that waits is not overtaken by those who wait with it, but those who
//! do not wait may take what is too little for it.

use super::{
    account::{AccountQueue, ConnectionId, PendingRequest, RECALL_PATIENCE, Recalled},
    grantor::Grantor,
    newcomers::{EXPECTED_SHARE, START_BYTES},
    refusals::{By, Refused},
    soft::Soft,
    state::{Coordinator, Effect},
};
use plimsoll_policy::{
    reservation::{ALLOWANCE, kept_for_copies, room},
    units::{Bytes, Nanos, Pages, Pid, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, OverLine, Reserved};
use plimsoll_wire::tmalloc::{Refusal, Reply};
use std::collections::BTreeSet;

/// More than any machine has; the programs do not take larger numbers than they can add up.
const PAGES_MAX: Pages = Pages(1 << 40);

/// Of these accounts the one that is nearest to its soft limit, for its size: as it is told of.
fn next_to_soft(accounts: Vec<AccountFacts>) -> Option<AccountFacts> {
    accounts.into_iter().max_by_key(|one| one.usage.0.saturating_mul(1024) / one.soft.0.max(1))
}

/// What became of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// It was answered.
    Answered,
    /// There is no room for it now.
    Over(OverLine),
    /// That cannot be said before all tasks were walked.
    Inexact,
}

impl<G: Grantor> Coordinator<G> {
    /// A process asks for memory.
    pub(super) fn reserve(&mut self, ask: PendingRequest, now: Nanos) {
        let pid = ask.pid;
        if self.processes.get(&pid).is_none_or(|process| process.doubtful) {
            return self.refuse(&ask, Refusal::NotPermitted, Pages(0), Pages(0));
        }
        if !self.may_ask(pid) {
            return self.refuse(&ask, Refusal::Busy, Pages(0), Pages(0));
        }
        let Some(user) = self.space(pid, now).map(|space| space.user).or_else(|| self.unseen(&ask)) else {
            return self.grant(&ask, now);
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.asks = process.asks.saturating_add(1);
        }
        let queue = self.queues.entry(user).or_default();
        if queue.is_full() {
            self.finish(&ask);
            return self.refuse(&ask, Refusal::Busy, Pages(0), Pages(0));
        }
        if !ask.patient {
            queue.urgent.push(ask);
        } else if queue.waiting.is_empty() {
            queue.waiting.push_back(ask);
        } else {
            // Not its turn: there is nothing to look at.
            queue.waiting.push_back(ask);
            return self.plan(user);
        }
        self.work(user, now);
    }

    /// Whose line it has, though it is not tracked: it became that user's, and nothing has happened in it since. A walk
    /// of all tasks finds it.
    fn unseen(&mut self, ask: &PendingRequest) -> Option<Uid> {
        let owner = self.connections.get(&ask.connection)?.owner;
        let accounts = self.grantor.as_mut()?.accounts(owner).ok()?;
        (!accounts.is_empty()).then_some(owner)
    }

    /// A request is to wait no longer.
    pub(super) fn cancel(&mut self, id: ConnectionId, pid: Pid, seq: u32, now: Nanos) {
        let taken = self.withdraw(pid, |ask| ask.connection == id && ask.seq == seq, now);
        for ask in taken {
            let over = self.over(pid);
            self.answer(
                &ask,
                Reply::Refused { seq, refusal: Refusal::TimedOut, usage: over.0, line: over.1 },
            );
        }
    }

    /// What was over the line last in the account of a process, in bytes.
    fn over(&self, pid: Pid) -> (Bytes, Bytes) {
        let user = self.processes.get(&pid).and_then(|process| process.space).map(|space| space.user);
        let (usage, line) =
            user.and_then(|user| self.queues.get(&user)).map_or_else(Default::default, |queue| queue.over);
        (self.bytes(usage), self.bytes(line))
    }

    /// Takes requests of a process back without an answer.
    pub(super) fn withdraw(
        &mut self,
        pid: Pid,
        mut which: impl FnMut(&PendingRequest) -> bool,
        now: Nanos,
    ) -> Vec<PendingRequest> {
        let mut all = Vec::new();
        let asks = self.processes.get(&pid).map_or(0, |process| process.asks);
        if asks == 0 {
            return all;
        }
        let users: Vec<Uid> = self.queues.keys().copied().collect();
        for user in users {
            let Some(queue) = self.queues.get_mut(&user) else { continue };
            let taken = queue.withdraw(|ask| ask.pid == pid && which(ask));
            if !taken.is_empty() {
                // Who came behind it may have its turn.
                queue.wake(now);
                self.plan(user);
            }
            all.extend(taken);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.asks = process.asks.saturating_sub(all.len());
        }
        all
    }

    /// How much would be granted now; `None`: there is no line.
    pub(super) fn headroom(&mut self, pid: Pid, now: Nanos) -> Option<Bytes> {
        let user = self.space(pid, now)?.user;
        let headroom = self.headroom_pages();
        let starts = self.kept_for_starts(user, now);
        match self.grantor.as_mut()?.accounts(user) {
            Ok(accounts) => {
                let allowance = self.terms.page_size.to_pages(ALLOWANCE);
                let room_of = |one: AccountFacts| {
                    let kept = kept_for_copies(one.copyable, one.processes, allowance);
                    let used = Pages(one.usage.0.saturating_add(kept.0).saturating_add(starts.0));
                    room(used, headroom, one.hard)
                };
                accounts.into_iter().map(room_of).min().map(|room| self.bytes(room))
            }
            Err(error) => {
                self.effect(Effect::Trouble(error));
                Some(Bytes(0))
            }
        }
    }

    /// Something has become free in this account.
    pub(super) fn wake(&mut self, user: Uid, now: Nanos) {
        let Some(queue) = self.queues.get_mut(&user) else { return };
        queue.wake(now);
        self.plan(user);
    }

    /// What is due on one queue.
    pub(super) fn look_after(&mut self, user: Uid, now: Nanos) {
        let Some(queue) = self.queues.get_mut(&user) else { return };
        if let Some(refused) = queue.pace.due(now) {
            self.effect(Effect::Record(refused));
        }
        if self.queues.get(&user).and_then(|queue| queue.soft.due()).is_some_and(|due| due <= now) {
            self.look_at_soft(user, now);
        }
        self.work(user, now);
    }

    /// Serves who waits, then who does not; recalls what that may take, and refuses whom nothing helps.
    pub(super) fn work(&mut self, user: Uid, now: Nanos) {
        let Some(mut queue) = self.queues.remove(&user) else { return };
        if queue.round.as_ref().is_some_and(|round| round.ends <= now || round.asked.is_empty()) {
            self.end_round(&mut queue, now);
        }
        loop {
            self.serve_waiting(&mut queue, now);
            self.serve_urgent(&mut queue, now);
            if !queue.round_wanted() || !self.begin_round(&mut queue, now) {
                break;
            }
        }
        self.queues.insert(user, queue);
        self.plan(user);
        self.follow_users(now);
    }

    fn serve_waiting(&mut self, queue: &mut AccountQueue, now: Nanos) {
        let mut progress = false;
        while let Some(head) = queue.waiting.front_mut() {
            let ask = *head;
            match self.attempt(&ask, now) {
                Attempt::Answered => {}
                Attempt::Over(over) => {
                    queue.over = (over.usage, self.line(over.hard));
                    head.exact_by = None;
                    if self.may_ever_fit(&ask, over) {
                        break;
                    }
                    self.dismiss(queue, &ask, (Refusal::OverLine, over), now);
                }
                Attempt::Inexact => {
                    head.exact_by = Some(Nanos(u64::MAX));
                    self.want_walk(now);
                    break;
                }
            }
            progress = true;
            queue.waiting.pop_front();
        }
        self.expire(queue, now);
        queue.plan_try(progress, now);
    }

    /// Whose time is over gets what there is, or a refusal: nobody before them can use it.
    fn expire(&mut self, queue: &mut AccountQueue, now: Nanos) {
        let late = |ask: &PendingRequest| ask.until.is_some_and(|until| until <= now);
        if !queue.waiting.iter().any(late) {
            return;
        }
        let all = core::mem::take(&mut queue.waiting);
        for ask in all {
            if !late(&ask) {
                queue.waiting.push_back(ask);
                continue;
            }
            match self.attempt(&ask, now) {
                Attempt::Answered => {}
                Attempt::Over(over) => {
                    queue.over = (over.usage, self.line(over.hard));
                    self.dismiss(queue, &ask, (Refusal::TimedOut, over), now);
                }
                Attempt::Inexact => {
                    self.finish(&ask);
                    self.refuse(&ask, Refusal::TimedOut, queue.over.0, queue.over.1);
                }
            }
        }
    }

    fn serve_urgent(&mut self, queue: &mut AccountQueue, now: Nanos) {
        for mut ask in core::mem::take(&mut queue.urgent) {
            if ask.tried && ask.recalled != Recalled::Yes {
                queue.urgent.push(ask);
                continue;
            }
            match self.attempt(&ask, now) {
                Attempt::Answered => {}
                Attempt::Over(over) => {
                    queue.over = (over.usage, self.line(over.hard));
                    if ask.recalled == Recalled::Yes || !self.may_ever_fit(&ask, over) {
                        self.dismiss(queue, &ask, (Refusal::OverLine, over), now);
                    } else {
                        (ask.exact_by, ask.tried) = (None, true);
                        queue.urgent.push(ask);
                    }
                }
                Attempt::Inexact => {
                    let by = *ask.exact_by.get_or_insert(now.saturating_add(RECALL_PATIENCE));
                    if by <= now {
                        self.finish(&ask);
                        self.refuse(&ask, Refusal::Busy, queue.over.0, queue.over.1);
                    } else {
                        self.want_walk(now);
                        queue.urgent.push(ask);
                    }
                }
            }
        }
    }

    /// Asks for idle memory back; whether all that this can bring is there already.
    fn begin_round(&mut self, queue: &mut AccountQueue, now: Nanos) -> bool {
        if queue.watchers.is_empty() || queue.is_barren(now) {
            queue.skip_round(now);
            return true;
        }
        if !queue.may_recall(now) {
            return false;
        }
        let heeds = |pid: &Pid| self.processes.get(pid).is_some_and(|process| !process.mute);
        let asked: BTreeSet<Pid> = queue.watchers.values().copied().filter(heeds).collect();
        let nobody = asked.is_empty();
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        let bytes = self.bytes(queue.begin_round(seq, asked, now));
        for id in queue.watchers.keys() {
            self.effect(Effect::Send(*id, Reply::Recall { seq, bytes }));
        }
        if nobody {
            self.end_round(queue, now);
        }
        nobody
    }

    fn end_round(&mut self, queue: &mut AccountQueue, now: Nanos) {
        for pid in queue.end_round(now) {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.mute = true;
            }
        }
    }

    /// A client has answered a recall.
    pub(super) fn recalled(&mut self, pid: Pid, seq: u32, bytes: Bytes, now: Nanos) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(user) = process.space.map(|space| space.user) else { return };
        if let Some(queue) = self.queues.get_mut(&user)
            && queue.has_asked(seq)
        {
            process.mute = false;
            if let Some(round) = queue.round.as_mut().filter(|_| bytes > Bytes(0)) {
                round.brought = true;
            }
        }
        self.wake(user, now);
        self.expect_no_more(user, pid, Some(seq), now);
    }

    /// Nothing is waited for from this process any more: in the recall of this number, or in any.
    fn expect_no_more(&mut self, user: Uid, pid: Pid, seq: Option<u32>, now: Nanos) {
        let Some(round) = self.queues.get_mut(&user).and_then(|queue| queue.round.as_mut()) else { return };
        if seq.is_none_or(|seq| seq == round.seq) && round.asked.remove(&pid) && round.asked.is_empty() {
            self.work(user, now);
        }
    }

    /// A connection hears of an account from now on.
    pub(super) fn watch(&mut self, id: ConnectionId, user: Uid, pid: Pid, now: Nanos) {
        let queue = self.queues.entry(user).or_default();
        queue.watchers.insert(id, pid);
        let knew = queue.soft.reached();
        self.look_at_soft(user, now);
        let reached = self.queues.get(&user).is_some_and(|queue| queue.soft.reached());
        if knew && reached {
            self.tell_soft(user, &[id]);
        }
    }

    /// It hears of it no more.
    pub(super) fn unwatch(&mut self, id: ConnectionId, user: Uid, pid: Pid, now: Nanos) {
        let Some(queue) = self.queues.get_mut(&user) else { return };
        queue.watchers.remove(&id);
        if !queue.watchers.values().any(|watcher| *watcher == pid) {
            self.expect_no_more(user, pid, None, now);
        }
        self.plan(user);
    }

    /// Looks whether the account is at its soft limit, and tells its watchers what changed.
    pub(super) fn look_at_soft(&mut self, user: Uid, now: Nanos) {
        let Some(queue) = self.queues.get_mut(&user) else { return };
        if queue.watchers.is_empty() {
            queue.soft = Soft::default();
            return self.plan(user);
        }
        let account = match self.grantor.as_mut().map(|grantor| grantor.accounts(user)) {
            None => None,
            Some(Ok(accounts)) => next_to_soft(accounts),
            Some(Err(error)) => {
                queue.soft.look_later(now);
                self.plan(user);
                return self.effect(Effect::Trouble(error));
            }
        };
        if queue.soft.look(account.as_ref(), now).is_some() {
            let watchers: Vec<ConnectionId> = queue.watchers.keys().copied().collect();
            self.tell_soft(user, &watchers);
        }
        self.plan(user);
    }

    fn tell_soft(&mut self, user: Uid, watchers: &[ConnectionId]) {
        let Some(reached) = self.queues.get(&user).map(|queue| queue.soft.reached()) else { return };
        let account = self.grantor.as_mut().and_then(|grantor| next_to_soft(grantor.accounts(user).ok()?));
        let (usage, soft) = account.map_or_else(Default::default, |account| (account.usage, account.soft));
        let (usage, soft) = (self.bytes(usage), self.bytes(soft));
        for id in watchers {
            self.effect(Effect::Send(*id, Reply::Soft { reached, usage, soft }));
        }
    }

    /// What grants leave free for who is only starting in an account; these are counted now and then.
    fn kept_for_starts(&mut self, user: Uid, now: Nanos) -> Pages {
        let newcomers = self.newcomers.entry(user).or_default();
        if newcomers.are_stale(now)
            && let Some(Ok(accounts)) = self.grantor.as_mut().map(|grantor| grantor.accounts(user))
            && let (Some(own), Some(hard)) = (accounts.first(), accounts.iter().map(|one| one.hard).min())
        {
            let asking = self.asking.get(&user).copied().unwrap_or_default();
            newcomers.look(own.processes.saturating_sub(asking), now);
            newcomers.hard = hard;
        }
        let each = self.terms.page_size.to_pages(START_BYTES);
        let for_so_many = |count: u32| each.0.saturating_mul(count.into());
        let expected = for_so_many(newcomers.expected()).min(newcomers.hard.0 / EXPECTED_SHARE);
        Pages(for_so_many(newcomers.count()).saturating_add(expected))
    }

    /// Tries once.
    fn attempt(&mut self, ask: &PendingRequest, now: Nanos) -> Attempt {
        let mut space = self.processes.get(&ask.pid).and_then(|process| process.space);
        if space.is_none() {
            space = self.look_up(ask.pid, now);
            if space.is_none() && self.unseen(ask).is_some() {
                return Attempt::Inexact;
            }
        }
        if ask.pages > PAGES_MAX
            && let Some(over) = space.and_then(|space| self.beyond_all(space.user))
        {
            return over;
        }
        // The second time if it runs another program now than when it was looked for.
        for _ in 0..2 {
            let Some(found) = space else { break };
            let starts = self.kept_for_starts(found.user, now);
            let headroom = Pages(self.headroom_pages().0.saturating_add(starts.0));
            let Some(grantor) = &mut self.grantor else { break };
            match grantor.reserve(&found, ask.pages, headroom) {
                Ok(Reserved::Over(over)) => {
                    let usage = Pages(over.usage.0.saturating_add(starts.0));
                    return Attempt::Over(OverLine { usage, ..over });
                }
                Ok(Reserved::Inexact) => return Attempt::Inexact,
                Ok(Reserved::Granted { .. } | Reserved::NoLine) => break,
                Ok(Reserved::Gone) => {
                    space = self.look_up(ask.pid, now);
                    if space == Some(found) {
                        // It is dying: nothing is promised to it any more.
                        self.finish(ask);
                        self.refuse(ask, Refusal::NotPermitted, Pages(0), Pages(0));
                        return Attempt::Answered;
                    }
                }
                Err(error) => {
                    self.effect(Effect::Trouble(error));
                    self.finish(ask);
                    self.refuse(ask, Refusal::Busy, Pages(0), Pages(0));
                    return Attempt::Answered;
                }
            }
        }
        self.finish(ask);
        self.grant(ask, now);
        Attempt::Answered
    }

    /// Whether a request that does not fit below one line now could below each that is charged, with nothing used.
    fn may_ever_fit(&mut self, ask: &PendingRequest, over: OverLine) -> bool {
        let user = self.processes.get(&ask.pid).and_then(|process| process.space).map(|space| space.user);
        let accounts = user.and_then(|user| self.grantor.as_mut()?.accounts(user).ok());
        let lowest = accounts.into_iter().flatten().map(|one| one.hard).min();
        ask.pages <= self.line(lowest.map_or(over.hard, |lowest| lowest.min(over.hard)))
    }

    /// What there is to say of a request that no machine could serve.
    fn beyond_all(&mut self, user: Uid) -> Option<Attempt> {
        let accounts = self.grantor.as_mut()?.accounts(user).ok()?;
        let tightest = accounts.into_iter().min_by_key(|one| one.hard.saturating_sub(one.usage));
        tightest.map(|AccountFacts { whose, usage, hard, .. }| Attempt::Over(OverLine { whose, usage, hard }))
    }

    fn grant(&mut self, ask: &PendingRequest, now: Nanos) {
        self.await_settling(ask.pid, now);
        self.tally.granted = self.tally.granted.saturating_add(1);
        let bytes = self.bytes(ask.pages);
        self.answer(ask, Reply::Granted { seq: ask.seq, bytes });
    }

    /// It is answered: it counts for its process no more.
    fn finish(&mut self, ask: &PendingRequest) {
        if let Some(process) = self.processes.get_mut(&ask.pid) {
            process.asks = process.asks.saturating_sub(1);
        }
    }

    /// Refuses, and has it recorded.
    fn dismiss(
        &mut self,
        queue: &mut AccountQueue,
        ask: &PendingRequest,
        (refusal, over): (Refusal, OverLine),
        now: Nanos,
    ) {
        let OverLine { whose, usage, hard } = over;
        let line = self.line(hard);
        self.finish(ask);
        self.refuse(ask, refusal, usage, line);
        // It may be another user's since it was looked for.
        let known = self.processes.get(&ask.pid).and_then(|process| process.space);
        let Some(space) = self.look_up(ask.pid, now).or(known) else { return };
        let refused = Refused {
            user: space.user,
            whose,
            pid: space.pid,
            uid: space.uid,
            start_ns: space.start_ns,
            requested: ask.pages,
            usage,
            hard,
            line,
            suppressed: 0,
            by: By::Grants,
        };
        if let Some(refused) = queue.pace.take(refused, now) {
            self.effect(Effect::Record(refused));
        }
    }

    fn refuse(&mut self, ask: &PendingRequest, refusal: Refusal, usage: Pages, line: Pages) {
        self.tally.refused = self.tally.refused.saturating_add(1);
        let (usage, line) = (self.bytes(usage), self.bytes(line));
        self.answer(ask, Reply::Refused { seq: ask.seq, refusal, usage, line });
    }

    fn answer(&mut self, ask: &PendingRequest, reply: Reply) {
        self.effect(Effect::Send(ask.connection, reply));
    }

    fn headroom_pages(&self) -> Pages {
        // A part of a page is left free as a whole one.
        let whole = self.terms.page_size.bytes().0.saturating_sub(1);
        self.terms.page_size.to_pages(Bytes(self.terms.headroom.0.saturating_add(whole)))
    }

    /// How far grants may go.
    fn line(&self, hard: Pages) -> Pages {
        hard.saturating_sub(self.headroom_pages())
    }

    fn bytes(&self, pages: Pages) -> Bytes {
        self.terms.page_size.to_bytes(pages)
    }
}
