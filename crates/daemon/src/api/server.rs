//! Accepts connections and answers them: one thread asleep in `poll` while nobody talks, one more for as long as a
//! connection lasts.

use super::{
    control::Control,
    dialogue::{self, Next},
    listener::{ListenError, Purpose, ServedSocket, lacks_room},
    peer::Peer,
    slots::{Slot, SlotLimits, Slots},
};
use crate::{
    owners::Owners,
    pace::{self, now},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use plimsoll_api::frame::{FrameError, Frames, Patience, REQUEST_BYTES_MAX, write_within};
use plimsoll_policy::units::{Nanos, Uid};
use plimsoll_sys::process::{process_cpu_time, thread_cpu_time};
use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Stack of a connection's thread in bytes: enough for `serde_json`'s 128 levels of nesting, little enough that all
/// slots taken at once stay small.
const STACK_BYTES: usize = 256 * 1024;
/// The most urgent that an ordinary thread can be.
const URGENT_NICE: i32 = -20;
/// Pause before the next accept after one that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// One part of so many of a CPU is spent for an owner at most, over time, and likewise on taking connections.
const PARTS: u32 = 50;
/// What is noted of one answer at most, in milliseconds: a wait of 50 s, and who asks for a costlier one waits no longer.
const NOTED_MAX_MS: u64 = 1000;
/// What is noted at most of the time that the rest of the daemon spent meanwhile: it may have been for somebody else.
const OTHERS_MAX: Duration = Duration::from_millis(20);
/// What may be spent at once by somebody who has asked for little before, in milliseconds.
const CREDIT_MS: u64 = 100;
/// How long connections are taken or turned away in one go, of a CPU's time. With many that knock without end, a new one is
/// taken after a few rounds.
const ACCEPT_ROUND: Duration = Duration::from_millis(1);
/// What is noted for a connection's thread, whatever is asked for through it.
const THREAD_COST: Duration = Duration::from_micros(400);
/// How long a client that is turned away may take to be told so.
const TURN_AWAY_PATIENCE: Duration = Duration::from_millis(1);

type Debt = pace::Debt<PARTS, NOTED_MAX_MS, CREDIT_MS>;
type Pace = pace::Pace<PARTS, NOTED_MAX_MS, CREDIT_MS>;

/// What to grant to clients. [`Allowance::SERVER`] but in tests.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Connections at once.
    pub slots: SlotLimits,
    /// Time for each step.
    pub patience: Patience,
}

impl Allowance {
    /// The daemon's own.
    pub const SERVER: Self = Self { slots: SlotLimits::SERVER, patience: Patience::SERVER };
}

/// What became of connections since the start. Nothing that goes wrong with a client is silent, and nothing of it is
/// worth a log line each that a client could flood the log with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that got a slot.
    pub served: u64,
    /// Connections turned away: no slot left, or no thread to be had.
    pub turned_away: u64,
    /// Connections cut: too slow, too long a message, not JSON, broken.
    pub cut: u64,
    /// Connections that could not be accepted or whose peer the kernel would not name.
    pub accept_failures: u64,
}

#[derive(Debug, Default)]
struct Tally {
    served: AtomicU64,
    turned_away: AtomicU64,
    cut: AtomicU64,
    accept_failures: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A thread or an event descriptor.
    #[error("cannot start the control server: {0}")]
    Resources(#[from] io::Error),
}

/// The running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    stop: Arc<EventFd>,
    acceptor: Option<JoinHandle<()>>,
    slots: Arc<Slots>,
    tally: Arc<Tally>,
}

impl Server {
    /// Serves `control` on the socket at `socket`.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then but the lock file.
    pub fn start(socket: &Path, control: Arc<dyn Control>) -> Result<Self, StartError> {
        Self::start_with(socket, control, Allowance::SERVER)
    }

    /// [`Server::start`] with another allowance.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        socket: &Path,
        control: Arc<dyn Control>,
        allowance: Allowance,
    ) -> Result<Self, StartError> {
        let socket = ServedSocket::open(socket, Purpose::Control)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_value_and_flags(0, flags).map_err(io::Error::from)?);
        let slots = Slots::new(allowance.slots);
        let tally = Arc::<Tally>::default();
        let acceptor = Acceptor {
            socket,
            stop: Arc::clone(&stop),
            slots: Arc::clone(&slots),
            tally: Arc::clone(&tally),
            control,
            owners: Owners::default(),
            pace: Arc::default(),
            patience: allowance.patience,
        };
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || acceptor.run())?;
        Ok(Self { stop, acceptor: Some(thread), slots, tally })
    }

    /// What became of connections so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            served: self.tally.served.load(Ordering::Relaxed),
            turned_away: self.tally.turned_away.load(Ordering::Relaxed),
            cut: self.tally.cut.load(Ordering::Relaxed),
            accept_failures: self.tally.accept_failures.load(Ordering::Relaxed),
        }
    }

    /// Connections open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.taken()
    }

    /// Stops accepting, removes the socket, and lets each conversation end after the answer it waits for. Does not
    /// wait for those answers: the caller may be the very one who would have to give them.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An eventfd can only refuse to be written when its count is full, and then it wakes its poller as well.
        self.stop.write(1).ok();
        if let Some(acceptor) = self.acceptor.take() {
            // It fails only if the thread panicked, which has been reported by then and leaves nothing to do here.
            drop(acceptor.join());
        }
        self.slots.end_all();
    }
}

struct Acceptor {
    socket: ServedSocket,
    stop: Arc<EventFd>,
    slots: Arc<Slots>,
    tally: Arc<Tally>,
    control: Arc<dyn Control>,
    owners: Owners,
    pace: Arc<Mutex<Pace>>,
    patience: Patience,
}

