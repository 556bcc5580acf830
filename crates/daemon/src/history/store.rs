//! The database: built from the log, record by record, and never anything that the log does not say.
//!
//! It remembers where in the log the last record stood that it took in, and takes in what follows. What it costs is
//! bounded: a page cache of 256 KiB, no memory mapping of the file, statements that live as long as one batch.

use super::{
    Caps, HistoryError,
    log::{self, Lines},
    record::{self, Outcome, Record},
    share::Forgotten,
};
use plimsoll_policy::{
    incident::{Course, Incident},
    units::Pid,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thiserror::Error;

/// Counts up with every change of [`SCHEMA`]; a database of any other version is built again.
const SCHEMA_VERSION: i64 = 2;

const SCHEMA: &str = "
CREATE TABLE incident(id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE course(incident_id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE INDEX incident_time ON incident(time_us);
CREATE TABLE victim(pid INTEGER NOT NULL, incident_id INTEGER NOT NULL, PRIMARY KEY(pid, incident_id)) STRICT, WITHOUT ROWID;
CREATE INDEX victim_incident ON victim(incident_id);
CREATE TRIGGER forget AFTER DELETE ON incident BEGIN
    DELETE FROM victim WHERE incident_id = old.id;
    DELETE FROM course WHERE incident_id = old.id;
END;
CREATE TABLE taken_in(only INTEGER PRIMARY KEY CHECK(only = 1), start INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;
";

/// Records of one transaction: few enough that the write-ahead log stays small.
const TRANSACTION_RECORDS: u64 = 256;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("history.sqlite")
}

/// Why the database could not be brought up to date.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    /// It has to be built again.
    #[error("{0}")]
    Damaged(String),
    /// Something else; what is in it can still be read.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] HistoryError),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) { Self::Damaged(error.to_string()) } else { Self::Sqlite(error) }
    }
}

/// Whether building the database again would help.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TypeMismatch) => true,
        // SQLITE_ERROR: a table or column that should be there is not.
        Some(ErrorCode::Unknown) => true,
        Some(_) => false,
        // A column of the wrong type, or a body that is no incident.
        None => matches!(
            error,
            rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..)
        ),
    }
}

/// What [`Store::catch_up`] could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TakenIn {
    /// Outcomes of incidents that are not there (any more).
    pub(super) unmatched: u64,
    /// Whole records whose content was not understood.
    pub(super) undecodable: u64,
    taken: u64,
    added: u64,
    replaced: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    incidents: u64,
}

/// Opens a connection for reading only.
pub(super) fn connect_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    bound_memory(&connection)?;
    Ok(connection)
}

fn bound_memory(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -256)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "trusted_schema", false)
}

/// Removes the database with all that belongs to it. No connection may be open.
pub(super) fn remove(folder: &Path) -> Result<(), HistoryError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path(folder).into_os_string();
        name.push(suffix);
        let path = PathBuf::from(name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(HistoryError::io("remove", &path)(error)),
        }
    }
    Ok(())
}

