//! The worker: takes messages from its queue, listens to slices and to those that are raised, and has no thread otherwise.

use super::{
    messages::{ArrangedKill, LineFacts, Message, Shared},
    raised::RaisedProcesses,
    record::{Originals, Record},
    slices::Slices,
    systemctl::Systemd,
};
use crate::{
    guard::request::{Caller, Request},
    journal::{Journal, Notices},
    message::Receiver,
    offload::{Haste, Lane, Offload, Waits},
    pace::{Pace, now},
    undo::Leftovers,
};
use nix::{errno::Errno, sys::epoll::EpollFlags};
use plimsoll_policy::{
    last_defence::LastDefenceConfig,
    units::{Bytes, Uid},
};
use plimsoll_sys::process::{Errno as SysErrno, ProcRoot, thread_cpu_time, without_sys_resource};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{SyncSender, TryRecvError},
    },
};

/// What the worker starts with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: LastDefenceConfig,
    /// The folder that what was set is written down in.
    pub(crate) state: PathBuf,
    pub(crate) systemd: Systemd,
    pub(crate) mem_total: Bytes,
    pub(crate) journal: Journal,
    pub(crate) caller: Caller,
    /// Where to tell what is raised.
    pub(crate) originals: Originals,
}

/// One part of so many of a CPU may be spent on one account: the largest of a storm is another each time.
const PARTS: u32 = 128;
/// What is noted of one change at most, in milliseconds.
const NOTED_MAX_MS: u64 = 50;
/// What may be spent at once, in milliseconds: some changes.
const CREDIT_MS: u64 = 20;

/// How messages come to the worker.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: Receiver<Message>,
    /// Dropped at its end.
    pub(super) _ending: SyncSender<()>,
}

/// Everything it works with.
#[derive(Debug)]
struct Worker {
    inbox: Inbox,
    /// For the queue, those that are raised, and slices.
    waits: Waits,
    config: LastDefenceConfig,
    /// All lines, for when the configuration changes.
    lines: BTreeMap<Uid, LineFacts>,
    raised: RaisedProcesses,
    pace: Pace<PARTS, NOTED_MAX_MS, CREDIT_MS>,
    slices: Slices,
    record: Record,
    caller: Caller,
    shared: Arc<Shared>,
}

/// Has it work from now on, for as long as the lane is there.
pub(super) fn start(
    setup: Setup,
    inbox: Inbox,
    shared: Arc<Shared>,
    offload: &Offload,
) -> io::Result<Lane<()>> {
    let Setup { config, state, systemd, mem_total, journal, caller, originals } = setup;
    let proc = ProcRoot::open(Path::new("/proc")).map_err(io::Error::other)?;
    let waits = Waits::new()?;
    waits.add(&inbox.queue, EpollFlags::EPOLLIN)?;
    let readable = waits.readable()?;
    let mut record = Record::load(&state, journal);
    record.tell(originals);
    let mut worker = Worker {
        inbox,
        waits,
        config,
        lines: BTreeMap::new(),
        raised: RaisedProcesses::new(proc, mem_total),
        pace: Pace::default(),
        slices: Slices::new(systemd, mem_total),
        record,
        caller,
        shared,
    };
    let mut begun = false;
    let lane = offload.attend(Haste::Ordinary, readable, move || {
        without_sys_resource(|given_up| {
            say_kept(given_up, &mut worker.record.notices);
            if !begun {
                begun = true;
                // Whoever is near is told again by the first scan.
                worker.raised.put_all_back(&mut worker.record);
            }
            worker.turn()
        })
    })?;
    lane.hand(());
    Ok(lane)
}

/// Whoever has that right would move more than the value.
fn say_kept(given_up: Result<(), SysErrno>, notices: &mut Notices) {
    if let Err(errno) = given_up {
        notices.once(
            "last defence",
            &format_args!("raised processes cannot lower themselves meanwhile: capset: {errno}"),
        );
    }
}

