//! `plimsoll demo`: the whole story in ten seconds, with a guard and a user of its own.
//!
//! Everything it starts is its own, held by pidfd, and ended whatever happens: at the end, at a failure, at Ctrl-C (each
//! value here cleans up when it is dropped), and when the demo itself is killed (the guard is told by the kernel; the hogs,
//! and the process that then removes the guard's folder, by the end of their input).

mod guard;
mod stage;

use crate::exit::{Ending, Exit, Failure};
use clap::Args;
use guard::Guard;
use plimsoll_bench::Workload;
use plimsoll_policy::{
    human,
    incident::Incident,
    units::{Bytes, Nanos, Pid, Uid},
};
use plimsoll_report::story::{Reader, story};
use plimsoll_sys::process::ProcRoot;
use stage::{PACE, Stage};
use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// One MiB, in bytes.
const MIB: u64 = 1 << 20;
/// The user: one that no distribution gives out, and no account of a person's.
const USER: Uid = Uid(60_999);
/// The line.
const LINE_BYTES: u64 = 256 * MIB;
/// What must be available, so that a demo of one guard does not wake another: twice the line.
const NEEDED_BYTES: u64 = 2 * LINE_BYTES;
/// What the first hog takes at a time.
const STEP_MIB: u64 = 16;
/// What the sleeper of the second act holds: more than half of the line, so that it stays the largest.
const SLEEPER_MIB: u64 = 160;

/// It takes none.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Shows the story.
pub(crate) fn run(Arguments {}: &Arguments, out: &mut dyn Write) -> Ending {
    if !rustix::process::geteuid().is_root() {
        let message = "not permitted: the demo starts a guard and a user of its own; run it with sudo";
        return Err(Failure::not_permitted(message));
    }
    check_the_ground()?;
    let mut stage = Stage::new(out)?;
    stage.title(
        "Plimsoll demo: a user of its own (uid 60999), a line of 256 MiB, and a program that wants more.\n",
    )?;
    let guard = Guard::start()?;
    one_takes_too_much(&mut stage, &guard)?;
    the_largest_goes(&mut stage, &guard)?;
    guard.stop()?;
    match processes_of(USER)? {
        None => stage.tell("Nothing is left: guard, line and processes are gone.")?,
        Some(pid) => {
            return Err(Failure::failed(format_args!(
                "process {pid} of uid {USER} is left; end it with kill"
            )));
        }
    }
    stage.title("\nDraw a line of your own: start 'plimsoll daemon' (or the service), then 'plimsoll limit set USER 2G'.")?;
    Ok(Exit::Done)
}

/// Nobody else's process may come under the demo's line, and no other guard may be woken by it.
fn check_the_ground() -> Result<(), Failure> {
    if let Some(pid) = processes_of(USER)? {
        return Err(Failure::failed(format_args!(
            "uid {USER} is the demo's own, and process {pid} runs with it: end that first (another demo?)"
        )));
    }
    let memory = open_proc()?.read_meminfo().map_err(Failure::failed)?;
    match memory.mem_available {
        Some(Bytes(available)) if available < NEEDED_BYTES => Err(Failure::failed(format_args!(
            "only {} of memory is available, the demo wants {}: end something first",
            human::bytes(Bytes(available)),
            human::bytes(Bytes(NEEDED_BYTES))
        ))),
        Some(_) | None => Ok(()),
    }
}

fn open_proc() -> Result<ProcRoot, Failure> {
    ProcRoot::open(Path::new("/proc")).map_err(Failure::failed)
}

/// A living process of the user, if there is one.
fn processes_of(user: Uid) -> Result<Option<Pid>, Failure> {
    let mut found = None;
    open_proc()?
        .processes(|process| {
            if process.uid == user && !process.dying {
                found = Some(process.pid);
            }
        })
        .map_err(Failure::failed)?;
    Ok(found)
}