impl Store {
    /// Opens the database, or makes an empty one where there is none.
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = path(folder);
        // Made here, so that it belongs to nobody else and SQLite's other files inherit its mode.
        let mut options = OpenOptions::new();
        crate::state::open_ours(&path, options.read(true).write(true).create(true))
            .map_err(HistoryError::from)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        bound_memory(&connection)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 64)?;
        connection.pragma_update(None, "journal_size_limit", 1 << 20)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let objects: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if version == 0 && objects == 0 {
            let transaction = connection.transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
            transaction.commit()?;
        } else if version != SCHEMA_VERSION {
            return Err(StoreError::Damaged(format!("schema {version}, not {SCHEMA_VERSION}")));
        }
        let counted: i64 = connection.query_row("SELECT count(*) FROM incident", [], |row| row.get(0))?;
        Ok(Self { connection, incidents: counted.unsigned_abs() })
    }

    /// Takes in every record of the log behind the last one that it knows.
    pub(super) fn catch_up(&mut self, folder: &Path) -> Result<TakenIn, StoreError> {
        let mut total = TakenIn::default();
        for mut lines in self.unread(folder)? {
            loop {
                let transaction = self.connection.transaction()?;
                let part = take_in(&transaction, &mut lines, folder)?;
                transaction.commit()?;
                total.unmatched = total.unmatched.saturating_add(part.unmatched);
                total.undecodable = total.undecodable.saturating_add(part.undecodable);
                self.incidents = self.incidents.saturating_add(part.added).saturating_sub(part.replaced);
                if part.taken < TRANSACTION_RECORDS {
                    break;
                }
            }
        }
        Ok(total)
    }

    /// The files to read, each from where it was left.
    fn unread(&self, folder: &Path) -> Result<Vec<Lines<File>>, StoreError> {
        let (current_path, previous_path) = (log::current_path(folder), log::previous_path(folder));
        let reading = |path| move |error| StoreError::Log(HistoryError::io("read", path)(error));
        let from_start = |path: &Path| -> Result<Option<Lines<File>>, StoreError> {
            Ok(log::open_to_read(path)?.map(|file| Lines::new(file, 0)))
        };
        let known: Option<(i64, i64)> = self
            .connection
            .query_row("SELECT start, checksum FROM taken_in", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some(known) = known else {
            let both = [from_start(&previous_path)?, from_start(&current_path)?];
            return Ok(both.into_iter().flatten().collect());
        };
        let lost = || StoreError::Damaged("the log is not the one it was built from".to_owned());
        let (Ok(start), Ok(checksum)) = (u64::try_from(known.0), u32::try_from(known.1)) else {
            return Err(lost());
        };
        if let Some(file) = log::open_to_read(&current_path)?
            && let Some(rest) = log::resume_behind(file, start, checksum).map_err(reading(&current_path))?
        {
            return Ok(vec![rest]);
        }
        if let Some(file) = log::open_to_read(&previous_path)?
            && let Some(rest) = log::resume_behind(file, start, checksum).map_err(reading(&previous_path))?
        {
            return Ok([Some(rest), from_start(&current_path)?].into_iter().flatten().collect());
        }
        Err(lost())
    }

    /// Forgets what is too old or too much, and what the log does not hold any more.
    pub(super) fn prune(
        &mut self,
        caps: &Caps,
        now: SystemTime,
        forgotten: Option<&Forgotten>,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        let mut removed = 0;
        if let Some(Forgotten { up_to, kept }) = forgotten {
            let up_to = i64::try_from(*up_to).unwrap_or(i64::MAX);
            let kept =
                record::to_json(kept).map_err(HistoryError::io("encode", Path::new("what is kept")))?;
            let sql = "DELETE FROM incident WHERE id <= ?1 AND id NOT IN \
                       (SELECT value FROM json_each(CAST(?2 AS TEXT)))";
            removed += transaction.execute(sql, params![up_to, kept])?;
        }
        // A clock before 1970 cannot tell how old anything is.
        if let Some(oldest) =
            now.duration_since(UNIX_EPOCH).ok().and_then(|time| time.checked_sub(caps.max_age))
        {
            let oldest_us = i64::try_from(oldest.as_micros()).unwrap_or(i64::MAX);
            removed += transaction.execute("DELETE FROM incident WHERE time_us < ?1", [oldest_us])?;
        }
        let left = self.incidents.saturating_sub(removed as u64);
        let excess = i64::try_from(left.saturating_sub(caps.max_incidents)).unwrap_or(i64::MAX);
        if excess > 0 {
            // Looking through all of them takes a while: a few more go, so that it is not done each time.
            let sql = "DELETE FROM incident WHERE id IN (SELECT id FROM (SELECT id, row_number() \
                       OVER (PARTITION BY body ->> '$.account' ORDER BY id DESC) AS nth FROM incident) \
                       ORDER BY nth DESC, id LIMIT ?1)";
            let excess = excess.saturating_add(i64::try_from(caps.max_incidents / 64).unwrap_or_default());
            removed += transaction.execute(sql, [excess])?;
        }
        transaction.commit()?;
        self.incidents = self.incidents.saturating_sub(removed as u64);
        Ok(())
    }

    /// Gives memory back that only the next batch will need.
    pub(super) fn rest(&self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("PRAGMA shrink_memory")?)
    }
}

/// Takes in up to [`TRANSACTION_RECORDS`] records.
fn take_in(
    transaction: &Transaction<'_>,
    lines: &mut Lines<File>,
    folder: &Path,
) -> Result<TakenIn, StoreError> {
    let mut part = TakenIn::default();
    let mut last = None;
    while part.taken < TRANSACTION_RECORDS {
        let path = log::current_path(folder);
        let Some(line) = lines.next_line().map_err(HistoryError::io("read", &path))? else { break };
        // Damage was counted when the log was opened.
        let Ok(checked) = record::check(line.bytes) else { continue };
        part.taken = part.taken.saturating_add(1);
        last = Some((line.start, checked.checksum));
        match checked.decode() {
            Ok(Record::Incident(incident)) => {
                part.replaced = part.replaced.saturating_add(insert(transaction, &incident)?);
                part.added = part.added.saturating_add(1);
            }
            Ok(Record::Outcome(outcome)) => {
                if !complete(transaction, *outcome)? {
                    part.unmatched = part.unmatched.saturating_add(1);
                }
            }
            Err(_) => part.undecodable = part.undecodable.saturating_add(1),
        }
    }
    if let Some((start, checksum)) = last {
        let start = i64::try_from(start).unwrap_or(i64::MAX);
        let sql = "INSERT INTO taken_in VALUES (1, ?1, ?2) \
                   ON CONFLICT(only) DO UPDATE SET start = excluded.start, checksum = excluded.checksum";
        transaction.execute(sql, params![start, checksum])?;
    }
    Ok(part)
}

