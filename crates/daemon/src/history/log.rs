//! The record log on the disk: `incidents.log`, and its predecessor `incidents.log.1`.
//!
//! Records are only ever appended. What a crash left unfinished at the end is cut off when the log is opened; damage
//! anywhere else is stepped over and counted, never removed. A log that holds records of a newer version is refused.

use super::{
    HistoryError, record,
    share::{Forgotten, Share},
};
use crate::state;
use jiff::Timestamp;
use plimsoll_policy::incident::Incident;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Records collected before they are written at the latest.
pub(super) const BATCH_MAX_BYTES: usize = 256 << 10;

const READ_BYTES: usize = 64 << 10;

/// What was found wrong, and set right, when the log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// Bytes of an unfinished record that were cut off the end.
    pub cut_bytes: u64,
    /// Lines that are no whole record and were stepped over.
    pub damaged_records: u64,
}

/// What a walk over one file finds.
#[derive(Debug, Default)]
struct Survey {
    repaired: Repaired,
    max_id: Option<u64>,
    whole_bytes: u64,
}

/// The log, opened for appending by the one process that may.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file: File,
    length_bytes: u64,
    file_max_bytes: u64,
    pending: Vec<u8>,
    pending_records: u64,
}

/// A log with what its opening brought to light.
#[derive(Debug)]
pub(super) struct OpenedLog {
    pub(super) log: Log,
    pub(super) repaired: Repaired,
    /// One more than the largest id in it.
    pub(super) next_id: u64,
}

/// A line of a log file.
pub(super) struct Line<'a> {
    /// Where it starts in the file.
    pub(super) start: u64,
    /// Its bytes without the newline; cut off after [`record::RECORD_MAX_BYTES`], which makes them no record.
    pub(super) bytes: &'a [u8],
    /// Whether its newline was there.
    pub(super) terminated: bool,
}

/// Reads line by line with a bounded buffer.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    offset: u64,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    /// `offset` is where `reader` stands.
    pub(super) fn new(reader: R, offset: u64) -> Self {
        Self { reader: BufReader::with_capacity(READ_BYTES, reader), offset, line: Vec::new() }
    }

    /// The next line; `None` at the end.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let start = self.offset;
        let mut terminated = false;
        while !terminated {
            let available = self.reader.fill_buf()?;
            if available.is_empty() {
                break;
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let content = available.get(..newline.unwrap_or(available.len())).unwrap_or_default();
            let room = record::RECORD_MAX_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(content.get(..room.min(content.len())).unwrap_or_default());
            terminated = newline.is_some();
            let used = content.len().saturating_add(usize::from(terminated));
            self.reader.consume(used);
            self.offset = self.offset.saturating_add(used as u64);
        }
        if self.offset == start { Ok(None) } else { Ok(Some(Line { start, bytes: &self.line, terminated })) }
    }
}

pub(super) fn current_path(folder: &Path) -> PathBuf {
    folder.join("incidents.log")
}

pub(super) fn previous_path(folder: &Path) -> PathBuf {
    folder.join("incidents.log.1")
}

/// Where the next file is written while the current one is still used.
fn next_path(folder: &Path) -> PathBuf {
    folder.join("incidents.log.new")
}

/// Ends a rotation that a crash ended half way: the file is missing, and what was to be it is there.
fn take_over(folder: &Path, file: File) -> Result<File, HistoryError> {
    let (path, next) = (current_path(folder), next_path(folder));
    let length = file.metadata().map_err(HistoryError::io("look at", &path))?.len();
    if length > 0 || !next.exists() {
        return Ok(file);
    }
    fs::rename(&next, &path).map_err(HistoryError::io("take over", &next))?;
    open_locked(&path)
}

fn open_locked(path: &Path) -> Result<File, HistoryError> {
    let file = state::open_ours(path, OpenOptions::new().read(true).append(true).create(true))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(HistoryError::InUse { path: path.to_path_buf() }),
        Err(fs::TryLockError::Error(source)) => Err(HistoryError::io("lock", path)(source)),
    }
}

