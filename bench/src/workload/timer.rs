//! `timer INTERVAL_MS`: sums the anonymous memory of a user's processes at each tick, and may kill the largest.
//!
//! `on UID LINE_BYTES` starts the ticks (line 0: only sum), `off` stops them; both answer, the latter with the number
//! of scans and of kills since `on`. It finds the user's processes by the owner of their /proc folder and reads their
//! statm: the cheapest scan there is from user space. The victim is held by pidfd from its reading to its signal.

use super::{Commands, arm_watchdogs, number, say, usage};
use crate::{child::wait_readable, error::BenchError, proc};
use plimsoll_wire::text::parse_statm;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    time::{Duration, Instant},
};

/// What is watched.
#[derive(Debug, Clone, Copy)]
struct Watch {
    uid: u32,
    line_pages: Option<u64>,
}

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let interval = Duration::from_millis(number(arguments, 0)?);
    let page_bytes = proc::page_size_bytes();
    let mut commands = Commands::open();
    arm_watchdogs()?;
    say("ready")?;
    let mut watch = None;
    let (mut scans, mut kills) = (0_u64, 0_u64);
    let mut next_tick = Instant::now() + interval;
    loop {
        let wait = next_tick.saturating_duration_since(Instant::now());
        if !wait.is_zero() && wait_readable(io::stdin().as_fd(), wait)? {
            let Some((word, numbers)) = commands.next()? else { return Ok(()) };
            match (word.as_str(), numbers.as_slice()) {
                ("on", &[uid, line_bytes]) => {
                    let uid = u32::try_from(uid).map_err(|error| usage(&error.to_string()))?;
                    watch = Some(Watch {
                        uid,
                        line_pages: Some(line_bytes / page_bytes).filter(|pages| *pages > 0),
                    });
                    (scans, kills) = (0, 0);
                    say("on")?;
                }
                ("off", []) => {
                    watch = None;
                    say(&format!("off {scans} {kills}"))?;
                }
                _ => return Err(usage(&word)),
            }
            continue;
        }
        next_tick = Instant::now() + interval;
        if let Some(watch) = watch {
            scans += 1;
            kills += u64::from(tick(watch)?);
        }
    }
}

/// One scan; whether it killed.
fn tick(watch: Watch) -> Result<bool, BenchError> {
    let mut sum = 0;
    let mut largest: Option<(u64, OwnedFd)> = None;
    let entries = fs::read_dir("/proc").map_err(BenchError::io("list /proc"))?;
    // An entry that cannot be read is a process that ended while the list was read.
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if !fs::metadata(format!("/proc/{pid}")).is_ok_and(|folder| folder.uid() == watch.uid) {
            continue;
        }
        // Held before it is read, so that what is killed is what was read.
        let held = watch.line_pages.and_then(|_| open_pidfd(pid));
        let Ok(statm) = fs::read(format!("/proc/{pid}/statm")) else { continue };
        let pages = parse_statm(&statm)?.anonymous().0;
        sum += pages;
        if let Some(pidfd) = held.filter(|_| largest.as_ref().is_none_or(|(most, _)| pages > *most)) {
            largest = Some((pages, pidfd));
        }
    }
    match (watch.line_pages, largest) {
        (Some(line), Some((_, pidfd))) if sum > line => Ok(pidfd_send_signal(&pidfd, Signal::KILL).is_ok()),
        _ => Ok(false),
    }
}

fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    // A process that ended since it was listed has no pidfd and no memory either.
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}
