//! The state folder: who may own what is in it, and the files that keep what was set at run time: lines
//! (`plimsoll limit set`) and tunables (`plimsoll protect set`).
//!
//! A file that cannot be understood is never written over: only a [`StateFile`] whose content was read (or that did
//! not exist) can save. Everything read here is checked for its owner and its size before a byte of it is believed.

use nix::fcntl::OFlag;
use plimsoll_policy::human;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// The largest such file that is read or written: about 5,000 lines, of which users' own are less than half.
pub const STATE_MAX_BYTES: u64 = 1 << 20;

/// Which file, and what its content is called in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    name: &'static str,
    key: &'static str,
    /// The version this build writes into it, and the newest it reads.
    version: u64,
}

/// Lines set with `plimsoll limit set`.
pub const LINES: Kind = Kind { name: "limits.json", key: "lines", version: 2 };

/// What `plimsoll protect set` set.
pub const TUNABLES: Kind = Kind { name: "workingset.json", key: "tunables", version: 1 };

/// What is wrong with the state folder or a file in it. Each message is one line and says what to do.
#[derive(Debug, Error)]
pub enum StateError {
    /// A system call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It is a symbolic link, a device or a directory, where a plain file belongs.
    #[error("{} is not a plain file: remove it, or name another state folder with --state", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// The folder is not a directory.
    #[error("{} is not a directory: name another state folder with --state", path.display())]
    NotAFolder {
        /// Which folder.
        path: PathBuf,
    },
    /// Somebody else owns it, and could change it at any time.
    #[error("{} belongs to uid {owner}, not to root or to this process: look at it, then chown or remove it", path.display())]
    NotOurs {
        /// Which file or folder.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
    },
    /// Larger than [`STATE_MAX_BYTES`].
    #[error("{} has {size_bytes} bytes, more than the {STATE_MAX_BYTES} that are read: shorten it or move it away", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its size, or that of what was to be written.
        size_bytes: u64,
    },
    /// It is not what this program writes.
    #[error("{} is damaged ({reason}) and was left as it is: repair it, or move it away to start without what it keeps", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// A newer Plimsoll wrote it.
    #[error("{} has version {version}, this plimsoll reads up to {newest}, and was left as it is: install the newer plimsoll, or move the file away", path.display())]
    Future {
        /// Which file.
        path: PathBuf,
        /// The version it says it has.
        version: u64,
        /// The newest that is read.
        newest: u64,
    },
}

impl StateError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { operation, path, source }
    }
}

/// Creates the folder with mode 0700 where it is missing, and takes everybody else's rights from one that exists.
///
/// # Errors
/// When it cannot be made, is not a directory, or belongs to neither root nor this process.
pub fn prepare_folder(path: &Path) -> Result<(), StateError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            StateError::NotAFolder { path: path.to_path_buf() }
        } else {
            StateError::Io { operation: "create", path: path.to_path_buf(), source }
        }
    })?;
    let metadata = fs::metadata(path).map_err(StateError::io("look at", path))?;
    check_owner(path, metadata.uid())?;
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(StateError::io("set mode 0700 on", path))?;
    }
    Ok(())
}

/// Opens a plain file of root's or of this process's own; never follows a link, never waits for a pipe's other end.
///
/// # Errors
/// [`StateError::Io`] as `open` fails (a missing file: [`io::ErrorKind::NotFound`]), [`StateError::NotAFile`],
/// [`StateError::NotOurs`].
pub(crate) fn open_ours(path: &Path, options: &mut OpenOptions) -> Result<File, StateError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = options.mode(0o600).custom_flags(flags.bits()).open(path).map_err(|source| {
        if source.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) {
            StateError::NotAFile { path: path.to_path_buf() }
        } else {
            StateError::Io { operation: "open", path: path.to_path_buf(), source }
        }
    })?;
    let metadata = file.metadata().map_err(StateError::io("look at", path))?;
    if !metadata.is_file() {
        return Err(StateError::NotAFile { path: path.to_path_buf() });
    }
    check_owner(path, metadata.uid())?;
    Ok(file)
}

/// The first `bytes_max` bytes of such a file; `None` where there is none.
///
/// # Errors
/// As [`open_ours`], but for a missing file; [`StateError::Io`] when it cannot be read.
pub(crate) fn read_ours(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, StateError> {
    let file = match open_ours(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).map_err(StateError::io("read", path))?;
    Ok(Some(bytes))
}

/// Makes a rename, a creation or a removal inside the folder survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StateError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(StateError::io("sync", path))
}

fn check_owner(path: &Path, owner: u32) -> Result<(), StateError> {
    if owner == 0 || owner == nix::unistd::geteuid().as_raw() {
        Ok(())
    } else {
        Err(StateError::NotOurs { path: path.to_path_buf(), owner })
    }
}

/// The version is looked at before anything else: a newer file may hold what this build cannot decode.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// A file of the state folder, once its content is known. One process holds one of each [`Kind`].
#[derive(Debug)]
pub struct StateFile {
    folder: PathBuf,
    kind: Kind,
}

