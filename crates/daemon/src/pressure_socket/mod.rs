//! The pressure socket (docs/pressure-socket.md): programs that connect are told when their user's account comes near its line,
//! in systemd's memory-pressure protocol, so that they give memory back before anybody is killed for it.
//!
//! The guard tells which accounts are near ([`Teller`]), without ever waiting. A lane does the rest ([`service`]): it has one
//! listener and all connections, each counts for the user it is of ([`shares`]), and an account's are told at once and then in
//! rounds that get rarer ([`rounds`]). What they say is read and thrown away, but for the first words of who watches over a
//! job: from then on it is told of that job alone, and of what is done in it.
//!
//! Connections outlive the daemon, in the hands of the service manager, and are taken over by the next one ([`NAME`]):
//! libsystemd takes the end of a connection for pressure without end, and its program never sleeps again (ADR 32).

mod messages;
mod rounds;
mod service;
mod shares;

pub(crate) use messages::{Inbox, Link, Teller, Topic, link};

use crate::{
    api::listener::{Purpose, ServedSocket},
    journal::{Journal, Notices},
    offload::{Offload, Served},
    supervisor::Supervisor,
};
use service::{Service, ServiceSetup};
use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

/// What the service manager has connections kept under.
pub(crate) const NAME: &str = "pressure";

/// How long a stop waits for the service, which waits for nobody but, some seconds, for the service manager.
const STOP_MAX: Duration = Duration::from_secs(10);

/// What it starts with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The socket.
    pub(crate) socket: &'a Path,
    /// Connections of an earlier daemon.
    pub(crate) kept: Vec<UnixStream>,
    /// Who keeps them for the next one.
    pub(crate) supervisor: Supervisor,
    /// From the guard.
    pub(crate) inbox: Inbox,
    /// For whoever stops it.
    pub(crate) link: Link,
    /// Whose threads it is served by.
    pub(crate) offload: Offload,
    /// For what there is to say.
    pub(crate) journal: Journal,
}

/// Of what the service manager handed over, the connections.
pub(crate) fn kept(handed: Vec<(String, OwnedFd)>) -> Vec<UnixStream> {
    handed.into_iter().filter(|(name, _)| name == NAME).map(|(_, fd)| UnixStream::from(fd)).collect()
}

/// The service, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Running {
    link: Link,
    served: Served,
}

/// Opens the socket and serves it. `None`: that cannot be, which is said and shown.
pub(crate) fn start(setup: Setup<'_>) -> Option<Running> {
    let (link, journal) = (setup.link.clone(), setup.journal.clone());
    serve(setup)
        .inspect_err(|why| {
            journal.line(format!("no program is told that memory is short: {why}"));
            link.give_up(why);
        })
        .ok()
}

fn serve(setup: Setup<'_>) -> Result<Running, String> {
    let Setup { socket, kept, supervisor, inbox, link, offload, journal } = setup;
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let socket = ServedSocket::open(socket, Purpose::Pressure).map_err(|error| failed(&error))?;
    let setup = ServiceSetup { socket, supervisor, notices: Notices::new(journal), inbox };
    let service = Service::new(setup, kept).map_err(|error| failed(&error))?;
    let readable = service.readable().map_err(|error| failed(&error))?;
    let served = offload.serve(readable, service, Service::serve).map_err(|error| failed(&error))?;
    Ok(Running { link, served })
}

impl Running {
    /// Removes the socket, and closes every connection that the service manager does not keep.
    pub(crate) fn stop(self) {
        self.link.stop();
        self.served.wait(STOP_MAX);
    }
}
