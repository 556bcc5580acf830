//! Starting and stopping: everything that can fail fails here, before anything is guarded, with one line.

use crate::{
    api::{control::Control as _, peer::Peer, server::Server},
    config::{Charge, Config},
    control,
    control::{ControlService, Saved},
    directory::Wanted,
    errands, expedite,
    expedite::{Expedite, Others},
    facts::{jobs::JobFinder, meter::InForceFile, names::NameReader},
    foreign_kills::{ForeignKills, Link as ForeignLink, Setup as ForeignKillsSetup, Sources},
    guard::{
        Arrangements, Caller, Change, Context, Eligibility, Guard, Host, LastDefence, LastDefenceSetup,
        Ledger, Originals, PendingKills, Setup, Shield, Systemd, Workers, WorkersSetup, mailbox,
        undo_leftovers,
    },
    history::{Caps, Hearer, History, Inheritance, Outcome as LaterFacts, PinnedNotes, Writer},
    inspection::Inspection,
    journal::{Journal, Notices},
    knobs,
    knobs::Knobs,
    loader,
    loader::Loader,
    metrics,
    offload::{Lane, Offload},
    options::DaemonOptions,
    pressure_socket, privileges, reaped,
    sampler::{Sampler, SharedRecorder},
    settings::{self, Read, Settings},
    state::{LINES, StateFile},
    supervisor::Supervisor,
    tmalloc,
    undo::Leftovers,
    workingset::{SavedTunables, Setup as WorkingSetSetup, WorkingSet},
};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use plimsoll_policy::{
    incident::{Incident, Outcome},
    last_defence::LastDefenceConfig,
    lines::{LineBook, StoredLine},
    units::{Bytes, Uid},
};
use plimsoll_report::story;
use plimsoll_sys::{
    bpf::{
        BpfError, Found, Killed, Looks, OomKills, PinState, Pins, Selector, Strict, WorkingSet as Programs,
    },
    kernel_log::KernelLog,
    process::{
        OomScore, ProcRoot, inherited_descriptors, lock_memory, mem_total, page_size, raise_open_files,
        set_oom_score_adj_self, tick_ns, try_mount_bpffs,
    },
};
use std::{
    fs::File,
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use thiserror::Error;

/// How long the history may take to be written at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why the daemon did not start, or did not stop well: one line for the user.
#[derive(Debug, Error)]
pub enum RunError {
    /// Not root.
    #[error("not permitted: the daemon needs root; run it with sudo, or as a system service")]
    NotPermitted,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

fn failed(error: impl std::fmt::Display) -> RunError {
    RunError::Failed(error.to_string())
}

/// The pin folder, locked for one daemon.
#[derive(Debug)]
struct PinLock {
    _lock: Flock<File>,
    /// Programs of an earlier daemon are there, and in force.
    adopted: bool,
}

/// Everything that can be refused, checked before anything is started.
#[derive(Debug)]
struct Inputs {
    saved: Saved,
    config: Config,
    settings: Settings,
    pins: Pins,
    lock: Option<PinLock>,
    signals: SignalFd,
    offload: Offload,
    journal: Journal,
    notices: Notices,
    mem_total: Bytes,
    kernel_log: Result<KernelLog, String>,
    supervisor: Supervisor,
}

/// What everything beside the guard has: threads for its work, the way to the guard, and the way to the journal.
#[derive(Debug, Clone)]
struct Links {
    offload: Offload,
    caller: Caller,
    journal: Journal,
}

/// What runs besides the guard thread.
#[derive(Debug)]
struct Services {
    /// Loads the selection programs, and ends.
    loading: Option<JoinHandle<()>>,
    links: Links,
    /// Replaces reapers that do not come back.
    _reaper_watch: Lane<()>,
    /// Between the guard and whoever answers those that ask for memory.
    tmalloc: Option<(tmalloc::Link, tmalloc::Inbox)>,
    /// Between the guard and whoever tells programs that memory is short.
    pressure: Option<(pressure_socket::Link, pressure_socket::Inbox)>,
    control: Arc<ControlService>,
    /// Where metrics are read; `None`: nowhere.
    metrics: Option<metrics::Setup>,
    writer: Writer,
    lock: Option<PinLock>,
}

/// Guards until SIGTERM or SIGINT, which end all guarding, or SIGUSR1: then what is pinned stays at work for the next
/// daemon, as after a crash, and all else has been written down.
///
/// # Errors
/// [`RunError`]; nothing is left behind then.
pub fn run(options: &DaemonOptions) -> Result<(), RunError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(RunError::NotPermitted);
    }
    // Before anything is opened.
    let kept = pressure_socket::kept(inherited_descriptors());
    let inputs = prepare(options)?;
    let (book, supervisor) = (Arc::clone(&inputs.saved.book), inputs.supervisor.clone());
    let loader = Loader::new(&inputs.pins, &inputs.config, inputs.mem_total);
    let headroom = inputs.settings.guards.headroom;
    let (mut guard, mut services) =
        start(options, inputs, loader.clone()).inspect_err(|_| remove_empty(&options.pin))?;
    begin(&mut guard, &book, &loader, services.lock.is_some());
    let server = match Server::start(&options.socket, Arc::<ControlService>::clone(&services.control)) {
        Ok(server) => server,
        Err(error) => {
            // What an earlier daemon left in force stays so: this one has never run.
            let keep = options.keep || services.lock.as_ref().is_some_and(|lock| lock.adopted);
            end(guard, options, keep, services)?;
            return Err(failed(error));
        }
    };
    harden(&mut guard);
    let grants = start_tmalloc(&mut guard, options, headroom, &mut services);
    let listeners = start_pressure(options, kept, supervisor.clone(), &mut services);
    look_up_members(&services);
    protect_working_set(&services);
    expedite_others(&services);
    let metrics = serve_metrics(&mut guard, &mut services);
    guard.say(&format!(
        "guarding; control socket {}, state {}",
        options.socket.display(),
        options.state.display()
    ));
    supervisor.ready();
    let outcome = guard.run(&supervisor).map_err(failed);
    server.stop();
    drop(metrics);
    if let Some(listeners) = listeners {
        listeners.stop();
    }
    if let Some(grants) = grants {
        grants.stop();
    }
    let keep = options.keep || matches!(outcome, Ok(true));
    outcome.and(end(guard, options, keep, services))
}

