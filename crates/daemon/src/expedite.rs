//! Victims of others' kills, freed by our reapers as our own are: those that a client names (`plimsoll kill --expedite`), and
//! by configuration every large one that anybody kills, as a program in the kernel tells.
//!
//! Nothing is ever signalled here. The reapers do nothing to a process that SIGKILL has not reached, so that whoever asks gets
//! no more than what the victim would have done by itself, earlier. What it may cost is bounded ([`places`]), and a reaper
//! takes none of these while one of ours waits.

mod places;

use crate::{
    api::{control::Refusal, peer::Peer},
    config::{Expedited, Reaping},
    journal::Journal,
    loader::Loader,
    message::{Receiver, Sender, queue},
    offload::{Haste, Lane, Offload},
    owners::Owners,
    pace::now,
};
use places::{AT_WORK_MAX, Places, Refused};
use plimsoll_api::status::ReapingView;
use plimsoll_policy::{
    human::bytes,
    permission,
    reap::Hindrance,
    units::{Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{BpfError, Killed},
    process::{KilledBy, PidFd, ProcRoot, ProcessError, ReapReport, ReaperHandle, page_size, tick_ns},
};
use plimsoll_wire::killed::{self, KilledSettings};
use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// What became of one.
#[derive(Debug, Clone, Copy)]
struct Done {
    tag: u64,
    cost: Duration,
    /// What came back, where that is known.
    freed_bytes: Option<u64>,
    /// SIGKILL had reached it, and it was neither one of our own nor its tracer's.
    is_victim: bool,
}

/// The end at which the reapers tell.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    done: Sender<Done>,
}

impl Link {
    /// Tells of one that somebody else killed; whether it was one. Never waits.
    pub(crate) fn tell(&self, report: &ReapReport) -> bool {
        if report.killed_by == KilledBy::Us {
            return false;
        }
        let cost = Duration::from_nanos(report.cost_ns);
        let held = report.held.map(|held| held.anonymous);
        let freed_bytes = report.left.and_then(|left| Some(held?.saturating_sub(left).0));
        // There is room for as many as there are places.
        let is_victim = !report.left_alone && !report.found.contains(Hindrance::NotKilled);
        self.done.try_send(Done { tag: report.tag, cost, freed_bytes, is_victim }).ok();
        true
    }
}

/// Both ends of what the reapers tell.
///
/// # Errors
/// There is no descriptor to be had.
pub(crate) fn link() -> io::Result<(Link, Inbox)> {
    let (done, inbox) = queue(AT_WORK_MAX)?;
    Ok((Link { done }, Inbox(inbox)))
}

/// The end that [`Expedite`] listens at.
#[derive(Debug)]
pub(crate) struct Inbox(Receiver<Done>);

/// What `status` counts, since the daemon started.
#[derive(Debug, Default)]
struct Counts {
    victims: AtomicU64,
    freed_bytes: AtomicU64,
    refused: AtomicU64,
}

/// What all that takes victims in share.
#[derive(Debug)]
struct Shared {
    places: Mutex<Places<PidFd>>,
    owners: Mutex<Owners>,
    reaper: ReaperHandle,
    counts: Counts,
    /// The program in the kernel, attached, while everybody's victims are freed.
    killed: Mutex<Option<Killed>>,
}

/// Held for moments, or by who may wait. Each change leaves it sound, whoever panics.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn owner(&self, uid: Uid) -> Uid {
        locked(&self.owners).owner_now(uid)
    }

    /// Takes a victim in; whether it is, or was, taken.
    fn take(&self, victim: PidFd, id: VictimId, owner: Uid) -> bool {
        let mut places = locked(&self.places);
        let entered = places.enter(id, owner, victim, now());
        self.submit(&mut places);
        if entered == Err(Refused::OverShare) {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        entered != Err(Refused::OverShare)
    }

    /// Hands over whoever's turn it is.
    fn submit(&self, places: &mut Places<PidFd>) {
        while let Some((tag, victim)) = places.next() {
            if self.reaper.submit_other(victim, tag).is_err() {
                places.leave(tag, Duration::ZERO, now());
            }
        }
    }

    /// Makes room for the next, whenever the reapers have told of one.
    fn settle(&self, inbox: &Inbox) {
        while let Ok(Done { tag, cost, freed_bytes, is_victim }) = inbox.0.next() {
            let mut places = locked(&self.places);
            places.leave(tag, cost, now());
            self.submit(&mut places);
            drop(places);
            if is_victim {
                self.counts.victims.fetch_add(1, Ordering::Relaxed);
                self.counts.freed_bytes.fetch_add(freed_bytes.unwrap_or(0), Ordering::Relaxed);
            }
        }
    }

    /// Takes in whom the kernel has told of. Whoever is gone by now needs nobody.
    fn listen(&self, root: &ProcRoot) -> Result<bool, BpfError> {
        let mut killed = locked(&self.killed);
        let Some(killed) = killed.as_mut() else { return Ok(false) };
        while let Some(killed::Killed { victim, user }) = killed.next_killed()? {
            if let Ok(pidfd) = PidFd::open_verified(root, victim.pid, victim.start_ns) {
                self.take(pidfd, identity(victim.pid, victim.start_ns), self.owner(user));
            }
        }
        Ok(true)
    }
}

