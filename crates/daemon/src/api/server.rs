//! Accepts connections and answers them: one thread asleep in `poll` while nobody talks, one more for as long as a
//! connection lasts.

use super::{
    control::Control,
    dialogue::{self, Asked, Next},
    listener::{ListenError, Purpose, ServedSocket, lacks_room},
    peer::Peer,
    slots::{Admitted, Caller, Slot, SlotLimits, Slots},
    starts::Starts,
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
use plimsoll_policy::units::Uid;
use plimsoll_sys::process::{process_cpu_time, thread_cpu_time};
use std::{
    io,
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
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
/// What is noted for a connection, whatever is asked for through it: most have a thread of their own.
const THREAD_COST: Duration = Duration::from_micros(400);
/// How long a client that is turned away may take to be told so.
const TURN_AWAY_PATIENCE: Duration = Duration::from_millis(1);

type Debt = pace::Debt<PARTS, NOTED_MAX_MS, CREDIT_MS>;
type Pace = pace::Pace<PARTS, NOTED_MAX_MS, CREDIT_MS>;

/// What to grant to clients. [`Allowance::SERVER`] but in tests.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Connections that are served at once.
    pub slots: SlotLimits,
    /// Connections that wait for that.
    pub waiting: SlotLimits,
    /// For how long they wait at most.
    pub wait: Duration,
    /// Time for each step of those that are served.
    pub patience: Patience,
}

impl Allowance {
    /// The daemon's own.
    pub const SERVER: Self = Self {
        slots: SlotLimits::SERVED,
        waiting: SlotLimits::WAITING,
        wait: Duration::from_secs(2),
        patience: Patience::SERVER,
    };
}

/// What became of connections since the start. Nothing that goes wrong with a client is silent, and nothing of it is
/// worth a log line each that a client could flood the log with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that got a slot.
    pub served: u64,
    /// Connections turned away: no slot left, and no place to wait for one, or not in time; or no thread to be had.
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
        let slots = Slots::new(allowance.slots, allowance.waiting);
        let tally = Arc::<Tally>::default();
        let service = Service {
            control,
            tally: Arc::clone(&tally),
            pace: Mutex::default(),
            starts: Starts::default(),
            patience: allowance.patience,
        };
        let acceptor = Acceptor {
            socket,
            stop: Arc::clone(&stop),
            slots: Arc::clone(&slots),
            owners: Owners::default(),
            wait: allowance.wait,
            service: Arc::new(service),
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
    owners: Owners,
    wait: Duration,
    service: Arc<Service>,
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
            let until_over = self.slots.waits_since().map(|since| self.wait.saturating_sub(since.elapsed()));
            // Rounded up: it is not looked again and again in the last millisecond.
            let timeout =
                until_over.map_or(PollTimeout::NONE, |left| timeout(left + Duration::from_millis(1)));
            match poll(&mut watched, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => {
                    count(&self.service.tally.accept_failures);
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
            for caller in self.slots.give_up(self.wait, Instant::now()) {
                self.turn_away_unserved(&caller);
            }
            let now = now();
            debt.pay(spent(), now);
            let wait = debt.left(now);
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
                    count(&self.service.tally.accept_failures);
                    self.pause(ACCEPT_PAUSE);
                }
                return false;
            }
        };
        match Peer::of(&stream, &mut self.owners) {
            Ok(peer) => self.admit(Caller { peer, stream: Arc::new(stream) }),
            Err(_) => count(&self.service.tally.accept_failures),
        }
        true
    }

    fn admit(&self, caller: Caller) {
        match self.slots.admit(&caller, Instant::now()) {
            Admitted::Served(slot) => self.serve(slot, caller),
            Admitted::Waits => {}
            Admitted::TurnedAway => self.turn_away_unserved(&caller),
        }
    }

    /// Serves a connection, and those that have its slot after it, in a thread of their own.
    fn serve(&self, slot: Slot, caller: Caller) {
        let service = Arc::clone(&self.service);
        let stream = Arc::clone(&caller.stream);
        let started = thread::Builder::new().name("control-client".to_owned()).stack_size(STACK_BYTES).spawn(
            move || {
                // As any program's again: what is asked for is not urgent.
                rustix::process::setpriority_process(None, 0).ok();
                let mut next = Some((slot, caller));
                while let Some((slot, caller)) = next {
                    count(&service.tally.served);
                    service.converse(caller);
                    next = slot.hand_on();
                    // Who has gone while they waited has no use for a slot.
                    while let Some((slot, _)) = next.take_if(|(_, caller)| is_closed(&caller.stream)) {
                        count(&service.tally.cut);
                        next = slot.hand_on();
                    }
                }
            },
        );
        if started.is_err() {
            self.turn_away(&stream, "the daemon cannot start a thread; try again in a moment");
        }
    }

    fn turn_away_unserved(&self, caller: &Caller) {
        let paced = Paced { pace: &self.service.pace, owner: caller.peer.owner };
        // Whoever knocks without end is not worth the words.
        if !paced.left().is_zero() {
            return count(&self.service.tally.turned_away);
        }
        paced.note(THREAD_COST);
        self.turn_away(&caller.stream, "too many connections; close one, or try again in a moment");
    }

    /// Says why, if the client takes it at once, and closes.
    fn turn_away(&self, stream: &UnixStream, why: &str) {
        count(&self.service.tally.turned_away);
        // A fresh connection's buffer has room for it; a client for whom that is not so learns from the closing alone.
        drop(write_within(stream, &dialogue::busy(why), TURN_AWAY_PATIENCE));
    }

    /// Waits, so that neither a shortage of descriptors nor a client turns into a busy loop; a stop ends the wait.
    fn pause(&self, time: Duration) {
        let mut watched = [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        // Whatever it returns, the loop looks at the stop descriptor next.
        poll(&mut watched, timeout(time)).ok();
    }
}

