//! The coordinator without its sockets: who is connected, what they hold, what happens next. It reads no clock and no
//! socket; whatever is to be done outside comes out as [`Effect`]s.

use super::{
    account::{AccountQueue, ConnectionId, PendingRequest},
    grantor::Grantor,
    newcomers::Newcomers,
    refusals::Refused,
    shares::{Shares, Used},
};
use plimsoll_policy::units::{Bytes, Nanos, PageSize, Pid, Uid};
use plimsoll_sys::bpf::{BpfError, Space};
use plimsoll_wire::tmalloc::{Reply, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Connections of one process: one to ask on, one to watch on, and as many again while they are being replaced.
pub(super) const PROCESS_MAX: usize = 4;
/// Requests of one process that are not answered yet.
pub(super) const ASKS_MAX: usize = 64;
/// How long a connection may take to say HELLO.
pub(super) const HELLO_PATIENCE: Nanos = Nanos(5_000_000_000);
/// How long a grant may stay unsettled.
pub(super) const SETTLE_PATIENCE: Nanos = Nanos(10_000_000_000);
/// Between two walks of all tasks that are asked for here.
const WALK_PAUSE: Nanos = Nanos(20_000_000);

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What came is not of this protocol.
    Protocol,
    /// Of another version of it.
    Version,
    /// Too many connections.
    TooMany,
    /// No HELLO in time.
    Late,
    /// Whose process it is cannot be told from here.
    Stranger,
}

impl Fault {
    /// As the client is told.
    pub(crate) const fn errno(self) -> u32 {
        (match self {
            Self::Protocol => nix::libc::EPROTO,
            Self::Version => nix::libc::EPROTONOSUPPORT,
            Self::TooMany => nix::libc::EMFILE,
            Self::Late => nix::libc::ETIMEDOUT,
            Self::Stranger => nix::libc::EPERM,
        })
        .unsigned_abs()
    }
}

/// Who says HELLO.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello {
    /// The process.
    pub(crate) pid: Pid,
    /// The connection is to hear of recalls and of the soft limit.
    pub(crate) watch: bool,
    /// Another process may have had its number when it connected.
    pub(crate) doubtful: bool,
}

/// What is to be done outside.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Sends a message.
    Send(ConnectionId, Reply),
    /// Says why, where there is something to say, and closes.
    Close(ConnectionId, Option<Fault>),
    /// Nothing is to be known of this process any more.
    Forget(Pid),
    /// Records a refusal.
    Record(Refused),
    /// Has all tasks walked, so that accounts are exact.
    Walk,
    /// Says what went wrong.
    Trouble(BpfError),
}

/// What of it is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Connections.
    pub(crate) connections: u64,
    /// Requests that wait.
    pub(crate) waiting: u64,
    /// Grants since the start.
    pub(crate) granted: u64,
    /// Refusals since the start.
    pub(crate) refused: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) owner: Uid,
    /// Whose it is, once it has said HELLO.
    pub(super) process: Option<Pid>,
    /// By when it has to say HELLO.
    hello_by: Nanos,
    used: Used,
}

/// A process that has said HELLO.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Whom it counts for: it can outlive its connections by what it has not settled.
    owner: Uid,
    pub(super) space: Option<Space>,
    pub(super) looked: Option<Nanos>,
    connections: BTreeSet<ConnectionId>,
    pub(super) watching: BTreeSet<ConnectionId>,
    /// It cannot be told from another process.
    pub(super) doubtful: bool,
    /// By when each of its grants has to be settled, the oldest first.
    pub(super) grants: VecDeque<Nanos>,
    pub(super) settle_timer: bool,
    /// Requests that are not answered yet.
    pub(super) asks: usize,
    /// It let a recall pass: the next one is not held up for it.
    pub(super) mute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Hello(ConnectionId),
    Settle(Pid),
    Inherited(Pid),
    AccountQueue(Uid),
    Walk,
}

/// What the coordinator goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// What grants leave free under each line.
    pub(crate) headroom: Bytes,
    /// The machine's.
    pub(crate) page_size: PageSize,
}

