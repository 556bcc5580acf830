//! The thread that writes, and the handle that feeds it.

use super::{
    Caps, Gate, HistoryError, Journal, Shared,
    log::{BATCH_MAX_BYTES, Log},
    record::Outcome,
    share::Forgotten,
    store::{self, Store, StoreError},
};
use jiff::Timestamp;
use plimsoll_policy::incident::Incident;
use plimsoll_sys::bpf::Note;
use std::{
    fmt, io,
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

/// The deepest stack seen is that of SQLite, which asks for less than 64 KiB.
const STACK_BYTES: usize = 256 << 10;

/// What the queue carries.
#[derive(Debug)]
pub(super) enum Message {
    /// With its note, which is let go of when the log has it.
    Incident(Box<Incident>, Option<Note>),
    Outcome(Box<Outcome>),
    /// A reader found the database damaged.
    Rebuild,
    /// Answered when everything before it is on the disk and in the database.
    Flush(SyncSender<()>),
    /// Likewise, and when the files are closed.
    Stop(SyncSender<()>),
}

/// What did not go well so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records that found the queue full, or the history closed.
    pub dropped: u64,
    /// Records that were taken from the queue and could not be written to the log.
    pub unwritten: u64,
    /// Outcomes of incidents that the history does not hold (any more).
    pub unmatched: u64,
    /// Whole records of the log whose content was not understood.
    pub undecodable: u64,
    /// Failures to write, rotate or thin out the log.
    pub log_errors: u64,
    /// Failures to bring the database up to date; the log holds what it lacks.
    pub database_errors: u64,
    /// Times the database was built again from the log.
    pub rebuilds: u64,
}

/// Hands records to the thread that writes; clone it for each place that records.
#[derive(Debug, Clone)]
pub struct Writer {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    journal: Option<Journal>,
}

impl Writer {
    pub(super) const fn new(
        sender: SyncSender<Message>,
        shared: Arc<Shared>,
        journal: Option<Journal>,
    ) -> Self {
        Self { sender, shared, journal }
    }

    /// Records an incident. Never waits: when the queue is full, the incident is dropped and counted.
    pub fn record(&self, incident: Incident) {
        let note = self.journal.as_ref().and_then(|journal| journal.done(&incident));
        self.send(Message::Incident(Box::new(incident), note));
    }

    /// Records what an earlier daemon noted and did not come to write.
    pub(crate) fn inherit(&self, incident: Incident, note: Note) {
        self.send(Message::Incident(Box::new(incident), Some(note)));
    }

    /// Where intentions are noted.
    pub(crate) const fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
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
            unmatched: read(&counters.unmatched),
            undecodable: read(&counters.undecodable),
            log_errors: read(&counters.log_errors),
            database_errors: read(&counters.database_errors),
            rebuilds: read(&counters.rebuilds),
        }
    }

    /// Waits until everything recorded before is on the disk and in the database.
    ///
    /// # Errors
    /// [`HistoryError::TooSlow`] when that takes longer than `within`, [`HistoryError::Closed`].
    pub fn flush(&self, within: Duration) -> Result<(), HistoryError> {
        self.wait_for(Message::Flush, within)
    }

    /// Writes everything recorded before, closes the files and ends the thread; what is recorded later is dropped.
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
        if self.sender.try_send(message).is_err() {
            add(&self.shared.counters.dropped, 1);
        }
    }

    fn wait_for(&self, message: fn(SyncSender<()>) -> Message, within: Duration) -> Result<(), HistoryError> {
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
            Ok(()) => Ok(()),
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
            Message::Incident(incident, _) => Some(*incident),
            Message::Outcome(_) | Message::Rebuild | Message::Flush(_) | Message::Stop(_) => None,
        })
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// What the thread owns.
pub(super) struct Work {
    pub(super) log: Log,
    pub(super) caps: Caps,
    pub(super) shared: Arc<Shared>,
    pub(super) receiver: Receiver<Message>,
    pub(super) enrich: Box<dyn FnMut(&mut Incident) + Send>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("log", &self.log).finish_non_exhaustive()
    }
}

/// Starts the thread.
pub(super) fn spawn(work: Work) -> io::Result<()> {
    let thread = thread::Builder::new().name("plimsoll-hist".to_owned()).stack_size(STACK_BYTES);
    // Not joined: `close` waits for its last word.
    drop(thread.spawn(move || run(work))?);
    Ok(())
}

/// One drained queue.
#[derive(Debug, Default)]
struct Batch {
    notes: Vec<Note>,
    answers: Vec<SyncSender<()>>,
    rebuild: bool,
    stop: bool,
}

