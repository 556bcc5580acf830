//! The request connection: asks the coordinator, and tells it what is held no longer.
//!
//! Many threads ask on one connection. Each has a slot that its answer is put into; whoever waits and finds nobody reading,
//! reads for all. Only the reader closes the connection, so a descriptor is never reused under somebody's hands.

use crate::{
    arena, cancel, cushion, fork,
    lock::{self, Lock},
    message::{CANCEL, FAULT, GAVE_BACK, GRANTED, HEADROOM, HEADROOM_IS, Message, REFUSED, RESERVE, SETTLED},
    socket::{self, Missing, Own, Received},
    watch,
};
use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// More than the 64 requests of one process that the coordinator lets wait: others find a place beside them.
const SLOTS: usize = 80;
/// So many of them at most wait for memory: less than those 64, since one that is cancelled counts until it is answered.
const PATIENT_MAX: usize = 48;
/// Why a question is REFUSED that is over the line.
const REASON_OVER_LINE: u64 = 1;
/// Why one is that met too many others.
const REASON_BUSY: u64 = 3;
/// How long before it is asked again, and how often by who has no patience.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);
const BUSY_TRIES: u32 = 3;
const FREE: u32 = 0;
const WAITING: u32 = 1;
/// Nobody may be reading any more: look.
const POKED: u32 = 2;
const ANSWERED: u32 = 3;
const LOST: u32 = 4;
/// The answer is being written.
const FILLING: u32 = 5;

/// How long an answer that waits for nobody may take. A recall takes 50 ms.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// How often somebody who is not there, or has no place, is looked for.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// How long a request may wait for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    /// `ms` as in `tmalloc_wait`: negative for ever.
    pub(crate) fn of(ms: i32) -> Self {
        match u64::try_from(ms) {
            Ok(0) => Self::None,
            Ok(ms) => Self::Until(Instant::now() + Duration::from_millis(ms)),
            Err(_negative) => Self::Endless,
        }
    }

    fn left(self) -> Option<Duration> {
        match self {
            Self::None => Some(Duration::ZERO),
            Self::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Endless => None,
        }
    }

    /// As in RESERVE. A part of a millisecond counts as one: nobody is refused too early.
    fn ms(self) -> u64 {
        let ceiling = |left: Duration| u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.left().map_or(u64::MAX, ceiling)
    }
}

/// Why there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The coordinator said no, or has not come to it in time.
    Refused,
    /// There is none.
    NoDaemon,
}

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// So many threads ask that there was no place to put one.
    NoSlot,
    /// The connection ended, or there was no place for it: the next one may do.
    Lost,
    NoDaemon,
}

/// Memory that may be populated now; [`settled`] must follow.
#[derive(Debug)]
#[must_use]
pub(crate) struct Grant {
    pub(crate) bytes: usize,
    connection: u32,
    /// It is not to be settled with what is populated.
    cushioned: bool,
}

#[derive(Debug)]
struct Connection {
    socket: Option<Own>,
    /// Told apart from those before it.
    number: u32,
    /// When the last try was made, and what it failed for.
    tried: Option<(Instant, Missing)>,
}

