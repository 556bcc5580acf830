//! Kills that are not ours come into the history here: a lane puts together what the kernel told at `oom/mark_victim`, what
//! its log says, what the last defence knows and what other killers write to the journal. It may wait for all of them; the
//! guard thread only writes down what comes out, and is asked for nothing else.
//!
//! With nobody killed nothing here runs: only the ring of victims, or a message, gives it work.

mod batch;
mod kill;
mod killers;
mod log_window;
mod messages;
mod worker;

pub(crate) use kill::{ForeignKill, KillFacts};
pub(crate) use killers::Sources;
pub(crate) use messages::Link;
use messages::{Message, Shared};
pub(crate) use worker::Setup;

use crate::{
    guard::ArrangedKill,
    message::queue,
    offload::{Lane, Offload},
};
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
    link: Link,
    running: Option<Running>,
    rivals: Vec<&'static str>,
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
        let (messages, queue) = queue(QUEUE_MAX)?;
        let shared = Arc::new(Shared::default());
        Shared::set(&shared.kernel, "not yet heard of: the program is being loaded".to_owned());
        let (sender, rest) = sync_channel(1);
        let link = Link { messages, shared };
        let rivals = setup.sources.as_ref().map_or_else(|_| Vec::new(), |sources| sources.units().to_vec());
        match setup.sources.clone() {
            Ok(sources) => killers::start(sources, link.clone(), setup.journal.clone())?,
            Err(why) => link.say_programs(why),
        }
        let inbox = worker::Inbox { queue, shared: Arc::clone(&link.shared), rest: sender };
        let running = Some(Running { rest, _lane: worker::start(setup, inbox, offload)? });
        Ok(Self { link, running, rivals })
    }

    /// One that hears of nothing.
    #[cfg(test)]
    pub(crate) fn absent() -> Self {
        Self {
            link: Link { messages: crate::message::Sender::closed(), shared: Arc::default() },
            running: None,
            rivals: Vec::new(),
        }
    }

    pub(crate) fn link(&self) -> Link {
        self.link.clone()
    }

    /// Has the last defence's deed told together with what the kernel tells of it. Never waits. It comes back where
    /// the kernel tells nothing, or the worker is behind: then it is all that is known.
    pub(crate) fn hear(&self, deed: ArrangedKill) -> Option<ArrangedKill> {
        if !self.link.shared.told.load(Ordering::Relaxed) {
            return Some(deed);
        }
        self.link.messages.try_send(Message::ArrangedKill(deed)).is_err().then_some(deed)
    }

    /// How the kernel's kills are heard of, and other programs'.
    pub(crate) fn words(&self) -> (String, String) {
        (Shared::get(&self.link.shared.kernel), Shared::get(&self.link.shared.programs))
    }

    /// The units of those that end programs for the same shortage as the machine guard.
    pub(crate) fn rivals(&self) -> &[&'static str] {
        &self.rivals
    }

    /// Ends the worker. What it was told and had not brought to the guard comes back, to be written down.
    pub(crate) fn stop(&mut self) -> Vec<ForeignKill> {
        let Some(Running { rest, _lane }) = self.running.take() else {
            return Vec::new();
        };
        self.link.shared.stopping.store(true, Ordering::Release);
        self.link.messages.wake();
        rest.recv_timeout(STOP_MAX).unwrap_or_default()
    }
}
