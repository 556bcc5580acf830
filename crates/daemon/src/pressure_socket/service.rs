//! The service: the listener, all connections, the bell and a timer in one `epoll`.
//!
//! Nothing here waits for a client. What a connection's buffer has no room for is not sent: a program that has not read the
//! last word is about to. Each connection wakes this once for what it says and once for its end; what it says besides is read
//! when it is told something. Connections are taken for an eighth of a CPU, all together, so that a flood at the door holds up
//! who comes behind it, and nobody who is there already.

use super::{
    NAME,
    messages::{Inbox, Message, Topic},
    rounds::Rounds,
    shares::{ClientId, Entry, Shares},
};
use crate::{
    api::{
        listener::{ServedSocket, lacks_room},
        peer::Peer,
    },
    journal::Notices,
    offload::Waits,
    owners::Owners,
    pace::{self, now},
    supervisor::{KEPT_AT_ONCE, Supervisor},
};
use nix::{
    errno::Errno,
    sys::{
        epoll::{EpollEvent, EpollFlags},
        socket::{MsgFlags, recv, send, setsockopt, sockopt::SndBuf},
    },
};
use plimsoll_api::status::PressureSocketView;
use plimsoll_policy::units::{JobId, Nanos};
use plimsoll_sys::process::thread_cpu_time;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::Shutdown,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// What is sent. A program throws it away; it is for whoever looks with a tool, and for who watches over a job.
const NEAR: &[u8] = b"near\n";
/// That something was done in a job, that it has its turn, and that it is listened for.
const INCIDENT: &[u8] = b"incident\n";
const TURN: &[u8] = b"turn\n";
const LISTENING: &[u8] = b"listening\n";
/// The least that a buffer can be: the word fits in some times, and what nobody reads takes no more.
const BUFFER_BYTES: usize = 1;
/// What a connection says that is read at once: systemd's own words have 20 bytes.
const READ_BYTES: usize = 4096;
/// Connections that are taken before it is looked what else has happened.
const ACCEPTS_AT_ONCE: usize = 16;
/// How often as many are taken at the end: as many as wait at the door at most.
const LAST_ACCEPTS: usize = 256;
/// Events that are taken at once.
const EVENTS_MAX: usize = 64;
/// How long nobody is taken when there is no descriptor or memory for another connection.
const ACCEPT_PAUSE: Nanos = Nanos(100_000_000);
/// What is noted each time that somebody wakes a thread for this.
const WAKE_COST: Duration = Duration::from_micros(20);
/// A connection that has been there for so long is kept by the service manager, too: one that comes and goes is no trouble to
/// it.
const KEPT_AFTER: Nanos = Nanos(1_000_000_000);
/// From one message to the service manager to the next. It compares each new descriptor with all that it has.
const KEEP_APART: Nanos = Nanos(1_000_000_000);

/// An eighth of a CPU; of one round 10 ms at most; 100 ms at once.
type Debt = pace::Debt<8, 10, 100>;

const LISTENER: u64 = 1;
const BELL: u64 = 2;
/// The first client's number; they count up.
const FIRST: u64 = 3;

/// What it is given.
#[derive(Debug)]
pub(super) struct ServiceSetup {
    pub(super) socket: ServedSocket,
    pub(super) supervisor: Supervisor,
    pub(super) notices: Notices,
    pub(super) inbox: Inbox,
}

/// A connection.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// Who it is of, and what it listens for.
    topic: Topic,
}

/// The listener and all connections.
#[derive(Debug)]
pub(super) struct Service {
    setup: ServiceSetup,
    waits: Waits,
    owners: Owners,
    clients: BTreeMap<ClientId, Client>,
    shares: Shares,
    /// Who listens for what.
    listeners: BTreeMap<Topic, BTreeSet<ClientId>>,
    /// Accounts that are near, or were a moment ago.
    accounts: BTreeMap<Topic, Rounds>,
    /// Those that the service manager does not keep yet, and when they came.
    unkept: VecDeque<(Nanos, ClientId)>,
    keep_from: Nanos,
    next_id: u64,
    debt: Debt,
    /// Until then nobody is taken.
    closed_until: Option<Nanos>,
    told: u64,
    refused: u64,
}

