//! What the guard tells the coordinator, without ever waiting for it, and what the coordinator shows of itself.

use super::state::Tally;
use nix::sys::eventfd::{EfdFlags, EventFd};
use plimsoll_policy::units::{Bytes, Uid};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

/// Messages waiting at once. What finds no room is made good by a look at every account.
const QUEUE_MAX: usize = 256;

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Lines were drawn or cleared, and with them perhaps the programs changed.
    Lines,
    /// An account came to its soft limit, or left it.
    Moved(Uid),
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

#[derive(Debug)]
struct Shared {
    bell: EventFd,
    /// A word found no room.
    lost: AtomicBool,
    /// The daemon stops.
    stop: AtomicBool,
    shown: Mutex<Shown>,
}

/// The guard's end.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

/// The coordinator's end.
#[derive(Debug)]
pub(super) struct Messages {
    queue: Receiver<Message>,
    shared: Arc<Shared>,
}

/// Both ends; the coordinator's until it is started.
#[derive(Debug)]
pub(crate) struct Exchange {
    teller: Teller,
    words: Option<Messages>,
}

impl Exchange {
    /// A new one.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn new() -> io::Result<Self> {
        ends().map(|(teller, words)| Self { teller, words: Some(words) })
    }

    /// The guard's end.
    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// The coordinator's, once.
    pub(super) fn take_words(&mut self) -> Option<Messages> {
        self.words.take()
    }
}

fn ends() -> io::Result<(Teller, Messages)> {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let bell = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let shared = Arc::new(Shared {
        bell,
        lost: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        shown: Mutex::default(),
    });
    Ok((Teller { queue: sender, shared: Arc::clone(&shared) }, Messages { queue: receiver, shared }))
}

impl Teller {
    /// One that nobody listens to.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        ends().unwrap().0
    }

    /// Tells; never waits and allocates nothing.
    pub(crate) fn tell(&self, word: Message) {
        if self.queue.try_send(word).is_err() {
            self.lose();
            return;
        }
        self.ring();
    }

    /// What the programs told did not all arrive.
    pub(crate) fn lose(&self) {
        self.shared.lost.store(true, Ordering::Release);
        self.ring();
    }

    /// Ends the coordinator.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        if self.shared.bell.write(1).is_err() {
            // Full, and so it rings.
        }
    }

    /// What there is to show.
    pub(crate) fn shown(&self) -> Shown {
        self.shared.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It could not be started.
    pub(crate) fn give_up(&self, why: String) {
        *self.shared.shown.lock().unwrap_or_else(PoisonError::into_inner) = Shown::Off(why);
    }
}

impl Messages {
    /// Silences the bell. To be called before the words are taken, so that none is missed.
    pub(super) fn hush(&self) {
        if self.shared.bell.read().is_err() {
            // It did not ring.
        }
    }

    /// The next word.
    pub(super) fn next(&self) -> Option<Message> {
        self.queue.try_recv().ok()
    }

    /// Whether words were lost since the last call.
    pub(super) fn lost(&self) -> bool {
        self.shared.lost.swap(false, Ordering::Acquire)
    }

    /// Whether it is to end.
    pub(super) fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Shows how it stands.
    pub(super) fn show(&self, shown: Shown) {
        *self.shared.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}