impl Batch {
    fn answer(self) {
        for answer in self.answers {
            // Each has room for its one answer; an error is a caller that waits no longer.
            match answer.try_send(()) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

fn run(mut work: Work) {
    let mut store = None;
    let mut last = Batch::default();
    work.update(&mut store, false, None);
    // Without a timeout: nothing to write, no wake-up. An error: every sender is gone.
    while let Ok(first) = work.receiver.recv() {
        let mut batch = work.drain(first);
        let forgotten = work.write();
        batch.notes.clear();
        work.update(&mut store, batch.rebuild, forgotten.as_ref());
        if batch.stop {
            last = batch;
            break;
        }
        batch.answer();
    }
    work.shared.move_gate(Gate::Failed("it was closed".to_owned()));
    drop(store);
    let Work { log, receiver, shared, .. } = work;
    let unread =
        receiver.try_iter().filter(|message| matches!(message, Message::Incident(..) | Message::Outcome(_)));
    add(&shared.counters.dropped, unread.count() as u64);
    drop((log, receiver));
    // Only now: who waits for the end may open the same files again at once.
    last.answer();
}

impl Work {
    /// Encodes what the queue holds, up to one batch.
    fn drain(&mut self, first: Message) -> Batch {
        let mut batch = Batch::default();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(message) = next {
            self.take(message, &mut batch);
            taken += 1;
            let full = taken >= QUEUE_MAX || self.log.pending_bytes() >= BATCH_MAX_BYTES;
            // An error is an empty queue, or one without senders: `recv` tells them apart.
            next = if full || batch.stop { None } else { self.receiver.try_recv().ok() };
        }
        batch
    }

    fn take(&mut self, message: Message, batch: &mut Batch) {
        let pushed = match message {
            Message::Incident(mut incident, note) => {
                batch.notes.extend(note);
                (self.enrich)(&mut incident);
                self.log.push_incident(&mut incident)
            }
            Message::Outcome(mut outcome) => self.log.push_outcome(&mut outcome),
            Message::Rebuild => {
                batch.rebuild = true;
                Ok(())
            }
            Message::Flush(answer) => {
                batch.answers.push(answer);
                Ok(())
            }
            Message::Stop(answer) => {
                batch.answers.push(answer);
                batch.stop = true;
                Ok(())
            }
        };
        if let Err(error) = pushed {
            add(&self.shared.counters.unwritten, 1);
            self.shared.remember(&error);
        }
    }

    /// Makes what was encoded durable. Returns what the log does not hold any more, where that changed.
    fn write(&mut self) -> Option<Forgotten> {
        if self.log.pending_bytes() == 0 {
            return None;
        }
        let outdated = self.log.drop_outdated(SystemTime::now(), self.caps.max_age);
        let oldest = Timestamp::now().checked_sub(self.caps.max_age).unwrap_or(Timestamp::MIN);
        let rotated = self.log.rotate_if_full(oldest);
        let written = self.log.commit();
        if let Err((lost, error)) = written {
            add(&self.shared.counters.unwritten, lost);
            self.log_failed(&error);
        }
        if let Err(error) = outdated {
            self.log_failed(&error);
        }
        rotated.unwrap_or_else(|error| {
            self.log_failed(&error);
            None
        })
    }

    fn log_failed(&self, error: &dyn fmt::Display) {
        add(&self.shared.counters.log_errors, 1);
        self.shared.remember(error);
    }

    /// Brings the database up to date, or makes it anew where that is the only way.
    fn update(&self, store: &mut Option<Store>, rebuild: bool, forgotten: Option<&Forgotten>) {
        let updated = if rebuild {
            Err(StoreError::Damaged("a query found it damaged".to_owned()))
        } else {
            self.catch_up(store, forgotten)
        };
        let updated = match updated {
            Err(StoreError::Damaged(reason)) => {
                self.shared.move_gate(Gate::Building);
                *store = None;
                add(&self.shared.counters.rebuilds, 1);
                self.shared.remember(&format_args!("the history database was built again: {reason}"));
                store::remove(self.log.folder())
                    .map_err(StoreError::from)
                    .and_then(|()| self.catch_up(store, None))
            }
            other => other,
        };
        match updated {
            Ok(()) => self.shared.open_gate(),
            Err(error) => {
                add(&self.shared.counters.database_errors, 1);
                self.shared.remember(&error);
                // What is in a database that could be opened can still be read.
                if store.is_none() {
                    self.shared.move_gate(Gate::Failed(error.to_string()));
                } else {
                    self.shared.open_gate();
                }
            }
        }
    }

    fn catch_up(&self, store: &mut Option<Store>, forgotten: Option<&Forgotten>) -> Result<(), StoreError> {
        let folder = self.log.folder();
        let store = match store {
            Some(store) => store,
            None => store.insert(Store::open(folder)?),
        };
        let taken_in = store.catch_up(folder)?;
        add(&self.shared.counters.unmatched, taken_in.unmatched);
        add(&self.shared.counters.undecodable, taken_in.undecodable);
        store.prune(&self.caps, SystemTime::now(), forgotten)?;
        store.rest()
    }
}
