//! The thread that writes, and the handle that feeds it.

use super::{
    Caps, Hearer, HistoryError, PinnedNotes,
    entry::{ENTRY_MAX_BYTES, Outcome, Row},
    import,
    shared::{Gate, Shared},
    store::{self, Store, StoreError, Write},
};
use jiff::Timestamp;
use plimsoll_policy::incident::Incident;
use plimsoll_sys::bpf::Note;
use std::{
    fmt,
    fs::File,
    io, mem,
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Records that may wait, with their incidents less than a MiB: more than the ring buffer holds.
pub const QUEUE_MAX: usize = 1024;

/// Of these no more than so many have traces.
const TRACES_MAX: u64 = 16;

/// The deepest stack seen is that of SQLite, which asks for less than 64 KiB.
const STACK_BYTES: usize = 256 << 10;

/// How often what the disk refused is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What the queue carries.
#[derive(Debug)]
pub(super) enum Message {
    /// With its note, which is let go of when the store has it.
    Incident(Box<Incident>, Option<Note>, Stamp),
    Outcome(Box<Outcome>),
    /// A reader found the file damaged, when so many had been set aside.
    Damaged(u64),
    /// Answered when everything before it is in the store, or the disk has refused it.
    Flush(SyncSender<bool>),
    /// Likewise, and when the files are closed.
    Stop(SyncSender<bool>),
}

/// When an incident was handed over, and how long after it had happened; `None`: it is not this daemon's.
pub(super) type Stamp = Option<(Instant, Duration)>;

/// What did not go well so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records that found the queue full, or the history closed.
    pub dropped: u64,
    /// Records that can never be stored.
    pub unwritten: u64,
    /// Records that the disk refused so far, and that are tried again.
    pub waiting: u64,
    /// Outcomes of incidents that the history does not hold (any more).
    pub unmatched: u64,
    /// Failures to open, write or thin out the store.
    pub errors: u64,
    /// Damaged files that were set aside.
    pub set_aside: u64,
}

/// Hands records to the thread that writes; clone it for each place that records.
#[derive(Debug, Clone)]
pub struct Writer {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    notes: Option<PinnedNotes>,
}

impl Writer {
    pub(super) const fn new(
        sender: SyncSender<Message>,
        shared: Arc<Shared>,
        notes: Option<PinnedNotes>,
    ) -> Self {
        Self { sender, shared, notes }
    }

    /// Records an incident. Never waits: when the queue is full, the incident is dropped and counted.
    pub fn record(&self, mut incident: Incident) {
        if traced(&incident) && self.shared.counters.traces.fetch_add(1, Ordering::Relaxed) >= TRACES_MAX {
            self.shared.counters.traces.fetch_sub(1, Ordering::Relaxed);
            incident.course = None;
        }
        let note = self.notes.as_ref().and_then(|notes| notes.done(&incident));
        let age = Timestamp::now().duration_since(incident.time).try_into().unwrap_or_default();
        self.send(Message::Incident(Box::new(incident), note, Some((Instant::now(), age))));
    }

    /// Records what an earlier daemon noted and did not come to write.
    pub(crate) fn inherit(&self, incident: Incident, note: Note) {
        self.send(Message::Incident(Box::new(incident), Some(note), None));
    }

    /// Where intentions are noted.
    pub(crate) const fn notes(&self) -> Option<&PinnedNotes> {
        self.notes.as_ref()
    }

    /// Something may be new to those who wait for news: [`super::Reader::await_news`].
    pub(crate) fn tell_news(&self) {
        self.shared.tell_news();
    }

    /// Records what became known of an incident later. Never waits, as [`Writer::record`].
    pub fn outcome(&self, outcome: Outcome) {
        self.send(Message::Outcome(Box::new(outcome)));
    }