/// Says what is wrong with the configuration, and does nothing else. What is well and not in force is returned, a line each.
///
/// # Errors
/// [`RunError::Failed`]: what a start would fail with, and a reload refuse.
pub fn check(options: &DaemonOptions) -> Result<Vec<String>, RunError> {
    let Read { known, settings, .. } = settings::read(options).map_err(RunError::Failed)?;
    Ok(known.notes.into_iter().chain(settings.left_out).collect())
}

fn prepare(options: &DaemonOptions) -> Result<Inputs, RunError> {
    let Read { places, config, mem_total, mut directory, forgotten, known, settings } =
        settings::read(options).map_err(RunError::Failed)?;
    let (file, stored) = StateFile::load::<Vec<StoredLine>>(&options.state, LINES).map_err(failed)?;
    let (tunables, unknown) =
        SavedTunables::load(&options.state, settings.working_set.clone()).map_err(failed)?;
    let not_kept = directory.keep_numbers(&known).err();
    let mut book = LineBook::new(config.limits.uids);
    book.replace_config(config.limits.uids, settings.lines.clone());
    let forged = book.load_stored(stored);
    let (job_file, jobs) = control::job_file(&options.state);
    let unread_jobs = jobs.map(|jobs| *book.jobs_mut() = jobs).err();
    // As far as they are known without waiting; the name services are asked once guarding has begun.
    book.replace_members(directory.recall(&Wanted { gids: book.gids(), ..Wanted::default() }).members);
    let pins = Pins::new(&options.pin);
    // Mounting is the one thing that needs more rights than guarding does.
    let mounted = try_mount_bpffs(options.pin.parent().unwrap_or(&options.pin));
    // The right to read the kernel's log is asked for once, and is one of those that go.
    let kernel_log = KernelLog::open().map_err(|error| format!("/dev/kmsg: {error}"));
    let dropped = privileges::drop_others();
    // Before any thread starts, so that all of them leave these signals to the descriptor.
    let signals = block_signals().map_err(failed)?;
    let supervisor = Supervisor::of_environment();
    let offload = Offload::start().map_err(failed)?;
    let journal = Journal::new(&offload);
    let mut notices = Notices::new(journal.clone());
    let supervisor = supervisor.unwrap_or_else(|error| {
        notices.say(format_args!("the service manager cannot be told that it runs: {error}"));
        Supervisor::default()
    });
    if let Err(errno) = dropped {
        notices.say(format_args!("keeps more rights than it needs: {errno}"));
    }
    if !forged.is_empty() {
        notices.say(format_args!(
            "{} saved lines were left out: they are not what their owners may set",
            forged.len()
        ));
    }
    if let Some(error) = unread_jobs {
        notices.say(format_args!("the jobs of an earlier daemon are jobs no more: {error}"));
    }
    for note in
        forgotten.iter().chain(&known.notes).chain(&settings.left_out).chain(&not_kept).chain(&unknown)
    {
        notices.say(note);
    }
    for (place, error) in book.faults(mem_total) {
        notices
            .say(format_args!("the line of {}: {error}; it is in force as far as it can be", place.target()));
    }
    let pinnable = loader::may_draw().and_then(|()| mounted.map_err(|error| error.to_string()));
    let lock = match pinnable {
        Ok(_) => lock_pins(&pins, &mut notices)?,
        Err(error) => {
            notices.say(format_args!("no lines can be drawn: {error}"));
            None
        }
    };
    Ok(Inputs {
        saved: Saved { places, book: Arc::new(book), file, job_file, tunables, directory },
        config,
        settings,
        pins,
        lock,
        signals,
        offload,
        journal,
        notices,
        mem_total,
        kernel_log,
        supervisor,
    })
}

