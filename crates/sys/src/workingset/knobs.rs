//! Settings of the kernel that are changed for a while, with a record by which whoever comes next puts them back.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// The longest value: a number, or `max`.
const VALUE_BYTES_MAX: u64 = 64;

/// Why a setting could not be read or written.
#[derive(Debug, Error)]
#[error("could not {operation} {}: {source}", path.display())]
pub struct KnobError {
    /// What was tried: `read` or `write`.
    pub operation: &'static str,
    /// Which file.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

impl KnobError {
    /// Whether this kernel, or this cgroup, does not have the setting, or not any more.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENOTDIR))
    }
}

/// A setting that is changed, and what it was before. It outlives the process as text: one line of a file of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    path: PathBuf,
    was: String,
    set: String,
}

/// What became of putting a setting back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBack {
    /// It is as it was before.
    Done,
    /// Somebody else has changed it since: theirs holds.
    NotOurs,
    /// It is not there any more: its cgroup was removed.
    Gone,
}

/// Reads a setting.
///
/// # Errors
/// [`KnobError`]; with `InvalidData` where it is longer than a setting can be.
pub fn read(path: &Path) -> Result<String, KnobError> {
    let fail = |source| KnobError { operation: "read", path: path.into(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(fail)?;
    file.take(VALUE_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
    if u64::try_from(text.len()) == Ok(VALUE_BYTES_MAX) {
        return Err(fail(io::Error::from(io::ErrorKind::InvalidData)));
    }
    Ok(text.trim().into())
}

/// The record of a change that is about to be made: to be kept safe before [`Undo::apply`], so that nothing is changed
/// that nobody knows how to undo. `None` where the setting has the value already.
///
/// # Errors
/// [`KnobError`] where it cannot be read.
pub fn plan(path: &Path, value: &str) -> Result<Option<Undo>, KnobError> {
    let was = read(path)?;
    Ok((was != value).then(|| Undo { path: path.into(), was, set: value.into() }))
}

/// Writes a setting: a file that is there.
///
/// # Errors
/// [`KnobError`] where it cannot be written.
pub fn write(path: &Path, value: &str) -> Result<(), KnobError> {
    // Not created, should it be gone.
    fs::File::options()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(|source| KnobError { operation: "write", path: path.into(), source })
}

impl Undo {
    /// Makes the change. The kernel may round the value: what it made of it is what the record holds afterwards.
    ///
    /// # Errors
    /// [`KnobError`]; nothing was changed then, unless only reading it back failed.
    pub fn apply(&mut self) -> Result<(), KnobError> {
        write(&self.path, &self.set)?;
        self.set = read(&self.path)?;
        Ok(())
    }

    /// Puts the setting back, unless somebody else has changed it since.
    ///
    /// # Errors
    /// [`KnobError`] where it can be neither read nor written.
    pub fn put_back(&self) -> Result<PutBack, KnobError> {
        let gone = |error: KnobError| if error.is_absent() { Ok(PutBack::Gone) } else { Err(error) };
        match read(&self.path) {
            Ok(now) if now == self.was => Ok(PutBack::Done),
            Ok(now) if now != self.set => Ok(PutBack::NotOurs),
            Ok(_) => write(&self.path, &self.was).map(|()| PutBack::Done).or_else(gone),
            Err(error) => gone(error),
        }
    }

    /// Which setting.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one line of a file of records, without its end; `None` for what is none. What it holds is written to the
    /// file that it names: only lines of a file that nobody else can write.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(3, |byte| *byte == b'\t');
        let mut value = || {
            let text = str::from_utf8(parts.next()?).ok()?;
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b" ._-".contains(&byte))
                .then(|| text.to_owned())
        };
        let (was, set) = (value()?, value()?);
        let path = parts.next().filter(|path| path.starts_with(b"/") && !path.contains(&b'\n'))?;
        Some(Self { path: Path::new(OsStr::from_bytes(path)).into(), was, set })
    }

    /// The line that [`Undo::parse`] reads, with its end.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = format!("{}\t{}\t", self.was, self.set).into_bytes();
        line.extend_from_slice(self.path.as_os_str().as_bytes());
        line.push(b'\n');
        line
    }
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} instead of {}", self.path.display(), self.set, self.was)
    }
}

#[cfg(test)]
mod tests;
