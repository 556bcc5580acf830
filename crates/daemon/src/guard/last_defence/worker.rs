//! The thread: takes words from its queue, listens to slices and to those that are raised, and is idle otherwise.

use super::{
    Deed, Ground, LineFacts, Shared, Word, raised::RaisedProcesses, record::Record, slices::Slices,
    systemctl::Systemd,
};
use crate::{
    guard::{
        report::{Journal, Notices},
        request::{Caller, Request},
    },
    pace::Pace,
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::EventFd,
};
use plimsoll_policy::{
    last_defence::LastDefenceConfig,
    units::{Bytes, Nanos, Uid},
};
use plimsoll_sys::process::{ProcRoot, clock_monotonic_ns, thread_cpu_time, without_sys_resource};
use std::{
    collections::BTreeMap,
    io,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    thread,
};

/// One part of so many of a CPU may be spent on one account: the largest of a storm is another each time.
const PARTS: u32 = 128;
/// What is noted of one change at most, in milliseconds.
const NOTED_MAX_MS: u64 = 50;
/// What may be spent at once, in milliseconds: some changes.
const CREDIT_MS: u64 = 20;

/// Everything the thread works with.
#[derive(Debug)]
struct Worker {
    config: LastDefenceConfig,
    /// All lines, for when the configuration changes.
    lines: BTreeMap<Uid, LineFacts>,
    raised: RaisedProcesses,
    pace: Pace<PARTS, NOTED_MAX_MS, CREDIT_MS>,
    slices: Slices,
    record: Record,
    notices: Notices,
    caller: Caller,
    shared: Arc<Shared>,
}

/// Starts the thread. `ending` is dropped at its end.
pub(super) fn spawn(
    ground: Ground,
    queue: Receiver<Word>,
    bell: Arc<EventFd>,
    shared: Arc<Shared>,
    ending: SyncSender<()>,
) -> io::Result<()> {
    let proc = ProcRoot::open(Path::new("/proc")).map_err(io::Error::other)?;
    thread::Builder::new().name("last-defence".into()).spawn(move || {
        let Ground { config, state, systemd, mem_total, journal, caller, originals } = ground;
        let mut notices = Notices::new(journal);
        let mut record = open(&state, &mut notices);
        record.tell(originals);
        let mut worker = Worker {
            config,
            lines: BTreeMap::new(),
            raised: RaisedProcesses::new(proc, mem_total),
            pace: Pace::default(),
            slices: Slices::new(systemd, mem_total),
            record,
            notices,
            caller,
            shared,
        };
        worker.run(&queue, &bell);
        drop(ending);
    })?;
    Ok(())
}

/// Reads what an earlier daemon left, as a thread that puts it back must: without the right that would move more than
/// the value.
fn open(state: &Path, notices: &mut Notices) -> Record {
    if let Err(errno) = without_sys_resource() {
        notices.say(format_args!("raised processes cannot lower themselves meanwhile: capset: {errno}"));
    }
    let (record, read) = Record::load(state);
    if let Err(error) = read {
        notices.say(format_args!("what the last defence had set before is not known: {error}"));
    }
    record
}