impl Acceptor {
    fn run(mut self) {
        // Of this thread alone, and it does little: whoever knocks without end must not run before it, or the next one
        // waits behind all that are not turned away yet. Without the right to it, others wait longer.
        rustix::process::setpriority_process(None, URGENT_NICE).ok();
        let mut debt = Debt::default();
        loop {
            let mut watched = [
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.socket.listener().as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => {
                    count(&self.tally.accept_failures);
                    self.pause(ACCEPT_PAUSE);
                }
            }
            let [stop, _] = watched;
            if stop.any().unwrap_or(false) {
                return;
            }
            let began = thread_cpu_time();
            let spent = || thread_cpu_time().saturating_sub(began);
            while self.accept() && spent() < ACCEPT_ROUND {}
            let now = now();
            let wait = left(debt.pay(spent(), now), now);
            if !wait.is_zero() {
                self.pause(wait);
            }
        }
    }

    /// Takes one connection, if one waits; whether another may.
    fn accept(&mut self) -> bool {
        let stream = match self.socket.listener().accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                if lacks_room(&error) {
                    count(&self.tally.accept_failures);
                    self.pause(ACCEPT_PAUSE);
                }
                return false;
            }
        };
        match Peer::of(&stream, &mut self.owners) {
            Ok(peer) => self.converse_with(peer, Arc::new(stream)),
            Err(_) => count(&self.tally.accept_failures),
        }
        true
    }

    fn converse_with(&self, peer: Peer, stream: Arc<UnixStream>) {
        let paced = Paced { pace: Arc::clone(&self.pace), owner: peer.owner };
        let Some(slot) = self.slots.take(peer.owner, &stream) else {
            // Whoever knocks without end is not worth the words.
            if !paced.left().is_zero() {
                return count(&self.tally.turned_away);
            }
            paced.note(THREAD_COST);
            return self.turn_away(&stream, "too many connections; close one, or try again in a moment");
        };
        let spare = Arc::clone(&stream);
        let control = Arc::clone(&self.control);
        let tally = Arc::clone(&self.tally);
        let patience = self.patience;
        let started = thread::Builder::new().name("control-client".to_owned()).stack_size(STACK_BYTES).spawn(
            move || {
                converse(&stream, control.as_ref(), peer, patience, Holding { _slot: slot, tally, paced })
            },
        );
        match started {
            Ok(_detached) => count(&self.tally.served),
            Err(_) => self.turn_away(&spare, "the daemon cannot start a thread; try again in a moment"),
        }
    }

    /// Says why, if the client takes it at once, and closes.
    fn turn_away(&self, stream: &UnixStream, why: &str) {
        count(&self.tally.turned_away);
        // A fresh connection's buffer has room for it; a client for whom that is not so learns from the closing alone.
        drop(write_within(stream, &dialogue::busy(why), TURN_AWAY_PATIENCE));
    }

    /// Waits, so that neither a shortage of descriptors nor a client turns into a busy loop; a stop ends the wait.
    fn pause(&self, time: Duration) {
        let mut watched = [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        // Whatever it returns, the loop looks at the stop descriptor next.
        poll(&mut watched, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)).ok();
    }
}

/// What a conversation gives back when it ends.
struct Holding {
    _slot: Slot,
    tally: Arc<Tally>,
    paced: Paced,
}

/// Whose time a conversation takes.
struct Paced {
    pace: Arc<Mutex<Pace>>,
    owner: Uid,
}

impl Paced {
    /// How long it is until this owner may have another answer.
    fn left(&self) -> Duration {
        left(self.lock().until(self.owner), now())
    }

    /// Waits until then.
    fn wait(&self) {
        let wait = self.left();
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    /// Notes what was spent on one message.
    fn note(&self, time: Duration) {
        self.lock().spent(self.owner, time, now());
    }

    /// A poisoned lock is entered all the same: no statement leaves the table half changed.
    fn lock(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn left(until: Nanos, now: Nanos) -> Duration {
    Duration::from_nanos(until.0.saturating_sub(now.0))
}

/// What an answer cost: all of its own thread's time, and what others of the daemon's did for it, as far as that is known.
fn cost(own: Duration, all: Duration) -> Duration {
    own.max(all.min(OTHERS_MAX))
}

/// One connection from its first request to its last.
fn converse(stream: &UnixStream, control: &dyn Control, peer: Peer, patience: Patience, holding: Holding) {
    // As any program's again: what is asked for is not urgent.
    rustix::process::setpriority_process(None, 0).ok();
    let mut frames = Frames::new(stream, REQUEST_BYTES_MAX);
    let Holding { paced, tally, .. } = &holding;
    paced.note(THREAD_COST);
    loop {
        paced.wait();
        let own = thread_cpu_time();
        let request = frames.read(patience);
        // While it waited for the request, the daemon worked for others.
        let all = process_cpu_time();
        let (reply, next) = match request {
            Ok(Some(request)) => dialogue::answer(control, peer, &request),
            Ok(None) => return,
            Err(FrameError::TooLong { max_bytes }) => (dialogue::too_long(max_bytes), Next::Close),
            Err(_) => return count(&tally.cut),
        };
        let written = write_within(stream, &reply, patience.message);
        let (own, all) = (thread_cpu_time().saturating_sub(own), process_cpu_time().saturating_sub(all));
        paced.note(cost(own, all));
        if written.is_err() || next == Next::Close {
            return count(&tally.cut);
        }
    }
}

#[cfg(test)]
mod tests;