/// Begins to protect the working set once guarding has begun: programs are loaded for it.
fn protect_working_set(services: &Services) {
    let (control, journal) = (Arc::clone(&services.control), services.links.journal.clone());
    services.links.offload.once(move || {
        if let Err(refusal) = control.begin_protection() {
            journal.line(refusal.to_string());
        }
    });
}

/// Begins to free victims of anybody's kill once guarding has begun, where that is configured: a program is loaded for it.
fn expedite_others(services: &Services) {
    let control = Arc::clone(&services.control);
    services.links.offload.once(move || control.begin_expediting());
}

/// Opens where metrics are read, if they are. Guarding goes on without.
fn serve_metrics(guard: &mut Guard, services: &mut Services) -> Vec<Lane<()>> {
    let Some(setup) = services.metrics.take() else { return Vec::new() };
    let control = Arc::<ControlService>::clone(&services.control);
    let root = Peer { uid: Uid::ROOT, owner: Uid::ROOT, pid: None };
    let status = Box::new(move || control.status(root));
    let (lanes, refused) = metrics::serve(setup, status, &services.links.offload);
    refused.iter().for_each(|why| guard.say(why));
    lanes
}

/// Asks the name services for the members of groups once guarding has begun: they can take their time.
fn look_up_members(services: &Services) {
    let (control, journal) = (Arc::clone(&services.control), services.links.journal.clone());
    services.links.offload.once(move || {
        if let Err(refusal) = control.look_up_members() {
            journal.line(format!("the lines of groups stay as they were: {refusal}"));
        }
    });
}

fn open_history(
    options: &DaemonOptions,
    config: &Config,
    notes: Option<PinnedNotes>,
    complete: Completer,
    journal: &Journal,
) -> Result<History, RunError> {
    let (caps, say) = (Caps::from(&config.history), teller(journal.clone()));
    History::open_with_notes(&options.state, caps, notes, complete, say).map_err(failed)
}

/// Has the journal take lines; where it is full, they are lost.
fn teller(journal: Journal) -> impl FnMut(String) + Send + 'static {
    move |line| {
        let _was_taken = journal.line(line);
    }
}