/// Opens a log file for reading; `None` where there is none.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, HistoryError> {
    match state::open_ours(path, OpenOptions::new().read(true)) {
        Ok(file) => Ok(Some(file)),
        Err(state::StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn survey(path: &Path, file: &File) -> Result<Survey, HistoryError> {
    let mut found = Survey::default();
    let mut lines = Lines::new(file, 0);
    while let Some(line) = lines.next_line().map_err(HistoryError::io("read", path))? {
        if !line.terminated {
            found.repaired.cut_bytes = lines.offset.saturating_sub(found.whole_bytes);
            break;
        }
        match record::check(line.bytes) {
            Ok(checked) => {
                found.max_id = found.max_id.max(Some(checked.id));
            }
            Err(record::RecordError::Future(version)) => {
                return Err(HistoryError::Future { path: path.to_path_buf(), version });
            }
            Err(_) => found.repaired.damaged_records = found.repaired.damaged_records.saturating_add(1),
        }
        found.whole_bytes = lines.offset;
    }
    Ok(found)
}

impl Log {
    /// Opens the log in a folder that was prepared, cuts off what a crash left unfinished, and finds the next id.
    /// Both files together stay under `max_bytes`, as long as that is at least four times [`BATCH_MAX_BYTES`].
    pub(super) fn open(folder: &Path, max_bytes: u64) -> Result<OpenedLog, HistoryError> {
        let (path, previous) = (current_path(folder), previous_path(folder));
        let file = take_over(folder, open_locked(&path)?)?;
        let found = survey(&path, &file)?;
        // One that was made just now holds what was kept of the earlier ones, and its predecessor the largest ids.
        let older = open_to_read(&previous)?.map(|file| survey(&previous, &file)).transpose()?;
        let max_id = found.max_id.max(older.and_then(|older| older.max_id));
        if found.repaired.cut_bytes > 0 {
            file.set_len(found.whole_bytes)
                .and_then(|()| file.sync_all())
                .map_err(HistoryError::io("cut off the unfinished record of", &path))?;
        }
        state::sync_folder(folder)?;
        let log = Self {
            folder: folder.to_path_buf(),
            file,
            length_bytes: found.whole_bytes,
            file_max_bytes: max_bytes / 2,
            pending: Vec::new(),
            pending_records: 0,
        };
        Ok(OpenedLog { log, repaired: found.repaired, next_id: max_id.unwrap_or(0).saturating_add(1) })
    }

    /// The folder it is in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that wait for [`Log::commit`].
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Adds an incident to what the next commit writes.
    pub(super) fn push_incident(&mut self, incident: &mut Incident) -> io::Result<()> {
        record::encode_incident(&mut self.pending, incident)?;
        self.pending_records = self.pending_records.saturating_add(1);
        Ok(())
    }

    /// Adds an outcome to what the next commit writes.
    pub(super) fn push_outcome(&mut self, outcome: &mut record::Outcome) -> io::Result<()> {
        record::encode_outcome(&mut self.pending, outcome)?;
        self.pending_records = self.pending_records.saturating_add(1);
        Ok(())
    }

    /// Writes what is pending and waits until it is on the disk. Returns how many records were lost, with the reason:
    /// what could not be written whole is taken back, so that the file ends with a whole record.
    pub(super) fn commit(&mut self) -> Result<(), (u64, io::Error)> {
        let records = core::mem::take(&mut self.pending_records);
        let written = self.file.write_all(&self.pending).and_then(|()| self.file.sync_data());
        let added = self.pending.len() as u64;
        self.pending.clear();
        self.pending.shrink_to(READ_BYTES);
        match written {
            Ok(()) => {
                self.length_bytes = self.length_bytes.saturating_add(added);
                Ok(())
            }
            Err(error) => match self.file.set_len(self.length_bytes) {
                Ok(()) => Err((records, error)),
                Err(cut) => Err((records, io::Error::new(error.kind(), format!("{error}, and then: {cut}")))),
            },
        }
    }

    /// Makes the file the predecessor of a new one when what is pending would take it past half of the cap. The new one begins
    /// with what is kept of the predecessor that goes, of which nothing is from before `oldest`. Returns what the two files do
    /// not hold any more, where that changed.
    pub(super) fn rotate_if_full(&mut self, oldest: Timestamp) -> Result<Option<Forgotten>, HistoryError> {
        let after = self.length_bytes.saturating_add(self.pending.len() as u64);
        if self.length_bytes == 0 || after <= self.file_max_bytes {
            return Ok(None);
        }
        let (path, previous, next) =
            (current_path(&self.folder), previous_path(&self.folder), next_path(&self.folder));
        // What an earlier try left behind is begun anew.
        drop(fs::remove_file(&next));
        let file = open_locked(&next)?;
        let mut kept = BufWriter::new(&file);
        let forgotten = Share::of((&previous, &path), self.file_max_bytes, oldest)?.write(&mut kept)?;
        kept.flush().and_then(|()| file.sync_data()).map_err(HistoryError::io("write", &next))?;
        drop(kept);
        let length_bytes = file.metadata().map_err(HistoryError::io("look at", &next))?.len();
        fs::rename(&path, &previous).map_err(HistoryError::io("rotate", &path))?;
        if let Err(error) = fs::rename(&next, &path) {
            // Without a new file the old one goes on being used, under the name that is looked for.
            fs::rename(&previous, &path).map_err(HistoryError::io("rotate back", &path))?;
            return Err(HistoryError::io("rotate", &next)(error));
        }
        (self.file, self.length_bytes) = (file, length_bytes);
        state::sync_folder(&self.folder)?;
        Ok(Some(forgotten))
    }

    /// Removes the predecessor when even its last record is older than `max_age`.
    pub(super) fn drop_outdated(&self, now: SystemTime, max_age: Duration) -> Result<(), HistoryError> {
        let previous = previous_path(&self.folder);
        let modified = match fs::symlink_metadata(&previous).and_then(|metadata| metadata.modified()) {
            Ok(modified) => modified,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(HistoryError::io("look at", &previous)(error)),
        };
        // A file from the future is not outdated.
        if now.duration_since(modified).is_ok_and(|age| age > max_age) {
            fs::remove_file(&previous).map_err(HistoryError::io("remove", &previous))?;
        }
        Ok(())
    }
}

/// Finds the record that starts at `start` and has this checksum, and stands behind it; `None` where it is not there.
pub(super) fn resume_behind(file: File, start: u64, checksum: u32) -> io::Result<Option<Lines<File>>> {
    let mut file = file;
    if start >= file.metadata()?.len() {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(start))?;
    let mut lines = Lines::new(file, start);
    let same = match lines.next_line()? {
        Some(line) => {
            line.terminated && record::check(line.bytes).is_ok_and(|found| found.checksum == checksum)
        }
        None => false,
    };
    Ok(same.then_some(lines))
}

#[cfg(test)]
mod tests;
