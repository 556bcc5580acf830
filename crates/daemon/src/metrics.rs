//! Prometheus metrics (docs/metrics.md): off unless an address is configured.
//!
//! Each address has a lane of its own ([`service`]), so that whoever floods one holds up no other. A page is made at most once
//! a second, whoever asks how often: it takes one answer of the guard, as `plimsoll status` does. Nothing here runs until
//! somebody connects, but for a few additions at each incident ([`tally`]), on the history's thread.

mod account;
mod page;
mod request;
mod service;
mod show;
mod tally;

pub(crate) use tally::Tally;

use crate::{
    api::{
        control::Refusal,
        listener::{Purpose, ServedSocket},
    },
    config::{Listen, Metrics},
    offload::{Haste, Lane, Offload},
};
use account::Names;
use nix::unistd::chown;
use plimsoll_api::status::Status;
use plimsoll_policy::units::Gid;
use plimsoll_sys::process::{ProcRoot, process_cpu_time};
use service::{Door, Service};
use std::{
    fmt,
    fs::{self, Permissions},
    io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// What `plimsoll status` tells root.
pub(crate) type StatusOf = Box<dyn Fn() -> Result<Status, Refusal> + Send + Sync>;

/// How old a page may be that is answered with.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);

/// What it starts with.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    metrics: Metrics,
    group: Option<Gid>,
    /// For who counts.
    pub(crate) tally: Tally,
}

impl Setup {
    /// `None`: there is no address.
    pub(crate) fn of(metrics: &Metrics, group: Option<Gid>) -> Option<Self> {
        let is_on = !metrics.listen.is_empty();
        is_on.then(|| Self { metrics: metrics.clone(), group, tally: Tally::default() })
    }
}

/// Answers at each address while its lane is there; and which could not be opened, and why.
pub(crate) fn serve(setup: Setup, status: StatusOf, offload: &Offload) -> (Vec<Lane<()>>, Vec<String>) {
    let Setup { metrics, group, tally } = setup;
    let source = Arc::new(Source::new(status, tally));
    let (mut lanes, mut refused) = (Vec::new(), Vec::new());
    for listen in &metrics.listen {
        let opened = match listen {
            Listen::Unix(path) => unix(path, group).map(|door| (door, true)),
            Listen::Loopback(address) => loopback(*address).map(|door| (door, metrics.users)),
        };
        let lane = opened.and_then(|(door, users)| {
            let mut service = Service::new(door, users, Arc::clone(&source))?;
            let readable = service.readable()?;
            offload.attend(Haste::Ordinary, readable, move || service.serve())
        });
        match lane {
            Ok(lane) => lanes.push(lane),
            Err(error) => refused.push(format!("no metrics are read at {listen}: {error}")),
        }
    }
    (lanes, refused)
}

/// For root, and for the members of the group.
fn unix(path: &Path, group: Option<Gid>) -> io::Result<Door> {
    let socket = ServedSocket::open(path, Purpose::Metrics).map_err(io::Error::other)?;
    if let Some(Gid(gid)) = group {
        chown(path, None, Some(gid.into()))?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
    }
    Ok(Door::Unix(socket))
}

fn loopback(address: SocketAddr) -> io::Result<Door> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Door::Loopback(listener))
}

/// Where pages come from, for all addresses.
struct Source {
    status: StatusOf,
    tally: Tally,
    made: Mutex<Made>,
    /// Clients that were cut.
    cut: AtomicU64,
}

/// The pages that were made last.
#[derive(Debug, Default)]
struct Made {
    users: Names,
    /// Of the machine alone, and with users.
    pages: [Option<(Instant, Arc<str>)>; 2],
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Source {
    fn new(status: StatusOf, tally: Tally) -> Self {
        Self { status, tally, made: Mutex::default(), cut: AtomicU64::new(0) }
    }

    /// The page. Waits for the guard, and for whoever is making one.
    ///
    /// # Errors
    /// One line: the guard did not answer.
    fn page(&self, users: bool) -> Result<Arc<str>, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Made { users: names, pages: [of_machine, with_users] } = &mut *made;
        let page = if users { with_users } else { of_machine };
        if let Some((_, text)) = page.as_ref().filter(|(made, _)| made.elapsed() < PAGE_AGE_MAX) {
            return Ok(Arc::clone(text));
        }
        if users {
            names.renew();
        }
        let facts = self.facts()?;
        let shown = self.tally.with(|counts| show::page(&facts, counts, users.then_some(&*names)));
        let text = Arc::<str>::from(shown.text().map_err(|error| error.to_string())?);
        *page = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }

    fn facts(&self) -> Result<show::Facts, String> {
        let status = (self.status)().map_err(|refusal| refusal.to_string())?;
        let mut proc = ProcRoot::open(Path::new("/proc")).ok();
        Ok(show::Facts {
            status,
            memory: proc.as_mut().and_then(|proc| proc.read_meminfo().ok()).unwrap_or_default(),
            stalls: proc.as_mut().and_then(|proc| proc.read_memory_pressure().ok().flatten()),
            cpu: process_cpu_time(),
            cut: self.cut.load(Ordering::Relaxed),
        })
    }
}