/// To the tick, as `/proc` tells it: the kernel tells the same process's start exactly.
fn identity(pid: Pid, start_ns: u64) -> VictimId {
    let ticks = start_ns.checked_div(tick_ns()).unwrap_or(start_ns);
    VictimId { pid, start_ns: ticks.saturating_mul(tick_ns()) }
}

/// What is in force.
#[derive(Debug)]
struct State {
    wanted: Reaping,
    /// Why not everybody's victims are freed though they are to be.
    failed: Option<String>,
    /// Reads what the program tells, for as long as it is there.
    reader: Option<Lane<()>>,
    closed: bool,
}

/// Takes victims of others' kills in.
#[derive(Debug)]
pub(crate) struct Expedite {
    shared: Arc<Shared>,
    /// Held by who changes what is in force, which takes a while.
    turn: Mutex<()>,
    state: Mutex<State>,
    pin: PathBuf,
    loader: Loader,
    offload: Offload,
    journal: Journal,
    _settling: Lane<()>,
}

/// The reapers, and whose victims they are to have.
#[derive(Debug)]
pub(crate) struct Others {
    pub(crate) inbox: Inbox,
    pub(crate) reaper: ReaperHandle,
    pub(crate) wanted: Reaping,
}

/// What it starts with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) others: Others,
    pub(crate) pin: PathBuf,
    pub(crate) loader: Loader,
    pub(crate) offload: Offload,
    pub(crate) journal: Journal,
}

