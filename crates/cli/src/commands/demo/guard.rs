//! The demo's own guard: `plimsoll daemon` in a process of its own, with places of its own and the machine guard off.

use super::stage::Stage;
use crate::exit::{Exit, Failure};
use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, Signal as PosixSignal},
    },
    unistd::getppid,
};
use plimsoll_api::accounts::AccountView;
use plimsoll_api::{
    client::{CallError, Client},
    message::{GetIncident, SetLimitCall},
};
use plimsoll_daemon::{options::DaemonOptions, stop_guarding};
use plimsoll_policy::{
    incident::Incident,
    lines::Target,
    size::Size,
    units::{Bytes, Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::process::{BPFFS_PATH, PidFd};
use std::{
    fmt::Display,
    fs,
    io::{Read as _, Write},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

/// The name of this part of the program; no command of the user's.
pub(crate) const GUARD_PART: &str = "demo-guard";

/// How long the guard may take over starting, stopping or writing an incident.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The guard, running. Dropping it stops it and removes everything of its own.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    pidfd: PidFd,
    journal: ChildStderr,
    /// Made by the guard itself, so that whoever is killed first, somebody removes it.
    folder: PathBuf,
}

fn places(folder: &Path) -> DaemonOptions {
    let name = folder.file_name().unwrap_or_default();
    DaemonOptions {
        tmalloc_socket: None,
        config: folder.join("plimsoll.toml"),
        state: folder.join("state"),
        socket: folder.join("socket"),
        pin: Path::new(BPFFS_PATH).join(name),
        dry_run: false,
        keep: false,
    }
}

impl Guard {
    /// Starts it and waits until it answers.
    pub(super) fn start(stage: &Stage<'_>) -> Result<Self, Failure> {
        let failed =
            |error: &dyn Display| Failure::failed(format_args!("cannot start the demo's guard: {error}"));
        let mut child = Command::new("/proc/self/exe")
            .arg(GUARD_PART)
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the demo, which then stops everything in order.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let parts = PidFd::open(Pid(child.id())).ok().zip(child.stdout.take()).zip(child.stderr.take());
        let Some(((pidfd, mut output), journal)) = parts else {
            drop(child.kill());
            drop(child.wait());
            return Err(failed(&"it has no pidfd"));
        };
        let mut guard = Self { child, pidfd, journal, folder: PathBuf::new() };
        match stage.line_of(&mut output, PATIENCE)? {
            Some(folder) => guard.folder = PathBuf::from(folder),
            None => return Err(failed(&guard.last_words())),
        }
        let until = Instant::now() + PATIENCE;
        while guard.client().and_then(|mut client| client.status()).is_err() {
            if stage.wait_readable(guard.pidfd.as_fd(), LOOK_AGAIN)? || Instant::now() > until {
                return Err(failed(&guard.last_words()));
            }
        }
        Ok(guard)
    }

    /// Ends it, and tells what it said last.
    fn last_words(&mut self) -> String {
        self.end();
        let mut said = String::new();
        let last = self.journal.read_to_string(&mut said).ok().and_then(|_| said.lines().last());
        last.map_or_else(
            || "it says nothing".to_owned(),
            |line| line.trim_start_matches("plimsoll: ").to_owned(),
        )
    }

    fn client(&self) -> Result<Client, CallError> {
        Client::connect(&places(&self.folder).socket)
    }

    /// Draws a line; where it is near, in bytes.
    pub(super) fn draw(&self, user: Uid, hard_bytes: u64) -> Result<u64, Failure> {
        let call = SetLimitCall {
            who: Target::User(user),
            hard: Size::Bytes(Bytes(hard_bytes)),
            soft: None,
            action: None,
            now: None,
        };
        self.client()?.set_limit(&call)?;
        self.account(user)?.soft_bytes.ok_or_else(|| Failure::failed("the demo's line has no soft limit"))
    }

    /// What the guard counts.
    pub(super) fn account(&self, user: Uid) -> Result<AccountView, Failure> {
        let limits = self.client()?.show_limits(Some(Target::User(user)))?;
        limits.accounts.into_iter().next().ok_or_else(|| Failure::failed("the demo's line is not drawn"))
    }

    /// The incident that a process was the victim of, complete.
    pub(super) fn incident(&self, stage: &Stage<'_>, victim: Pid) -> Result<Incident, Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let late = Instant::now() > until;
            match self.client()?.incident(GetIncident { id: None, pid: Some(victim.0) }) {
                // It is written when the signal is sent, and again when the memory is back.
                Ok(incident) if incident.signal_to_freed_ns.is_some() || late => return Ok(incident),
                Ok(_) => {}
                Err(error) if late => return Err(error.into()),
                Err(_) => {}
            }
            stage.pause(LOOK_AGAIN)?;
        }
    }

    /// Stops it and sees to it that nothing is left.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.end();
        let pin = places(&self.folder).pin;
        match [&self.folder, &pin].into_iter().find(|place| place.exists()) {
            Some(place) => Err(Failure::failed(format_args!("'{}' is left; remove it", place.display()))),
            None => Ok(()),
        }
    }

    /// What fails here is seen by what is left, in [`Guard::stop`].
    fn end(&mut self) {
        self.pidfd.send_signal(Signal::Term).ok();
        if matches!(self.pidfd.wait_exit(PATIENCE), Ok(true)) {
            drop(self.child.wait());
            return;
        }
        self.pidfd.send_signal(Signal::Kill).ok();
        drop(self.child.wait());
        if self.folder.is_absolute() {
            drop(stop_guarding(&places(&self.folder).pin, &places(&self.folder).state));
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// The part of the program that is the guard. When the demo goes without stopping it (it was killed), the kernel sends
/// SIGTERM, and it stops as ever.
pub(crate) fn guard_main(arguments: &[String], out: &mut dyn Write) -> Result<Exit, String> {
    let [parent] = arguments else {
        return Err("this part of plimsoll is started by 'plimsoll demo'".to_owned());
    };
    // Before there is anything to remove: from here on the signal waits until the guard takes it.
    let mut term = SigSet::empty();
    term.add(PosixSignal::SIGTERM);
    term.thread_block()
        .and_then(|()| set_pdeathsig(PosixSignal::SIGTERM))
        .map_err(|errno| format!("cannot follow the demo's end: {errno}"))?;
    if getppid().to_string() != *parent {
        return Ok(Exit::Failed);
    }
    let failed = |error: std::io::Error| format!("a temporary folder: {error}");
    let folder = tempfile::Builder::new().prefix("plimsoll-demo-").tempdir().map_err(failed)?;
    let places = places(folder.path());
    fs::write(&places.config, "[machine]\nenabled = false\n").map_err(failed)?;
    let told = writeln!(out, "{}", folder.path().display()).and_then(|()| out.flush());
    // Nobody listens: then nobody will draw a line either, and the signal comes.
    let ended =
        told.map_err(failed).and_then(|()| plimsoll_daemon::run(&places).map_err(|error| error.to_string()));
    folder.close().map_err(failed)?;
    ended.map(|()| Exit::Done)
}
