//! Starting and stopping: everything that can fail fails here, before anything is guarded, with one line.

use crate::{
    api::server::Server,
    biography::Biographer,
    config::{self, Config, Places},
    control::{Desk, Parts},
    guard::{Caller, Change, Guard, Journal, Ledger, Notices, Setup, Shield, mailbox},
    history::{Caps, History, Writer},
    loader::{self, Loader},
    options::{CONFIG_FILE, DaemonOptions},
    privileges,
    settings::Settings,
    state::LimitsFile,
};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use plimsoll_policy::{
    incident::Outcome,
    lines::{LineBook, StoredLine},
    story,
    units::Bytes,
};
use plimsoll_sys::{
    bpf::{PinState, Pins},
    process::{
        OomScore, ProcRoot, Reaper, lock_memory, mem_total, page_size, set_oom_score_adj_self,
        try_mount_bpffs,
    },
};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
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
struct Ground {
    places: Places,
    config: Config,
    settings: Settings,
    pins: Pins,
    lock: Option<PinLock>,
    signals: SignalFd,
    journal: Journal,
    notices: Notices,
    mem_total: Bytes,
    file: LimitsFile,
    book: Arc<LineBook>,
}

/// What runs besides the guard thread.
#[derive(Debug)]
struct Staff {
    caller: Caller,
    desk: Arc<Desk>,
    writer: Writer,
    lock: Option<PinLock>,
}

/// Guards until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`]; nothing is left behind then.
pub fn run(options: &DaemonOptions) -> Result<(), RunError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(RunError::NotPermitted);
    }
    let ground = lay_ground(options)?;
    let book = Arc::clone(&ground.book);
    let loader = Loader::new(&ground.pins, &ground.config);
    let (mut guard, staff) =
        start(options, ground, loader.clone()).inspect_err(|_| remove_empty(&options.pin))?;
    begin(&mut guard, &book, &loader, staff.lock.is_some());
    let server = match Server::start(&options.socket, Arc::<Desk>::clone(&staff.desk)) {
        Ok(server) => server,
        Err(error) => {
            // What an earlier daemon left in force stays so: this one has never run.
            let keep = options.keep || staff.lock.as_ref().is_some_and(|lock| lock.adopted);
            end(guard, &options.pin, keep, &staff.desk, staff.lock)?;
            return Err(failed(error));
        }
    };
    harden(&mut guard);
    guard.say(&format!(
        "guarding; control socket {}, state {}",
        options.socket.display(),
        options.state.display()
    ));
    let outcome = guard.run().map_err(failed);
    server.stop();
    let ended = end(guard, &options.pin, options.keep, &staff.desk, staff.lock);
    let written = staff.writer.close(LAST_WORDS).map_err(failed);
    drop(staff.caller);
    outcome.and(ended).and(written)
}