impl Worker {
    /// Sees to all that has happened; whether it goes on.
    fn turn(&mut self) -> bool {
        self.look();
        loop {
            match self.inbox.queue.next() {
                Ok(Message::Stop { undo }) => {
                    if undo {
                        self.undo();
                    }
                    return false;
                }
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => break,
                // The guard has gone without a word, as in a crash: everything stays for the next daemon.
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        // What was listened to just now may have things to tell of the time when no daemon ran.
        self.look();
        self.publish();
        self.listen();
        true
    }

    /// Has it woken by all that there is to listen to by now; what is closed is listened to no more.
    fn listen(&mut self) {
        let raised = self.raised.descriptors().map(|fd| (fd, EpollFlags::EPOLLIN));
        let slices = self.slices.descriptors().map(|fd| (fd, EpollFlags::EPOLLPRI));
        for (fd, flags) in raised.chain(slices) {
            match self.waits.add(fd, flags) {
                // A file that has nothing to wait for.
                Ok(()) | Err(Errno::EPERM) => {}
                Err(errno) => self.record.notices.once("last defence", &errno),
            }
        }
    }

    /// Tells the guard whom the kernel's own OOM killer took.
    fn look(&mut self) {
        let Self { raised, slices, record, .. } = self;
        let mut deeds = slices.look(record, |uid| raised.take_dying(uid));
        deeds.extend(raised.ended(|uid| slices.is_watched(uid)));
        for deed in deeds {
            self.tell(deed);
        }
    }

    fn tell(&mut self, deed: ArrangedKill) {
        if let Err(refusal) = self.caller.send(Request::LastDefence(deed)) {
            self.record.notices.say(format_args!(
                "the kernel's OOM killer took a process of uid {}, which is not in the history: {refusal}",
                deed.uid
            ));
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Lines(lines) => {
                self.lines = lines.into_iter().map(|line| (line.uid, line)).collect();
                self.apply_all();
            }
            // Told again by the next scan, as what found no room in the queue is.
            Message::Near(facts) if self.pace.until(facts.line.uid) > now() => {}
            Message::Near(facts) => {
                let (uid, began) = (facts.line.uid, thread_cpu_time());
                // First whom the kernel takes, which is quick, then what systemd is asked for.
                if self.config.oom_score_adj {
                    self.raised.near(&facts, &mut self.record);
                }
                self.lines.insert(uid, facts.line);
                if self.config.memory_max {
                    self.apply(uid);
                }
                self.pace.spent(uid, thread_cpu_time().saturating_sub(began), now());
            }
            Message::Far(uid) => {
                let began = thread_cpu_time();
                self.raised.put_back(uid, &mut self.record);
                self.pace.spent(uid, thread_cpu_time().saturating_sub(began), now());
            }
            Message::Configure(config) => {
                self.config = config;
                if !config.oom_score_adj {
                    self.raised.put_all_back(&mut self.record);
                }
                self.apply_all();
            }
            Message::Stop { .. } => {}
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
        self.slices.apply(uid, line, &mut self.record);
    }

    fn undo(&mut self) {
        self.raised.put_all_back(&mut self.record);
        self.slices.put_all_back(&mut self.record);
        self.publish();
    }

    fn publish(&self) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.shared.set_memory_max(self.slices.state());
        self.shared.slices.store(count(Slices::count(&self.record)), Ordering::Relaxed);
        self.shared.raised.store(count(self.raised.count()), Ordering::Relaxed);
    }
}

/// Puts back what a daemon that is gone had set.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn undo_leftovers(state: &Path, mem_total: Bytes) -> io::Result<Leftovers> {
    let (journal, said) = Journal::gather();
    let proc = ProcRoot::open(Path::new("/proc")).map_err(io::Error::other)?;
    let mut record = Record::load(state, journal);
    if record.is_empty() {
        return Ok(Leftovers::Nothing);
    }
    without_sys_resource(|given_up| {
        say_kept(given_up, &mut record.notices);
        RaisedProcesses::new(proc, mem_total).put_all_back(&mut record);
    });
    Slices::new(Systemd::of_machine(), mem_total).put_all_back(&mut record);
    if record.is_empty() {
        return Ok(Leftovers::PutBack);
    }
    Ok(Leftovers::Some(said.try_iter().last().unwrap_or_else(|| "no systemd runs here".to_owned())))
}