/// Starts every thread but the guard's own, which is this one.
fn start(options: &DaemonOptions, inputs: Inputs, loader: Loader) -> Result<(Guard, Services), RunError> {
    let Inputs { saved, config, settings, pins, lock, signals, offload, journal, mut notices, .. } = inputs;
    let (mem_total, guards, metrics) = (inputs.mem_total, settings.guards, settings.metrics);
    let proc = || ProcRoot::open(Path::new("/proc")).map_err(failed);
    let (mailbox, caller) = mailbox().map_err(failed)?;
    let links = Links { offload: offload.clone(), caller: caller.clone(), journal: journal.clone() };
    let (reaper, _reaper_watch, inbox) =
        reaped::start(&options.state, journal.clone(), &offload).map_err(failed)?;
    let others = Others { inbox, reaper: reaper.handle(), wanted: settings.reaping };
    let mapped = config.limits.charge == Charge::Rss;
    let knobs = Arc::new(Mutex::new(Knobs::open(&options.state, journal.clone())));
    let setup =
        WorkersSetup { mapped, pins: pins.root(), state: &options.state, knobs: &knobs, memory: mem_total };
    let workers = Workers::new(&offload, &caller, &journal, &reaper.handle(), setup).map_err(failed)?;
    let book = SharedRecorder::new(mem_total);
    let complete = Completer::new(proc()?, &workers.names, &book, &journal, metrics.as_ref());
    let (notes, found) = open_notes(&pins, lock.is_some(), &mut notices);
    // An empty one is this daemon's own, which has never run.
    let forget = || drop((found.is_empty() && lock.is_some()).then(|| pins.remove_journal()));
    let history = open_history(options, &config, notes, complete, &journal).inspect_err(|_| forget())?;
    let (tmalloc, pressure) = (tmalloc::link().map_err(failed)?, pressure_socket::link().map_err(failed)?);
    let (originals, listeners) = (Originals::default(), pressure_socket::Teller::new(pressure.0.clone()));
    let control = Arc::new(ControlService::new(control::Setup {
        saved,
        caller: caller.clone(),
        working_set: working_set(options, &loader, &links, (mem_total, knobs)),
        expedite: expedite(options, &loader, &links, others)?,
        loader: loader.clone(),
        journal: journal.clone(),
        reader: history.reader.clone(),
        recorder: book.clone(),
        mem_total,
        page_size: page_size(),
        dry_run: options.dry_run,
        inspection: Inspection { pin: options.pin.clone(), mapped, page_size: page_size() },
    }));
    let last_defence =
        start_last_defence(guards.last_defence, &options.state, mem_total, &links, originals.clone())?;
    let told = (inputs.kernel_log, last_defence.arrangements(), job_finder(&pins)?);
    let (foreign_kills, to_foreign) = start_foreign(told, &links, &history)?;
    let eligibility =
        Eligibility { shield: Arc::new(Shield::new(&config)), rules: Arc::new(guards.rules), originals };
    let context = Context {
        kernel: Host::new(&offload, proc()?, proc()?),
        pending: PendingKills::new(reaper),
        ledger: ledger(&history, &pins)?,
        notices,
        eligibility,
        workers,
        last_defence,
        tmalloc: tmalloc.0.clone(),
        listeners,
        config: guards.limits,
    };
    let mut guard = Guard::new(Setup {
        context,
        pins,
        book: Arc::new(LineBook::new(config.limits.uids)),
        machine: guards.machine,
        fragmentation: guards.fragmentation,
        foreign_kills,
        mem_total,
        mailbox,
        signals,
        reload: errands::reload(&offload, &journal, Arc::clone(&control), inputs.supervisor),
        tend_jobs: errands::tend_jobs(&offload, &journal, Arc::clone(&control)),
        sampler: Sampler::new(&offload, book, proc()?, history.writer.clone()),
    });
    guard.inherit(inherit(found, history.written_below, proc()?));
    // Also where the machine is not guarded now: a reload may change that.
    let loading = loader.equip(lock.is_some(), caller, to_foreign, journal);
    let (tmalloc, pressure, writer) = (Some(tmalloc), Some(pressure), history.writer);
    Ok((guard, Services { loading, links, _reaper_watch, tmalloc, pressure, control, metrics, writer, lock }))
}

fn working_set(
    options: &DaemonOptions,
    loader: &Loader,
    links: &Links,
    (mem_total, knobs): (Bytes, Arc<Mutex<Knobs>>),
) -> WorkingSet {
    let Links { offload, caller, journal } = links.clone();
    WorkingSet::new(WorkingSetSetup {
        pin: options.pin.clone(),
        knobs,
        loader: loader.clone(),
        caller,
        offload,
        journal,
        mem_total,
        page_size: page_size(),
    })
}

