//! The last defence, as the guard thread sees it: who is near and which lines there are go into a bounded queue, and a
//! lane does the rest, which may wait for systemd, for a disk, for `/proc`; the guard never does.
//!
//! What was set is written down before it is set ([`record`]), so that the next daemon, or `--stop-guarding`, can put it
//! back. Decisions are policy's ([`plimsoll_policy::last_defence`]).

mod raised;
mod record;
mod slices;
mod systemctl;
mod worker;

pub(crate) use record::Originals;
pub(crate) use systemctl::Systemd;
pub(crate) use worker::{Leftovers, undo_leftovers};

use super::{report::Journal, request::Caller};
use crate::offload::{Lane, Offload};
use nix::sys::eventfd::{EfdFlags, EventFd};
use plimsoll_policy::{
    account::Action,
    last_defence::{LastDefenceConfig, MemoryMaxState, Standing, ranking::COMPARED_MAX},
    reason::Reason,
    selection::{self, Candidate},
    units::{Bytes, PageSize, Pages, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::AccountFacts;
use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

/// Words waiting for the worker. One that does not fit is said again at the guard's next turn.
const QUEUE_MAX: usize = 64;

/// How long a clean stop waits for everything to be put back: some systemctl calls, each bounded by itself.
const STOP_MAX: Duration = Duration::from_secs(20);

/// A line as the last defence needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineFacts {
    pub(crate) uid: Uid,
    /// The hard limit.
    pub(crate) hard: Bytes,
    /// The line in force; `None` while it is open.
    pub(crate) effective: Option<Bytes>,
    pub(crate) action: Action,
}

impl LineFacts {
    /// Of an account as the programs have it.
    pub(crate) fn new(account: &AccountFacts, page_size: PageSize) -> Self {
        Self {
            uid: account.uid,
            hard: page_size.to_bytes(account.hard),
            effective: account.effective.map(|pages| page_size.to_bytes(pages)),
            action: Action::of(Signal::numbered(account.signal)),
        }
    }
}

/// One of the largest processes of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Large {
    pub(crate) id: VictimId,
    pub(crate) usage: Pages,
    pub(crate) protected: bool,
}

/// An account that is near.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearFacts {
    pub(crate) line: LineFacts,
    /// Its largest processes.
    pub(crate) largest: [Option<Large>; COMPARED_MAX],
}

impl NearFacts {
    /// Of candidates that are sorted, the largest first. Allocates nothing.
    pub(crate) fn new(line: LineFacts, candidates: &[Candidate]) -> Self {
        let mut largest = [None; COMPARED_MAX];
        let known = candidates.iter().filter_map(|one| Some((one, one.usage.latest()?)));
        let living = known.filter(|(one, _)| one.standing != selection::Standing::Dying);
        for (place, (one, usage)) in largest.iter_mut().zip(living) {
            let protected = matches!(one.standing, selection::Standing::Protected(_));
            *place = Some(Large { id: one.id(), usage, protected });
        }
        Self { line, largest }
    }
}

/// What the guard tells the worker.
#[derive(Debug)]
enum Word {
    /// These are all lines there are.
    Lines(Vec<LineFacts>),
    Near(Box<NearFacts>),
    Far(Uid),
    Configure(LastDefenceConfig),
    /// The end; whether everything is put back.
    Stop {
        undo: bool,
    },
}

/// What the worker tells the guard: the kernel's own OOM killer took somebody of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) uid: Uid,
    pub(crate) reason: Reason,
    /// Who, and what it was charged when last looked at; `None`: the kernel's counters do not tell.
    pub(crate) victim: Option<(VictimId, Pages)>,
}

/// What is in force, for `status`: written by the worker, read by the guard, without a lock.
#[derive(Debug)]
struct Shared {
    memory_max: AtomicU8,
    slices: AtomicU32,
    raised: AtomicU32,
}

const STATES: [MemoryMaxState; 4] = [
    MemoryMaxState::Possible,
    MemoryMaxState::NoSystemd,
    MemoryMaxState::NoController,
    MemoryMaxState::NoAnswer,
];

impl Shared {
    fn set_memory_max(&self, state: MemoryMaxState) {
        let index = STATES.iter().position(|one| *one == state).and_then(|index| u8::try_from(index).ok());
        self.memory_max.store(index.unwrap_or(u8::MAX), Ordering::Relaxed);
    }

    fn memory_max(&self) -> MemoryMaxState {
        let index = usize::from(self.memory_max.load(Ordering::Relaxed));
        STATES.get(index).copied().unwrap_or(MemoryMaxState::NoAnswer)
    }
}

/// Whether anything is arranged now, for another thread to know.
#[derive(Debug, Clone)]
pub(crate) struct Arrangements(Arc<Shared>);

impl Arrangements {
    /// So that a kill of the kernel's may be one.
    pub(crate) fn any(&self) -> bool {
        self.0.slices.load(Ordering::Relaxed) > 0 || self.0.raised.load(Ordering::Relaxed) > 0
    }
}

