//! `plimsoll status --follow`: a line now and then, for pipes and logs.

use super::{known, not_running};
use crate::{
    exit::{Ending, Exit, Failure},
    feed::Feed,
    interrupt::Interrupt,
    names::Names,
    output,
};
use jiff::{Timestamp, tz::TimeZone};
use plimsoll_api::{
    client::{CallError, Client},
    status::Status,
};
use plimsoll_policy::human;
use serde_json::Value;
use std::{io::Write, path::Path, sync::mpsc, time::Duration};

/// How many accounts that are near their line are told by name.
const NEAR_NAMED: usize = 3;

/// What it waits for.
enum Event {
    News(Box<Result<Status, CallError>>),
    Ended,
}

/// Prints a line for each answer, until it is stopped, nobody reads any more, or there was no daemon to begin with.
pub(super) fn follow(socket: &Path, interval: Duration, json: bool, out: &mut dyn Write) -> Ending {
    // One at a time: nobody asks on while the reader of the output takes its time.
    let (events, arriving) = mpsc::sync_channel(0);
    let (_wanting, wanted) = mpsc::channel();
    let stopped = events.clone();
    Interrupt::new()?.watch(move |_| stopped.send(Event::Ended).is_ok());
    Feed { socket: socket.to_owned(), interval, first: (), wanted }.start(
        |client: &mut Client, ()| client.status(),
        move |news| events.send(Event::News(Box::new(news))).is_ok(),
    );
    let mut names = Names::default();
    let mut heard = false;
    while let Ok(Event::News(news)) = arriving.recv() {
        let now = Timestamp::now();
        match *news {
            Ok(status) if json => in_json(out, now, &names.fill_in_status(status))?,
            Ok(status) => writeln!(out, "{}  {}", clock(now), line(&status, &mut names))?,
            Err(error) if heard && is_passing(&error) => without(out, now, json, &error)?,
            Err(error) => return Err(error.into()),
        }
        out.flush()?;
        heard = true;
    }
    Ok(Exit::Done)
}

/// Whether a daemon may answer again: it is being started anew, or busy.
const fn is_passing(error: &CallError) -> bool {
    match error {
        CallError::NotRunning { .. }
        | CallError::NoAnswer { .. }
        | CallError::Busy(_)
        | CallError::Refused(_) => true,
        CallError::NotPermitted(_) | CallError::Invalid(_) | CallError::NotFound(_) => false,
    }
}

fn clock(now: Timestamp) -> String {
    now.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

fn without(out: &mut dyn Write, now: Timestamp, json: bool, error: &CallError) -> Result<(), Failure> {
    if json {
        return in_json(out, now, &not_running()?);
    }
    writeln!(out, "{}  {}", clock(now), output::printable(&error.to_string()))?;
    Ok(())
}

/// As `status --json`, with the time, on one line.
fn in_json(out: &mut dyn Write, now: Timestamp, status: &impl serde::Serialize) -> Result<(), Failure> {
    let mut status = serde_json::to_value(status)?;
    if let Some(fields) = status.as_object_mut() {
        fields.insert("time".to_owned(), Value::String(now.to_string()));
    }
    serde_json::to_writer(&mut *out, &status)?;
    writeln!(out)?;
    Ok(())
}

/// What changes, in one line.
fn line(status: &Status, names: &mut Names) -> String {
    let pressure = &status.pressure;
    let mut parts = vec![format!(
        "{} available of {}",
        known(pressure.mem_available_bytes),
        known(pressure.mem_total_bytes)
    )];
    if pressure.swap_total_bytes != Some(0) {
        parts.push(format!(
            "swap {} free of {}",
            known(pressure.swap_free_bytes),
            known(pressure.swap_total_bytes)
        ));
    }
    if let Some(left) = pressure.exhausted_in_ns {
        parts.push(format!("used up in {}", super::left(left)));
    }
    let near: Vec<_> = status.accounts.iter().filter(|view| view.near).collect();
    let accounts =
        output::counted(u64::try_from(status.accounts.len()).unwrap_or(u64::MAX), "account", "accounts");
    parts.push(format!("{accounts}, {} near", near.len()));
    parts.extend(near.iter().take(NEAR_NAMED).map(|view| {
        let name = names.of(&view.account).unwrap_or_else(|| view.account.to_string());
        format!("{} {} of {}", human::escaped(&name), known(Some(view.usage_bytes)), known(view.hard_bytes))
    }));
    let (incidents, last) = incidents(status);
    let last = last.map_or_else(String::new, |id| format!(", last {id}"));
    let dying = status.guards.limits.dying.saturating_add(status.guards.pressure.dying);
    parts.push(format!("{dying} dying"));
    parts.push(format!("{}{last}", output::counted(incidents, "incident", "incidents")));
    parts.join("; ")
}

/// How many since the daemon started, and the last of all guards.
pub(crate) fn incidents(status: &Status) -> (u64, Option<u64>) {
    let guards = &status.guards;
    let all = [
        Some((guards.limits.incidents, guards.limits.last_incident)),
        Some((guards.pressure.incidents, guards.pressure.last_incident)),
        guards.workingset.as_ref().map(|guard| (guard.incidents, guard.last_incident)),
        guards.tmalloc.as_ref().map(|guard| (guard.incidents, guard.last_incident)),
        guards.fragmentation.as_ref().map(|guard| (guard.incidents, guard.last_incident)),
        guards.others.as_ref().map(|guard| (guard.incidents, guard.last_incident)),
    ];
    let all = all.into_iter().flatten();
    all.fold((0, None), |(count, last), (incidents, id)| (count.saturating_add(incidents), last.max(id)))
}

#[cfg(test)]
mod tests;
