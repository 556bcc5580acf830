//! The coordinator's service: sockets and pidfds in one `epoll`, everything decided by [`Coordinator`]. While somebody is
//! connected or something is due a thread waits there; otherwise the offload threads wait for that `epoll`.
//!
//! Nothing here waits for a client: what a socket does not take at once closes it. Users take turns, and so do the connections
//! of each ([`Turns`]); a turn is a few messages. So a user who talks without end holds the others up by a turn at most.
//!
//! Each user has an eighth of a CPU over time. One who has had more is not read until that is made good: its messages wait in
//! its own sockets. `epoll` tells once that a connection can be read, and again when all of it was read (`EPOLLONESHOT`), so
//! nobody keeps this thread awake by sending. Whose a connection is, is known when it has been taken: all that are taken have
//! an eighth of a CPU as well, together.

use super::{
    account::ConnectionId,
    messages::{Inbox, Message, Shown},
    state::{Coordinator, Effect, Fault, Hello, Terms},
    turns::{Debt, Turns},
};
use crate::{
    api::{
        listener::{ServedSocket, lacks_room},
        peer::Peer,
    },
    guard::{Caller, Request as GuardRequest},
    journal::Notices,
    owners::Owners,
    pace::now,
};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout},
        socket::{getsockopt, sockopt::PeerPidfd},
    },
};
use plimsoll_policy::units::{Nanos, Pid, Uid};
use plimsoll_sys::{
    bpf::{Edition, Grants, PinState, Pins},
    process::{ProcRoot, own_nice, set_own_nice, thread_cpu_time},
};
use plimsoll_wire::tmalloc::{MESSAGE_BYTES, MessageError, Reply, Request};
use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;
/// Messages that are read of one connection in its turn.
const MESSAGES_PER_TURN: usize = 4;
/// Turns that are given before it is looked what else has happened.
const TURNS_AT_ONCE: usize = 64;
/// Connections that are taken at once.
const ACCEPTS_AT_ONCE: usize = 16;
/// Events that are taken at once.
const EVENTS_MAX: usize = 64;
/// How long the listener is left alone when there is no descriptor or memory for another connection.
const ACCEPT_PAUSE: Nanos = Nanos(100_000_000);

/// What an event is about, in the 64 bits that `epoll` keeps with a descriptor. Connections count up from 0.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
/// The rest is the number of a process.
const PROCESS: u64 = 1 << 63;

/// How long it stays when nobody is connected any more, in milliseconds: whoever comes again and again finds it there.
const STAYS_MS: u16 = 1000;

/// What it is given.
#[derive(Debug)]
pub(super) struct ServiceSetup {
    pub(super) socket: ServedSocket,
    pub(super) pins: Pins,
    pub(super) proc: ProcRoot,
    pub(super) caller: Caller,
    pub(super) notices: Notices,
    pub(super) inbox: Inbox,
    pub(super) terms: Terms,
}

/// A connection as it was when it was taken.
#[derive(Debug)]
struct Line {
    stream: UnixStream,
    peer: Peer,
}

/// The sockets, the processes that are held, and the coordinator that decides for them.
#[derive(Debug)]
pub(super) struct Service {
    setup: ServiceSetup,
    epoll: Epoll,
    coordinator: Coordinator<Grants>,
    /// Which programs it has.
    edition: Option<Edition>,
    owners: Owners,
    lines: BTreeMap<ConnectionId, Line>,
    turns: Turns,
    /// Of all connections that were taken.
    knocks: Debt,
    /// The time of a CPU that the thread had had when somebody was charged last.
    had: Duration,
    /// The processes that have said HELLO, held.
    held: BTreeMap<Pid, OwnedFd>,
    next_id: u64,
    /// Until then nobody is taken.
    closed_until: Option<Nanos>,
    stopping: bool,
}

/// Something to read of a connection, or its end: told once.
const fn once(id: ConnectionId) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLONESHOT), id.0)
}

