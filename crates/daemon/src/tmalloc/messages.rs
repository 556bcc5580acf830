//! What the guard tells the coordinator, without ever waiting for it, and what the coordinator shows of itself.

use super::state::Tally;
use crate::message::{Receiver, Sender, Standing, queue};
use plimsoll_policy::units::{Bytes, Uid};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Messages waiting at once. What finds no room is made good by a look at every account.
const QUEUE_MAX: usize = 256;

/// What the guard tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Lines were drawn or cleared, and with them perhaps the programs changed.
    Lines,
    /// The account of these, or one above it, came to its soft limit, or left it. In one message, however many they are.
    Moved(Vec<Uid>),
    /// All tasks have been walked.
    Walked,
    /// What grants leave free is this now.
    Headroom(Bytes),
}

/// Whether it runs, and what it does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Shown {
    /// It is not started yet.
    #[default]
    Starting,
    /// It runs.
    On(Tally),
    /// It does not, for this reason.
    Off(String),
}

#[derive(Debug, Default)]
struct Shared {
    /// A message found no room.
    lost: AtomicBool,
    standing: Standing<Shown>,
}

/// The guard's end.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    queue: Sender<Message>,
    shared: Arc<Shared>,
}

/// The coordinator's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(super) queue: Receiver<Message>,
    shared: Arc<Shared>,
}

/// Both ends.
///
/// # Errors
/// There is no descriptor to be had.
pub(crate) fn link() -> io::Result<(Link, Inbox)> {
    let (sender, receiver) = queue(QUEUE_MAX)?;
    let shared = Arc::<Shared>::default();
    Ok((Link { queue: sender, shared: Arc::clone(&shared) }, Inbox { queue: receiver, shared }))
}

impl Link {
    /// One that nobody listens to.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { queue: Sender::closed(), shared: Arc::default() }
    }

    /// Tells; never waits.
    pub(crate) fn tell(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            self.lose();
        }
    }

    /// What the programs told did not all arrive.
    pub(crate) fn lose(&self) {
        self.shared.lost.store(true, Ordering::Release);
        self.queue.wake();
    }

    /// Ends the coordinator. Never waits: no thread may be there to take a message.
    pub(super) fn stop(&self) {
        self.shared.standing.stop();
        self.queue.wake();
    }

    /// What there is to show.
    pub(crate) fn shown(&self) -> Shown {
        self.shared.standing.shown()
    }

    /// It could not be started.
    pub(crate) fn give_up(&self, why: String) {
        self.shared.standing.show(Shown::Off(why));
    }
}

impl Inbox {
    /// Whether messages were lost since the last call.
    pub(super) fn lost(&self) -> bool {
        self.shared.lost.swap(false, Ordering::Acquire)
    }

    /// Whether it is to end.
    pub(super) fn stopped(&self) -> bool {
        self.shared.standing.stopped()
    }

    /// Shows how it stands.
    pub(super) fn show(&self, shown: Shown) {
        self.shared.standing.show(shown);
    }
}
