//! Kills that are not ours come into the history here: a lane puts together what the kernel told at `oom/mark_victim`, what
//! its log says, what the last defence knows and what other killers write to the journal. It may wait for all of them; the
//! guard thread only writes down what comes out, and is asked for nothing else.
//!
//! With nobody killed nothing here runs: only the ring of victims, or a word, gives it work.

mod batch;
mod kill;
mod killers;
mod log_window;
mod messages;
mod worker;

pub(crate) use kill::{ForeignKill, KillFacts};
pub(crate) use killers::Sources;
pub(crate) use messages::Teller;
use messages::{Message, Shared};
pub(crate) use worker::Setup;

use crate::{
    guard::ArrangedKill,
    offload::{Lane, Offload},
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, sync_channel},
    },
    time::Duration,
};

/// Messages waiting for the worker.
const QUEUE_MAX: usize = 64;

/// How long a clean stop waits for the worker: longer than it gathers facts of a kill.
const STOP_MAX: Duration = Duration::from_secs(6);

/// The guard's end.
#[derive(Debug)]
pub(crate) struct ForeignKills {
    teller: Teller,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// What the worker had not brought to the guard when it was stopped.
    rest: Receiver<Vec<ForeignKill>>,
    /// Works for as long as it is there.
    _lane: Lane<()>,
}

impl ForeignKills {
    /// Starts it, on one of these threads whenever there is something to do.
    pub(crate) fn start(setup: Setup, offload: &Offload) -> io::Result<Self> {
        let (words, queue) = sync_channel(QUEUE_MAX);
        let bell =
            Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let shared = Arc::new(Shared::default());
        Shared::set(&shared.kernel, "not yet heard of: the program is being loaded".to_owned());
        let (sender, rest) = sync_channel(1);
        let teller = Teller { words, bell, shared };
        match setup.sources.clone() {
            Ok(sources) => killers::start(sources, teller.clone(), setup.journal.clone())?,
            Err(why) => teller.say_programs(why),
        }
        let inbox = worker::Inbox {
            queue,
            bell: Arc::clone(&teller.bell),
            shared: Arc::clone(&teller.shared),
            rest: sender,
        };
        let running = Some(Running { rest, _lane: worker::start(setup, inbox, offload)? });
        Ok(Self { teller, running })
    }

    /// One that hears of nothing.
    #[cfg(test)]
    pub(crate) fn absent() -> Self {
        let bell = Arc::new(EventFd::new().expect("an event descriptor can be made"));
        let teller = Teller { words: sync_channel(0).0, bell, shared: Arc::default() };
        Self { teller, running: None }
    }

    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// Has the last defence's deed told together with what the kernel tells of it. Never waits. It comes back where
    /// the kernel tells nothing, or the worker is behind: then it is all that is known.
    pub(crate) fn hear(&self, deed: ArrangedKill) -> Option<ArrangedKill> {
        if !self.teller.shared.told.load(Ordering::Relaxed) {
            return Some(deed);
        }
        let behind = self.teller.words.try_send(Message::ArrangedKill(deed)).is_err();
        if !behind {
            self.teller.ring();
        }
        behind.then_some(deed)
    }

    /// How the kernel's kills are heard of, and other programs'.
    pub(crate) fn words(&self) -> (String, String) {
        (Shared::get(&self.teller.shared.kernel), Shared::get(&self.teller.shared.programs))
    }

    /// Ends the worker. What it was told and had not brought to the guard comes back, to be written down.
    pub(crate) fn stop(&mut self) -> Vec<ForeignKill> {
        let Some(Running { rest, _lane }) = self.running.take() else {
            return Vec::new();
        };
        self.teller.shared.stopping.store(true, Ordering::Relaxed);
        if self.teller.words.try_send(Message::Stop).is_ok() {
            self.teller.ring();
        }
        rest.recv_timeout(STOP_MAX).unwrap_or_default()
    }
}