impl Service {
    pub(super) fn new(setup: ServiceSetup) -> io::Result<Self> {
        let epoll = Epoll::new(nix::sys::epoll::EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(setup.socket.listener(), EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(&setup.inbox.queue, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self {
            epoll,
            coordinator: Coordinator::new(setup.terms),
            edition: None,
            owners: Owners::default(),
            lines: BTreeMap::new(),
            turns: Turns::default(),
            knocks: Debt::default(),
            had: Duration::ZERO,
            held: BTreeMap::new(),
            next_id: 0,
            closed_until: None,
            stopping: false,
            setup,
        })
    }

    /// Can be read when there is something to serve.
    pub(super) fn readable(&self) -> io::Result<OwnedFd> {
        self.epoll.0.try_clone()
    }

    /// Serves for as long as somebody is connected or something is due; whether it is to be called again.
    pub(super) fn serve(&mut self) -> bool {
        let nice = own_nice();
        // Of this thread alone. Whoever asks stands still until the answer: behind two busy programs on two CPUs that was
        // 3 ms for one request in a hundred, and is 0.1 ms like this. No user gets more of it than its part. Without the
        // right to it others wait longer.
        set_own_nice(URGENT_NICE);
        self.charge_nobody();
        let goes_on = loop {
            match self.look() {
                Ok(_) if self.stopping => break false,
                Ok(true) => {}
                Ok(false) => break true,
                Err(errno) => {
                    let why = format!("epoll: {errno}");
                    self.setup.notices.say(format_args!("grants of memory are answered no more: {why}"));
                    self.setup.inbox.show(Shown::Off(why));
                    break false;
                }
            }
        };
        set_own_nice(nice);
        goes_on
    }

    /// Looks once what has happened, and sees to it; whether more is expected.
    fn look(&mut self) -> nix::Result<bool> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let timeout = self.timeout();
        let is_quiet = self.lines.is_empty() && timeout.is_none();
        let timeout = if is_quiet { EpollTimeout::from(STAYS_MS) } else { timeout };
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(0) if is_quiet => return Ok(false),
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno),
        };
        for event in events.iter().take(count) {
            match event.data() {
                LISTENER => self.accept(),
                BELL => {
                    self.listen();
                    self.carry_out();
                    self.charge_nobody();
                }
                process if process & PROCESS != 0 => {
                    if let Ok(number) = u32::try_from(process & !PROCESS) {
                        self.ended(Pid(number));
                    }
                }
                id => {
                    let id = ConnectionId(id);
                    if let Some(line) = self.lines.get(&id) {
                        self.turns.ready(id, line.peer.owner);
                    }
                }
            }
            self.carry_out();
        }
        self.give_turns();
        if self.closed_until.is_some_and(|until| until <= now()) {
            self.closed_until = None;
            self.epoll.add(self.setup.socket.listener(), EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        }
        if self.coordinator.next_deadline().is_some_and(|due| due <= now()) {
            self.coordinator.tick(now());
            self.carry_out();
            self.charge_nobody();
        }
        self.setup.inbox.show(Shown::On(self.coordinator.tally()));
        Ok(true)
    }

    /// Reads whose turn it is.
    fn give_turns(&mut self) {
        for _ in 0..TURNS_AT_ONCE {
            let Some(id) = self.turns.next(now()) else { return };
            let Some(owner) = self.lines.get(&id).map(|line| line.peer.owner) else { continue };
            let more = self.read(id);
            self.carry_out();
            if more {
                self.turns.ready(id, owner);
            } else {
                self.await_more(id);
            }
            self.charge(owner);
        }
    }

    /// What was done since the last call was for this owner, and so was waking up for it.
    fn charge(&mut self, owner: Uid) {
        let had = thread_cpu_time();
        self.turns.spent(owner, had.saturating_sub(self.had), now());
        self.had = had;
    }

    /// What was done since the last call counts for nobody.
    fn charge_nobody(&mut self) {
        self.had = thread_cpu_time();
    }

