//! Takes in, once, what versions before the store kept: the record log (`incidents.log`, its predecessor, and what a rotation
//! had begun), and the database that was built from it (`history.sqlite`). Nothing writes these any more.
//!
//! A record of the log is a line `plimsoll1 CRC32 KIND ID JSON`: the format's version, the checksum (CRC-32 as in gzip, eight
//! hexadecimal digits) of everything behind it, `incident` or `outcome`, the incident's id, and the JSON of the value.

use super::{
    HistoryError,
    entry::{ENTRY_MAX_BYTES, Outcome},
    store::{self, Intake, Store, StoreError},
};
use crate::state::{self, StateError};
use plimsoll_policy::incident::Incident;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

/// The version that was written last.
const RECORD_VERSION: u64 = 1;

/// The log, oldest first.
const LOGS: [&str; 3] = ["incidents.log.1", "incidents.log", "incidents.log.new"];
const DATABASE: &str = "history.sqlite";

/// The files that are there.
fn files(folder: &Path) -> Result<Vec<(PathBuf, File)>, HistoryError> {
    let mut found = Vec::new();
    for name in LOGS.iter().chain([&DATABASE]) {
        let path = folder.join(name);
        match state::open_ours(&path, OpenOptions::new().read(true)) {
            Ok(file) => found.push((path, file)),
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The largest id in what is there to be taken in; 0: there is nothing.
///
/// # Errors
/// [`HistoryError::Future`] where a newer version wrote a record; the files are left as they are.
pub(super) fn largest_id(folder: &Path) -> Result<u64, HistoryError> {
    let mut largest = 0;
    for (path, file) in files(folder)? {
        if path.ends_with(DATABASE) {
            let newest = store::connect_to_read(&path).and_then(|old| store::last(&old));
            largest = largest.max(newest.ok().flatten().map_or(0, |incident| incident.id));
            continue;
        }
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        while next_line(&mut lines, &mut line).map_err(HistoryError::io("read", &path))? {
            match check(&line) {
                Ok(checked) => largest = largest.max(checked.id),
                Err(Unread::Future(version)) => {
                    return Err(HistoryError::Future { path, version, known: RECORD_VERSION });
                }
                Err(Unread::Damaged) => {}
            }
        }
    }
    Ok(largest)
}

/// Takes in what is there, all of it or none, and says what it did. A file of which everything is in the store now is removed:
/// it would be a second copy of who was killed, under no cap. Any other is set aside.
pub(super) fn take_in(store: &mut Store, folder: &Path) -> Result<Option<String>, StoreError> {
    let files = files(folder)?;
    if files.is_empty() {
        return Ok(None);
    }
    let taken = store.intake(|intake| {
        let read = |(path, file): (PathBuf, File)| {
            let left = if path.ends_with(DATABASE) { database(intake, &path) } else { log(intake, file) };
            Ok((path, left?))
        };
        files.into_iter().map(read).collect::<Result<Vec<_>, StoreError>>()
    })?;
    let mut told = Vec::new();
    for (path, left) in taken {
        let name = path.display();
        if left == 0 {
            store::remove(&path)?;
            told.push(format!("{name} is in it now, and was removed"));
        } else {
            let aside = store::set_aside(&path)?;
            told.push(format!(
                "{left} records of {name} could not be read, and it is {} now",
                aside.display()
            ));
        }
    }
    state::sync_folder(folder).map_err(HistoryError::from)?;
    Ok(Some(told.join("; ")))
}

/// Takes in a log; how many of its records could not be.
fn log(intake: &mut Intake<'_>, file: File) -> Result<u64, StoreError> {
    let mut lines = BufReader::new(file);
    let (mut line, mut left) = (Vec::new(), 0_u64);
    loop {
        match next_line(&mut lines, &mut line) {
            Ok(true) => {}
            Ok(false) => return Ok(left),
            Err(_unreadable) => return Ok(left.saturating_add(1)),
        }
        let taken = match decode(&line) {
            Some(Record::Incident(incident)) => intake.incident(*incident)?,
            Some(Record::Outcome(outcome)) => intake.outcome(*outcome).map(|()| true)?,
            None => false,
        };
        left = left.saturating_add(u64::from(!taken));
    }
}

/// Takes in what can be read of a database: from its beginning, and where that ends early, from its end; how often it could
/// not.
pub(super) fn database(intake: &mut Intake<'_>, path: &Path) -> Result<u64, StoreError> {
    let Ok(old) = store::connect_to_read(path) else { return Ok(1) };
    let mut left = 0_u64;
    for order in ["ASC", "DESC"] {
        let sql = format!("{} ORDER BY id {order}", store::WHOLE);
        let Ok(mut statement) = old.prepare(&sql) else { return Ok(1) };
        let Ok(mut rows) = statement.query([]) else { return Ok(1) };
        loop {
            match rows.next() {
                Ok(None) => return Ok(left),
                Ok(Some(row)) => {
                    let taken = match store::whole(row) {
                        Ok(incident) => intake.incident(incident)?,
                        Err(_unreadable) => false,
                    };
                    left = left.saturating_add(u64::from(!taken));
                }
                Err(_ends_early) => break,
            }
        }
        left = left.saturating_add(1);
    }
    Ok(left)
}

enum Record {
    Incident(Box<Incident>),
    Outcome(Box<Outcome>),
}

/// Why a line is no record.
#[derive(Debug, PartialEq, Eq)]
enum Unread {
    /// A newer Plimsoll wrote it.
    Future(u64),
    Damaged,
}

/// A line whose checksum is right and whose JSON was not looked at yet.
#[derive(Debug, PartialEq, Eq)]
struct Checked<'a> {
    kind: &'a str,
    id: u64,
    json: &'a str,
}

/// Checks a line as far as that is cheap.
fn check(line: &[u8]) -> Result<Checked<'_>, Unread> {
    let text =
        core::str::from_utf8(line).ok().and_then(|text| text.strip_suffix('\n')).ok_or(Unread::Damaged)?;
    let (version, rest) = word(text)?;
    match version.strip_prefix("plimsoll").and_then(|digits| digits.parse().ok()) {
        Some(RECORD_VERSION) => {}
        Some(version) if version > RECORD_VERSION => return Err(Unread::Future(version)),
        Some(_) | None => return Err(Unread::Damaged),
    }
    let (checksum, body) = word(rest)?;
    if checksum != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return Err(Unread::Damaged);
    }
    let (kind, rest) = word(body)?;
    let (id, json) = word(rest)?;
    Ok(Checked { kind, id: id.parse().map_err(|_digits| Unread::Damaged)?, json })
}

fn word(text: &str) -> Result<(&str, &str), Unread> {
    text.split_once(' ').ok_or(Unread::Damaged)
}

/// Decodes a line. Never panics, whatever it is given.
fn decode(line: &[u8]) -> Option<Record> {
    let Checked { kind, json, .. } = check(line).ok()?;
    match kind {
        "incident" => serde_json::from_str(json).ok().map(Record::Incident),
        "outcome" => serde_json::from_str(json).ok().map(Record::Outcome),
        _ => None,
    }
}

/// Reads a line with its newline; whether there was one. What is longer than any record comes in pieces, none of which is one.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    lines.by_ref().take(ENTRY_MAX_BYTES as u64).read_until(b'\n', line).map(|length| length > 0)
}

#[cfg(test)]
mod tests;