    /// Records that found the queue full, or the history closed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.counters.dropped.load(Ordering::Relaxed)
    }

    /// Everything that did not go well.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            dropped: read(&counters.dropped),
            unwritten: read(&counters.unwritten),
            waiting: read(&counters.waiting),
            unmatched: read(&counters.unmatched),
            errors: read(&counters.errors),
            set_aside: read(&counters.set_aside),
        }
    }

    /// From an incident to its commit, in nanoseconds: the last one's, and the longest; `None`: none yet.
    #[must_use]
    pub fn commit_ns(&self) -> Option<(u64, u64)> {
        let counters = &self.shared.counters;
        let last = Some(counters.commit_last_ns.load(Ordering::Relaxed)).filter(|last| *last > 0)?;
        Some((last, counters.commit_longest_ns.load(Ordering::Relaxed)))
    }

    /// Waits until everything recorded before is on the disk.
    ///
    /// # Errors
    /// [`HistoryError::Unwritten`] when the disk refuses, [`HistoryError::TooSlow`] when that takes longer than `within`,
    /// [`HistoryError::Closed`].
    pub fn flush(&self, within: Duration) -> Result<(), HistoryError> {
        self.wait_for(Message::Flush, within)
    }

    /// Writes everything recorded before, closes the files and ends the thread; what is recorded later is dropped. What the
    /// disk refuses stays among the pinned notes.
    ///
    /// # Errors
    /// As [`Writer::flush`]; closed twice is [`HistoryError::Closed`].
    pub fn close(&self, within: Duration) -> Result<(), HistoryError> {
        self.wait_for(Message::Stop, within)
    }

    /// The last thing that went wrong, as one line.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send(&self, message: Message) {
        if let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) =
            self.sender.try_send(message)
        {
            self.shared.taken(&message);
            add(&self.shared.counters.dropped, 1);
        }
    }

    fn wait_for(
        &self,
        message: fn(SyncSender<bool>) -> Message,
        within: Duration,
    ) -> Result<(), HistoryError> {
        let deadline = Instant::now() + within;
        let (done, answered) = sync_channel(1);
        let mut unsent = message(done);
        loop {
            match self.sender.try_send(unsent) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return Err(HistoryError::Closed),
                Err(TrySendError::Full(_)) if Instant::now() >= deadline => {
                    return Err(HistoryError::TooSlow(within));
                }
                Err(TrySendError::Full(back)) => {
                    unsent = back;
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let waiting = self.shared.counters.waiting.load(Ordering::Relaxed);
                Err(HistoryError::Unwritten(waiting, self.last_error().unwrap_or_default()))
            }
            Err(RecvTimeoutError::Timeout) => Err(HistoryError::TooSlow(within)),
            Err(RecvTimeoutError::Disconnected) => Err(HistoryError::Closed),
        }
    }
}

/// What a [`Writer`] was given, where no thread takes it: for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Recorded(Receiver<Message>);

#[cfg(test)]
impl Recorded {
    /// A writer and what it is given; more than `room` of it is dropped and counted, as ever.
    pub(crate) fn by_a_writer(room: usize) -> (Writer, Self) {
        let (sender, receiver) = sync_channel(room);
        (Writer::new(sender, Arc::default(), None), Self(receiver))
    }

    /// The next incident; what became known of one later is passed over.
    pub(crate) fn next_incident(&self) -> Option<Incident> {
        self.0.try_iter().find_map(|message| match message {
            Message::Incident(incident, ..) => Some(*incident),
            Message::Outcome(_) | Message::Damaged(_) | Message::Flush(_) | Message::Stop(_) => None,
        })
    }
}

fn traced(incident: &Incident) -> bool {
    incident.course.as_ref().is_some_and(|course| course.trace.is_some())
}

