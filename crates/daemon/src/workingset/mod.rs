//! Working-set protection: the files in use stay in memory when it runs short.
//!
//! Two threads while it is on, none while it is off. The worker counts use, plans, maps and locks. The floor thread waits for
//! nobody: it lets the soft tier go as soon as reclaim makes no progress, and keeps the table of whom the programs may end at
//! the floor. Two lanes beside them: files are opened in one, where that may wait for a disk; the setter changes settings of
//! the kernel in the other. What they know together is in [`Shared`]; none holds it while it waits.

mod charges;
mod duty_cycle;
mod floor;
mod locked_files;
mod locking;
mod opener;
mod readings;
mod setter;
mod shared;
mod terms;
mod times;
mod tunables;
mod view;
mod worker;

use crate::{
    api::control::Refusal,
    guard::Caller,
    journal::Journal,
    knobs::Knobs,
    loader::Loader,
    offload::{Lane, Offload},
};
use plimsoll_api::protect::ProtectView;
use plimsoll_policy::units::{Bytes, PageSize, Pages};
use plimsoll_sys::{
    bpf::WorkingSet as Programs,
    cgroup::MemoryCgroup,
    workingset::{Locks, Mounts},
};
use readings::Readings;
use shared::Shared;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};
pub(crate) use terms::Terms;
pub(crate) use tunables::SavedTunables;

/// What it is made with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) pin: PathBuf,
    pub(crate) knobs: Arc<Mutex<Knobs>>,
    pub(crate) loader: Loader,
    pub(crate) caller: Caller,
    pub(crate) offload: Offload,
    pub(crate) journal: Journal,
    pub(crate) mem_total: Bytes,
    pub(crate) page_size: PageSize,
}

/// Protection that is on.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    /// Never waits for long, and is waited for; the others may be waiting for a disk or a lock of the kernel's, and are not.
    floor: JoinHandle<()>,
    /// Settings are changed for as long as it is there.
    _setter: Option<Lane<()>>,
}

/// What takes a while.
#[derive(Debug, Clone, Copy)]
enum Change {
    Starting,
    Ending,
}

#[derive(Debug, Default)]
struct State {
    terms: Terms,
    running: Option<Running>,
    /// Why it is not on though it is to be.
    failed: Option<String>,
    changing: Option<Change>,
    closed: bool,
}

/// Turns protection on and off, and tells about it.
#[derive(Debug)]
pub(crate) struct WorkingSet {
    setup: Setup,
    /// Held by who turns it on or off, which takes a while.
    turn: Mutex<()>,
    /// Held for as long as it takes to look.
    state: Mutex<State>,
}

