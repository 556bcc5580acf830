//! What processes hold: in which address space, charged to whom, and which of their grants are not settled.

use super::{
    account::ConnectionId,
    grantor::Grantor,
    state::{ASKS_MAX, Coordinator, Effect, SETTLE_PATIENCE, Timer},
};
use plimsoll_policy::units::{Bytes, Nanos, Pages, Pid, Uid};
use plimsoll_sys::bpf::Space;

/// Grants of one process that it did not settle.
const UNSETTLED_MAX: usize = 1024;
/// How often it is looked whether a process of a user without a line has one by now.
const FIND_AGAIN: Nanos = Nanos(100_000_000);

impl<G: Grantor> Coordinator<G> {
    /// The process's address space; looked for again now and then while it has none.
    pub(super) fn space(&mut self, pid: Pid, now: Nanos) -> Option<Space> {
        let process = self.processes.get(&pid)?;
        let stale = process.looked.is_none_or(|looked| now >= looked.saturating_add(FIND_AGAIN));
        match process.space {
            None if stale => self.find(pid, now),
            known => known,
        }
    }

    /// Looks for it now, and follows it to the account that it is charged to.
    pub(super) fn find(&mut self, pid: Pid, now: Nanos) -> Option<Space> {
        let found = self.look_up(pid, now);
        self.follow_users(now);
        found
    }

    /// Looks for it now; [`Coordinator::follow_users`] is to be called then.
    pub(super) fn look_up(&mut self, pid: Pid, now: Nanos) -> Option<Space> {
        let found = match self.grantor.as_mut().map(|grantor| grantor.find(pid)) {
            None => None,
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                self.effect(Effect::Trouble(error));
                None
            }
        };
        let process = self.processes.get_mut(&pid)?;
        process.looked = Some(now);
        let before = core::mem::replace(&mut process.space, found).map(|space| space.user);
        let after = found.map(|space| space.user);
        if before != after {
            for (user, joins) in [(before, false), (after, true)] {
                self.asks_for(user, joins);
            }
            self.changed_user.push((pid, before, after));
        }
        found
    }

    /// A process that asks joins an account, or leaves it.
    pub(super) fn asks_for(&mut self, user: Option<Uid>, joins: bool) {
        let Some(user) = user else { return };
        let count = self.asking.entry(user).or_default();
        *count = if joins { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count == 0 {
            self.asking.remove(&user);
        }
    }

    /// Has the watching connections of processes that changed accounts hear of the new one.
    pub(super) fn follow_users(&mut self, now: Nanos) {
        for (pid, before, after) in core::mem::take(&mut self.changed_user) {
            let Some(process) = self.processes.get(&pid) else { continue };
            let watching: Vec<ConnectionId> = process.watching.iter().copied().collect();
            for id in watching {
                if let Some(user) = before {
                    self.unwatch(id, user, pid, now);
                }
                if let Some(user) = after {
                    self.watch(id, user, pid, now);
                }
            }
        }
    }

    /// One more grant is to be settled.
    pub(super) fn await_settling(&mut self, pid: Pid, now: Nanos) {
        let by = now.saturating_add(SETTLE_PATIENCE);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.grants.push_back(by);
        if !core::mem::replace(&mut process.settle_timer, true) {
            self.at(by, Timer::Settle(pid));
        }
    }

    pub(super) fn may_ask(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|one| one.asks < ASKS_MAX && one.grants.len() < UNSETTLED_MAX)
    }

    /// One grant of its is populated. What is left of the reservation may be for another one that is not yet: it goes back
    /// with the last.
    pub(super) fn settled(&mut self, pid: Pid, now: Nanos) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.grants.pop_front();
        if process.grants.is_empty()
            && let Some(space) = process.space
        {
            self.settle(&space);
            self.wake(space.user, now);
        }
    }

    pub(super) fn settle_late(&mut self, pid: Pid, now: Nanos) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.settle_timer = false;
        match process.grants.front().copied() {
            None => {}
            Some(by) if by > now => {
                process.settle_timer = true;
                self.at(by, Timer::Settle(pid));
            }
            Some(_) => {
                process.grants.clear();
                if let Some(space) = process.space {
                    self.settle(&space);
                    self.wake(space.user, now);
                }
            }
        }
        self.forget_if_done(pid);
    }

    pub(super) fn settle(&mut self, space: &Space) {
        if let Some(Err(error)) = self.grantor.as_mut().map(|grantor| grantor.settle(space)) {
            self.effect(Effect::Trouble(error));
        }
    }

    pub(super) fn give_up(&mut self, pid: Pid, bytes: Bytes) {
        let pages = self.terms.page_size.to_pages(bytes);
        let space = self.processes.get(&pid).and_then(|process| process.space);
        let Some(space) = space.filter(|_| pages > Pages(0)) else { return };
        if let Some(Err(error)) = self.grantor.as_mut().map(|grantor| grantor.give_up(&space, pages)) {
            self.effect(Effect::Trouble(error));
        }
    }

    pub(super) fn wake_user_of(&mut self, pid: Pid, now: Nanos) {
        if let Some(space) = self.processes.get(&pid).and_then(|process| process.space) {
            self.wake(space.user, now);
        }
    }
}