#[derive(Debug)]
struct Slot {
    state: AtomicU32,
    seq: AtomicU32,
    connection: AtomicU32,
    kind: AtomicU32,
    value: AtomicU64,
    usage: AtomicU64,
    line: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            seq: AtomicU32::new(0),
            connection: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            value: AtomicU64::new(0),
            usage: AtomicU64::new(0),
            line: AtomicU64::new(0),
        }
    }

    /// Changes the state where it is `from`. Whether it was.
    fn turn(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

const UNCONNECTED: Connection = Connection { socket: None, number: 0, tried: None };
static CONNECTION: Lock<Connection> = Lock::new(UNCONNECTED);
static SLOT: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
static READING: AtomicBool = AtomicBool::new(false);
static NEXT_SEQ: AtomicU32 = AtomicU32::new(1);
static CONNECTED: AtomicBool = AtomicBool::new(false);
/// How many grants are being populated.
static POPULATING: AtomicUsize = AtomicUsize::new(0);
/// How many requests wait for memory.
static PATIENT: AtomicUsize = AtomicUsize::new(0);
/// What is held no longer, and not told yet, in bytes.
static RETURNED: AtomicUsize = AtomicUsize::new(0);

/// Asks for `bytes`, which are whole pages. Who waits for nobody is not refused for what lies idle in its own hands: the
/// watcher, which is asked for that first, may have started only now, or be slower than the coordinator has patience.
pub(crate) fn reserve(bytes: usize, patience: Patience) -> Result<Grant, Refusal> {
    let (held, given) = (arena::held_bytes(), watch::given());
    let answer = ask_for(bytes, patience)?;
    if patience != Patience::None || !answer.is_over_line() {
        return answer.grant(bytes);
    }
    if answer.fits_without(held.max(arena::held_bytes()), bytes) {
        give_back(watch::give_idle(bytes));
    }
    if watch::given() == given { Err(Refusal::Refused) } else { reserve_at_once(bytes) }
}

/// The same, without giving anything back for it: where less is needed than is asked for, or others may have some.
pub(crate) fn reserve_at_once(bytes: usize) -> Result<Grant, Refusal> {
    ask_for(bytes, Patience::None)?.grant(bytes)
}

/// Asks for `bytes`, and for the cushion where that is not had yet. Where there is no room for a cushion that a program needs
/// to start, there is none for the program.
fn ask_for(bytes: usize, patience: Patience) -> Result<Answer, Refusal> {
    let mut cushion = cushion::take_wanted();
    if cushion == 0 {
        return ask(RESERVE, bytes as u64, patience);
    }
    let wanted = cushion;
    loop {
        let mut answer = ask(RESERVE, bytes.saturating_add(cushion) as u64, patience);
        if let Ok(answer) = &mut answer {
            if answer.is_over_line()
                && let Some(smaller) = cushion::smaller(cushion, answer.line)
            {
                cushion = smaller;
                continue;
            }
            answer.cushioned = answer.kind == GRANTED && cushion > 0;
        }
        match &answer {
            Ok(answer) if answer.cushioned => cushion::keep(),
            // Under so low a line there is room for none.
            Ok(answer) if answer.kind == GRANTED => {}
            _ => cushion::want(wanted),
        }
        return answer;
    }
}

/// Whether somebody answered last.
pub(crate) fn is_connected() -> bool {
    CONNECTED.load(Ordering::Relaxed)
}

/// What would be granted now, in bytes; `usize::MAX` without a line.
pub(crate) fn headroom() -> Result<usize, Refusal> {
    let answer = ask(HEADROOM, 0, Patience::None)?;
    // One that is near the line, and grows, has a watcher.
    watch::start_wanted();
    if answer.kind == HEADROOM_IS {
        Ok(usize::try_from(answer.value).unwrap_or(usize::MAX))
    } else {
        Err(Refusal::Refused)
    }
}

/// `grant` is populated as far as it ever will be: what is left of the reservation goes back by itself. What was populated
/// and dropped again is the caller's to give back. Told at once: until then what the process frees stays reserved for it.
pub(crate) fn settled(grant: &Grant) {
    let _uncancelled = cancel::hold_off();
    let last = POPULATING.fetch_sub(1, Ordering::AcqRel) == 1;
    if grant.cushioned {
        return give_back(0);
    }
    let connection = CONNECTION.lock();
    let same = connection.number == grant.connection;
    // The coordinator counts one of these for each grant, and gives back what is left of the reservation with the last one.
    // What a daemon before it granted is not among them: it is settled along, unless that would be too early for another.
    if let Some(socket) = connection.socket.filter(|_| same || last) {
        socket::send(socket, &Message::new(SETTLED));
        if cushion::is_over() {
            socket::send(socket, &Message::new(SETTLED));
        }
    }
    drop(connection);
    give_back(0);
}

/// `bytes` that were granted are unmapped or dropped by now.
pub(crate) fn give_back(bytes: usize) {
    RETURNED.fetch_add(bytes, Ordering::Relaxed);
    let _uncancelled = cancel::hold_off();
    while RETURNED.load(Ordering::Relaxed) > 0 {
        // Whoever holds it sees to this when they are done.
        let Some(connection) = CONNECTION.try_lock() else { return };
        // What is held by grants outlives a daemon in the kernel: the next one is told.
        if !connection.socket.is_some_and(tell_returned) {
            return;
        }
    }
}

/// `false`: nobody was there to be told.
fn tell_returned(socket: Own) -> bool {
    let bytes = RETURNED.swap(0, Ordering::Relaxed);
    if bytes == 0 || socket::send(socket, &Message::new(GAVE_BACK).a(bytes as u64)) {
        return true;
    }
    RETURNED.fetch_add(bytes, Ordering::Relaxed);
    false
}

/// Forgets everything, in a forked child.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    // SAFETY: the caller is the only thread.
    let socket = unsafe { CONNECTION.peek().socket };
    if let Some(socket) = socket {
        socket.close();
    }
    // SAFETY: as above.
    unsafe { CONNECTION.start_over(UNCONNECTED) };
    for slot in &SLOT {
        slot.state.store(FREE, Ordering::Relaxed);
    }
    READING.store(false, Ordering::Relaxed);
    CONNECTED.store(false, Ordering::Relaxed);
    POPULATING.store(0, Ordering::Relaxed);
    cushion::want(0);
    cushion::forget();
    PATIENT.store(0, Ordering::Relaxed);
    RETURNED.store(0, Ordering::Relaxed);
}

