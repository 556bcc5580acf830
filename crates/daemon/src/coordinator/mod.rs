//! tmalloc's coordinator: memory that processes ask for before they touch it, granted when it is certain that all of it fits
//! under their user's line (`docs/tmalloc-protocol.md`).
//!
//! A grant is one step in the kernel ([`Grantor`](grantor::Grantor)): usage, what is reserved and what is asked for, compared
//! with the line. Everything that has to outlive this process is there, so a daemon that is killed loses nothing. Here is
//! the rest: who may ask ([`state`]), what they hold ([`holdings`]), who waits and for whom idle memory is called back
//! ([`asks`], [`desk`]), who hears that the soft limit was reached ([`soft`]), which refusals are recorded ([`refusals`]).
//! None of that touches a socket: the thread that does ([`service`]) hands in what happened and carries out what comes of it.
//!
//! It asks the guard for two things, and waits for neither: to have all tasks walked when an account is not known exactly,
//! and to write a refusal down.

mod asks;
mod desk;
mod grantor;
mod holdings;
mod refusals;
mod service;
mod soft;
mod state;
#[cfg(test)]
mod tests;
mod turns;
mod words;

pub(crate) use refusals::Refused;
pub(crate) use state::Tally;
pub(crate) use words::{Exchange, Shown, Teller, Word};

use crate::{
    api::listener::{Purpose, ServedSocket},
    guard::{Caller, Journal, Notices},
};
use plimsoll_policy::units::Bytes;
use plimsoll_sys::{
    bpf::Pins,
    process::{ProcRoot, page_size},
};
use service::{Ground, Service};
use state::Terms;
use std::{
    path::Path,
    thread::{self, JoinHandle},
};

/// Stack of the thread in bytes. What it holds is on the heap.
const STACK_BYTES: usize = 256 * 1024;

/// What it starts with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The socket.
    pub(crate) socket: &'a Path,
    /// Where the programs are pinned.
    pub(crate) pins: Pins,
    /// What grants leave free under each line.
    pub(crate) headroom: Bytes,
    /// The way to the guard.
    pub(crate) caller: Caller,
    /// Between the guard and this, not used before.
    pub(crate) exchange: &'a mut Exchange,
    /// For what there is to say.
    pub(crate) journal: Journal,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Running {
    teller: Teller,
    thread: JoinHandle<()>,
}

/// Opens the socket and starts the thread.
///
/// # Errors
/// One line: the socket cannot be opened, or there is no thread or descriptor to be had.
pub(crate) fn start(setup: Setup<'_>) -> Result<Running, String> {
    let Setup { socket, pins, headroom, caller, exchange, journal } = setup;
    let words = exchange.take_words().ok_or("it was started before")?;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let service = Service::new(Ground {
        socket: ServedSocket::open(socket, Purpose::Tmalloc).map_err(|error| failed(&error))?,
        pins,
        proc: ProcRoot::open(Path::new("/proc")).map_err(|error| failed(&error))?,
        caller,
        notices: Notices::new(journal),
        words,
        terms: Terms { headroom, page_size: page_size() },
    })
    .map_err(|error| failed(&error))?;
    let thread = thread::Builder::new()
        .name("tmalloc".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || service.run())
        .map_err(|error| failed(&error))?;
    Ok(Running { teller: exchange.teller(), thread })
}

impl Running {
    /// Closes every connection and removes the socket. What was granted stays so.
    pub(crate) fn stop(self) {
        self.teller.stop();
        // It fails only if the thread panicked, which has been reported by then.
        drop(self.thread.join());
    }
}