fn expedite(
    options: &DaemonOptions,
    loader: &Loader,
    links: &Links,
    others: Others,
) -> Result<Expedite, RunError> {
    let Links { offload, journal, .. } = links.clone();
    let setup =
        expedite::Setup { others, pin: options.pin.clone(), loader: loader.clone(), offload, journal };
    Expedite::new(setup).map_err(failed)
}

fn start_last_defence(
    config: LastDefenceConfig,
    state: &Path,
    mem_total: Bytes,
    links: &Links,
    originals: Originals,
) -> Result<LastDefence, RunError> {
    let Links { offload, caller, journal } = links.clone();
    let inputs = LastDefenceSetup {
        config,
        state: state.to_owned(),
        systemd: Systemd::of_machine(),
        mem_total,
        journal,
        caller,
        originals,
    };
    LastDefence::start(inputs, &offload).map_err(failed)
}

fn job_finder(pins: &Pins) -> Result<JobFinder, RunError> {
    let proc = ProcRoot::open(Path::new("/proc")).map_err(failed)?;
    Ok(JobFinder { proc, pins: pins.clone() })
}

fn ledger(history: &History, pins: &Pins) -> Result<Ledger, RunError> {
    let ledger = Ledger::new(history.writer.clone(), history.next_id, page_size());
    Ok(ledger.tell_jobs(job_finder(pins)?))
}

fn start_foreign(
    (log, arrangements, jobs): (Result<KernelLog, String>, Arrangements, JobFinder),
    links: &Links,
    history: &History,
) -> Result<(ForeignKills, ForeignLink), RunError> {
    let Links { offload, caller, journal } = links.clone();
    let inputs = ForeignKillsSetup {
        log,
        proc: ProcRoot::open(Path::new("/proc")).map_err(failed)?,
        jobs,
        page_size: page_size(),
        caller,
        writer: history.writer.clone(),
        reader: history.reader.clone(),
        journal,
        arrangements,
        sources: Sources::of_machine(),
    };
    let started = ForeignKills::start(inputs, &offload).map_err(failed)?;
    let link = started.link();
    Ok((started, link))
}

/// Starts whoever answers those that ask for memory. Lines are guarded without it, too.
fn start_tmalloc(
    guard: &mut Guard,
    options: &DaemonOptions,
    headroom: Bytes,
    services: &mut Services,
) -> Option<tmalloc::Running> {
    let (link, inbox) = services.tmalloc.take()?;
    let socket = options.tmalloc_socket();
    let Links { offload, caller, journal } = services.links.clone();
    let setup = tmalloc::Setup {
        socket: &socket,
        pins: Pins::new(&options.pin),
        headroom,
        caller,
        inbox,
        link: link.clone(),
        offload: &offload,
        journal,
    };
    match tmalloc::start(setup) {
        Ok(running) => Some(running),
        Err(why) => {
            guard.say(&format!("no memory is granted ahead (tmalloc): {why}"));
            link.give_up(why);
            None
        }
    }
}

/// Starts whoever tells programs that memory is short, with the connections of the daemon before. Lines are guarded without it.
fn start_pressure(
    options: &DaemonOptions,
    kept: Vec<UnixStream>,
    supervisor: Supervisor,
    services: &mut Services,
) -> Option<pressure_socket::Running> {
    let (link, inbox) = services.pressure.take()?;
    let Links { offload, journal, .. } = services.links.clone();
    let socket = &options.pressure_socket();
    pressure_socket::start(pressure_socket::Setup { socket, kept, supervisor, inbox, link, offload, journal })
}

/// What is noted there survives this daemon; where there can be no pins, nothing does.
fn open_notes(pins: &Pins, pinnable: bool, notices: &mut Notices) -> (Option<PinnedNotes>, Vec<Found>) {
    if !pinnable {
        return (None, Vec::new());
    }
    match PinnedNotes::open(pins) {
        Ok((notes, found)) => (Some(notes), found),
        Err(error) => {
            notices.say(format_args!("incidents that are not written yet are lost if it is killed: {error}"));
            (None, Vec::new())
        }
    }
}

/// A signal that an earlier daemon was about to send was sent if its victim is gone, or going.
fn inherit(found: Vec<Found>, written_below: u64, mut proc: ProcRoot) -> Inheritance {
    Inheritance::of(found, written_below, |incident| {
        incident.victims.iter().all(|victim| match proc.process(victim.pid) {
            Ok(process) => process.dying || process.start_ns / tick_ns() != victim.start_ns / tick_ns(),
            Err(_) => true,
        })
    })
}