#[derive(Debug)]
struct Answer {
    kind: u32,
    value: u64,
    /// With REFUSED: what the account uses, and how far grants may go, in bytes.
    usage: u64,
    line: u64,
    connection: u32,
    cushioned: bool,
}

impl Answer {
    fn grant(&self, bytes: usize) -> Result<Grant, Refusal> {
        match self.kind {
            GRANTED => Ok(Grant { bytes, connection: self.connection, cushioned: self.cushioned }),
            _ => Err(Refusal::Refused),
        }
    }

    fn is_over_line(&self) -> bool {
        self.kind == REFUSED && self.value == REASON_OVER_LINE
    }

    /// Whether `bytes` could be had if all that this process holds went back.
    fn fits_without(&self, held: usize, bytes: usize) -> bool {
        self.usage.saturating_sub(held as u64).saturating_add(bytes as u64) <= self.line
    }

    /// There were too many at once: this says nothing of the memory.
    fn is_busy(&self) -> bool {
        self.kind == REFUSED && self.value == REASON_BUSY
    }
}

/// The right to wait for an answer, of which a process has fewer than the coordinator lets it.
#[derive(Debug)]
struct Place;

impl Place {
    /// `None`: others wait until there is no patience left.
    fn take(patience: Patience) -> Option<Self> {
        let more = |places: usize| (places < PATIENT_MAX).then_some(places + 1);
        while PATIENT.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            if patience.left() == Some(Duration::ZERO) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PATIENT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One question and its answer. A connection that ends meanwhile is made anew: the coordinator closes the one that was used
/// least for one more, and another daemon may have taken its place. So is a question that met too many others asked anew.
fn ask(kind: u32, a: u64, patience: Patience) -> Result<Answer, Refusal> {
    let _uncancelled = cancel::hold_off();
    let _place = match patience {
        Patience::None => None,
        Patience::Until(_) | Patience::Endless => Some(Place::take(patience).ok_or(Refusal::Refused)?),
    };
    let began = Instant::now();
    let is_over = || match patience {
        Patience::None => began.elapsed() >= ANSWER_PATIENCE,
        Patience::Until(_) | Patience::Endless => patience.left() == Some(Duration::ZERO),
    };
    let (mut busy_tries, mut losses) = (0, 0);
    loop {
        match try_ask(kind, a, patience) {
            Ok(answer) if answer.is_busy() => {
                busy_tries += 1;
                if is_over() || patience == Patience::None && busy_tries > BUSY_TRIES {
                    return Ok(answer);
                }
                std::thread::sleep(BUSY_INTERVAL);
            }
            Ok(answer) => return Ok(answer),
            Err(Failure::NoSlot) => return Err(Refusal::Refused),
            Err(Failure::NoDaemon) if patience == Patience::None || is_over() => {
                return Err(Refusal::NoDaemon);
            }
            Err(Failure::Lost) if is_over() => return Err(Refusal::Refused),
            Err(Failure::Lost) if losses == 0 => losses += 1,
            Err(Failure::Lost | Failure::NoDaemon) => {
                std::thread::sleep(CONNECT_INTERVAL.min(patience.left().unwrap_or(CONNECT_INTERVAL)));
            }
        }
    }
}

fn try_ask(kind: u32, a: u64, patience: Patience) -> Result<Answer, Failure> {
    let slot = claim_slot(patience).ok_or(Failure::NoSlot)?;
    let sent = send_question(slot, Message::new(kind).a(a).b(patience.ms()), patience);
    let answer = sent.and_then(|()| await_answer(slot, patience).ok_or(Failure::Lost));
    // A late answer to this one must not pass for the next one's.
    slot.seq.store(0, Ordering::Relaxed);
    slot.state.store(FREE, Ordering::Release);
    answer
}

/// A slot nobody uses. All taken: waits a little for those that are answered at once.
fn claim_slot(patience: Patience) -> Option<&'static Slot> {
    let began = Instant::now();
    loop {
        let free = SLOT.iter().find(|slot| slot.turn(FREE, WAITING));
        if free.is_some() || began.elapsed() > patience.left().unwrap_or(Duration::MAX).max(ANSWER_PATIENCE) {
            return free;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects where needed, and sends. The slot is written before the answer can come.
fn send_question(slot: &Slot, question: Message, patience: Patience) -> Result<(), Failure> {
    // A child that shared this connection would speak, and be granted memory, in its parent's name.
    fork::prepare();
    let mut connection = CONNECTION.lock();
    let fresh = connection.socket.is_none();
    if fresh {
        connect(&mut connection)?;
    }
    let seq = NEXT_SEQ.fetch_add(1, Ordering::Relaxed).max(1);
    slot.seq.store(seq, Ordering::Relaxed);
    slot.connection.store(connection.number, Ordering::Release);
    // What was given back before counts for the answer.
    if let Some(socket) = connection.socket
        && !(tell_returned(socket) && socket::send(socket, &question.seq(seq)))
    {
        // Whoever reads next finds the end and closes.
        socket.shut_down();
    }
    drop(connection);
    // What others could not tell while this had the connection.
    give_back(0);
    if fresh {
        watch::want();
        // Others may have the lock of who grows: the C library waits for locks of its own when a thread is made, and who has
        // those may wait for memory.
        if patience != Patience::None {
            watch::start_wanted();
        }
    }
    Ok(())
}

fn connect(connection: &mut Connection) -> Result<(), Failure> {
    let failed = |missing| match missing {
        Missing::Absent => Failure::NoDaemon,
        Missing::Full => Failure::Lost,
    };
    if let Some((_, missing)) = connection.tried.filter(|(tried, _)| tried.elapsed() < CONNECT_INTERVAL) {
        return Err(failed(missing));
    }
    let socket = socket::say_hello(0).map_err(|missing| {
        // An attempt may take long by itself: those who come next do not each make another.
        connection.tried = Some((Instant::now(), missing));
        failed(missing)
    })?;
    // What it was for is settled by now, or with the next line.
    cushion::forget();
    // What an earlier daemon granted and was not told of is settled now, unless it is being populated: then by who does.
    if connection.number > 0 && POPULATING.load(Ordering::Acquire) == 0 {
        socket::send(socket, &Message::new(SETTLED));
    }
    CONNECTED.store(true, Ordering::Release);
    connection.socket = Some(socket);
    connection.number = connection.number.wrapping_add(1);
    tell_returned(socket);
    Ok(())
}

/// Waits for this slot's answer; `None` when the connection ended, or nobody answered in time.
fn await_answer(slot: &Slot, patience: Patience) -> Option<Answer> {
    let mut end = patience.left().and_then(|left| Instant::now().checked_add(left + ANSWER_PATIENCE));
    let mut cancelled = patience == Patience::None;
    loop {
        match slot.state.load(Ordering::Acquire) {
            ANSWERED => {
                return Some(Answer {
                    kind: slot.kind.load(Ordering::Relaxed),
                    value: slot.value.load(Ordering::Relaxed),
                    usage: slot.usage.load(Ordering::Relaxed),
                    line: slot.line.load(Ordering::Relaxed),
                    connection: slot.connection.load(Ordering::Relaxed),
                    cushioned: false,
                });
            }
            LOST => return None,
            FILLING => {
                std::hint::spin_loop();
                continue;
            }
            _ => {
                slot.turn(POKED, WAITING);
            }
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            if cancelled {
                abandon(slot);
                if slot.turn(WAITING, LOST) || slot.turn(POKED, LOST) {
                    return None;
                }
                continue;
            }
            cancelled = true;
            cancel(slot);
            end = Instant::now().checked_add(ANSWER_PATIENCE);
            continue;
        }
        if READING.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            read_for_all(slot, left);
            READING.store(false, Ordering::Release);
            poke();
        } else {
            lock::sleep_while(&slot.state, WAITING, left);
        }
    }
}

fn cancel(slot: &Slot) {
    let connection = CONNECTION.lock();
    if connection.number == slot.connection.load(Ordering::Relaxed)
        && let Some(socket) = connection.socket
    {
        socket::send(socket, &Message::new(CANCEL).seq(slot.seq.load(Ordering::Relaxed)));
    }
}

/// Nobody answers: whatever this coordinator still says cannot be trusted to be in time.
fn abandon(slot: &Slot) {
    let connection = CONNECTION.lock();
    if connection.number == slot.connection.load(Ordering::Relaxed)
        && let Some(socket) = connection.socket
    {
        socket.shut_down();
    }
}

/// Reads until this slot is answered or its time is over, putting each answer where it belongs.
fn read_for_all(own: &Slot, limit: Option<Duration>) {
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let connection = CONNECTION.lock();
    let (socket, number) = (connection.socket, connection.number);
    drop(connection);
    let Some(socket) = socket.filter(|_| own.connection.load(Ordering::Relaxed) == number) else {
        lose(own.connection.load(Ordering::Relaxed));
        return;
    };
    let mut is_strange = false;
    while matches!(own.state.load(Ordering::Acquire), WAITING | POKED) {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        match socket::receive(socket, left) {
            Received::Message(message) => {
                // Of another version, or one that cannot tell this process: the end follows, and nobody for this process.
                is_strange |= message.kind == FAULT;
                deliver(&message, number, own);
            }
            Received::Nothing if left == Some(Duration::ZERO) => return,
            Received::Nothing => {}
            Received::Ended | Received::Displaced => {
                let mut connection = CONNECTION.lock();
                socket.close();
                connection.socket = None;
                connection.tried = is_strange.then(|| (Instant::now(), Missing::Absent));
                CONNECTED.store(false, Ordering::Release);
                drop(connection);
                lose(number);
                return;
            }
        }
    }
}

/// Puts an answer where it belongs; `reader` looks by itself.
fn deliver(message: &Message, connection: u32, reader: &Slot) {
    if !matches!(message.kind, GRANTED | REFUSED | HEADROOM_IS) {
        return;
    }
    let asked = |slot: &Slot| {
        slot.seq.load(Ordering::Relaxed) == message.seq
            && slot.connection.load(Ordering::Acquire) == connection
    };
    let waits = |slot: &&Slot| {
        if !asked(slot) || !(slot.turn(WAITING, FILLING) || slot.turn(POKED, FILLING)) {
            return false;
        }
        // It may have been another's by the time it was taken.
        asked(slot) || !slot.turn(FILLING, POKED)
    };
    let asker = SLOT.iter().find(waits);
    if message.kind == GRANTED {
        // Before its asker wakes: who connects anew meanwhile must not settle what is not populated yet.
        POPULATING.fetch_add(1, Ordering::AcqRel);
    }
    if let Some(slot) = asker {
        slot.kind.store(message.kind, Ordering::Relaxed);
        slot.value.store(message.a, Ordering::Relaxed);
        slot.usage.store(message.b, Ordering::Relaxed);
        slot.line.store(message.c, Ordering::Relaxed);
        slot.state.store(ANSWERED, Ordering::Release);
        if !ptr::eq(slot, reader) {
            lock::wake(&slot.state, 1);
        }
    } else if message.kind == GRANTED {
        // Granted to somebody who waits no longer.
        settled(&Grant { bytes: 0, connection, cushioned: false });
    }
}

/// Everybody who waits for an answer of this connection gets none.
fn lose(connection: u32) {
    for slot in &SLOT {
        if slot.connection.load(Ordering::Acquire) == connection {
            for from in [WAITING, POKED] {
                slot.turn(from, LOST);
            }
            lock::wake(&slot.state, 1);
        }
    }
}

/// Somebody else has to read now.
fn poke() {
    for slot in &SLOT {
        if slot.turn(WAITING, POKED) {
            lock::wake(&slot.state, 1);
        }
    }
}