/// The course of an incident is beside it: lists of incidents are read without.
fn parts(incident: &Incident) -> Result<(String, Option<String>), StoreError> {
    let text = |json: io::Result<Vec<u8>>| {
        let json = json.map_err(HistoryError::io("encode", Path::new("an incident")))?;
        String::from_utf8(json).map_err(|error| StoreError::Damaged(error.to_string()))
    };
    let course = incident.course.as_ref().map(record::to_json).map(text).transpose()?;
    let bare = Incident { course: None, ..incident.clone() };
    Ok((text(record::to_json(&bare))?, course))
}

fn set_course(transaction: &Transaction<'_>, id: i64, course: Option<&str>) -> rusqlite::Result<()> {
    if let Some(course) = course {
        let sql = "INSERT OR REPLACE INTO course(incident_id, body) VALUES (?1, ?2)";
        transaction.execute(sql, params![id, course])?;
    }
    Ok(())
}

/// Returns how many incidents of the same id it took the place of.
fn insert(transaction: &Transaction<'_>, incident: &Incident) -> Result<u64, StoreError> {
    let (body, course) = parts(incident)?;
    // Checked by the record's decoder to fit.
    let id = i64::try_from(incident.id).unwrap_or(i64::MAX);
    let replaced = transaction.execute("DELETE FROM incident WHERE id = ?1", [id])?;
    let sql = "INSERT INTO incident(id, time_us, body) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, params![id, incident.time.as_microsecond(), body])?;
    set_course(transaction, id, course.as_deref())?;
    for victim in &incident.victims {
        let sql = "INSERT OR IGNORE INTO victim(pid, incident_id) VALUES (?1, ?2)";
        transaction.execute(sql, params![victim.pid.0, id])?;
    }
    Ok(replaced as u64)
}

/// Returns whether the incident is there.
fn complete(transaction: &Transaction<'_>, outcome: Outcome) -> Result<bool, StoreError> {
    let Some(mut incident) = by_id(transaction, outcome.id)? else { return Ok(false) };
    outcome.apply(&mut incident);
    let (body, course) = parts(&incident)?;
    let id = i64::try_from(incident.id).unwrap_or(i64::MAX);
    set_course(transaction, id, course.as_deref())?;
    transaction.execute("UPDATE incident SET body = ?2 WHERE id = ?1", params![id, body])?;
    Ok(true)
}

fn incident(row: &Row<'_>) -> rusqlite::Result<Incident> {
    decoded(&row.get::<_, String>(0)?)
}

/// Of a row of [`WHOLE`].
fn whole(row: &Row<'_>) -> rusqlite::Result<Incident> {
    let course: Option<Course> =
        row.get::<_, Option<String>>(1)?.map(|body| decoded::<Course>(&body)).transpose()?;
    Ok(Incident { course, ..incident(row)? })
}

fn decoded<T: DeserializeOwned>(body: &str) -> rusqlite::Result<T> {
    serde_json::from_str(body).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// An incident with its course.
const WHOLE: &str =
    "SELECT incident.body, course.body FROM incident LEFT JOIN course ON course.incident_id = id";

/// The incident of this id, with its course.
pub(super) fn by_id(connection: &Connection, id: u64) -> rusqlite::Result<Option<Incident>> {
    let Ok(id) = i64::try_from(id) else { return Ok(None) };
    connection.query_row(&format!("{WHOLE} WHERE id = ?1"), [id], whole).optional()
}

/// The newest incident, with its course.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<Option<Incident>> {
    connection.query_row(&format!("{WHOLE} ORDER BY id DESC LIMIT 1"), [], whole).optional()
}

/// The last incident that has this process among its victims, with its course.
pub(super) fn by_pid(connection: &Connection, pid: Pid) -> rusqlite::Result<Option<Incident>> {
    let sql = format!("{WHOLE} WHERE id = (SELECT max(incident_id) FROM victim WHERE pid = ?1)");
    connection.query_row(&sql, [pid.0], whole).optional()
}

/// Which incidents, by id: `after < id < before`, and no earlier than the first one at or after `since_us`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) after: i64,
    pub(super) before: i64,
    pub(super) since_us: i64,
}

const IN_RANGE: &str = "SELECT body FROM incident WHERE id > ?1 AND id < ?2 \
                        AND id >= (SELECT min(id) FROM incident WHERE time_us >= ?3)";

/// The oldest of a range, oldest first, without their courses.
pub(super) fn oldest(connection: &Connection, range: Range, limit: usize) -> rusqlite::Result<Vec<Incident>> {
    select(connection, &format!("{IN_RANGE} ORDER BY id LIMIT ?4"), range, limit)
}

/// The newest of a range, oldest first, without their courses.
pub(super) fn newest(connection: &Connection, range: Range, limit: usize) -> rusqlite::Result<Vec<Incident>> {
    let mut found = select(connection, &format!("{IN_RANGE} ORDER BY id DESC LIMIT ?4"), range, limit)?;
    found.reverse();
    Ok(found)
}

fn select(connection: &Connection, sql: &str, range: Range, limit: usize) -> rusqlite::Result<Vec<Incident>> {
    let mut statement = connection.prepare(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![range.after, range.before, range.since_us, limit], incident)?;
    rows.collect()
}
