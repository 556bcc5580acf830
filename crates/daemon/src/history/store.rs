//! The store: a SQLite database in WAL mode, `incidents.sqlite` in the state folder.
//!
//! A commit is on the disk when it returns (`synchronous=FULL`). What the store costs is bounded: a page cache of 256 KiB, no
//! memory mapping of the file, statements that live as long as one batch, and a write-ahead log of some MiB.

use super::{
    HistoryError,
    entry::{Outcome, Row as Entry},
};
use crate::state::{self, StateError};
use plimsoll_policy::{
    incident::{Course, Incident},
    units::Pid,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use thiserror::Error;

/// Counts up with every change of [`SCHEMA`].
const SCHEMA_VERSION: i64 = 1;

/// `AUTOINCREMENT` remembers the largest id after its incident was forgotten. `bytes` is 0 for an incident that stands for
/// forgotten ones, so that thinning out takes it together with the next one only.
const SCHEMA: &str = "
CREATE TABLE incident(id INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER NOT NULL, account TEXT, bytes INTEGER NOT NULL,
    stands_for INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
CREATE TABLE course(incident_id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE INDEX incident_time ON incident(time_us);
CREATE INDEX incident_share ON incident(account, id, bytes, stands_for);
CREATE TABLE victim(pid INTEGER NOT NULL, incident_id INTEGER NOT NULL, PRIMARY KEY(pid, incident_id)) STRICT, WITHOUT ROWID;
CREATE INDEX victim_incident ON victim(incident_id);
CREATE TRIGGER forget AFTER DELETE ON incident BEGIN
    DELETE FROM victim WHERE incident_id = old.id;
    DELETE FROM course WHERE incident_id = old.id;
END;
";

/// Waits for an administrator's `sqlite3` only: this process has one connection that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// What is written before the write-ahead log is moved into the database.
const LOG_BYTES: u64 = 256 << 10;
/// A log of more pages, which a query kept from being used again, is moved with no query under way.
const LOG_MAX_PAGES: i64 = 1024;
/// Pages that a transaction changes besides those of its incidents, about.
const TRANSACTION_BYTES: u64 = 32 << 10;

/// Files that were set aside: no more than so many, of which the last is replaced.
const ASIDE_MAX: u32 = 4;

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("incidents.sqlite")
}

/// Why the store could not be used.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    /// The file is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// Something else, such as a full disk.
    #[error(transparent)]
    Failed(#[from] HistoryError),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) {
            Self::Damaged(error.to_string())
        } else {
            Self::Failed(HistoryError::Database(error))
        }
    }
}

/// Whether the file is not what was written.
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

/// What is to be written.
#[derive(Debug)]
pub(super) enum Write {
    Incident(Entry),
    Outcome(Outcome),
}

impl Write {
    /// About what it takes in memory and on the disk.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Incident(entry) => entry.bytes(),
            Self::Outcome(Outcome { course, .. }) => {
                let samples = |course: &Course| course.account.len().saturating_add(course.machine.len());
                course.as_ref().map_or(0, samples).saturating_mul(128)
            }
        }
    }
}

/// Opens a connection for reading only.
pub(super) fn connect_to_read(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn connect(path: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -256)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether a file of this name was given another.
pub(super) fn was_set_aside(path: &Path) -> bool {
    (1..=ASIDE_MAX).any(|number| aside_of(path, number).exists())
}

fn aside_of(path: &Path, number: u32) -> PathBuf {
    beside(path, &format!(".damaged-{number}"))
}

/// Gives a file another name; a database takes its write-ahead log along. No connection may be open.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, HistoryError> {
    let free = (1..ASIDE_MAX).find(|number| !aside_of(path, *number).exists());
    let aside = aside_of(path, free.unwrap_or(ASIDE_MAX));
    remove(&aside)?;
    fs::rename(path, &aside).map_err(HistoryError::io("set aside", path))?;
    match fs::rename(beside(path, "-wal"), beside(&aside, "-wal")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(HistoryError::io("set aside the log of", path)(error));
        }
        Ok(()) | Err(_) => {}
    }
    // What is left is an index of the log, which is made anew.
    remove(path)?;
    Ok(aside)
}