fn timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
}

/// Whose time a conversation takes.
struct Paced<'a> {
    pace: &'a Mutex<Pace>,
    owner: Uid,
}

impl Paced<'_> {
    /// How long it is until this owner may have another answer.
    fn left(&self) -> Duration {
        self.lock().left(self.owner, now())
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

/// What an answer cost: all of its own thread's time, and what others of the daemon's did for it, as far as that is known.
fn cost(own: Duration, all: Duration) -> Duration {
    own.max(all.min(OTHERS_MAX))
}

/// What all conversations have in common.
struct Service {
    control: Arc<dyn Control>,
    tally: Arc<Tally>,
    pace: Mutex<Pace>,
    starts: Starts,
    patience: Patience,
}

impl Service {
    /// One connection from its first request to its last.
    fn converse(&self, caller: Caller) {
        let mut talk = Conversation {
            paced: Paced { pace: &self.pace, owner: caller.peer.owner },
            own: thread_cpu_time(),
            unpaid: THREAD_COST,
            starts: false,
            service: self,
            caller,
        };
        if talk.answer_all() == End::Cut {
            count(&self.tally.cut);
        }
        // Its client waits for nothing more.
        drop(talk.caller.stream.shutdown(Shutdown::Both));
        talk.pay_rest();
    }
}

/// How one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By the client, between two requests.
    Closed,
    Cut,
}

/// One connection, and what it has cost.
struct Conversation<'a> {
    service: &'a Service,
    caller: Caller,
    paced: Paced<'a>,
    /// This thread's CPU time when the last was paid.
    own: Duration,
    /// Not paid yet, besides what it has used since then.
    unpaid: Duration,
    /// A job was to be started over it: starts have a queue and a share of their own.
    starts: bool,
}

impl Conversation<'_> {
    /// Answers what comes.
    fn answer_all(&mut self) -> End {
        let (service, stream) = (self.service, Arc::clone(&self.caller.stream));
        let mut frames = Frames::new(stream.as_ref(), REQUEST_BYTES_MAX);
        loop {
            let request = match frames.read(service.patience) {
                Ok(Some(request)) => request,
                Ok(None) => return End::Closed,
                Err(FrameError::TooLong { max_bytes }) => {
                    drop(write_within(&stream, &dialogue::too_long(max_bytes), service.patience.message));
                    return End::Cut;
                }
                Err(_) => return End::Cut,
            };
            let request = dialogue::read(&request);
            let (reply, next) = match dialogue::asked(&request, self.starts) {
                Asked::Start => {
                    self.starts = true;
                    service.control.before_start();
                    self.answer_starter(request)
                }
                Asked::Turn => self.answer_starter(request),
                Asked::Other => self.answer(request),
            };
            if write_within(&stream, &reply, service.patience.message).is_err() || next == Next::Close {
                return End::Cut;
            }
        }
    }

    fn answer(&mut self, request: dialogue::Read<'_>) -> (Vec<u8>, Next) {
        self.paced.wait();
        // While it waited, the daemon worked for others.
        let all = process_cpu_time();
        let answer = dialogue::answer(self.service.control.as_ref(), self.caller.peer, request);
        let all = process_cpu_time().saturating_sub(all);
        let own = self.take_own();
        self.paced.note(cost(own, all));
        answer
    }

    /// The guard draws each job: its time is what a start costs most of, however long it takes.
    fn answer_starter(&mut self, request: dialogue::Read<'_>) -> (Vec<u8>, Next) {
        let Self { service, caller: Caller { peer, stream }, .. } = self;
        let turn = service.starts.enter(peer.owner);
        if is_closed(stream) {
            return (Vec::new(), Next::Close);
        }
        let guard = service.control.guard_time();
        let answer = dialogue::answer(service.control.as_ref(), *peer, request);
        let guard = service.control.guard_time().saturating_sub(guard);
        turn.end(self.take_own().saturating_add(guard));
        answer
    }

    fn take_own(&mut self) -> Duration {
        let own = thread_cpu_time();
        let used = own.saturating_sub(core::mem::replace(&mut self.own, own));
        used.saturating_add(core::mem::take(&mut self.unpaid))
    }

    /// Its slot is for nobody else until all is paid for.
    fn pay_rest(mut self) {
        let rest = self.take_own();
        if self.starts {
            self.service.starts.note(self.caller.peer.owner, rest);
        } else {
            self.paced.note(rest);
            self.paced.wait();
        }
    }
}

/// Whether the client has gone: its number may be another process's by now.
fn is_closed(stream: &UnixStream) -> bool {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests;
