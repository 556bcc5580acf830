//! A bounded queue from other threads to one that waits for more than messages: `poll` and `epoll` can wait for its end.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, SendError, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
};

/// Both ends of a queue in which `room` messages can wait.
///
/// # Errors
/// There is no descriptor to be had.
pub(crate) fn queue<T>(room: usize) -> io::Result<(Sender<T>, Receiver<T>)> {
    let (sender, messages) = sync_channel(room);
    let bell = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    Ok((Sender { messages: sender, bell: Arc::downgrade(&bell) }, Receiver { messages, bell }))
}

/// What both ends of a service's queue share besides: whether it is to end, and how it stands.
#[derive(Debug, Default)]
pub(crate) struct Standing<S> {
    stop: AtomicBool,
    shown: Mutex<S>,
}

impl<S: Clone> Standing<S> {
    /// Says that it is to end; it has to be woken for that.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether it is to end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Shows how it stands.
    pub(crate) fn show(&self, shown: S) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// What there is to show.
    pub(crate) fn shown(&self) -> S {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The end that messages go in at.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    messages: SyncSender<T>,
    bell: Weak<EventFd>,
}

impl<T> Sender<T> {
    /// Sends a message, which comes back where there is no room for it or nobody takes any. Never waits and allocates nothing.
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.messages.try_send(message)?;
        self.wake();
        Ok(())
    }

    /// Sends a message, and waits for room. It comes back where nobody takes any.
    pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.messages.send(message)?;
        self.wake();
        Ok(())
    }

    /// Wakes the receiver, with or without a message for it.
    pub(crate) fn wake(&self) {
        if let Some(bell) = self.bell.upgrade() {
            // A bell that cannot be written to is full, and so it rings.
            bell.write(1).ok();
        }
    }

    /// Whether there is still a receiver.
    pub(crate) fn is_heard(&self) -> bool {
        self.bell.strong_count() > 0
    }

    /// One that nobody listens to.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self { messages: sync_channel(0).0, bell: Weak::new() }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), bell: Weak::clone(&self.bell) }
    }
}

/// The end that messages are taken from.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    messages: mpsc::Receiver<T>,
    bell: Arc<EventFd>,
}

impl<T> Receiver<T> {
    /// The next message. The descriptor can be read for as long as there may be another: whoever takes one and comes back later
    /// misses none.
    ///
    /// # Errors
    /// There is none now, or there will never be another.
    pub(crate) fn next(&self) -> Result<T, TryRecvError> {
        if let Ok(message) = self.messages.try_recv() {
            return Ok(message);
        }
        // It need not have rung.
        self.bell.read().ok();
        let late = self.messages.try_recv()?;
        self.bell.write(1).ok();
        Ok(late)
    }

    /// Takes nothing any more, and drops what waits.
    pub(crate) fn close(&mut self) {
        self.messages = sync_channel(0).1;
    }
}

impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests;
