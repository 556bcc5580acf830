//! One address: who connects is answered and let go. Nothing here waits for a client: what a socket does not give or take at
//! once is waited for beside all others, and for five seconds in all. When there is no place for one more, who has been here
//! longest goes: a scraper sends its request with its first packet, and is answered as soon as it is taken.
//!
//! Whose a connection to a port is, nobody says: all of one address have a fiftieth of a CPU together.

use super::{
    Source,
    request::{Answer, answer_to, response},
};
use crate::{
    api::listener::{ServedSocket, lacks_room},
    offload::Waits,
    pace::{self, now},
};
use nix::{
    errno::Errno,
    sys::{
        epoll::EpollFlags,
        socket::{MsgFlags, recv, send},
    },
};
use plimsoll_policy::units::Nanos;
use plimsoll_sys::process::thread_cpu_time;
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use std::{
    io,
    net::TcpListener,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Clients that are waited for at once.
const CLIENTS_MAX: usize = 8;
/// Clients that are taken before it is looked what else has happened.
const ACCEPTS_AT_ONCE: usize = 16;
/// From being taken to being answered.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// How long nobody is taken when there is no descriptor or memory for another connection.
const ACCEPT_PAUSE: Nanos = Nanos(100_000_000);
/// What is noted for each time that somebody wakes a thread for this: as much again as what it does then.
const WAKE_COST: Duration = Duration::from_micros(50);
/// What is read at once.
const READ_BYTES: usize = 2048;

/// A fiftieth of a CPU; of one round 20 ms at most; 100 ms at once.
type Debt = pace::Debt<50, 20, 100>;

/// What is listened on; it never blocks.
#[derive(Debug)]
pub(super) enum Door {
    /// A unix socket.
    Unix(ServedSocket),
    /// A port.
    Loopback(TcpListener),
}

impl Door {
    fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(socket) => {
                let (stream, _) = socket.listener().accept()?;
                stream.set_nonblocking(true).map(|()| stream.into())
            }
            Self::Loopback(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true).map(|()| stream.into())
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.listener().as_fd(),
            Self::Loopback(listener) => listener.as_fd(),
        }
    }
}

/// Serves one address.
#[derive(Debug)]
pub(super) struct Service {
    door: Door,
    /// Its clients may know of single users and units.
    users: bool,
    source: Arc<Source>,
    waits: Waits,
    /// The longest here first.
    clients: Vec<Client>,
    debt: Debt,
    /// Until then nobody is taken.
    closed_until: Option<Nanos>,
}

impl Service {
    /// # Errors
    /// There is no descriptor to be had.
    pub(super) fn new(door: Door, users: bool, source: Arc<Source>) -> io::Result<Self> {
        let waits = Waits::new()?;
        waits.add(&door, EpollFlags::EPOLLIN)?;
        let (clients, debt) = (Vec::new(), Debt::default());
        Ok(Self { door, users, source, waits, clients, debt, closed_until: None })
    }

    /// Can be read when there is something to serve.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(super) fn readable(&self) -> io::Result<OwnedFd> {
        self.waits.readable()
    }

    /// Serves whoever is there now; whether it is to be called again.
    pub(super) fn serve(&mut self) -> bool {
        let had = thread_cpu_time();
        self.go_on();
        let is_full = self.closed_until.is_none() && self.take();
        let now = now();
        let pause = if is_full { now.saturating_add(ACCEPT_PAUSE) } else { now };
        let spent = thread_cpu_time().saturating_sub(had).saturating_add(WAKE_COST);
        let until = self.debt.pay(spent, now).max(pause);
        self.mind_the_door(until, now)
    }

    /// Closes the door, opens it, and has it told when something is due.
    fn mind_the_door(&mut self, until: Nanos, now: Nanos) -> bool {
        let open = self.closed_until.is_none();
        self.closed_until = (until > now).then_some(until);
        let moved = match (open, self.closed_until) {
            (true, Some(_)) => {
                self.waits.remove(&self.door);
                Ok(())
            }
            (false, None) => self.waits.add(&self.door, EpollFlags::EPOLLIN),
            (true, None) | (false, Some(_)) => Ok(()),
        };
        let due = self.clients.iter().map(|client| client.deadline).chain(self.closed_until).min();
        let wait = due.map(|due| pace::left(due, now));
        // Without either it would be called never, or without end.
        moved.and_then(|()| self.waits.set(wait)).is_ok()
    }

    /// Takes who waits at the door; whether there is no room for one more in this process.
    fn take(&mut self) -> bool {
        for _ in 0..ACCEPTS_AT_ONCE {
            match self.door.accept() {
                Ok(socket) => self.enter(Client::new(socket)),
                Err(error) => return lacks_room(&error),
            }
        }
        false
    }

    fn enter(&mut self, mut client: Client) {
        match client.step(self.users, &self.source) {
            Step::Wait(flags) if self.waits.add(&client.socket, flags).is_ok() => {
                if self.clients.len() >= CLIENTS_MAX {
                    self.clients.remove(0);
                    self.source.count_cut();
                }
                self.clients.push(client);
            }
            Step::Wait(_) | Step::Cut => self.source.count_cut(),
            Step::Answered => {}
        }
    }

    /// Goes on with those who are here.
    fn go_on(&mut self) {
        let (users, source, waits) = (self.users, &self.source, &self.waits);
        self.clients.retain_mut(|client| {
            let stays = match client.step(users, source) {
                Step::Answered => return false,
                Step::Wait(flags) => client.deadline > now() && waits.change(&client.socket, flags).is_ok(),
                Step::Cut => false,
            };
            if !stays {
                source.count_cut();
            }
            stays
        });
    }
}

/// What becomes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is more to read or to write.
    Wait(EpollFlags),
    /// It has its answer.
    Answered,
    /// It has gone.
    Cut,
}

/// Somebody who connected.
#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    deadline: Nanos,
    /// Of the request.
    heard: Vec<u8>,
    /// The response, and how much of it was sent.
    told: Option<(Vec<u8>, usize)>,
}

impl Client {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, deadline: now().saturating_add(PATIENCE), heard: Vec::new(), told: None }
    }

    /// Reads, answers and writes, as far as that needs no waiting.
    fn step(&mut self, users: bool, source: &Source) -> Step {
        loop {
            let done = match &mut self.told {
                None => self.hear(users, source),
                Some((response, sent)) => {
                    let rest = response.get(*sent..).unwrap_or_default();
                    if rest.is_empty() {
                        return Step::Answered;
                    }
                    send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL)
                        .map(|length| *sent = sent.saturating_add(length))
                }
            };
            let flags = if self.told.is_some() { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            match done {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Step::Wait(flags),
                Err(_) => return Step::Cut,
            }
        }
    }

    fn hear(&mut self, users: bool, source: &Source) -> nix::Result<()> {
        let mut bytes = [0; READ_BYTES];
        let length = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        if length == 0 {
            return Err(Errno::ECONNRESET);
        }
        self.heard.extend(bytes.iter().take(length));
        if let Some(answer) = answer_to(&self.heard) {
            self.told = Some((source.respond(answer, users), 0));
        }
        Ok(())
    }
}

impl Source {
    fn respond(&self, answer: Answer, users: bool) -> Vec<u8> {
        let refused = |status: &str, why: &str| response(status, "text/plain", &format!("{why}\n"));
        match answer {
            Answer::Refusal(status) => refused(status, "only GET /metrics is answered here"),
            Answer::Metrics => match self.page(users) {
                Ok(page) => response("200 OK", CONTENT_TYPE, &page),
                Err(why) => refused("503 Service Unavailable", &why),
            },
        }
    }

    fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
