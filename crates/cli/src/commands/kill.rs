//! `plimsoll kill`: end processes, and have their memory back at full speed.
//!
//! The signal is the caller's own, sent through a pidfd: the kernel decides who may, as for `kill -9`. The daemon is asked only
//! to free what is dying, so it needs no judgement of whom it may end, and nothing that changes between a judgement and a
//! signal (an exec of a program with the set-user-ID bit) can fool it.

use crate::{
    exit::{Ending, Exit, Failure},
    output,
};
use clap::Args;
use plimsoll_api::{
    client::{CallError, Client},
    message::ExpediteCall,
};
use plimsoll_policy::{
    human::{bytes, span},
    units::{Bytes, Nanos, Pid},
    victim::Signal,
};
use plimsoll_report::table::Table;
use plimsoll_sys::process::{PidFd, ProcRoot, Process, ProcessError, page_size};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, Serializer};
use std::{
    collections::BTreeSet,
    fmt,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// How long the end of all is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// `plimsoll kill ...`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The processes: SIGKILL is sent to each, with your own rights.
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    /// Have the daemon free their memory at full speed, whatever they were throttled to.
    #[arg(long)]
    expedite: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// It has exited.
    Gone,
    /// There was none.
    NoSuchProcess,
    /// The kernel did not let us.
    NotPermitted,
    /// SIGKILL was sent; it has not exited yet.
    StillThere,
    /// Something else.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "gone",
            Self::NoSuchProcess => "no such process",
            Self::NotPermitted => "not permitted",
            Self::StillThere => "killed, still there",
            Self::Failed(why) => why,
        })
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<ProcessError> for Outcome {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Vanished(_) => Self::NoSuchProcess,
            ProcessError::Denied { .. } => Self::NotPermitted,
            other @ (ProcessError::Unsupported { .. }
            | ProcessError::Failed { .. }
            | ProcessError::Unreadable { .. }) => Self::Failed(other.to_string()),
        }
    }
}

/// One process, from its number to what became of it; printed as JSON as it stands.
#[derive(Debug, Serialize)]
struct Victim {
    pid: u32,
    comm: Option<String>,
    result: Outcome,
    /// The daemon has taken it.
    expedited: bool,
    /// Anonymous memory and swap that it held, once it is gone: so much came back at most. Whoever shares them has them still.
    freed_bytes: Option<u64>,
    /// From the signal to its exit.
    took_ns: Option<u64>,
    #[serde(skip)]
    held: Option<Held>,
}

/// One that was there.
#[derive(Debug)]
struct Held {
    pidfd: PidFd,
    /// `None`: it could not be read.
    facts: Option<Process>,
    killed: Option<Instant>,
}

/// Signals, has freed, waits and prints.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    // Before anybody is killed: connecting takes its time.
    let mut daemon = Client::connect(socket);
    let protected = daemon.as_ref().ok().and_then(Client::daemon);
    let pids: BTreeSet<u32> = arguments.pids.iter().copied().collect();
    let mut victims = hold_all(&pids, protected)?;
    let mut refused = None;
    // Nobody's signal waits for the daemon's answer about another.
    victims.iter_mut().for_each(end);
    if let (true, Ok(client)) = (arguments.expedite, &mut daemon) {
        for victim in &mut victims {
            if let Err(error) = expedite(client, victim) {
                refused.get_or_insert(error);
            }
        }
    }
    wait_for_all(&mut victims);
    if arguments.json {
        output::json(out, &victims)?;
    } else {
        show(out, &victims)?;
    }
    let not_running = daemon.err().filter(|_| arguments.expedite);
    conclude(&victims, refused.or(not_running))
}

/// Opens all of them; refuses the whole command where one is nobody to kill, before anybody is.
fn hold_all(pids: &BTreeSet<u32>, daemon: Option<Pid>) -> Result<Vec<Victim>, Failure> {
    let mut root = ProcRoot::open(Path::new("/proc")).map_err(Failure::failed)?;
    let hold = |pid: &u32| {
        let pid = Pid(*pid);
        let opened = PidFd::open(pid);
        // Of whoever has the number once it is held.
        let facts = root.process(pid).ok().filter(|_| opened.is_ok());
        if let Some(why) = spared(pid, daemon, facts.as_ref()) {
            return Err(Failure::usage(format_args!("process {pid}: {why}; nobody was killed")));
        }
        let usage = facts.and_then(|facts| facts.usage().known());
        let (result, held) = match opened {
            Ok(pidfd) => (Outcome::StillThere, Some(Held { pidfd, facts, killed: None })),
            Err(error) => (error.into(), None),
        };
        Ok(Victim {
            pid: pid.0,
            comm: facts.map(|facts| facts.comm.to_string()),
            result,
            expedited: false,
            freed_bytes: usage.map(|pages| page_size().to_bytes(pages).0),
            took_ns: None,
            held,
        })
    };
    pids.iter().map(hold).collect()
}

