//! The program that is watched over: a process like this one starts the job and takes the program's place. Signals go to it,
//! and it ends with this process.

use super::{
    arguments::{Arguments, not_started},
    jobserver::Tokens,
    program,
};
use crate::{exit::Failure, interrupt::Interrupt};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::{Signal, raise},
    },
    unistd::{Pid as PosixPid, getpgid},
};
use plimsoll_api::message::StartJobReply;
use plimsoll_sys::process::named_descriptor;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, PidfdFlags, getppid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, BufReader, PipeReader, Read as _, Take, Write as _, pipe},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Command, ExitStatus},
};

/// What the program is sent by sending it to this process, besides what [`Interrupt`] holds back.
pub(super) const HANDED_ON: [Signal; 4] =
    [Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGCONT];

/// What is told of a job is shorter.
const JOB_BYTES_MAX: u64 = 4096;

/// The part of this program that lets signals through and takes in another: those that are held back here are held back in all
/// that this process starts.
pub(crate) const LET_THROUGH: &str = "let-signals-through";

/// Takes the place of this process. What came in the way.
pub(crate) fn let_signals_through(command: impl Iterator<Item = OsString>) -> String {
    let all: Vec<OsString> = command.collect();
    let Some((program, rest)) = all.split_first() else { return "no command is named".to_owned() };
    if let Err(errno) = Interrupt::let_through(&HANDED_ON) {
        return format!("signals cannot be let through: {errno}");
    }
    let error = Command::new(program).args(rest).exec();
    format!("'{}' cannot be run: {error}", program.display())
}

/// A command that is run with the signals let through.
pub(super) fn with_signals(name: &OsString, rest: &[OsString]) -> Command {
    let mut command = program::own();
    command.arg(LET_THROUGH).arg(name).args(rest);
    command
}

/// Where what takes the program's place tells which job it is in.
#[derive(Debug)]
pub(super) struct JobReport(File);

impl JobReport {
    /// From here on this process ends with whoever watches over it, and takes signals.
    pub(super) fn of(number: u32) -> Result<Self, Failure> {
        let pipe = named_descriptor(number)
            .ok_or_else(|| not_started(format_args!("descriptor {number} is not open")))?;
        let parent = getppid();
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(not_started)?;
        if getppid() != parent {
            return Err(not_started("whoever started it has gone"));
        }
        Interrupt::let_through(&HANDED_ON).map_err(not_started)?;
        Ok(Self(File::from(pipe)))
    }

    pub(super) fn tell(&mut self, job: &StartJobReply) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(job).map_err(not_started)?;
        line.push(b'\n');
        self.0.write_all(&line).map_err(not_started)
    }
}

/// What happened to it.
#[derive(Debug)]
pub(super) enum Happened {
    /// It is in this job, and waits for its turn or begins; `None`: it has said why it does not.
    InJob(Option<StartJobReply>),
    /// `None`: nobody knows how.
    Ended(Option<ExitStatus>),
}

/// The program.
#[derive(Debug)]
pub(super) struct Child {
    child: std::process::Child,
    pid: PosixPid,
    held: OwnedFd,
    /// Until it has told that it begins.
    job: Option<BufReader<Take<PipeReader>>>,
}

impl Child {
    pub(super) fn start(
        arguments: &Arguments,
        socket: &Path,
        tokens: Option<&mut Tokens>,
    ) -> Result<Self, Failure> {
        let (job, tells) = pipe().map_err(not_started)?;
        let mut command = program::own();
        command.arg("--socket").arg(socket).arg("run").args(arguments.for_a_job());
        command.arg(format!("--job-fd={}", tells.as_raw_fd())).arg("--").args(&arguments.command);
        fcntl_setfd(&tells, FdFlags::empty()).map_err(not_started)?;
        if let Some(tokens) = tokens.as_deref() {
            tokens.tell(&mut command);
        }
        let child = command.spawn().map_err(not_started)?;
        if let Some(tokens) = tokens {
            tokens.close_inherited();
        }
        let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = number.ok_or_else(|| not_started("it has no number"))?;
        let held = pidfd_open(pid, PidfdFlags::empty()).map_err(not_started)?;
        Ok(Self {
            child,
            pid: PosixPid::from_raw(pid.as_raw_nonzero().get()),
            held,
            job: Some(BufReader::new(job.take(JOB_BYTES_MAX))),
        })
    }

    /// The program's number.
    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something happens to it, and hands on what this process is sent meanwhile.
    pub(super) fn next(&mut self, signals: &Interrupt) -> Result<Happened, Failure> {
        loop {
            // Two lines may come at once.
            if let Some(told) = self.told(|pipe| !pipe.buffer().is_empty()) {
                return Ok(told);
            }
            let waited = [self.held.as_fd(), signals.as_fd()].into_iter();
            let waited = waited.chain(self.job.as_ref().map(|job| job.get_ref().get_ref().as_fd()));
            let mut waited: Vec<PollFd<'_>> =
                waited.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
            match poll(&mut waited, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(not_started(format_args!("it cannot be waited for: {errno}"))),
            }
            let is_told = waited.get(2).is_some_and(|one| one.any().unwrap_or(false));
            while let Some(sent) = signals.next() {
                self.hand_on(sent.signal, sent.by_terminal, sent.pid);
            }
            if let Some(told) = self.told(|_| is_told) {
                return Ok(told);
            }
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(Happened::Ended(Some(status))),
                Ok(None) => {}
                // Whoever ignores SIGCHLD is not told.
                Err(_) => return Ok(Happened::Ended(None)),
            }
        }
    }

    /// What it has told of its job, if it has; it tells more where it waits.
    fn told(&mut self, has_told: impl FnOnce(&BufReader<Take<PipeReader>>) -> bool) -> Option<Happened> {
        let pipe = self.job.as_mut().filter(|pipe| has_told(pipe))?;
        let job = job_told(pipe);
        self.job.take_if(|_| job.as_ref().is_none_or(|job| !job.waits));
        Some(Happened::InJob(job))
    }

    fn hand_on(&self, signal: Signal, by_terminal: bool, sender: u32) {
        // What a terminal sends it sends to all of its group; and what the program sends to its group is not for itself.
        let is_of_group = getpgid(Some(self.pid)).is_ok_and(|group| Ok(group) == getpgid(None));
        let has_it = is_of_group && (by_terminal || i32::try_from(sender) == Ok(self.pid.as_raw()));
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32).filter(|_| !has_it) {
            // It may have ended.
            pidfd_send_signal(&self.held, signal).ok();
        }
    }
}

/// A line; where there is none, it has said why on standard error.
fn job_told(job: &mut impl BufRead) -> Option<StartJobReply> {
    let mut line = String::new();
    job.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// Ends this process with a status, or by a signal, as the program did.
#[expect(clippy::exit, reason = "the status is the program's, of which there are more than our own")]
pub(super) fn end_as(signals: &Interrupt, status: Option<ExitStatus>) -> ! {
    if let Some(signal) = status.and_then(|status| Signal::try_from(status.signal()?).ok()) {
        // One dump of memory is enough.
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
            setrlimit(Resource::RLIMIT_CORE, 0, hard).ok();
        }
        // What came too late to be handed on.
        while signals.next().is_some() {}
        Interrupt::let_through(&HANDED_ON).ok();
        raise(signal).ok();
    }
    std::process::exit(status.map_or(125, shown))
}

/// As a shell shows it.
pub(super) fn shown(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128_i32.saturating_add(signal))).unwrap_or(125)
}