/// Draws the saved and configured lines. What cannot be drawn is said, and the rest guards on.
fn begin(guard: &mut Guard, book: &Arc<LineBook>, loader: &Loader, pinnable: bool) {
    begin_lines(guard, book, loader, pinnable);
    // With the programs or without.
    guard.measure(book, &Change::All);
}

fn begin_lines(guard: &mut Guard, book: &Arc<LineBook>, loader: &Loader, pinnable: bool) {
    if !pinnable {
        // Why was said when that was found.
        if !book.is_empty() {
            guard.leave_undrawn("there can be no pins here; the journal says why".to_owned());
        }
        return;
    }
    if book.is_empty() {
        // What a crashed daemon may have left is of no line any more.
        if let Err(refusal) = guard.draw(book, &Change::All) {
            guard.say(&refusal.to_string());
        }
        return;
    }
    match loader.ensure() {
        Ok(remark) => {
            let strict = loader.ensure_strict_of(book.jobs());
            remark.into_iter().chain(strict.err()).for_each(|remark| guard.say(&remark));
            // What cannot be drawn was said, and `status` tells it.
            guard.draw(book, &Change::All).ok();
        }
        Err(why) => guard.leave_undrawn(why),
    }
}

/// Ends guarding, then writes what there is to write, then removes what would have survived a crash until then.
fn end(guard: Guard, options: &DaemonOptions, keep: bool, services: Services) -> Result<(), RunError> {
    let Services { loading, links: Links { journal, .. }, control, writer, lock, .. } = services;
    let rates = guard.rates();
    if rates.count() > 0
        && let Err(why) = reaped::keep(&options.state, &rates)
    {
        journal.line(format!("how fast memory came back was not kept: {why}"));
    }
    // Without the lock the pins are not this daemon's.
    let keep = keep || lock.is_none();
    let ended = guard
        .finish(keep, || {
            control.close();
            // What it is loading would be left behind.
            drop(loading.map(JoinHandle::join));
        })
        .map_err(failed);
    let written = writer.close(LAST_WORDS).map_err(failed);
    // While it is locked: afterwards another daemon may hold it. What could not be written stays for the next one.
    let removed = if keep || written.is_err() {
        Ok(())
    } else {
        remove_pins(&options.pin)
            .map(|_| remove_empty(&options.pin))
            .map_err(failed)
            .and(InForceFile::forget(&options.state).map_err(failed))
    };
    drop(lock);
    ended.and(written).and(removed)
}

/// Removes everything that is pinned; whether there was anything.
fn remove_pins(pin: &Path) -> Result<bool, BpfError> {
    let selection = Selector::remove(pin)?;
    let kills = OomKills::remove(pin)?;
    let looks = Looks::remove(pin)?;
    let working_set = Programs::remove(pin)?;
    let killed = Killed::remove(pin)?;
    let strict = Strict::remove(pin)?;
    Ok(Pins::new(pin).remove()? || selection || kills || looks || working_set || killed || strict)
}

/// The pin folder goes with what was in it; it stays where another daemon has begun to use it.
fn remove_empty(pin: &Path) {
    if pin.exists() {
        drop(std::fs::remove_dir(pin));
    }
}

fn harden(guard: &mut Guard) {
    if let Err(error) = raise_open_files() {
        guard.say(&format!("it may not have more files open: {error}"));
    }
    // Both are better, and neither is needed: status and doctor tell.
    if let plimsoll_sys::process::MemoryLock::Failed(error) = lock_memory() {
        guard.say(&format!("its memory could not be locked: {error}"));
    }
    if let OomScore::Failed(error) = set_oom_score_adj_self(-1000) {
        guard.say(&format!("the kernel's own OOM killer may take it: {error}"));
    }
}

fn block_signals() -> nix::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// A daemon that was killed while it started its loader is survived by a copy of itself for a moment, until that has run
/// its program: with all that was open, the lock too.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