/// Why one is not killed, whoever asks.
fn spared(pid: Pid, daemon: Option<Pid>, facts: Option<&Process>) -> Option<&'static str> {
    if pid == Pid(1) {
        return Some("it is the first process of all");
    }
    if pid.0 == std::process::id() {
        return Some("it is this command itself");
    }
    if daemon == Some(pid) {
        return Some("it is the plimsoll daemon, which 'systemctl stop plimsoll' ends");
    }
    facts.is_some_and(|facts| facts.kernel_thread).then_some("it is a thread of the kernel's own")
}

fn end(victim: &mut Victim) {
    let Some(held) = &mut victim.held else { return };
    let now = Instant::now();
    match held.pidfd.send_signal(Signal::Kill) {
        Ok(()) => held.killed = Some(now),
        Err(error) => {
            victim.result = error.into();
            victim.held = None;
        }
    }
}

/// Whom the daemon does not know any more needs no help.
fn expedite(daemon: &mut Client, victim: &mut Victim) -> Result<(), CallError> {
    let Some(Held { facts: Some(facts), .. }) = &victim.held else { return Ok(()) };
    match daemon.expedite(ExpediteCall { pid: victim.pid, start_ns: facts.start_ns }) {
        Ok(taken) => victim.expedited = taken,
        Err(CallError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Notes the moment of each one's end.
fn wait_for_all(victims: &mut [Victim]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for victim in &mut *victims {
            let Some(Held { pidfd, killed: Some(killed), .. }) = &victim.held else { continue };
            if pidfd.has_exited().unwrap_or(false) {
                victim.took_ns = u64::try_from(killed.elapsed().as_nanos()).ok();
                victim.result = Outcome::Gone;
                victim.held = None;
            }
        }
        let waiting = || victims.iter().filter_map(|victim| victim.held.as_ref());
        let left = deadline.saturating_duration_since(Instant::now());
        if waiting().next().is_none() || left.is_zero() {
            break;
        }
        wait_for_any(waiting().map(|held| &held.pidfd), left);
    }
    for victim in victims.iter_mut().filter(|victim| victim.result != Outcome::Gone) {
        victim.freed_bytes = None;
    }
}

/// Waits until one of them has exited, but no longer than so; it may be interrupted before.
pub(super) fn wait_for_any<'a>(processes: impl Iterator<Item = &'a PidFd>, time: Duration) {
    let mut waited: Vec<PollFd<'_>> = processes.map(|process| PollFd::new(process, PollFlags::IN)).collect();
    // Interrupted: it is asked again.
    poll(&mut waited, Timespec::try_from(time).ok().as_ref()).ok();
}

fn show(out: &mut dyn Write, victims: &[Victim]) -> std::io::Result<()> {
    let mut table =
        Table::new(["PID", "NAME", "RESULT", "EXPEDITED", "HELD", "TIME"], &["PID", "HELD", "TIME"]);
    for victim in victims {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row([
            victim.pid.to_string(),
            or_dash(victim.comm.as_deref().map(output::printable)),
            output::printable(&victim.result.to_string()),
            if victim.expedited { "yes" } else { "no" }.to_owned(),
            or_dash(victim.freed_bytes.map(|held| bytes(Bytes(held)))),
            or_dash(victim.took_ns.map(|took| span(Nanos(took)))),
        ]);
    }
    write!(out, "{table}")
}

/// The worst of it: what could not be killed, then what could not be expedited.
fn conclude(victims: &[Victim], unhelped: Option<CallError>) -> Ending {
    let count = |wanted: fn(&Outcome) -> bool| victims.iter().filter(|one| wanted(&one.result)).count();
    let (denied, gone) = (count(|one| *one == Outcome::NotPermitted), count(|one| *one == Outcome::Gone));
    if denied > 0 {
        return Err(Failure::not_permitted(format_args!(
            "not permitted to kill {denied} of {}: they are not yours; ask root",
            victims.len()
        )));
    }
    if gone < victims.len() {
        return Err(Failure::failed(format_args!(
            "{} of {} are not gone, or were not there; see above",
            victims.len().saturating_sub(gone),
            victims.len()
        )));
    }
    match unhelped.map(Failure::from) {
        None => Ok(Exit::Done),
        Some(Failure::Told { exit, message }) => {
            Err(Failure::Told { exit, message: format!("killed, but not expedited: {message}") })
        }
        Some(gone @ Failure::ReaderGone) => Err(gone),
    }
}

#[cfg(test)]
mod tests;