impl StateFile {
    /// Prepares the folder and reads what is kept; `T::default()` where there is no file yet.
    ///
    /// # Errors
    /// Any [`StateError`]; the file is left untouched, and nothing of it is returned.
    pub fn load<T: DeserializeOwned + Default>(folder: &Path, kind: Kind) -> Result<(Self, T), StateError> {
        prepare_folder(folder)?;
        let path = folder.join(kind.name);
        let content = match open_ours(&path, OpenOptions::new().read(true)) {
            Ok(file) => decode(&path, kind, &read_capped(&path, &file)?)?,
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => T::default(),
            Err(error) => return Err(error),
        };
        Ok((Self { folder: folder.to_path_buf(), kind }, content))
    }

    /// Replaces the file: all of the new content is on the disk, or the old one still is.
    ///
    /// # Errors
    /// [`StateError::Io`], or [`StateError::TooLarge`] for what could not be read back. The old file stays.
    pub fn save<T: Serialize>(&mut self, content: &T) -> Result<(), StateError> {
        let path = self.folder.join(self.kind.name);
        let mut bytes =
            encode(self.kind, content).map_err(|error| StateError::io("encode", &path)(error.into()))?;
        bytes.push(b'\n');
        let size_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size_bytes > STATE_MAX_BYTES {
            return Err(StateError::TooLarge { path, size_bytes });
        }
        replace_file(&self.folder, self.kind.name, &bytes)
    }
}

fn encode<T: Serialize>(kind: Kind, content: &T) -> Result<Vec<u8>, serde_json::Error> {
    let whole =
        BTreeMap::from([("version", Value::from(kind.version)), (kind.key, serde_json::to_value(content)?)]);
    serde_json::to_vec_pretty(&whole)
}

/// Replaces a file of the state folder: all of the new content is on the disk, or the old one still is.
pub(crate) fn replace_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), StateError> {
    let (path, new_path) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = write_new(&new_path, bytes)
        .and_then(|()| fs::rename(&new_path, &path).map_err(StateError::io("replace", &path)));
    if let Err(error) = written {
        // The next save removes what cannot be removed now.
        drop(fs::remove_file(&new_path));
        return Err(error);
    }
    sync_folder(folder)
}

/// Replaces a file of the state folder that need not outlive the boot, so that no disk is waited for; `None` removes it.
pub(crate) fn put_file(folder: &Path, name: &str, bytes: Option<&[u8]>) -> Result<(), StateError> {
    let (path, new_path) = (folder.join(name), folder.join(format!("{name}.new")));
    let Some(bytes) = bytes else { return remove(&path) };
    remove(&new_path)?;
    open_ours(&new_path, OpenOptions::new().write(true).create_new(true))?
        .write_all(bytes)
        .and_then(|()| fs::rename(&new_path, &path))
        .map_err(StateError::io("write", &new_path))
}

fn remove(path: &Path) -> Result<(), StateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read_capped(path: &Path, file: &File) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::new();
    file.take(STATE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(StateError::io("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= STATE_MAX_BYTES) {
        return Ok(bytes);
    }
    let size_bytes = file.metadata().map_err(StateError::io("look at", path))?.len();
    Err(StateError::TooLarge { path: path.to_path_buf(), size_bytes })
}

fn decode<T: DeserializeOwned>(path: &Path, kind: Kind, bytes: &[u8]) -> Result<T, StateError> {
    let damaged = |reason: String| StateError::Corrupt { path: path.to_path_buf(), reason };
    let corrupt = |error: serde_json::Error| damaged(error.to_string());
    let Version { version } = serde_json::from_slice(bytes).map_err(corrupt)?;
    if version > kind.version {
        return Err(StateError::Future { path: path.to_path_buf(), version, newest: kind.version });
    }
    if version == 0 {
        return Err(damaged("version 0 was never written".to_owned()));
    }
    let mut whole: BTreeMap<String, Value> = serde_json::from_slice(bytes).map_err(corrupt)?;
    whole.remove("version");
    let mut content = whole.remove(kind.key).ok_or_else(|| damaged(format!("'{}' is missing", kind.key)))?;
    if kind == LINES && version < 2 {
        renew_lines(&mut content);
    }
    if let Some(unknown) = whole.keys().next() {
        return Err(damaged(format!("'{}' is not known", human::escaped(unknown))));
    }
    serde_json::from_value(content).map_err(corrupt)
}

/// The first version called each member of a group what all of them together are now.
fn renew_lines(lines: &mut Value) {
    for target in lines.as_array_mut().into_iter().flatten().filter_map(|line| line.get_mut("target")) {
        if let Some(gid) = target.as_str().and_then(|text| text.strip_prefix("group:")) {
            *target = Value::from(format!("@{gid}"));
        }
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    remove(path)?;
    let mut file = open_ours(path, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(StateError::io("write", path))
}