    /// Has it told when there is something to read of this connection again, or its end.
    fn await_more(&mut self, id: ConnectionId) {
        let Some(line) = self.lines.get(&id) else { return };
        if self.epoll.modify(&line.stream, &mut once(id)).is_err() {
            self.lose(id);
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let due = [self.coordinator.next_deadline(), self.closed_until, self.turns.due()];
        let Some(due) = due.into_iter().flatten().min() else { return EpollTimeout::NONE };
        // Rounded up: an early turn would find nothing due, and come back for it.
        let milliseconds = due.0.saturating_sub(now().0).div_ceil(1_000_000);
        EpollTimeout::try_from(milliseconds).unwrap_or(EpollTimeout::MAX)
    }

    /// What the guard has to say.
    fn listen(&mut self) {
        while let Ok(message) = self.setup.inbox.queue.next() {
            match message {
                Message::Lines => self.adopt(),
                Message::Moved(users) => {
                    users.into_iter().for_each(|user| self.coordinator.moved(user, now()));
                }
                Message::Walked => self.coordinator.walked(now()),
                Message::Headroom(headroom) => {
                    self.setup.terms.headroom = headroom;
                    self.coordinator.configure(self.setup.terms, now());
                }
            }
        }
        self.stopping |= self.setup.inbox.stopped();
        if self.setup.inbox.lost() {
            self.adopt();
            self.coordinator.walked(now());
        }
    }

    /// Takes over what is pinned now, where that is not what it has.
    fn adopt(&mut self) {
        // Before anything is opened: what is pinned meanwhile is another edition, and the next message is about that.
        let edition = self.setup.pins.edition();
        if edition.is_some() && edition == self.edition {
            self.coordinator.drawn(now());
            return self.carry_out();
        }
        let opened = self.setup.pins.state().and_then(|state| match state {
            PinState::Ours(_) => Grants::open(&self.setup.pins).map(Some),
            PinState::Absent | PinState::Partial | PinState::Foreign(_) => Ok(None),
        });
        let grants = opened.unwrap_or_else(|error| {
            self.setup.notices.once("tmalloc", &error);
            None
        });
        self.edition = edition.filter(|_| grants.is_some());
        self.coordinator.adopt(grants, now());
        self.carry_out();
    }

    /// Takes those who wait at the door.
    fn accept(&mut self) {
        let had = self.had;
        for _ in 0..ACCEPTS_AT_ONCE {
            match self.setup.socket.listener().accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) => {
                    if lacks_room(&error) {
                        self.setup
                            .notices
                            .once("tmalloc", &format_args!("connections have to wait: {error}"));
                        // Level-triggered: without this the loop would spin until there is a descriptor.
                        self.close_door(now().saturating_add(ACCEPT_PAUSE));
                    }
                    break;
                }
            }
        }
        let now = now();
        let until = self.knocks.pay(self.had.saturating_sub(had), now);
        if until > now {
            self.close_door(until);
        }
    }

    /// Takes nobody until then.
    fn close_door(&mut self, until: Nanos) {
        if self.closed_until.is_some() || self.epoll.delete(self.setup.socket.listener()).is_ok() {
            self.closed_until = self.closed_until.max(Some(until));
        }
    }

    fn take(&mut self, stream: UnixStream) {
        let id = ConnectionId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let taken = Peer::of(&stream, &mut self.owners).and_then(|peer| {
            let entered = self.enter(id, Line { stream, peer });
            self.charge(peer.owner);
            entered
        });
        if let Err(error) = taken {
            self.setup.notices.once("tmalloc", &format_args!("a connection was not taken: {error}"));
        }
    }

    fn enter(&mut self, id: ConnectionId, line: Line) -> io::Result<()> {
        line.stream.set_nonblocking(true)?;
        if let Err(fault) = self.coordinator.connect(id, line.peer.owner, now()) {
            // One that does not take it learns from the closing alone.
            drop(say(&line.stream, Reply::Fault { errno: fault.errno() }));
            return Ok(());
        }
        if let Err(errno) = self.epoll.add(&line.stream, once(id)) {
            self.coordinator.disconnect(id, now());
            return Err(errno.into());
        }
        self.lines.insert(id, line);
        Ok(())
    }

    /// Reads a few messages of a connection. Whether there may be more.
    fn read(&mut self, id: ConnectionId) -> bool {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(line) = self.lines.get(&id) else { return false };
            // One byte more than a message has, to tell a longer one.
            let mut message = [0; MESSAGE_BYTES + 1];
            let length = match (&line.stream).read(&mut message) {
                Ok(length) if length > 0 => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => {
                    self.lose(id);
                    return false;
                }
            };
            let bytes = message.get(..length).unwrap_or_default();
            match Request::decode(bytes, self.setup.terms.page_size) {
                Ok(Request::Hello { watch }) if self.coordinator.process_of(id).is_none() => {
                    self.hello(id, watch);
                }
                Ok(request) => self.coordinator.message(id, request, now()),
                Err(MessageError::Version(_)) => self.coordinator.close(id, Fault::Version, now()),
                Err(_) => self.coordinator.close(id, Fault::Protocol, now()),
            }
            self.carry_out();
        }
        true
    }

    /// A connection says whose it is by being whose it is.
    fn hello(&mut self, id: ConnectionId, watch: bool) {
        let Some(line) = self.lines.get(&id) else { return };
        let named = getsockopt(&line.stream, PeerPidfd);
        let peer = line.peer;
        let Some((pid, pidfd, doubtful)) = self.identify(peer, named) else {
            return self.coordinator.close(id, Fault::Stranger, now());
        };
        // An earlier process with this number, of whose end nothing was heard yet.
        if self.held.get(&pid).is_some_and(has_exited) {
            self.ended(pid);
        }
        if !self.held.contains_key(&pid) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, PROCESS | u64::from(pid.0));
            if let Err(errno) = self.epoll.add(&pidfd, event) {
                self.setup.notices.once("tmalloc", &format_args!("process {pid} cannot be held: {errno}"));
                return self.coordinator.close(id, Fault::Stranger, now());
            }
            self.held.insert(pid, pidfd);
        }
        self.coordinator.hello(id, Hello { pid, watch, doubtful }, now());
    }

    /// The process at the other end, held, and whether it may be another that got its number since it connected: before
    /// Linux 6.5 the kernel gives the number only, and what tells the two apart is their user.
    fn identify(&mut self, peer: Peer, named: nix::Result<OwnedFd>) -> Option<(Pid, OwnedFd, bool)> {
        let pid = peer.pid?;
        match named {
            Ok(pidfd) => return (!has_exited(&pidfd)).then_some((pid, pidfd, false)),
            Err(Errno::ENOPROTOOPT) => {}
            Err(_) => return None,
        }
        let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw)?;
        let pidfd = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).ok()?;
        let same_user = self.setup.proc.process(pid).is_ok_and(|process| process.uid == peer.uid);
        Some((pid, pidfd, !same_user))
    }

    fn ended(&mut self, pid: Pid) {
        // Told of an earlier process of this number, in the same turn in which another has said HELLO.
        if !self.held.get(&pid).is_some_and(has_exited) {
            return;
        }
        let Some(pidfd) = self.held.remove(&pid) else { return };
        let owner = self.coordinator.owner_of(pid);
        // Closing it takes it out of the epoll, too, but for a copy, of which there is none.
        drop(pidfd);
        self.coordinator.process_ended(pid, now());
        self.carry_out();
        if let Some(owner) = owner {
            self.charge(owner);
        }
    }

    /// A connection has ended from the other side.
    fn lose(&mut self, id: ConnectionId) {
        self.lines.remove(&id);
        self.coordinator.disconnect(id, now());
    }

    /// Does what was decided.
    fn carry_out(&mut self) {
        loop {
            let effects = self.coordinator.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.carry_out_one(effect));
        }
    }

    fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Send(id, reply) => {
                let sent = self.lines.get(&id).map(|line| say(&line.stream, reply));
                // Whoever does not read is not waited for.
                if sent.is_some_and(|sent| sent.is_err()) {
                    self.lose(id);
                }
            }
            Effect::Close(id, fault) => {
                if let (Some(line), Some(fault)) = (self.lines.remove(&id), fault) {
                    // One that does not take it learns from the closing alone.
                    drop(say(&line.stream, Reply::Fault { errno: fault.errno() }));
                }
            }
            Effect::Forget(pid) => drop(self.held.remove(&pid)),
            Effect::Record(refused) => {
                if self.setup.caller.send(GuardRequest::Refused(refused)).is_err() {
                    self.coordinator.unrecorded(refused, now());
                }
            }
            Effect::Walk => {
                if self.setup.caller.send(GuardRequest::Walk).is_err() {
                    self.coordinator.walked(now());
                }
            }
            Effect::Trouble(error) => self.setup.notices.once("tmalloc", &error),
        }
    }
}

fn say(mut stream: &UnixStream, reply: Reply) -> io::Result<()> {
    stream.write_all(&reply.encode())
}

fn has_exited(pidfd: &OwnedFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