/// Removes a file, and what SQLite keeps beside it where it is a database. No connection may be open.
pub(super) fn remove(path: &Path) -> Result<(), HistoryError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = beside(path, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(HistoryError::io("remove", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

mod share;

#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    incidents: u64,
    /// Written since the write-ahead log was moved into the database.
    unmoved_bytes: u64,
}

impl Store {
    /// Opens the store, or makes an empty one where there is none.
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = path(folder);
        // Made here, so that it belongs to nobody else and SQLite's other files inherit its mode.
        let new = match state::open_ours(&path, OpenOptions::new().read(true).write(true)) {
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(HistoryError::from(error).into()),
            Ok(_) => false,
        };
        if new {
            state::open_ours(&path, OpenOptions::new().read(true).write(true).create(true))
                .map_err(HistoryError::from)?;
        }
        let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version > SCHEMA_VERSION {
            let version = version.unsigned_abs();
            return Err(HistoryError::Future { path, version, known: SCHEMA_VERSION.unsigned_abs() }.into());
        }
        let objects: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if version == 0 && objects == 0 {
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", 1 << 20)?;
        if version == 0 && objects == 0 {
            let transaction = connection.transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
            transaction.commit()?;
            state::sync_folder(folder).map_err(HistoryError::from)?;
        } else if version != SCHEMA_VERSION {
            return Err(StoreError::Damaged(format!("its schema has version {version}")));
        }
        let incidents = count(&connection)?;
        Ok(Self { connection, incidents, unmoved_bytes: LOG_BYTES })
    }

    /// Has no id up to this one given out again.
    pub(super) fn count_from(&self, id: u64) -> Result<(), StoreError> {
        if next_id(&self.connection)? <= id {
            let id = i64::try_from(id).unwrap_or(i64::MAX);
            self.connection.execute("DELETE FROM sqlite_sequence WHERE name = 'incident'", [])?;
            self.connection
                .execute("INSERT INTO sqlite_sequence(name, seq) VALUES ('incident', ?1)", [id])?;
        }
        Ok(())
    }

    /// Writes all of it as one transaction, which is on the disk when this returns. Returns how many outcomes are of incidents
    /// that are not there (any more).
    pub(super) fn write(&mut self, writes: &[Write]) -> Result<u64, StoreError> {
        let transaction = self.connection.transaction()?;
        let (mut added, mut replaced, mut unmatched) = (0_u64, 0_u64, 0_u64);
        let mut bytes = TRANSACTION_BYTES;
        for write in writes {
            bytes = bytes.saturating_add(write.bytes() as u64);
            match write {
                Write::Incident(entry) => {
                    added = added.saturating_add(1);
                    replaced = replaced.saturating_add(insert(&transaction, entry)?);
                }
                Write::Outcome(outcome) if complete(&transaction, outcome.clone())? => {}
                Write::Outcome(_) => unmatched = unmatched.saturating_add(1),
            }
        }
        transaction.commit()?;
        self.incidents = self.incidents.saturating_add(added).saturating_sub(replaced);
        self.unmoved_bytes = self.unmoved_bytes.saturating_add(bytes);
        Ok(unmatched)
    }

    /// Takes in incidents of elsewhere, all of them or none; `take` is what does.
    pub(super) fn intake<T>(
        &mut self,
        take: impl FnOnce(&mut Intake<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let taken = {
            let mut intake = Intake { transaction: self.connection.transaction()?, own: BTreeSet::new() };
            let taken = take(&mut intake)?;
            intake.transaction.commit()?;
            taken
        };
        self.incidents = count(&self.connection)?;
        // However large it was.
        self.unmoved_bytes = u64::MAX;
        Ok(taken)
    }

    /// Moves the write-ahead log into the database where it has grown. `alone` keeps queries away, for the case that they
    /// have kept the log from being used again.
    pub(super) fn bound_log<T>(&mut self, alone: impl FnOnce() -> T) -> Result<(), StoreError> {
        if self.unmoved_bytes < LOG_BYTES {
            return Ok(());
        }
        let moved = |how: &str| -> rusqlite::Result<i64> {
            self.connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get(1))
        };
        if moved("PASSIVE")? > LOG_MAX_PAGES {
            let _nobody_reads = alone();
            moved("TRUNCATE")?;
        }
        self.unmoved_bytes = 0;
        Ok(())
    }

    /// Gives memory back that only the next batch will need.
    pub(super) fn rest(&self) -> Result<(), StoreError> {
        Ok(self.connection.execute_batch("PRAGMA shrink_memory")?)
    }
}

fn count(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT count(*) FROM incident", [], |row| row.get(0)).map(i64::unsigned_abs)
}

/// One more than the largest id that was ever stored.
pub(super) fn next_id(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'incident'";
    connection.query_row(sql, [], |row| row.get(0)).map(|last: i64| last.unsigned_abs().saturating_add(1))
}

/// Incidents of elsewhere, on their way in.
pub(super) struct Intake<'a> {
    transaction: Transaction<'a>,
    /// What came in this way, of which outcomes may follow.
    own: BTreeSet<u64>,
}

impl Intake<'_> {
    /// Takes one in unless it is there; whether it is there now.
    pub(super) fn incident(&mut self, incident: Incident) -> Result<bool, StoreError> {
        let number = incident.id;
        let Ok(entry) = Entry::of(incident) else { return Ok(false) };
        let sql = "SELECT time_us FROM incident WHERE id = ?1";
        let there: Option<i64> = self.transaction.query_row(sql, [entry.id], |row| row.get(0)).optional()?;
        if there.is_none() {
            insert(&self.transaction, &entry)?;
            self.own.insert(number);
        }
        Ok(there.is_none_or(|time_us| time_us == entry.time_us))
    }

    /// What became known of one that came in this way.
    pub(super) fn outcome(&mut self, outcome: Outcome) -> Result<(), StoreError> {
        if self.own.contains(&outcome.id) {
            complete(&self.transaction, outcome)?;
        }
        Ok(())
    }
}

