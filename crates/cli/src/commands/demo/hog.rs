//! A process of the demo's user that takes as much memory as it is told to, a step at a time.

use super::stage::Stage;
use crate::exit::{Exit, Failure};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::prctl::set_name,
    unistd::{Gid, Uid as PosixUid, setgid, setgroups, setuid},
};
use plimsoll_policy::{
    units::{Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::process::PidFd;
use std::{
    ffi::{CStr, CString},
    io::{BufRead, Write},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// One MiB, in bytes.
pub(super) const MIB: u64 = 1 << 20;

/// The name of this part of the program; no command of the user's.
pub(crate) const HOG_PART: &str = "demo-hog";

/// No hog takes more, should nobody stop it.
const MOST_MIB: u64 = 384;

/// A hog that nobody talks to ends after this long.
const SILENCE_MS: u16 = 60_000;

/// How long one step may take.
const STEP: Duration = Duration::from_secs(10);

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It holds so many MiB.
    Now(u64),
    /// It was killed over it.
    Ended,
}

/// A hog, running. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Hog {
    child: Child,
    pidfd: PidFd,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Hog {
    /// Starts one and waits until it is that user's.
    pub(super) fn start(stage: &Stage<'_>, name: &CStr, user: Uid) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format_args!("cannot start the demo's hog: {error}"))
        };
        let mut child = Command::new("/proc/self/exe")
            .arg(HOG_PART)
            .arg(name.to_string_lossy().as_ref())
            .arg(user.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let parts = PidFd::open(Pid(child.id())).ok().zip(child.stdin.take()).zip(child.stdout.take());
        let Some(((pidfd, stdin), stdout)) = parts else {
            drop(child.kill());
            drop(child.wait());
            return Err(failed(&"it has no pidfd"));
        };
        let mut hog = Self { child, pidfd, stdin: Some(stdin), stdout };
        match hog.hear(stage)? {
            Taken::Now(0) => Ok(hog),
            Taken::Now(_) | Taken::Ended => Err(failed(&"it ended at once")),
        }
    }

    /// Its process number.
    pub(super) fn pid(&self) -> Pid {
        self.pidfd.pid()
    }

    /// Has it take so much more.
    pub(super) fn take(&mut self, stage: &Stage<'_>, mib: u64) -> Result<Taken, Failure> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{mib}"));
        match told {
            Some(Ok(())) => self.hear(stage),
            // Nobody reads any more.
            Some(Err(_)) | None => Ok(Taken::Ended),
        }
    }

    fn hear(&mut self, stage: &Stage<'_>) -> Result<Taken, Failure> {
        if let Some(held) = stage.line_of(&mut self.stdout, STEP)? {
            return held.parse().map(Taken::Now).map_err(|error| {
                Failure::failed(format_args!("process {} of the demo says '{held}': {error}", self.pid()))
            });
        }
        // Its output closes a little before all of it is gone.
        if self.ends_within(stage, STEP)? {
            Ok(Taken::Ended)
        } else {
            Err(Failure::failed(format_args!("process {} of the demo does not end", self.pid())))
        }
    }

    /// Whether it is gone within that time.
    pub(super) fn ends_within(&self, stage: &Stage<'_>, within: Duration) -> Result<bool, Failure> {
        stage.wait_readable(self.pidfd.as_fd(), within)
    }

    /// Ends it.
    pub(super) fn end(self) {}
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Either ends it; that it is gone already is as good. It is our own child, so the wait is for certain.
        self.stdin = None;
        self.pidfd.send_signal(Signal::Kill).ok();
        drop(self.child.wait());
    }
}

/// The part of the program that is the hog: becomes the user, then takes as many MiB as each line of its input says, and
/// says how many it holds.
pub(crate) fn hog_main(arguments: &[String]) -> Result<Exit, String> {
    let [name, user] = arguments else {
        return Err("this part of plimsoll is started by 'plimsoll demo'".to_owned());
    };
    let user: u32 = user.parse().map_err(|error| format!("'{user}': {error}"))?;
    let name = CString::new(name.as_str()).map_err(|error| error.to_string())?;
    set_name(&name)
        .and_then(|()| setgroups(&[]))
        .and_then(|()| setgid(Gid::from_raw(user)))
        .and_then(|()| setuid(PosixUid::from_raw(user)))
        .map_err(|errno| format!("cannot become uid {user}: {errno}"))?;
    hold(std::io::stdin().lock(), std::io::stdout().lock()).map_err(|error| error.to_string())?;
    Ok(Exit::Done)
}

fn hold(mut input: std::io::StdinLock<'_>, mut output: std::io::StdoutLock<'_>) -> std::io::Result<()> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    let mut held_mib = 0_u64;
    loop {
        writeln!(output, "{held_mib}")?;
        output.flush()?;
        let waiting = PollFd::new(input.as_fd(), PollFlags::POLLIN);
        if poll(&mut [waiting], PollTimeout::from(SILENCE_MS))? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let more = line.trim().parse().ok().filter(|more| held_mib.saturating_add(*more) <= MOST_MIB);
        let Some((more, bytes)) =
            more.and_then(|more| Some((more, usize::try_from(more.checked_mul(MIB)?).ok()?)))
        else {
            return Ok(());
        };
        held_mib = held_mib.saturating_add(more);
        // Not zero: those pages need no memory until they are written to.
        held.push(vec![1; bytes]);
    }
}