impl Service {
    /// # Errors
    /// There is no descriptor to be had.
    pub(super) fn new(setup: ServiceSetup, kept: Vec<UnixStream>) -> io::Result<Self> {
        let waits = Waits::new()?;
        waits.add_as(setup.socket.listener(), EpollFlags::EPOLLIN, LISTENER)?;
        waits.add_as(&setup.inbox.queue, EpollFlags::EPOLLIN, BELL)?;
        let mut service = Self {
            setup,
            waits,
            owners: Owners::default(),
            clients: BTreeMap::new(),
            shares: Shares::default(),
            listeners: BTreeMap::new(),
            accounts: BTreeMap::new(),
            unkept: VecDeque::new(),
            keep_from: Nanos(0),
            next_id: FIRST,
            debt: Debt::default(),
            closed_until: None,
            told: 0,
            refused: 0,
        };
        for stream in kept {
            // One that is no socket, or whose peer is not known, is not ours.
            service.take(stream).ok();
        }
        // They are kept as it is.
        service.unkept.clear();
        service.show();
        Ok(service)
    }

    /// Can be read when there is something to do.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(super) fn readable(&self) -> io::Result<OwnedFd> {
        self.waits.readable()
    }

    /// Sees to what has happened, and to what is due; whether it is to be called again.
    pub(super) fn serve(&mut self) -> bool {
        let had = thread_cpu_time();
        let mut room = [EpollEvent::empty(); EVENTS_MAX];
        let events: Vec<(u64, EpollFlags)> =
            self.waits.ready(&mut room).iter().map(|event| (event.data(), event.events())).collect();
        let (mut of_clients, mut is_full) = (false, false);
        for (number, flags) in events {
            match number {
                LISTENER => is_full |= self.accept(),
                BELL => continue,
                id if id >= FIRST => self.heard(ClientId(id), flags),
                _ => continue,
            }
            of_clients = true;
        }
        let spent = thread_cpu_time().saturating_sub(had);
        self.listen();
        if self.setup.inbox.stopped() {
            self.end();
            return false;
        }
        let now = now();
        self.tell_due(now);
        self.keep_settled(now);
        if of_clients {
            let until = self.debt.pay(spent.saturating_add(WAKE_COST), now);
            let pause = if is_full { now.saturating_add(ACCEPT_PAUSE) } else { now };
            self.closed_until = self.closed_until.max(Some(until.max(pause)));
        }
        self.show();
        self.mind_the_door(now).and_then(|()| self.wait(now)).map_or_else(
            |errno| {
                let why = format!("epoll: {errno}");
                self.setup
                    .notices
                    .say(format_args!("programs are not told any more that memory is short: {why}"));
                false
            },
            |()| true,
        )
    }

    /// Opens the door, or closes it.
    fn mind_the_door(&mut self, now: Nanos) -> nix::Result<()> {
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let listener = self.setup.socket.listener();
        let wanted = if self.closed_until.is_some() { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
        self.waits.change_as(listener, wanted, LISTENER)
    }

    /// Has it called when the next thing is due; while nobody listens and nobody knocks, never.
    fn wait(&self, now: Nanos) -> nix::Result<()> {
        let rounds = self.accounts.iter().filter(|(topic, _)| self.has_listener(**topic));
        let keeping =
            self.unkept.front().map(|(came, _)| came.saturating_add(KEPT_AFTER).max(self.keep_from));
        let due = rounds.filter_map(|(_, rounds)| rounds.due()).chain(keeping).chain(self.closed_until).min();
        self.waits.set(due.map(|due| pace::left(due, now)))
    }

    /// What the guard has to say.
    fn listen(&mut self) {
        while let Ok(message) = self.setup.inbox.queue.next() {
            match message {
                Message::Near(topic) => {
                    self.accounts.entry(topic).or_insert(Rounds::far()).come_near(now());
                }
                Message::Far(topic) => {
                    if let Some(rounds) = self.accounts.get_mut(&topic) {
                        rounds.leave();
                    }
                }
                Message::Incident(topic) => self.tell(topic, INCIDENT),
                Message::Turn(topic) => self.tell(topic, TURN),
            }
        }
    }

    /// Takes those who wait at the door; whether there is no room for one more in this process.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_AT_ONCE {
            match self.setup.socket.listener().accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.take(stream) {
                        self.say_not_taken(&error);
                    }
                }
                Err(error) => {
                    let is_full = lacks_room(&error);
                    if is_full {
                        self.say_not_taken(&error);
                    }
                    return is_full;
                }
            }
        }
        false
    }

    fn say_not_taken(&mut self, error: &io::Error) {
        self.setup.notices.once("pressure socket", &format_args!("a connection was not taken: {error}"));
    }

    fn take(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let owner = Peer::of(&stream, &mut self.owners)?.owner;
        // So much of the kernel's memory is this process's, whatever the other end does not read.
        setsockopt(&stream, SndBuf, &BUFFER_BYTES)?;
        let client = Client { stream, topic: owner.into() };
        match self.shares.room_for(owner) {
            Entry::Free => {}
            Entry::Instead(other) => {
                self.refused = self.refused.saturating_add(1);
                if let Some(other) = self.remove(other) {
                    other.close();
                }
            }
            Entry::Refused => {
                self.refused = self.refused.saturating_add(1);
                client.close();
                return Ok(());
            }
        }
        let id = ClientId(self.next_id);
        self.waits.add_as(&client.stream, EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, id.0)?;
        if self.is_told_of(owner.into()) {
            self.told = self.told.saturating_add(client.tell(NEAR).is_ok_and(|told| told).into());
        }
        self.next_id = self.next_id.saturating_add(1);
        self.shares.enter(owner, id);
        self.listeners.entry(owner.into()).or_default().insert(id);
        self.clients.insert(id, client);
        if self.setup.supervisor.is_there() {
            self.unkept.push_back((now(), id));
        }
        self.setup.inbox.audience(true);
        Ok(())
    }

    /// Whether those who listen for it were told already, and the next round may be long in coming.
    fn is_told_of(&self, topic: Topic) -> bool {
        self.accounts.get(&topic).and_then(Rounds::due).is_some_and(|due| due > now())
    }

    /// A connection said something, or ended.
    fn heard(&mut self, id: ClientId, flags: EpollFlags) {
        let Some(client) = self.clients.get(&id) else { return };
        let ended = flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        let mut bytes = [0; READ_BYTES];
        let said = client.read(&mut bytes);
        let is_there = !ended && said.is_some();
        // What it says is said at the beginning: from here on only its end wakes this.
        if !is_there || self.waits.change_as(&client.stream, EpollFlags::EPOLLRDHUP, id.0).is_err() {
            drop(self.remove(id));
        } else if let Some(job) = said.and_then(job_in) {
            self.listen_for(id, job);
        }
    }

    /// It listens for a job from here on, and knows when that has begun. It may be somebody else's: then nothing is ever told.
    fn listen_for(&mut self, id: ClientId, job: JobId) {
        // It comes again when the daemon does: the next one would not know what for.
        self.unkept.retain(|(_, unkept)| *unkept != id);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let topic = Topic { job: Some(job), ..client.topic };
        let before = core::mem::replace(&mut client.topic, topic);
        self.unlisten(before, id);
        self.listeners.entry(topic).or_default().insert(id);
        let near: &[u8] = if self.is_told_of(topic) { NEAR } else { &[] };
        let words = [LISTENING, near].concat();
        if self.clients.get(&id).is_some_and(|client| client.tell(&words).is_err()) {
            drop(self.remove(id));
        }
    }

    fn has_listener(&self, topic: Topic) -> bool {
        self.listeners.contains_key(&topic)
    }

    fn unlisten(&mut self, topic: Topic, id: ClientId) {
        if let Some(listening) = self.listeners.get_mut(&topic) {
            listening.remove(&id);
            if listening.is_empty() {
                self.listeners.remove(&topic);
            }
        }
    }

    fn tell(&mut self, topic: Topic, word: &[u8]) {
        let listening: Vec<ClientId> = self.listeners.get(&topic).into_iter().flatten().copied().collect();
        for id in listening {
            match self.clients.get(&id).map(|client| client.tell(word)) {
                Some(Ok(told)) => self.told = self.told.saturating_add(told.into()),
                Some(Err(_)) => drop(self.remove(id)),
                None => {}
            }
        }
    }

    fn remove(&mut self, id: ClientId) -> Option<Client> {
        let client = self.clients.remove(&id)?;
        // Another process may have it as well, which would keep it in there.
        self.waits.remove(&client.stream);
        self.shares.leave(client.topic.owner, id);
        self.unlisten(client.topic, id);
        self.unkept.retain(|(_, unkept)| *unkept != id);
        if self.clients.is_empty() {
            self.accounts.clear();
            self.setup.inbox.audience(false);
        }
        Some(client)
    }

    /// Tells those whose account is near, and who are due.
    fn tell_due(&mut self, now: Nanos) {
        let is_due = |rounds: &Rounds| rounds.due().is_some_and(|due| due <= now);
        let due = self.accounts.iter().filter(|(_, rounds)| is_due(rounds)).map(|(topic, _)| *topic);
        let due: Vec<Topic> = due.filter(|topic| self.has_listener(*topic)).collect();
        for topic in due {
            if let Some(rounds) = self.accounts.get_mut(&topic) {
                rounds.tell(now);
            }
            self.tell(topic, NEAR);
        }
        self.accounts.retain(|_, rounds| !rounds.is_over(now));
    }

    /// Has the service manager keep those that stay.
    fn keep_settled(&mut self, now: Nanos) {
        let settled = |came: Nanos| came.saturating_add(KEPT_AFTER) <= now;
        if self.keep_from > now || !self.unkept.front().is_some_and(|(came, _)| settled(*came)) {
            return;
        }
        self.keep_from = now.saturating_add(KEEP_APART);
        let count = self.unkept.iter().take_while(|(came, _)| settled(*came)).count().min(KEPT_AT_ONCE);
        if self.keep(count, false) {
            self.unkept.drain(..count);
        }
    }

    /// Has it keep the first of those that it does not; whether it took the message.
    fn keep(&self, count: usize, waits: bool) -> bool {
        let streams = self.unkept.iter().take(count).filter_map(|(_, id)| self.clients.get(id));
        let descriptors: Vec<BorrowedFd<'_>> = streams.map(|client| client.stream.as_fd()).collect();
        descriptors.is_empty() || self.setup.supervisor.keep(NAME, &descriptors, waits)
    }

    /// Leaves all connections to the service manager, where there is one; those that wait at the door, too.
    fn end(&mut self) {
        for _ in 0..LAST_ACCEPTS {
            self.accept();
        }
        while !self.unkept.is_empty() {
            let count = self.unkept.len().min(KEPT_AT_ONCE);
            if !self.keep(count, true) {
                break;
            }
            self.unkept.drain(..count);
        }
        for client in self.clients.values() {
            // What lies unread when the last one closes it is an error at the other end.
            client.read_away();
        }
    }

    fn show(&self) {
        let (clients, users) = self.shares.counts();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.setup.inbox.show(PressureSocketView {
            state: "on".into(),
            clients: count(clients),
            users: count(users),
            told: self.told,
            refused: self.refused,
        });
    }
}

/// The job that the first words name: `job:7` and a line feed.
fn job_in(words: &[u8]) -> Option<JobId> {
    let (line, _) = str::from_utf8(words).ok()?.split_once('\n')?;
    line.strip_prefix("job:")?.parse().ok().map(JobId)
}

impl Client {
    /// What it said; `None` where it has ended.
    fn read<'a>(&self, bytes: &'a mut [u8; READ_BYTES]) -> Option<&'a [u8]> {
        match recv(self.stream.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => None,
            Ok(length) => bytes.get(..length),
            Err(Errno::EAGAIN | Errno::EINTR) => Some(&[]),
            Err(_) => None,
        }
    }

    fn read_away(&self) {
        self.read(&mut [0; READ_BYTES]);
    }

    /// Tells it; whether there was room for the word.
    fn tell(&self, word: &[u8]) -> nix::Result<bool> {
        self.read_away();
        match send(self.stream.as_raw_fd(), word, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Ends it, whoever else has it.
    fn close(self) {
        self.read_away();
        self.stream.shutdown(Shutdown::Both).ok();
    }
}

#[cfg(test)]
mod tests;