/// Act one: up to the line, and past it.
fn one_takes_too_much(stage: &mut Stage<'_>, guard: &Guard) -> Result<(), Failure> {
    stage.tell(
        "A guard of its own runs beside any other; no line is drawn, nothing is attached to the kernel.",
    )?;
    let asked = Instant::now();
    let soft_bytes = guard.draw(USER, LINE_BYTES)?;
    stage.tell(&format!(
        "The line is drawn at {} ({} ms); from {} on (the soft limit) the guard is ready to act.",
        human::bytes(Bytes(LINE_BYTES)),
        asked.elapsed().as_millis(),
        human::bytes(Bytes(soft_bytes)),
    ))?;
    let mut hog = start_hog("demo-hog")?;
    stage.tell(&format!("Process {} (\"demo-hog\") takes {STEP_MIB} MiB at a time:", hog.pid()))?;
    let mut near = false;
    let told = loop {
        stage.pause(PACE)?;
        let told = Instant::now();
        match take(&mut hog, STEP_MIB)? {
            Some(held_mib) => {
                let account = guard.account(USER)?;
                if account.near || held_mib % 32 == 0 {
                    let remark = if account.near && !near { "  near: the soft limit is noticed" } else { "" };
                    stage.bar(
                        held_mib,
                        LINE_BYTES / MIB,
                        &human::bytes(Bytes(account.usage_bytes)),
                        remark,
                    )?;
                }
                near |= account.near;
            }
            None => break told,
        }
    };
    let waited = told.elapsed();
    stage.tell(&format!(
        "Its next step crosses the line: killed, {} after it began the step.\n",
        in_words(waited)
    ))?;
    let incident = guard.incident(stage, hog.pid())?;
    drop(hog);
    explain(stage, &incident)
}

/// Act two: the largest goes, not the one that happens to cross.
fn the_largest_goes(stage: &mut Stage<'_>, guard: &Guard) -> Result<(), Failure> {
    let mut sleeper = start_hog("demo-sleeper")?;
    if take(&mut sleeper, SLEEPER_MIB)?.is_none() {
        return Err(Failure::failed("the demo's sleeper ended before its part; try again"));
    }
    let mut crosser = start_hog("demo-crosser")?;
    stage.tell(&format!(
        "Process {} (\"demo-sleeper\") takes {SLEEPER_MIB} MiB and sleeps; process {} (\"demo-crosser\") takes 8 MiB at a \
         time.",
        sleeper.pid(),
        crosser.pid()
    ))?;
    let (mut held_mib, told) = loop {
        stage.pause(PACE / 2)?;
        let told = Instant::now();
        match take(&mut crosser, STEP_MIB / 2)? {
            None => {
                return Err(Failure::failed(
                    "the small process was killed, and not the largest: this is a fault of plimsoll",
                ));
            }
            Some(mib) if ends_within(&sleeper, SOON_AFTER)? => break (mib, told),
            Some(_) => {}
        }
    };
    stage.tell(&format!(
        "At {held_mib} MiB the crosser crosses. The sleeper is killed, gone {} after that step began; the crosser lives.\n",
        in_words(told.elapsed())
    ))?;
    let incident = guard.incident(stage, sleeper.pid())?;
    explain(stage, &incident)?;
    drop(sleeper);
    if let Some(mib) = take(&mut crosser, STEP_MIB / 2)? {
        held_mib = mib;
    }
    stage.tell(&format!("The crosser has gone on to {held_mib} MiB, and ends now by itself."))?;
    drop(crosser);
    Ok(())
}

/// Starts a process of the user's that has nothing yet.
fn start_hog(name: &str) -> Result<Workload, Failure> {
    Workload::start(Path::new("/proc/self/exe"), &[&"hold", &USER, &0, &name])
        .map_err(|error| Failure::failed(format_args!("cannot start the demo's hog: {error}")))
}

/// Has it take so much more; what it holds then, in MiB, `None` where it was killed over it.
fn take(hog: &mut Workload, mib: u64) -> Result<Option<u64>, Failure> {
    Ok(hog.take(mib * MIB).map_err(Failure::failed)?.map(|bytes| bytes / MIB))
}

fn ends_within(hog: &Workload, within: Duration) -> Result<bool, Failure> {
    Ok(hog.wait_dead_ns(within).map_err(Failure::failed)?.is_some())
}

/// Long enough for a kill that a step set off to be seen before the next.
const SOON_AFTER: Duration = Duration::from_millis(20);

fn in_words(time: Duration) -> String {
    human::span(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

fn explain(stage: &mut Stage<'_>, incident: &Incident) -> Result<(), Failure> {
    stage.title("         'plimsoll why' tells:")?;
    for line in story(incident, None, Reader::User).lines() {
        stage.title(&format!("         | {line}"))?;
    }
    stage.title("")
}
