//! What became of the victims' memory, told where there is something to tell; and the rates at which it came back, kept
//! across restarts.

use crate::{
    expedite::{self, Inbox},
    journal::Journal,
    offload::{Haste, Lane, Offload},
    owners::Owners,
    state,
};
use plimsoll_policy::{
    human::{bytes, span},
    reap::{Hindrance, Hindrances, Rates},
    units::{Bytes, Nanos},
};
use plimsoll_sys::process::{OwnerOf, ReapReport, Reaper, ReaperOptions};
use std::{
    io,
    os::fd::AsFd as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

const FILE_NAME: &str = "reap-rates.json";

/// Starts the reaper with the rates that were seen before, and has it tell what stood in the way of a victim's end. Its threads
/// are looked after for as long as the lane is there.
///
/// # Errors
/// As [`Reaper::spawn_with`].
pub(crate) fn start(
    folder: &Path,
    journal: Journal,
    offload: &Offload,
) -> io::Result<(Reaper, Lane<()>, Inbox)> {
    let (others, inbox) = expedite::link()?;
    let rates = read(folder).unwrap_or_else(|why| {
        journal.line(format!("how fast memory came back before is not known: {why}"));
        Rates::new()
    });
    let owners = Mutex::new(Owners::of_machine());
    let owner = OwnerOf::new(move |uid| owners.lock().unwrap_or_else(PoisonError::into_inner).owner_now(uid));
    let options = ReaperOptions { rates, owner, ..ReaperOptions::default() };
    let reaper = Reaper::spawn_with(options, move |report| {
        // Of those that others killed `status` has the sum: each line would be one that anybody can have written.
        if !others.tell(&report)
            && let Some(line) = told(&report)
        {
            journal.line(line);
        }
    })?;
    let mut watch = reaper.watch()?;
    let readable = watch.as_fd().try_clone_to_owned()?;
    let lane = offload.attend(Haste::Urgent, readable, move || {
        watch.look();
        true
    })?;
    Ok((reaper, lane, inbox))
}

/// Keeps the rates for the next daemon.
///
/// # Errors
/// One line.
pub(crate) fn keep(folder: &Path, rates: &Rates) -> Result<(), String> {
    let text = serde_json::to_vec(rates).map_err(|error| error.to_string())?;
    state::replace_file(folder, FILE_NAME, &text).map_err(|error| error.to_string())
}

fn read(folder: &Path) -> Result<Rates, String> {
    match std::fs::read(folder.join(FILE_NAME)) {
        Ok(text) => {
            serde_json::from_slice::<Rates>(&text).map(Rates::sound).map_err(|error| error.to_string())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Rates::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// A line where something stood in the way, or memory stays behind.
fn told(report: &ReapReport) -> Option<String> {
    let left = report.left.filter(|left| *left > Bytes(0));
    if report.found.is_empty() && left.is_none() {
        return None;
    }
    let list = |set: Hindrances| set.iter().map(Hindrance::words).collect::<Vec<_>>().join(", ");
    let mut line = format!("process {}: {}", report.pidfd.pid(), list(report.found));
    if !report.lifted.is_empty() {
        line.push_str("; lifted");
        if report.lifted != report.found {
            line.push_str(&format!(": {}", list(report.lifted)));
        }
    }
    if let Some(left) = left {
        line.push_str(&format!("; {} did not come back", bytes(left)));
    }
    if let Some((freed, took)) = report.measured() {
        line.push_str(&format!("; {} came back in {}", bytes(Bytes(freed)), span(Nanos(took))));
    }
    if !report.exited {
        line.push_str("; it was still there when it was given up");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_outlive_the_daemon_and_a_damaged_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), Rates::new());
        let mut rates = Rates::new();
        rates.record(256 << 20, 100_000_000);
        keep(folder.path(), &rates).unwrap();
        assert_eq!(read(folder.path()).unwrap().lowest(), rates.lowest());
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        read(folder.path()).unwrap_err();
    }
}