impl Shared {
    /// A message is in the queue no more.
    fn taken(&self, message: &Message) {
        if matches!(message, Message::Incident(incident, ..) if traced(incident)) {
            self.counters.traces.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// What the thread owns.
pub(super) struct Work {
    pub(super) folder: PathBuf,
    /// Held while the thread lives.
    pub(super) _lock: File,
    /// `None`: it could not be opened so far.
    pub(super) store: Option<Store>,
    /// The largest id that was given out.
    pub(super) last_id: u64,
    /// It was said that something is wrong, and not yet that it is well again.
    pub(super) failing: bool,
    /// Records that found no room, as far as that was said.
    pub(super) dropped: u64,
    pub(super) caps: Caps,
    pub(super) shared: Arc<Shared>,
    pub(super) receiver: Receiver<Message>,
    pub(super) hearer: Box<dyn Hearer>,
    pub(super) say: Box<dyn FnMut(String) + Send>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Starts the thread.
pub(super) fn spawn(work: Work) -> io::Result<()> {
    let thread = thread::Builder::new().name("history".to_owned()).stack_size(STACK_BYTES);
    // Not joined: `close` waits for its last word.
    drop(thread.spawn(move || run(work))?);
    Ok(())
}

/// What was taken from the queue and is not on the disk yet: one transaction. What comes meanwhile waits in the queue.
#[derive(Debug, Default)]
struct Batch {
    writes: Vec<Write>,
    bytes: usize,
    notes: Vec<Note>,
    recorded: Vec<(Instant, Duration)>,
    answers: Vec<SyncSender<bool>>,
    /// Counted files were set aside when a reader found one damaged.
    damaged: Option<u64>,
    stop: bool,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.writes.len() >= QUEUE_MAX || self.bytes >= ENTRY_MAX_BYTES || self.stop
    }

    fn push(&mut self, write: Write) {
        self.bytes = self.bytes.saturating_add(write.bytes());
        self.writes.push(write);
    }

    fn answer(&mut self, written: bool) {
        for answer in self.answers.drain(..) {
            // Each has room for its one answer; an error is a caller that waits no longer.
            match answer.try_send(written) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

fn run(mut work: Work) {
    work.begin();
    let mut batch = Batch::default();
    let mut written = true;
    loop {
        if written {
            // Without a timeout: nothing to write, no wake-up. An error: every sender is gone.
            let Ok(first) = work.receiver.recv() else { break };
            work.take(first, &mut batch);
        } else {
            thread::sleep(RETRY);
        }
        while !batch.is_full()
            && let Ok(next) = work.receiver.try_recv()
        {
            work.take(next, &mut batch);
        }
        written = work.write(&mut batch);
        if batch.stop {
            break;
        }
        batch.answer(written);
    }
    work.shared.move_gate(Gate::Closed);
    // What the disk refused is not let go of: the next daemon finds it among the pinned notes.
    mem::take(&mut batch.notes).into_iter().for_each(mem::forget);
    let Work { store, _lock, receiver, shared, .. } = work;
    drop(store);
    let unread =
        receiver.try_iter().filter(|message| matches!(message, Message::Incident(..) | Message::Outcome(_)));
    add(&shared.counters.dropped, unread.count() as u64);
    drop((_lock, receiver));
    // Only now: who waits for the end may open the same files again at once.
    batch.answer(written);
}

impl Work {
    /// Opens the store where that was not done, takes in what earlier versions left behind, and lets queries in.
    fn begin(&mut self) {
        if let Err(error) = self.ready().map(drop) {
            self.mend(&error);
        }
        let taken = self.store.as_mut().map(|store| import::take_in(store, &self.folder));
        match taken.transpose() {
            Ok(told) => told.flatten().into_iter().for_each(&mut self.say),
            Err(error) => self.mend(&error),
        }
        self.thin_out();
        self.shared.move_gate(Gate::Open(None));
    }

    fn take(&mut self, message: Message, batch: &mut Batch) {
        self.shared.taken(&message);
        match message {
            Message::Incident(mut incident, note, recorded) => {
                self.hearer.incident(&mut incident);
                self.last_id = self.last_id.max(incident.id);
                match Row::of(*incident) {
                    Ok(row) => {
                        batch.push(Write::Incident(row));
                        batch.notes.extend(note);
                        batch.recorded.extend(recorded);
                    }
                    Err(error) => {
                        add(&self.shared.counters.unwritten, 1);
                        self.shared.remember(&error);
                    }
                }
            }
            Message::Outcome(outcome) => {
                self.hearer.outcome(&outcome);
                batch.push(Write::Outcome(*outcome));
            }
            Message::Damaged(seen) => batch.damaged = Some(seen),
            Message::Flush(answer) => batch.answers.push(answer),
            Message::Stop(answer) => {
                batch.answers.push(answer);
                batch.stop = true;
            }
        }
    }

    /// Writes the batch; whether it is on the disk. If it is, nothing of it is left but the answers.
    fn write(&mut self, batch: &mut Batch) -> bool {
        if batch.damaged.take() == Some(self.shared.counters.set_aside.load(Ordering::Relaxed))
            && self.store.is_some()
        {
            self.mend(&StoreError::Damaged("a query found it so".to_owned()));
        }
        if batch.writes.is_empty() {
            return true;
        }
        let mut written = self.commit(&batch.writes);
        if let Err(error @ StoreError::Damaged(_)) = &written {
            self.mend(error);
            written = self.commit(&batch.writes);
        }
        let counters = &self.shared.counters;
        match written {
            Ok(unmatched) => {
                batch.notes.clear();
                self.shared.tell_news();
                for (at, age) in batch.recorded.drain(..) {
                    let took = u64::try_from(age.saturating_add(at.elapsed()).as_nanos()).unwrap_or(u64::MAX);
                    counters.commit_last_ns.store(took, Ordering::Relaxed);
                    counters.commit_longest_ns.fetch_max(took, Ordering::Relaxed);
                }
                add(&counters.unmatched, unmatched);
                counters.waiting.store(0, Ordering::Relaxed);
                (batch.bytes, batch.writes) = (0, Vec::new());
                self.thin_out();
                if self.store.is_some() && mem::take(&mut self.failing) {
                    (self.say)("the history is written again".to_owned());
                }
                self.say_dropped();
                true
            }
            Err(error) => {
                counters.waiting.store(batch.writes.len() as u64, Ordering::Relaxed);
                self.mend(&error);
                false
            }
        }
    }

    /// Says how many records found no room since that was said last.
    fn say_dropped(&mut self) {
        let dropped = self.shared.counters.dropped.load(Ordering::Relaxed);
        let lost = dropped.saturating_sub(mem::replace(&mut self.dropped, dropped));
        if lost > 0 {
            (self.say)(format!("{lost} records are not in the history: its queue was full"));
        }
    }

    fn commit(&mut self, writes: &[Write]) -> Result<u64, StoreError> {
        let opens = self.store.is_none();
        let written = self.ready()?.write(writes);
        if opens && written.is_ok() {
            self.shared.move_gate(Gate::Open(None));
        }
        written
    }

    /// Opens the store where it is not open.
    fn ready(&mut self) -> Result<&mut Store, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => {
                // Whoever opens the file and closes it lets go of all locks that this process has on it (fcntl(2)), a query's
                // too: there is none meanwhile.
                self.shared.move_gate(Gate::Building);
                let store = Store::open(&self.folder)?;
                store.count_from(self.last_id)?;
                store
            }
        };
        Ok(self.store.insert(store))
    }

    fn thin_out(&mut self) {
        let Some(store) = &mut self.store else { return };
        let thinned = store
            .thin_out(&self.caps, SystemTime::now())
            .and_then(|()| store.bound_log(|| self.shared.gate()))
            .and_then(|()| store.rest());
        if let Err(error) = thinned {
            self.mend(&error);
        }
    }

    /// Counts and says what went wrong, and has all files opened anew: a damaged one is set aside, and what can be read of it
    /// is taken over.
    fn mend(&mut self, error: &StoreError) {
        add(&self.shared.counters.errors, 1);
        self.shared.move_gate(Gate::Building);
        self.store = None;
        let left = match error {
            StoreError::Damaged(reason) => self.renew(reason).err().map(|error| error.to_string()),
            StoreError::Failed(error) => Some(error.to_string()),
        };
        if let Some(error) = left {
            self.shared.remember(&error);
            if !mem::replace(&mut self.failing, true) {
                (self.say)(format!(
                    "the history cannot be written, which is tried again each second: {error}"
                ));
            }
        }
        self.shared.move_gate(Gate::Open(None));
    }

    fn renew(&mut self, reason: &str) -> Result<(), StoreError> {
        let path = store::path(&self.folder);
        let aside = store::set_aside(&path)?;
        add(&self.shared.counters.set_aside, 1);
        let told = format!("{} is damaged ({reason}): it is {} now", path.display(), aside.display());
        self.shared.remember(&told);
        (self.say)(told);
        let store = self.ready()?;
        let taken_over = match store.intake(|intake| import::database(intake, &aside)) {
            Ok(0) => "all incidents of the damaged file were taken over".to_owned(),
            Ok(_) => {
                "not all incidents of the damaged file could be read: those that could be were taken over"
                    .to_owned()
            }
            // As when the disk is full. They stay in that file.
            Err(error) => {
                self.shared.remember(&error);
                format!("no incident of the damaged file was taken over: {error}")
            }
        };
        (self.say)(taken_over);
        Ok(())
    }
}