impl Worker {
    fn run(&mut self, queue: &Receiver<Word>, bell: &EventFd) {
        // Whoever is near is told again by the first scan.
        self.raised.put_all_back(&mut self.record, &mut self.notices);
        loop {
            self.publish();
            if let Err(error) = self.wait(bell) {
                return self.notices.say(format_args!("the last defence has ended: {error}"));
            }
            // Silenced before the queue is looked at, so that no word is missed.
            if bell.read().is_err() {
                // It did not ring: something else woke this thread.
            }
            self.look();
            loop {
                match queue.try_recv() {
                    Ok(Word::Stop { undo }) => {
                        if undo {
                            self.undo();
                        }
                        return;
                    }
                    Ok(word) => self.take(word),
                    Err(TryRecvError::Empty) => break,
                    // The guard has gone without a word, as in a crash: everything stays for the next daemon.
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            // What was listened to just now may have things to tell of the time when no daemon ran.
            self.look();
        }
    }

    fn wait(&self, bell: &EventFd) -> io::Result<()> {
        let mut descriptors = vec![PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        descriptors.extend(self.raised.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        descriptors.extend(self.slices.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLPRI)));
        match poll(&mut descriptors, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells the guard whom the kernel's own OOM killer took.
    fn look(&mut self) {
        let Self { raised, slices, record, notices, .. } = self;
        let mut deeds = slices.look((record, notices), |uid| raised.take_dying(uid));
        deeds.extend(raised.ended(|uid| slices.is_watched(uid)));
        for deed in deeds {
            self.tell(deed);
        }
    }

    fn tell(&mut self, deed: Deed) {
        if let Err(refusal) = self.caller.send(Request::LastDefence(deed)) {
            self.notices.say(format_args!(
                "the kernel's OOM killer took a process of uid {}, which is not in the history: {refusal}",
                deed.uid
            ));
        }
    }

    fn take(&mut self, word: Word) {
        match word {
            Word::Lines(lines) => {
                self.lines = lines.into_iter().map(|line| (line.uid, line)).collect();
                self.apply_all();
            }
            // Told again by the next scan, as what found no room in the queue is.
            Word::Near(facts) if self.pace.until(facts.line.uid) > now() => {}
            Word::Near(facts) => {
                let (uid, began) = (facts.line.uid, thread_cpu_time());
                // First whom the kernel takes, which is quick, then what systemd is asked for.
                if self.config.oom_score_adj {
                    self.raised.near(&facts, &mut self.record, &mut self.notices);
                }
                self.lines.insert(uid, facts.line);
                if self.config.memory_max {
                    self.apply(uid);
                }
                self.pace.spent(uid, thread_cpu_time().saturating_sub(began), now());
            }
            Word::Far(uid) => {
                let began = thread_cpu_time();
                self.raised.put_back(uid, &mut self.record, &mut self.notices);
                self.pace.spent(uid, thread_cpu_time().saturating_sub(began), now());
            }
            Word::Configure(config) => {
                self.config = config;
                if !config.oom_score_adj {
                    self.raised.put_all_back(&mut self.record, &mut self.notices);
                }
                self.apply_all();
            }
            Word::Stop { .. } => {}
        }
    }

    fn apply_all(&mut self) {
        let known = self.record.slices.iter().map(|entry| entry.uid);
        let users: std::collections::BTreeSet<Uid> = self.lines.keys().copied().chain(known).collect();
        for uid in users {
            self.apply(uid);
        }
    }

    fn apply(&mut self, uid: Uid) {
        let headroom = self.config.headroom;
        let line = self.lines.get(&uid).filter(|_| self.config.memory_max).map(|line| (line, headroom));
        self.slices.apply(uid, line, &mut self.record, &mut self.notices);
    }

    fn undo(&mut self) {
        self.raised.put_all_back(&mut self.record, &mut self.notices);
        self.slices.put_all_back(&mut self.record, &mut self.notices);
        self.publish();
    }

    fn publish(&self) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.shared.set_memory_max(self.slices.state());
        self.shared.slices.store(count(Slices::count(&self.record)), Ordering::Relaxed);
        self.shared.raised.store(count(self.raised.count()), Ordering::Relaxed);
    }
}

fn now() -> Nanos {
    Nanos(clock_monotonic_ns())
}

/// What `--stop-guarding` found of the last defence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leftovers {
    /// Nothing was set.
    Nothing,
    /// Everything was put back where nobody else had changed it.
    PutBack,
    /// Something is still as it was set, and why.
    Some(String),
}

/// Puts back what a daemon that is gone had set.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn undo_leftovers(state: &Path, mem_total: Bytes) -> io::Result<Leftovers> {
    let (journal, said) = Journal::gather();
    let mut notices = Notices::new(journal);
    let proc = ProcRoot::open(Path::new("/proc")).map_err(io::Error::other)?;
    let mut record = open(state, &mut notices);
    if record.is_empty() {
        return Ok(Leftovers::Nothing);
    }
    RaisedProcesses::new(proc, mem_total).put_all_back(&mut record, &mut notices);
    Slices::new(Systemd::of_machine(), mem_total).put_all_back(&mut record, &mut notices);
    if record.is_empty() {
        return Ok(Leftovers::PutBack);
    }
    Ok(Leftovers::Some(said.try_iter().last().unwrap_or_else(|| "no systemd runs here".to_owned())))
}