/// Returns how many incidents of the same id it took the place of.
fn insert(transaction: &Transaction<'_>, entry: &Entry) -> rusqlite::Result<u64> {
    let replaced = transaction.execute("DELETE FROM incident WHERE id = ?1", [entry.id])?;
    put(transaction, entry, entry.bytes())?;
    for victim in &entry.victims {
        let sql = "INSERT OR IGNORE INTO victim(pid, incident_id) VALUES (?1, ?2)";
        transaction.execute(sql, params![victim, entry.id])?;
    }
    Ok(replaced as u64)
}

/// Writes what an incident is, over what it was.
fn put(transaction: &Transaction<'_>, entry: &Entry, bytes: usize) -> rusqlite::Result<()> {
    let sql = "INSERT INTO incident(id, time_us, account, bytes, stands_for, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
               ON CONFLICT(id) DO UPDATE SET bytes = excluded.bytes, body = excluded.body";
    let Entry { id, time_us, account, stands_for, body, course, .. } = entry;
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    transaction.execute(sql, params![id, time_us, account, bytes, stands_for, body])?;
    if let Some(course) = course {
        let sql = "INSERT OR REPLACE INTO course(incident_id, body) VALUES (?1, ?2)";
        transaction.execute(sql, params![id, course])?;
    }
    Ok(())
}

/// Returns whether the incident is there.
fn complete(transaction: &Transaction<'_>, outcome: Outcome) -> Result<bool, StoreError> {
    let Some(mut incident) = by_id(transaction, outcome.id)? else { return Ok(false) };
    outcome.apply(&mut incident);
    let Ok(entry) = Entry::of(incident) else { return Ok(false) };
    put(transaction, &entry, entry.bytes())?;
    Ok(true)
}

fn incident(row: &Row<'_>) -> rusqlite::Result<Incident> {
    decoded(&row.get::<_, String>(0)?)
}

/// Of a row of [`WHOLE`].
pub(super) fn whole(row: &Row<'_>) -> rusqlite::Result<Incident> {
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
pub(super) const WHOLE: &str =
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

/// Which incidents, by id: `after < id < before`, and none before the first at or after `since_us`, where that is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) after: i64,
    pub(super) before: i64,
    pub(super) since_us: Option<i64>,
}

const IN_RANGE: &str = "SELECT body FROM incident WHERE id > ?1 AND id < ?2 \
                        AND (?3 IS NULL OR id >= (SELECT min(id) FROM incident WHERE time_us >= ?3))";

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