impl WorkingSet {
    /// Off.
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, turn: Mutex::default(), state: Mutex::default() }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these terms hold; when it returns, they do. Takes a second where programs are loaded for it.
    ///
    /// # Errors
    /// One line: why it cannot be on. It is off then.
    pub(crate) fn set(&self, terms: &Terms) -> Result<(), Refusal> {
        let _turn = self.turn();
        let mut state = self.state();
        if state.closed {
            return Err(Refusal::Unavailable("the daemon is stopping".to_owned()));
        }
        let goes_on = (&state.terms.cgroup, state.terms.dry_run) == (&terms.cgroup, terms.dry_run);
        let on = terms.tunables.workingset_protection;
        state.failed = None;
        state.terms = terms.clone();
        if let Some(running) = state.running.as_ref().filter(|_| on && goes_on) {
            running.shared.change(terms.tunables);
            return Ok(());
        }
        drop(state);
        self.end();
        if !on {
            return Ok(());
        }
        self.state().changing = Some(Change::Starting);
        let begun = self.begin(terms);
        let mut state = self.state();
        state.changing = None;
        match begun {
            Ok(running) => {
                state.running = Some(running);
                Ok(())
            }
            Err(why) => {
                state.failed = Some(why.clone());
                Err(Refusal::Unavailable(format!("the working set is not protected: {why}")))
            }
        }
    }

    /// Off for good: nothing is locked or attached any more when it returns.
    pub(crate) fn close(&self) {
        let _turn = self.turn();
        self.state().closed = true;
        self.end();
        self.setup.knobs.lock().unwrap_or_else(PoisonError::into_inner).close();
    }

    /// Whether it is on, in a few words.
    pub(crate) fn words(&self) -> String {
        words(&self.state())
    }

    fn end(&self) {
        let Some(Running { shared, floor, _setter }) = self.state().take_running() else { return };
        if let Err(error) = shared.stop() {
            self.setup.journal.line(format!("working set: {error}"));
        }
        // The setter looks whether it is to stop once it has them, so that nothing is set after this.
        self.setup.knobs.lock().unwrap_or_else(PoisonError::into_inner).end_protection();
        if floor.join().is_err() {
            self.setup.journal.line("working set: the floor thread ended badly".to_owned());
        }
        self.state().changing = None;
    }

    fn begin(&self, terms: &Terms) -> Result<Running, String> {
        let Setup { pin, knobs, loader, caller, offload, journal, mem_total, page_size } = &self.setup;
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let cgroup = terms.cgroup.as_deref().map(MemoryCgroup::open).transpose();
        let cgroup = cgroup.map_err(|error| {
            format!("workingset.cgroup = '{}': {error}", terms.cgroup.as_deref().unwrap_or(""))
        })?;
        let readings = Readings::new(cgroup, *mem_total, *page_size).map_err(|error| said(&error))?;
        loader.prepare_working_set()?;
        let mut counts = Programs::open(pin).map_err(|error| said(&error))?;
        let floor = Programs::open(pin).map_err(|error| said(&error))?;
        counts.attach().map_err(|error| said(&error))?;
        let mut proc = Readings::proc().map_err(|error| said(&error))?;
        let memory = readings.memory(&mut proc).unwrap_or(*mem_total);
        let locks = Locks::reserve(memory).map_err(|error| said(&error))?;
        let mounts = Mounts::new().map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let shared = Arc::new(Shared::new(terms, locks, counts).map_err(|error| said(&error))?);
        let floor = floor::FloorThread::new(
            Arc::clone(&shared),
            floor,
            readings.clone(),
            caller.clone(),
            journal.clone(),
        )?;
        // With a cgroup or as a rehearsal nothing of the machine is set.
        let sets = terms.cgroup.is_none() && !terms.dry_run;
        let setter = || {
            let (shared, knobs) = (Arc::clone(&shared), Arc::clone(knobs));
            setter::Setter::new(shared, readings.clone(), knobs)
        };
        let setter = sets.then(setter).transpose()?;
        let means = worker::Means {
            mounts,
            opener: opener::Opener::new(offload)?,
            readings,
            journal: journal.clone(),
        };
        let worker = worker::Worker::new(Arc::clone(&shared), means)?;
        let floor = spawn("floor", move || floor.run())?;
        let worker = spawn("workingset", move || worker.run());
        let setter = setter.map(|setter| setter.start(offload)).transpose();
        match worker.and(setter) {
            Ok(setter) => Ok(Running { shared, floor, _setter: setter }),
            Err(error) => {
                drop(shared.stop());
                drop(floor.join());
                Err(error)
            }
        }
    }

    /// How much of files is locked.
    pub(crate) fn locked_bytes(&self) -> u64 {
        let locked = |running: &Running| running.shared.locked_in_all().0;
        self.setup.page_size.to_bytes(Pages(self.state().running.as_ref().map_or(0, locked))).0
    }

    /// What is kept in memory, and why.
    pub(crate) fn view(&self) -> ProtectView {
        let state = self.state();
        let mut view = match &state.running {
            Some(running) => running.shared.view(self.setup.page_size),
            None => ProtectView::default(),
        };
        view.tunables = state.terms.tunables;
        view.cgroup.clone_from(&state.terms.cgroup);
        view.state = words(&state);
        view
    }
}

impl State {
    /// What is to be ended, and is said to be until it is.
    fn take_running(&mut self) -> Option<Running> {
        let running = self.running.take();
        self.changing = running.as_ref().map(|_| Change::Ending);
        running
    }
}

fn words(state: &State) -> String {
    match (&state.running, state.changing, &state.failed) {
        (Some(_), _, _) if state.terms.dry_run => "on; dry run: nobody is ended at the floor".to_owned(),
        (Some(_), _, _) => "on".to_owned(),
        (None, Some(Change::Starting), _) => "starting".to_owned(),
        (None, Some(Change::Ending), _) => "ending".to_owned(),
        (None, None, Some(why)) => format!("off: {why}"),
        (None, None, None) => "off".to_owned(),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

#[cfg(test)]
mod tests;