fn lay_ground(options: &DaemonOptions) -> Result<Ground, RunError> {
    let named = (options.config != Path::new(CONFIG_FILE)).then_some(options.config.as_path());
    let places = Places::new(named);
    let config = config::load(&places).map_err(failed)?;
    let mem_total = mem_total().map_err(failed)?;
    let settings = Settings::of(&config, options.dry_run, mem_total).map_err(RunError::Failed)?;
    let (file, stored) = LimitsFile::load::<Vec<StoredLine>>(&options.state).map_err(failed)?;
    let mut book = LineBook::new(config.limits.uids);
    book.replace_config(config.limits.uids, settings.lines.clone());
    let forged = book.load_stored(stored);
    let pins = Pins::new(&options.pin);
    // Mounting is the one thing that needs more rights than guarding does.
    let mounted = try_mount_bpffs(options.pin.parent().unwrap_or(&options.pin));
    let dropped = privileges::drop_others();
    // Before any thread starts, so that all of them leave these signals to the descriptor.
    let signals = block_signals().map_err(failed)?;
    let journal = Journal::start().map_err(failed)?;
    let mut notices = Notices::new(journal.clone());
    if let Err(errno) = dropped {
        notices.say(format_args!("keeps more rights than it needs: {errno}"));
    }
    if !forged.is_empty() {
        notices.say(format_args!(
            "{} saved lines were left out: they are not what their owners may set",
            forged.len()
        ));
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
    Ok(Ground {
        places,
        config,
        settings,
        pins,
        lock,
        signals,
        journal,
        notices,
        mem_total,
        file,
        book: Arc::new(book),
    })
}

/// Starts every thread but the guard's own, which is this one.
fn start(options: &DaemonOptions, ground: Ground, loader: Loader) -> Result<(Guard, Staff), RunError> {
    let Ground { places, config, settings, pins, lock, signals, journal, notices, mem_total, file, book } =
        ground;
    let proc = || ProcRoot::open(Path::new("/proc")).map_err(failed);
    let biographer = Biographer::start(proc()?).map_err(failed)?;
    let history = open_history(options, &config, &biographer, journal.clone())?;
    let (mailbox, caller) = mailbox().map_err(failed)?;
    let desk = Arc::new(Desk::new(Parts {
        caller: caller.clone(),
        book,
        file,
        loader,
        reader: history.reader,
        places,
        mem_total,
        page_size: page_size(),
        dry_run: options.dry_run,
    }));
    let guard = Guard::new(Setup {
        proc: proc()?,
        reaper: Reaper::spawn(|_report| {}).map_err(failed)?,
        ledger: Ledger::new(history.writer.clone(), history.next_id, page_size()),
        notices,
        pins,
        book: Arc::new(LineBook::new(config.limits.uids)),
        limit_config: settings.limits,
        machine: settings.machine,
        shield: Shield::new(&config),
        mem_total,
        mailbox,
        signals,
        reload: Box::new(reloader(Arc::clone(&desk), journal)),
        biographer,
    });
    Ok((guard, Staff { caller, desk, writer: history.writer, lock }))
}

/// Draws the saved and configured lines. What cannot be drawn is said, and the rest guards on.
fn begin(guard: &mut Guard, book: &Arc<LineBook>, loader: &Loader, pinnable: bool) {
    if !pinnable {
        // Why was said when that was found.
        if !book.is_empty() {
            guard.say("lines are NOT in force, the saved and configured ones");
        }
        return;
    }
    if book.is_empty() {
        // What a crashed daemon may have left is of no line any more.
        if let Err(refusal) = guard.draw(book, Change::All) {
            guard.say(&refusal.to_string());
        }
        return;
    }
    let drawn =
        loader.ensure().and_then(|()| guard.draw(book, Change::All).map_err(|refusal| refusal.to_string()));
    if let Err(error) = drawn {
        guard.say(&format!("lines are NOT in force: {error}"));
    }
}

fn end(guard: Guard, pin: &Path, keep: bool, desk: &Desk, lock: Option<PinLock>) -> Result<(), RunError> {
    // Without the lock the pins are not this daemon's.
    let keep = keep || lock.is_none();
    let ended = guard.finish(keep, || desk.close()).map_err(failed);
    // While it is locked: afterwards another daemon may hold it.
    if !keep {
        remove_empty(pin);
    }
    drop(lock);
    ended
}

/// The pin folder goes with what was in it; it stays where another daemon has begun to use it.
fn remove_empty(pin: &Path) {
    if pin.exists() {
        drop(std::fs::remove_dir(pin));
    }
}

fn harden(guard: &mut Guard) {
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
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Makes the pin folder and takes it for this daemon. `None`: there can be no pins here, so no lines, and it was said.
fn lock_pins(pins: &Pins, notices: &mut Notices) -> Result<Option<PinLock>, RunError> {
    let root = pins.root();
    if let Err(error) = std::fs::create_dir_all(root) {
        notices.say(format_args!("no lines can be drawn: cannot make {}: {error}", root.display()));
        return Ok(None);
    }
    let folder = File::open(root).map_err(failed)?;
    let lock = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        if errno == nix::errno::Errno::EWOULDBLOCK {
            RunError::Failed(format!(
                "another plimsoll daemon guards with {}: stop it, or give this one another --pin",
                root.display()
            ))
        } else {
            RunError::Failed(format!("cannot lock {}: {errno}", root.display()))
        }
    })?;
    let state = pins.state().map_err(failed)?;
    if let PinState::Foreign(found) = state {
        return Err(RunError::Failed(format!(
            "{path} holds programs of schema {found}, which this plimsoll does not know: stop the other version, or \
             remove them with 'plimsoll daemon --stop-guarding --pin {path}'",
            path = root.display()
        )));
    }
    Ok(Some(PinLock { _lock: lock, adopted: matches!(state, PinState::Ours(_)) }))
}

fn open_history(
    options: &DaemonOptions,
    config: &config::Config,
    biographer: &Biographer,
    journal: Journal,
) -> Result<History, RunError> {
    let mut proc = ProcRoot::open(Path::new("/proc")).map_err(failed)?;
    let biographer = biographer.clone();
    History::open(&options.state, Caps::from(&config.history), move |incident| {
        biographer.complete(&mut proc, incident);
        // The one line per kill; a full queue is the journal's loss, the history has the incident.
        if incident.action != Outcome::Refuse {
            let line = story::line(incident);
            journal.line(line.strip_prefix("plimsoll: ").unwrap_or(&line).to_owned());
        }
    })
    .map_err(failed)
}

/// SIGHUP: a thread of its own, because reading files waits.
fn reloader(desk: Arc<Desk>, journal: Journal) -> impl Fn() + Send {
    move || {
        let (desk, journal) = (Arc::clone(&desk), journal.clone());
        let told = journal.clone();
        let started = std::thread::Builder::new().name("reload".into()).spawn(move || {
            let said = desk
                .reload()
                .map_or_else(|error| format!("the configuration stays as it was: {error}"), str::to_owned);
            journal.line(said);
        });
        if let Err(error) = started {
            told.line(format!("the configuration was not reloaded: {error}"));
        }
    }
}

/// What [`stop_guarding`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// Programs, now gone.
    Programs,
    /// Nothing.
    Nothing,
}

/// Removes every pinned program, whoever left it.
///
/// # Errors
/// [`RunError`] when a daemon is running with these pins, or one cannot be removed.
pub fn stop_guarding(pin: &PathBuf) -> Result<Removed, RunError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(RunError::NotPermitted);
    }
    let Ok(folder) = File::open(pin) else {
        return Ok(Removed::Nothing);
    };
    let lock = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|(_, _)| {
        RunError::Failed(format!("a plimsoll daemon guards with {}: stop it first", pin.display()))
    })?;
    let removed = Pins::new(pin).remove().map_err(failed)?;
    drop(std::fs::remove_dir(pin));
    drop(lock);
    Ok(if removed { Removed::Programs } else { Removed::Nothing })
}