fn lock_soon(root: &Path) -> Result<Flock<File>, nix::errno::Errno> {
    let mut folder =
        File::open(root).map_err(|error| nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() < end => folder = back,
            Err((_, errno)) => return Err(errno),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes the pin folder and takes it for this daemon. `None`: there can be no pins here, so no lines, and it was said.
fn lock_pins(pins: &Pins, notices: &mut Notices) -> Result<Option<PinLock>, RunError> {
    let root = pins.root();
    if let Err(error) = std::fs::create_dir_all(root) {
        notices.say(format_args!("no lines can be drawn: cannot make {}: {error}", root.display()));
        return Ok(None);
    }
    let lock = lock_soon(root).map_err(|errno| {
        if errno == nix::errno::Errno::EWOULDBLOCK {
            RunError::Failed(format!(
                "another plimsoll daemon guards with {}: stop it, or give this one another --pin",
                root.display()
            ))
        } else {
            RunError::Failed(format!("cannot lock {}: {errno}", root.display()))
        }
    })?;
    pins.settle().map_err(failed)?;
    let state = pins.state().map_err(failed)?;
    Ok(Some(PinLock { _lock: lock, adopted: matches!(state, PinState::Ours(_) | PinState::Foreign(_)) }))
}

/// Completes an incident before it is written, and tells the journal of it.
struct Completer {
    proc: ProcRoot,
    names: NameReader,
    book: SharedRecorder,
    journal: Journal,
    /// `None`: nobody reads metrics.
    tally: Option<metrics::Tally>,
}

impl Completer {
    fn new(
        proc: ProcRoot,
        names: &NameReader,
        book: &SharedRecorder,
        journal: &Journal,
        metrics: Option<&metrics::Setup>,
    ) -> Self {
        let tally = metrics.map(|setup| setup.tally.clone());
        Self { proc, names: names.clone(), book: book.clone(), journal: journal.clone(), tally }
    }
}

impl Hearer for Completer {
    fn incident(&mut self, incident: &mut Incident) {
        if let Some(tally) = &self.tally {
            tally.incident(incident);
        }
        self.names.complete(&mut self.proc, incident);
        self.book.complete(incident);
        // The one line per kill; a full queue is the journal's loss, the history has the incident.
        if !matches!(incident.action, Outcome::Refuse | Outcome::Deny) {
            let line = story::line(incident);
            self.journal.line(line.strip_prefix("plimsoll: ").unwrap_or(&line).to_owned());
        }
    }

    fn outcome(&mut self, later: &LaterFacts) {
        if let Some(tally) = &self.tally {
            tally.outcome(later);
        }
    }
}

/// What [`stop_guarding`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// Programs or settings, now gone.
    Programs,
    /// Nothing.
    Nothing,
}

/// Removes every pinned program, whoever left it, and puts back what the daemon with this state folder had set: as its last
/// defence, and to protect the working set.
///
/// # Errors
/// [`RunError`] when a daemon is running with these pins, or one cannot be removed.
pub fn stop_guarding(pin: &Path, state: &Path) -> Result<Removed, RunError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(RunError::NotPermitted);
    }
    let removed = remove_pinned(pin)?;
    InForceFile::forget(state).map_err(failed)?;
    let working_set = knobs::undo_leftovers(state);
    let last_defence = undo_leftovers(state, mem_total().map_err(failed)?).map_err(failed)?;
    if let Leftovers::Some(why) = working_set {
        return Err(RunError::Failed(format!("not all that protected the working set was put back: {why}")));
    }
    match last_defence {
        Leftovers::Nothing if working_set == Leftovers::PutBack => Ok(Removed::Programs),
        Leftovers::Nothing => Ok(removed),
        Leftovers::PutBack => Ok(Removed::Programs),
        Leftovers::Some(why) => Err(RunError::Failed(format!(
            "not all of what {} lists was put back: {why}",
            state.join("last-defence.json").display()
        ))),
    }
}

fn remove_pinned(pin: &Path) -> Result<Removed, RunError> {
    let Ok(folder) = File::open(pin) else {
        return Ok(Removed::Nothing);
    };
    let lock = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|(_, _)| {
        RunError::Failed(format!("a plimsoll daemon guards with {}: stop it first", pin.display()))
    })?;
    let removed = remove_pins(pin).map_err(failed)?;
    drop(std::fs::remove_dir(pin));
    drop(lock);
    Ok(if removed { Removed::Programs } else { Removed::Nothing })
}
