//! tmalloc's coordinator: memory that processes ask for before they touch it, granted when it is certain that all of it fits
//! under their user's line (`docs/tmalloc-protocol.md`).
//!
//! A grant is one step in the kernel ([`Grantor`](grantor::Grantor)): usage, what is reserved and what is asked for, compared
//! with the line. Everything that has to outlive this process is there, so a daemon that is killed loses nothing. Here is
//! the rest: who may ask ([`state`], [`shares`]), what they hold ([`holdings`]), who waits and for whom idle memory is called
//! back ([`requests`], [`account`]), for whom some is left ([`newcomers`]), who hears that the soft limit was reached
//! ([`soft`]), which refusals are recorded ([`refusals`]). None of that touches a socket. [`service`] does: it hands in what
//! happened and carries out what comes of it.
//! It has a thread of the offload pool for as long as somebody is connected.
//!
//! It asks the guard for two things, and waits for neither: to have all tasks walked when an account is not known exactly,
//! and to write a refusal down.

mod account;
mod grantor;
mod holdings;
mod messages;
mod newcomers;
mod refusals;
mod requests;
mod service;
mod shares;
mod soft;
mod state;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use messages::{Inbox, Link, Message, Shown, link};
pub(crate) use refusals::{By, Pace, Refused};
pub(crate) use state::Tally;

use crate::{
    api::listener::{Purpose, ServedSocket},
    guard::Caller,
    journal::{Journal, Notices},
    offload::{Offload, Served},
};
use plimsoll_policy::units::Bytes;
use plimsoll_sys::{
    bpf::Pins,
    process::{ProcRoot, page_size},
};
use service::{Service, ServiceSetup};
use state::Terms;
use std::{path::Path, time::Duration};

/// How long a stop waits for the service, which waits for nobody.
const STOP_MAX: Duration = Duration::from_secs(5);

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
    /// From the guard.
    pub(crate) inbox: Inbox,
    /// For whoever stops it.
    pub(crate) link: Link,
    /// Whose threads it is served by.
    pub(crate) offload: &'a Offload,
    /// For what there is to say.
    pub(crate) journal: Journal,
}

/// The service, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Running {
    link: Link,
    served: Served,
}

/// Opens the socket and serves it.
///
/// # Errors
/// One line: the socket cannot be opened, or there is no descriptor to be had.
pub(crate) fn start(setup: Setup<'_>) -> Result<Running, String> {
    let Setup { socket, pins, headroom, caller, inbox, link, offload, journal } = setup;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let service = Service::new(ServiceSetup {
        socket: ServedSocket::open(socket, Purpose::Tmalloc).map_err(|error| failed(&error))?,
        pins,
        proc: ProcRoot::open(Path::new("/proc")).map_err(|error| failed(&error))?,
        caller,
        notices: Notices::new(journal),
        inbox,
        terms: Terms { headroom, page_size: page_size() },
    })
    .map_err(|error| failed(&error))?;
    let readable = service.readable().map_err(|error| failed(&error))?;
    // Before anybody is served it takes over what is pinned.
    link.tell(Message::Lines);
    let served = offload.serve(readable, service, Service::serve).map_err(|error| failed(&error))?;
    Ok(Running { link, served })
}

impl Running {
    /// Closes every connection and removes the socket. What was granted stays so.
    pub(crate) fn stop(self) {
        self.link.stop();
        self.served.wait(STOP_MAX);
    }
}
