//! The last defence, as the guard thread sees it: who is near and which lines there are go into a bounded queue, and a
//! lane does the rest, which may wait for systemd, for a disk, for `/proc`; the guard never does.
//!
//! What was set is written down before it is set ([`record`]), so that the next daemon, or `--stop-guarding`, can put it
//! back. Decisions are policy's ([`plimsoll_policy::last_defence`]).

mod messages;
mod raised;
mod record;
mod slices;
mod systemctl;
mod worker;

#[cfg(test)]
use messages::Large;
pub(crate) use messages::{ArrangedKill, Arrangements, LineFacts, NearFacts};
use messages::{Message, Shared};
pub(crate) use record::Originals;
pub(crate) use systemctl::Systemd;
pub(crate) use worker::{Setup, undo_leftovers};

use crate::{
    message::{Sender, queue},
    offload::{Lane, Offload},
};
use plimsoll_policy::{
    account::Counted,
    last_defence::{LastDefenceConfig, Standing},
    units::Uid,
};
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
        mpsc::{Receiver, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

/// Messages waiting for the worker. One that does not fit is sent again at the guard's next turn.
const QUEUE_MAX: usize = 64;

/// How long a clean stop waits for everything to be put back: some systemctl calls, each bounded by itself.
const STOP_MAX: Duration = Duration::from_secs(20);

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
    messages: Sender<Message>,
    ended: Receiver<()>,
    /// Works for as long as it is there.
    _lane: Lane<()>,
}

impl LastDefence {
    /// Starts it, on one of these threads whenever there is something to do.
    pub(crate) fn start(setup: Setup, offload: &Offload) -> io::Result<Self> {
        let (messages, queue) = queue(QUEUE_MAX)?;
        let (ending, ended) = sync_channel(1);
        let config = setup.config;
        let shared = Arc::new(Shared {
            memory_max: AtomicU8::new(0),
            slices: AtomicU32::new(0),
            raised: AtomicU32::new(0),
        });
        shared.set_memory_max(setup.systemd.probe());
        let inbox = worker::Inbox { queue, _ending: ending };
        let lane = worker::start(setup, inbox, Arc::clone(&shared), offload)?;
        let link = Some(Link { messages, ended, _lane: lane });
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

    /// Whether the message was taken; one that nobody takes any more is as good.
    fn say(&self, message: Message) -> Result<(), Message> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        match link.messages.try_send(message) {
            Err(TrySendError::Full(message)) => Err(message),
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// These are all lines now.
    pub(crate) fn lines(&mut self, lines: Vec<LineFacts>) {
        self.owed = match self.say(Message::Lines(lines)) {
            Err(Message::Lines(lines)) => Some(lines),
            Ok(()) | Err(_) => None,
        };
    }

    /// An account is near, and these are its largest processes. One that does not fit is told again by the next scan.
    pub(crate) fn near(&mut self, facts: NearFacts) {
        if self.config == LastDefenceConfig::OFF {
            return;
        }
        if self.say(Message::Near(Box::new(facts))).is_ok() {
            self.told.insert(facts.line.uid);
        }
    }

    /// Tells who is not near any more, and what did not fit before. Costs nothing while nobody is.
    pub(crate) fn settle(&mut self, near: Option<&BTreeSet<Counted>>) {
        if let Some(lines) = self.owed.take() {
            self.lines(lines);
        }
        if self.told.is_empty() {
            return;
        }
        let far: Vec<Uid> = self
            .told
            .iter()
            .filter(|uid| near.is_none_or(|near| !near.contains(&(**uid).into())))
            .copied()
            .collect();
        for uid in far {
            if self.say(Message::Far(uid)).is_ok() {
                self.told.remove(&uid);
            }
        }
    }

    pub(crate) fn configure(&mut self, config: LastDefenceConfig) {
        if config != self.config && self.say(Message::Configure(config)).is_ok() {
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
        let mut stop = Message::Stop { undo };
        while let Err(full) = self.say(stop) {
            if deadline.is_none_or(|deadline| Instant::now() > deadline) {
                return Err(late());
            }
            stop = full;
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