/// What the worker starts with.
#[derive(Debug)]
pub(crate) struct Ground {
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

/// The guard's end.
#[derive(Debug)]
pub(crate) struct LastDefence {
    link: Option<Link>,
    config: LastDefenceConfig,
    shared: Arc<Shared>,
    /// Accounts whose nearness was told and not taken back yet.
    told: BTreeSet<Uid>,
    /// Lines that did not fit into the queue.
    owed: Option<Vec<LineFacts>>,
}

#[derive(Debug)]
struct Link {
    words: SyncSender<Word>,
    bell: Arc<EventFd>,
    ended: Receiver<()>,
    /// Works for as long as it is there.
    _lane: Lane<()>,
}

impl LastDefence {
    /// Starts it, on one of these threads whenever there is something to do.
    pub(crate) fn start(ground: Ground, offload: &Offload) -> io::Result<Self> {
        let (words, queue) = sync_channel(QUEUE_MAX);
        let bell =
            Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (ending, ended) = sync_channel(1);
        let config = ground.config;
        let shared = Arc::new(Shared {
            memory_max: AtomicU8::new(0),
            slices: AtomicU32::new(0),
            raised: AtomicU32::new(0),
        });
        shared.set_memory_max(ground.systemd.probe());
        let inbox = worker::Inbox { queue, bell: Arc::clone(&bell), _ending: ending };
        let lane = worker::start(ground, inbox, Arc::clone(&shared), offload)?;
        let link = Some(Link { words, bell, ended, _lane: lane });
        Ok(Self { link, config, shared, told: BTreeSet::new(), owed: None })
    }

    pub(crate) fn arrangements(&self) -> Arrangements {
        Arrangements(Arc::clone(&self.shared))
    }

    /// One that arranges nothing.
    #[cfg(test)]
    pub(crate) fn absent() -> Self {
        let shared =
            Shared { memory_max: AtomicU8::new(1), slices: AtomicU32::new(0), raised: AtomicU32::new(0) };
        Self {
            link: None,
            config: LastDefenceConfig::OFF,
            shared: Arc::new(shared),
            told: BTreeSet::new(),
            owed: None,
        }
    }

    /// Whether the word was taken; one that nobody takes any more is as good.
    fn say(&self, word: Word) -> Result<(), Word> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        match link.words.try_send(word) {
            Ok(()) => {
                if link.bell.write(1).is_err() {
                    // It rings already, and is readable until it is read: a second ring adds nothing.
                }
                Ok(())
            }
            Err(TrySendError::Full(word)) => Err(word),
            Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// These are all lines now.
    pub(crate) fn lines(&mut self, lines: Vec<LineFacts>) {
        self.owed = match self.say(Word::Lines(lines)) {
            Err(Word::Lines(lines)) => Some(lines),
            Ok(()) | Err(_) => None,
        };
    }

    /// An account is near, and these are its largest processes. One that does not fit is told again by the next scan.
    pub(crate) fn near(&mut self, facts: NearFacts) {
        if self.config == LastDefenceConfig::OFF {
            return;
        }
        if self.say(Word::Near(Box::new(facts))).is_ok() {
            self.told.insert(facts.line.uid);
        }
    }

    /// Tells who is not near any more, and what did not fit before. Costs nothing while nobody is.
    pub(crate) fn settle(&mut self, near: Option<&BTreeSet<Uid>>) {
        if let Some(lines) = self.owed.take() {
            self.lines(lines);
        }
        if self.told.is_empty() {
            return;
        }
        let far: Vec<Uid> =
            self.told.iter().filter(|uid| near.is_none_or(|near| !near.contains(uid))).copied().collect();
        for uid in far {
            if self.say(Word::Far(uid)).is_ok() {
                self.told.remove(&uid);
            }
        }
    }

    pub(crate) fn configure(&mut self, config: LastDefenceConfig) {
        if config != self.config && self.say(Word::Configure(config)).is_ok() {
            self.config = config;
        }
    }

    /// What is in force, in a few words.
    pub(crate) fn words(&self, lines: bool, dry_run: bool) -> String {
        Standing {
            config: self.config,
            memory_max: self.shared.memory_max(),
            slices: self.shared.slices.load(Ordering::Relaxed),
            raised: self.shared.raised.load(Ordering::Relaxed),
            lines,
            dry_run,
        }
        .words()
    }

    /// Ends it. With `undo`, everything that it set is put back first where nobody else changed it since.
    ///
    /// # Errors
    /// One line, when that took too long.
    pub(crate) fn stop(&mut self, undo: bool) -> Result<(), String> {
        let late = || {
            format!(
                "the last defence was not put back within {} s: run 'plimsoll daemon --stop-guarding'",
                STOP_MAX.as_secs()
            )
        };
        let deadline = Instant::now().checked_add(STOP_MAX);
        let mut word = Word::Stop { undo };
        while let Err(full) = self.say(word) {
            if deadline.is_none_or(|deadline| Instant::now() > deadline) {
                return Err(late());
            }
            word = full;
            std::thread::sleep(Duration::from_millis(10));
        }
        let Some(link) = self.link.take() else {
            return Ok(());
        };
        match link.ended.recv_timeout(STOP_MAX) {
            // Disconnected: it has ended, and dropped its end.
            Ok(()) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Ok(()),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(late()),
        }
    }
}

#[cfg(test)]
mod tests;