impl Expedite {
    /// Takes what clients name. [`Expedite::begin`] does what the configuration says.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let Setup { others: Others { inbox, reaper, wanted }, pin, loader, offload, journal } = setup;
        let shared = Arc::new(Shared {
            places: Mutex::default(),
            owners: Mutex::new(Owners::of_machine()),
            reaper,
            counts: Counts::default(),
            killed: Mutex::default(),
        });
        let readable = inbox.0.as_fd().try_clone_to_owned()?;
        let settles = Arc::clone(&shared);
        let settling = offload.attend(Haste::Ordinary, readable, move || {
            settles.settle(&inbox);
            true
        })?;
        let state = Mutex::new(State { wanted, failed: None, reader: None, closed: false });
        Ok(Self { shared, turn: Mutex::default(), state, pin, loader, offload, journal, _settling: settling })
    }

    /// Does what the configuration said.
    pub(crate) fn begin(&self) {
        let _turn = locked(&self.turn);
        let wanted = locked(&self.state).wanted;
        self.apply(wanted);
    }

    /// Detached for good: nothing is loaded any more when it returns.
    pub(crate) fn close(&self) {
        let _turn = locked(&self.turn);
        self.detach();
        locked(&self.state).closed = true;
    }

    /// Does what the configuration says now. Where that cannot be, it is said, and only ours and those that are named are
    /// freed. Takes a second where the program is loaded for it.
    pub(crate) fn set(&self, wanted: Reaping) {
        let _turn = locked(&self.turn);
        self.apply(wanted);
    }

    fn detach(&self) {
        locked(&self.state).reader = None;
        drop(locked(&self.shared.killed).take());
    }

    fn apply(&self, wanted: Reaping) {
        // Before it is attached anew: its ring has one reader.
        self.detach();
        let mut state = locked(&self.state);
        (state.wanted, state.failed) = (wanted, None);
        let ends = state.closed;
        drop(state);
        if ends || wanted.expedite == Expedited::Ours {
            return;
        }
        match self.attach(wanted) {
            Ok(reader) => locked(&self.state).reader = Some(reader),
            Err(why) => {
                self.detach();
                self.journal.line(format!("reaping.expedite = \"any\" is not in force: {why}"));
                locked(&self.state).failed = Some(why);
            }
        }
    }

    fn attach(&self, wanted: Reaping) -> Result<Lane<()>, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        self.loader.prepare_killed()?;
        let root = ProcRoot::open(Path::new("/proc")).map_err(|error| said(&error))?;
        let from = page_size().to_pages(wanted.expedite_from);
        let settings = KilledSettings { from, daemon: Pid(std::process::id()) };
        let killed = Killed::attach(&self.pin, settings).map_err(|error| said(&error))?;
        let readable = killed.fd().try_clone_to_owned().map_err(|error| said(&error))?;
        *locked(&self.shared.killed) = Some(killed);
        let (shared, journal) = (Arc::clone(&self.shared), self.journal.clone());
        let listens = move || {
            shared.listen(&root).unwrap_or_else(|error| {
                journal.line(format!("who is killed by others is not heard of any more: {error}"));
                drop(locked(&shared.killed).take());
                false
            })
        };
        self.offload.attend(Haste::Ordinary, readable, listens).map_err(|error| said(&error))
    }

    /// Takes in the process that a client names, and has sent SIGKILL to; whether it is taken. One that is not dying is not: it
    /// would keep its place from others for as long as the reapers wait for its signal.
    ///
    /// # Errors
    /// There is no such process, or it is none of the client's.
    pub(crate) fn take(&self, peer: Peer, pid: Pid, start_ns: u64) -> Result<bool, Refusal> {
        let failed = |error: ProcessError| match error {
            ProcessError::Vanished(_) => Refusal::NotFound(format!(
                "there is no process {pid} that started then; it may be gone already"
            )),
            other @ (ProcessError::Denied { .. }
            | ProcessError::Unsupported { .. }
            | ProcessError::Failed { .. }
            | ProcessError::Unreadable { .. }) => Refusal::Internal(other.to_string()),
        };
        let mut root = ProcRoot::open(Path::new("/proc")).map_err(failed)?;
        let victim = PidFd::open_verified(&root, pid, start_ns).map_err(failed)?;
        let process = root.process(pid).map_err(failed)?;
        let id = identity(pid, process.start_ns);
        // Held by then: a later process of the same number started later.
        if id != identity(pid, start_ns) {
            return Err(failed(ProcessError::Vanished(pid)));
        }
        let owner = self.shared.owner(process.uid);
        permission::may_expedite(peer.uid, peer.owner, owner)
            .map_err(|refused| Refusal::NotPermitted(refused.to_string()))?;
        Ok(process.dying && self.shared.take(victim, id, owner))
    }

    /// For `status`.
    pub(crate) fn view(&self) -> ReapingView {
        let Counts { victims, freed_bytes, refused } = &self.shared.counts;
        let untold = locked(&self.shared.killed).as_ref().map(Killed::untold);
        let untold = untold.and_then(Result::ok).unwrap_or(0);
        let listening = locked(&self.shared.killed).is_some();
        ReapingView {
            state: words(&locked(&self.state), listening),
            victims: victims.load(Ordering::Relaxed),
            freed_bytes: freed_bytes.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed).saturating_add(untold),
        }
    }
}

/// `listening`: somebody hears who is killed; not any more where that failed, which the journal says.
fn words(state: &State, listening: bool) -> String {
    const OURS: &str = "victims of ours, and of 'plimsoll kill --expedite'";
    let from = bytes(state.wanted.expedite_from);
    match (state.wanted.expedite, &state.failed, &state.reader) {
        (Expedited::Ours, ..) => OURS.to_owned(),
        (Expedited::Any, None, Some(_)) if listening => format!("victims of anybody's kill, from {from} on"),
        (Expedited::Any, None, Some(_)) => format!("{OURS}; not anybody's now: the journal says why"),
        (Expedited::Any, None, None) => format!("{OURS}; anybody's: not yet"),
        (Expedited::Any, Some(why), _) => format!("{OURS}; not anybody's: {why}"),
    }
}
