//! The demo's own guard: `plimsoll daemon` in a process of its own, with places of its own and the machine guard off.

use super::stage::Stage;
use crate::exit::{Exit, Failure};
use nix::{
    sys::{prctl::set_pdeathsig, signal::Signal as PosixSignal},
    unistd::getppid,
};
use plimsoll_daemon::{
    api::{
        client::{CallError, Client},
        message::{GetIncident, SetLimitCall},
    },
    options::DaemonOptions,
    stop_guarding,
};
use plimsoll_policy::{
    account::AccountView,
    incident::Incident,
    lines::Target,
    size::Size,
    units::{Bytes, Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::process::PidFd;
use std::{
    fs,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

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
    folder: TempDir,
    pin: PathBuf,
}

fn places(folder: &Path, pin: &Path) -> DaemonOptions {
    DaemonOptions {
        config: folder.join("plimsoll.toml"),
        state: folder.join("state"),
        socket: folder.join("socket"),
        pin: pin.to_path_buf(),
        dry_run: false,
        keep: false,
    }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::failed(format_args!("cannot {what}: {error}"))
}

impl Guard {
    /// Starts it and waits until it answers.
    pub(super) fn start(stage: &Stage<'_>) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-demo-")
            .tempdir()
            .map_err(failed("make a temporary folder"))?;
        let name = folder.path().file_name().unwrap_or_default();
        let pin = Path::new(plimsoll_sys::process::BPFFS_PATH).join(name);
        fs::write(folder.path().join("plimsoll.toml"), "[machine]\nenabled = false\n")
            .map_err(failed("write the demo's configuration"))?;
        let log = fs::File::create(folder.path().join("log")).map_err(failed("write the demo's log"))?;
        let mut child = Command::new("/proc/self/exe")
            .arg(GUARD_PART)
            .args([folder.path(), &pin])
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for the demo, which then stops everything in order.
            .process_group(0)
            .spawn()
            .map_err(failed("start the demo's guard"))?;
        let pidfd = match PidFd::open(Pid(child.id())) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                drop(child.kill());
                drop(child.wait());
                return Err(Failure::failed(error));
            }
        };
        let guard = Self { child, pidfd, folder, pin };
        guard.wait_until_it_answers(stage)?;
        Ok(guard)
    }

    fn wait_until_it_answers(&self, stage: &Stage<'_>) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while self.client().and_then(|mut client| client.status()).is_err() {
            let ended = stage.wait_readable(self.pidfd.as_fd(), LOOK_AGAIN)?;
            if ended || Instant::now() > until {
                let said = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing").to_owned();
                return Err(Failure::failed(format_args!("the demo's guard did not start: {last}")));
            }
        }
        Ok(())
    }

    fn client(&self) -> Result<Client, CallError> {
        Client::connect(&places(self.folder.path(), &self.pin).socket)
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
        let left = [self.folder.path(), &self.pin].into_iter().find(|place| place.exists());
        match left {
            Some(place) => Err(Failure::failed(format_args!("'{}' is left; remove it", place.display()))),
            None => Ok(()),
        }
    }

    /// What fails here is seen by what is left, in [`Guard::stop`].
    fn end(&mut self) {
        self.pidfd.send_signal(Signal::Term).ok();
        if !matches!(self.pidfd.wait_exit(PATIENCE), Ok(true)) {
            self.pidfd.send_signal(Signal::Kill).ok();
        }
        drop(self.child.wait());
        if self.pin.exists() {
            drop(stop_guarding(&self.pin));
        }
        drop(fs::remove_dir_all(self.folder.path()));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// The part of the program that is the guard. When the demo goes without stopping it (it was killed), the kernel sends
/// SIGTERM, and the folder is removed here.
pub(crate) fn guard_main(arguments: &[String]) -> Result<Exit, String> {
    let [folder, pin, parent] = arguments else {
        return Err("this part of plimsoll is started by 'plimsoll demo'".to_owned());
    };
    let orphaned = || getppid().to_string() != *parent;
    set_pdeathsig(PosixSignal::SIGTERM).map_err(|errno| format!("cannot follow the demo's end: {errno}"))?;
    let ended = if orphaned() {
        Ok(())
    } else {
        plimsoll_daemon::run(&places(Path::new(folder), Path::new(pin))).map_err(|error| error.to_string())
    };
    if orphaned() {
        fs::remove_dir_all(folder).map_err(|error| format!("cannot remove '{folder}': {error}"))?;
    }
    ended.map(|()| Exit::Done)
}