/// Who is connected, what they hold, and what is due.
#[derive(Debug)]
pub(crate) struct Coordinator<G> {
    pub(super) grantor: Option<G>,
    pub(super) terms: Terms,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    pub(super) processes: BTreeMap<Pid, Process>,
    pub(super) queues: BTreeMap<Uid, AccountQueue>,
    shares: Shares,
    /// How many processes of each account are known here.
    pub(super) asking: BTreeMap<Uid, u32>,
    /// Of each account that was asked for: as many as there are lines.
    pub(super) newcomers: BTreeMap<Uid, Newcomers>,
    /// Reservations from before this daemon.
    inherited: BTreeMap<Pid, Space>,
    timers: BTreeSet<(Nanos, Timer)>,
    effects: Vec<Effect>,
    pub(super) tally: Tally,
    pub(super) next_seq: u32,
    /// Processes that were found to be charged to another account than before: from which, to which.
    pub(super) changed_user: Vec<(Pid, Option<Uid>, Option<Uid>)>,
    walking: bool,
    walk_planned: bool,
    walked: Option<Nanos>,
}

impl<G: Grantor> Coordinator<G> {
    /// One with nothing attached.
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            grantor: None,
            terms,
            connections: BTreeMap::new(),
            processes: BTreeMap::new(),
            queues: BTreeMap::new(),
            shares: Shares::default(),
            asking: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            inherited: BTreeMap::new(),
            timers: BTreeSet::new(),
            effects: Vec::new(),
            tally: Tally::default(),
            next_seq: 1,
            changed_user: Vec::new(),
            walking: false,
            walk_planned: false,
            walked: None,
        }
    }

    /// What has come up since the last call, in its order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// What of it is shown.
    pub(crate) fn tally(&self) -> Tally {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Tally {
            connections: count(self.connections.len()),
            waiting: self.queues.values().map(|queue| count(queue.waiting.len())).sum(),
            ..self.tally
        }
    }

    /// The headroom changed.
    pub(crate) fn configure(&mut self, terms: Terms, now: Nanos) {
        self.terms = terms;
        self.wake_all(now);
    }

    /// These programs are in force now, if any.
    pub(crate) fn adopt(&mut self, grantor: Option<G>, now: Nanos) {
        let first = self.grantor.is_none();
        self.grantor = grantor;
        if first {
            self.inherit(now);
        }
        self.drawn(now);
    }

    /// Lines were drawn or cleared.
    pub(crate) fn drawn(&mut self, now: Nanos) {
        self.newcomers.clear();
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.find(pid, now);
        }
        let users: Vec<Uid> = self.queues.keys().copied().collect();
        for user in users {
            self.look_at_soft(user, now);
        }
        self.wake_all(now);
    }

    /// What processes have reserved that are not known here: they come back and settle, or it is done for them.
    fn inherit(&mut self, now: Nanos) {
        let Some(grantor) = &mut self.grantor else { return };
        match grantor.outstanding() {
            Ok(spaces) => {
                for space in spaces {
                    if self.processes.contains_key(&space.pid) {
                        continue;
                    }
                    self.inherited.insert(space.pid, space);
                    self.at(now.saturating_add(SETTLE_PATIENCE), Timer::Inherited(space.pid));
                }
            }
            Err(error) => self.effect(Effect::Trouble(error)),
        }
    }

    /// Takes a connection in; `owner`: whom it counts for.
    pub(crate) fn connect(&mut self, id: ConnectionId, owner: Uid, now: Nanos) -> Result<(), Fault> {
        if let Some(crowd) = self.shares.crowded(owner) {
            let gives_way = self.gives_way(crowd, owner).ok_or(Fault::TooMany)?;
            self.close(gives_way, Fault::TooMany, now);
        }
        let used = self.shares.enter(owner, id);
        let hello_by = now.saturating_add(HELLO_PATIENCE);
        self.connections.insert(id, Connection { owner, process: None, hello_by, used });
        self.at(hello_by, Timer::Hello(id));
        Ok(())
    }

    /// Which connection of a crowd is closed for one more of `owner`'s: the one that lies idle for longest. Where others have
    /// more than their part one that is used has to go as well: who asked on it asks again.
    fn gives_way(&self, crowd: Uid, owner: Uid) -> Option<ConnectionId> {
        let idle = self.shares.by_use(crowd).find(|id| self.is_idle(*id));
        idle.or_else(|| self.shares.by_use(crowd).next().filter(|_| crowd != owner))
    }

    /// Whether nothing is asked on a connection, and its process is not to settle on it what it is populating.
    fn is_idle(&self, id: ConnectionId) -> bool {
        let process = self.process_of(id).and_then(|pid| self.processes.get(&pid));
        process.is_some_and(|one| one.asks == 0 && (one.grants.is_empty() || one.watching.contains(&id)))
    }

    /// Whose connection it is: `None` before it has said HELLO.
    pub(crate) fn process_of(&self, id: ConnectionId) -> Option<Pid> {
        self.connections.get(&id)?.process
    }

    /// Whom a process counts for: `None` where it is not held.
    pub(crate) fn owner_of(&self, pid: Pid) -> Option<Uid> {
        self.processes.get(&pid).map(|process| process.owner)
    }

    /// A connection says HELLO.
    pub(crate) fn hello(&mut self, id: ConnectionId, guest: Hello, now: Nanos) {
        let Hello { pid, watch, doubtful } = guest;
        let known = self.processes.contains_key(&pid);
        let held = self.processes.get(&pid).map_or(0, |process| process.connections.len());
        if held >= PROCESS_MAX {
            return self.close(id, Fault::TooMany, now);
        }
        let (owner, hello_by) = match self.connections.get(&id) {
            Some(Connection { owner, process: None, hello_by, .. }) => (*owner, *hello_by),
            Some(_) => return self.close(id, Fault::Protocol, now),
            None => return,
        };
        if !known && !self.shares.hold(owner) {
            self.effect(Effect::Forget(pid));
            return self.close(id, Fault::TooMany, now);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.process = Some(pid);
        }
        self.timers.remove(&(hello_by, Timer::Hello(id)));
        let process = self.processes.entry(pid).or_insert_with(|| Process { owner, ..Process::default() });
        process.connections.insert(id);
        process.doubtful |= doubtful;
        let space = if known { self.space(pid, now) } else { self.find(pid, now) };
        if let Some(space) = space.filter(|_| !known) {
            self.newcomers.entry(space.user).or_default().come(now);
        }
        if !known && let Some(before) = self.inherited.remove(&pid) {
            // Of an earlier process with this number, or of what it ran before, it has gone with that. Its user may be
            // another by now.
            if space.is_some_and(|space| (space.mm, space.start_ns) == (before.mm, before.start_ns)) {
                self.await_settling(pid, now);
            }
        }
        let page = self.terms.page_size.bytes();
        self.effect(Effect::Send(id, Reply::Welcome { page, line: space.is_some() }));
        // Not before: what it is told of the account comes behind its welcome.
        if watch && let Some(process) = self.processes.get_mut(&pid) {
            process.watching.insert(id);
            if let Some(space) = space {
                self.watch(id, space.user, pid, now);
            }
        }
    }

    /// A message of a connection that has said HELLO.
    pub(crate) fn message(&mut self, id: ConnectionId, request: Request, now: Nanos) {
        let Some(pid) = self.process_of(id) else {
            return self.close(id, Fault::Protocol, now);
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.used = self.shares.renew(connection.owner, id, connection.used);
        }
        match request {
            Request::Hello { .. } => self.close(id, Fault::Protocol, now),
            Request::Reserve { seq, bytes, patience } => {
                let pages = self.terms.page_size.to_pages(bytes);
                self.reserve(PendingRequest::new((id, pid), seq, pages, patience, now), now);
            }
            Request::Settled => self.settled(pid, now),
            Request::GaveBack { bytes } => {
                self.give_up(pid, bytes);
                self.wake_user_of(pid, now);
            }
            Request::Recalled { seq, bytes } => {
                self.give_up(pid, bytes);
                self.recalled(pid, seq, bytes, now);
            }
            Request::Cancel { seq } => self.cancel(id, pid, seq, now),
            Request::Headroom { seq } => {
                let bytes = self.headroom(pid, now);
                self.effect(Effect::Send(id, Reply::HeadroomIs { seq, bytes }));
            }
        }
    }

    /// A connection has ended. What its process holds is not given back by that.
    pub(crate) fn disconnect(&mut self, id: ConnectionId, now: Nanos) {
        let Some(gone) = self.connections.remove(&id) else { return };
        let Connection { owner, process, hello_by, used } = gone;
        // One that comes and goes without a word leaves nothing behind.
        self.timers.remove(&(hello_by, Timer::Hello(id)));
        self.shares.leave(owner, id, used);
        let Some(pid) = process else { return };
        self.withdraw(pid, |ask| ask.connection == id, now);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.connections.remove(&id);
            process.watching.remove(&id);
            if let Some(user) = process.space.map(|space| space.user) {
                self.unwatch(id, user, pid, now);
            }
        }
        self.forget_if_done(pid);
    }

    /// A process has ended: its reservation and its usage have gone with it.
    pub(crate) fn process_ended(&mut self, pid: Pid, now: Nanos) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let user = process.space.map(|space| space.user);
        let unsettled = !process.grants.is_empty();
        process.grants.clear();
        let left = process.space.filter(|_| unsettled);
        let connections: Vec<ConnectionId> = process.connections.iter().copied().collect();
        // Another process may run on in its memory.
        if let Some(space) = left {
            self.settle(&space);
        }
        for id in connections {
            self.effect(Effect::Close(id, None));
            self.disconnect(id, now);
        }
        self.forget_if_done(pid);
        if let Some(user) = user {
            self.wake(user, now);
        }
    }

    /// The programs have told that an account came to its soft limit, or left it.
    pub(crate) fn moved(&mut self, user: Uid, now: Nanos) {
        self.look_at_soft(user, now);
        self.wake(user, now);
    }

    /// All tasks have been walked.
    pub(crate) fn walked(&mut self, now: Nanos) {
        self.walking = false;
        self.walked = Some(now);
        let users: Vec<Uid> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.urgent.iter().chain(&queue.waiting).any(|ask| ask.exact_by.is_some()))
            .map(|(user, _)| *user)
            .collect();
        for user in users {
            self.work(user, now);
        }
    }

    /// A refusal could not be recorded.
    pub(crate) fn unrecorded(&mut self, refused: Refused, now: Nanos) {
        let queue = self.queues.entry(refused.user).or_default();
        queue.pace.put_back(refused, now);
        self.plan(refused.user);
    }

    /// When [`Coordinator::tick`] is to be called; `None`: there is nothing to wait for.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.first().map(|(when, _)| *when)
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Nanos) {
        while let Some((when, timer)) = self.timers.first().copied().filter(|(when, _)| *when <= now) {
            self.timers.remove(&(when, timer));
            match timer {
                Timer::Hello(id) => {
                    if self.connections.get(&id).is_some_and(|one| one.process.is_none()) {
                        self.close(id, Fault::Late, now);
                    }
                }
                Timer::Settle(pid) => self.settle_late(pid, now),
                Timer::Inherited(pid) => {
                    if let Some(space) = self.inherited.remove(&pid) {
                        self.settle(&space);
                    }
                }
                Timer::AccountQueue(user) => {
                    if let Some(queue) = self.queues.get_mut(&user) {
                        queue.timer = None;
                    }
                    self.look_after(user, now);
                }
                Timer::Walk => {
                    self.walk_planned = false;
                    if !core::mem::replace(&mut self.walking, true) {
                        self.effect(Effect::Walk);
                    }
                }
            }
        }
    }

    pub(super) fn at(&mut self, when: Nanos, timer: Timer) {
        self.timers.insert((when, timer));
    }

    /// Plans when the queue is looked at next; one with nothing on it goes.
    pub(super) fn plan(&mut self, user: Uid) {
        let Some(queue) = self.queues.get_mut(&user) else { return };
        let (before, due) = (queue.timer, queue.due());
        queue.timer = due;
        let idle = queue.is_idle();
        if before != due {
            if let Some(before) = before {
                self.timers.remove(&(before, Timer::AccountQueue(user)));
            }
            if let Some(due) = due {
                self.at(due, Timer::AccountQueue(user));
            }
        }
        if idle {
            self.queues.remove(&user);
        }
    }

    /// Has all tasks walked, unless that is under way, and not more often than it helps.
    pub(super) fn want_walk(&mut self, now: Nanos) {
        if self.walking {
            return;
        }
        let from = self.walked.map_or(now, |walked| walked.saturating_add(WALK_PAUSE));
        if from <= now {
            self.walking = true;
            self.effect(Effect::Walk);
        } else if !core::mem::replace(&mut self.walk_planned, true) {
            self.at(from, Timer::Walk);
        }
    }

    pub(super) fn close(&mut self, id: ConnectionId, fault: Fault, now: Nanos) {
        self.effect(Effect::Close(id, Some(fault)));
        self.disconnect(id, now);
    }

    pub(super) fn forget_if_done(&mut self, pid: Pid) {
        let done = |process: &Process| process.connections.is_empty() && process.grants.is_empty();
        if self.processes.get(&pid).is_some_and(done) {
            if let Some(process) = self.processes.remove(&pid) {
                self.shares.release(process.owner);
                self.asks_for(process.space.map(|space| space.user), false);
            }
            self.effect(Effect::Forget(pid));
        }
    }

    fn wake_all(&mut self, now: Nanos) {
        let users: Vec<Uid> = self.queues.keys().copied().collect();
        for user in users {
            self.wake(user, now);
        }
    }
}
