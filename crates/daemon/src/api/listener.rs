//! A socket in the file system, the control API's, tmalloc's, that of metrics or the pressure socket: one live daemon on it, a
//! dead one's leftovers replaced.

use nix::{
    fcntl::{Flock, FlockArg},
    sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket},
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

/// The folder of the socket: everyone may reach into it, only its owner may put something there.
const FOLDER_MODE: u32 = 0o755;

/// Connections that may wait to be taken or turned away; who comes then waits for room. They are taken at a pace, so that a
/// new one must not stand behind many: at the pace of a flood these take a third of a second on the control socket, and a
/// twentieth on tmalloc's.
const BACKLOG: i32 = 512;

/// On the pressure socket: libsystemd does not wait for room, and never comes again. They take half a second.
const PRESSURE_BACKLOG: i32 = 4096;

/// How often a lock file may be removed while it is being locked: each time another daemon has ended at that moment.
const LOCK_TRIES_MAX: usize = 100;

/// Which socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The control API's: a stream.
    Control,
    /// tmalloc's: messages.
    Tmalloc,
    /// That of metrics: a stream.
    Metrics,
    /// On which programs are told that memory is short: a stream.
    Pressure,
}

/// Whether nobody was taken for want of a descriptor or of memory: then nobody is for a while. Otherwise nobody waits, or
/// whoever did has gone.
pub(crate) fn lacks_room(refused: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    !matches!(refused.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

impl Purpose {
    const fn kind(self) -> SockType {
        match self {
            Self::Control | Self::Metrics | Self::Pressure => SockType::Stream,
            Self::Tmalloc => SockType::SeqPacket,
        }
    }

    /// Who may connect. But for metrics every user: what each may have is decided call by call, or by whose connection it is.
    const fn mode(self) -> u32 {
        match self {
            Self::Control | Self::Tmalloc | Self::Pressure => 0o666,
            Self::Metrics => 0o600,
        }
    }

    const fn backlog(self) -> i32 {
        match self {
            Self::Control | Self::Tmalloc | Self::Metrics => BACKLOG,
            Self::Pressure => PRESSURE_BACKLOG,
        }
    }

    /// The option that moves it.
    const fn option(self) -> &'static str {
        match self {
            Self::Control => "--socket",
            Self::Tmalloc => "--tmalloc-socket",
            Self::Metrics => "metrics.listen",
            Self::Pressure => "--pressure-socket",
        }
    }
}

/// Why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A daemon serves this socket.
    #[error(
        "a daemon is already running on '{socket}'; stop it first, or give this one another place with {option}",
        socket = .0.display(),
        option = .1.option()
    )]
    AlreadyRunning(PathBuf, Purpose),
    /// Something that is no socket has the name. It is never removed.
    #[error(
        "'{path}' is in the way and is not a socket; remove it or choose another {option}",
        path = .0.display(),
        option = .1.option()
    )]
    NotASocket(PathBuf, Purpose),
    /// The file system refused.
    #[error("cannot {doing} '{path}': {error}", path = .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// What came of it.
        error: io::Error,
    },
}

/// Adds what was done and to which path.
fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |error| ListenError::Io { doing, path, error }
}

/// The open socket. While it lives no other daemon opens the same path; dropping it removes the files.
#[derive(Debug)]
pub struct ServedSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket file, so that a successor's is not removed.
    identity: (u64, u64),
    /// Held for life: what tells a dead daemon's socket from a live one's without a race. Goes last.
    _lock: LockFile,
}

/// A locked file. It is removed by whoever holds it, so that one who locks it must look whether it is still there.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    file: Flock<File>,
}

impl LockFile {
    /// Whether this is the file that others find under its name.
    fn is_in_place(&self) -> io::Result<bool> {
        let held = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.is_in_place().is_ok_and(|ours| ours) {
            // One that stays is harmless: the next daemon locks it.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl ServedSocket {
    /// Opens the socket at `path`, making its folder (mode 0755) when it is missing. The file gets mode 0666, that of metrics
    /// 0600.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(path: &Path, purpose: Purpose) -> Result<Self, ListenError> {
        make_folder(path)?;
        let lock = lock_beside(path, purpose)?;
        clear_stale(path, purpose)?;
        let bound = new_socket(purpose).and_then(|fd| {
            bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
            Ok(UnixListener::from(fd))
        });
        let listener = bound.map_err(|errno| at("open the socket", path)(errno.into()))?;
        fs::set_permissions(path, Permissions::from_mode(purpose.mode()))
            .map_err(at("set who may use the socket", path))?;
        listen(&listener, Backlog::new(purpose.backlog()).unwrap_or(Backlog::MAXCONN))
            .map_err(|errno| at("listen on the socket", path)(errno.into()))?;
        listener.set_nonblocking(true).map_err(at("set up the socket", path))?;
        let file = fs::symlink_metadata(path).map_err(at("look at the socket", path))?;
        Ok(Self { listener, path: path.to_owned(), identity: (file.dev(), file.ino()), _lock: lock })
    }

    /// The listener; it never blocks.
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for ServedSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity && file.file_type().is_socket());
        if ours {
            // A file that cannot be removed is harmless: the next daemon replaces it, a client finds nobody behind it.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn new_socket(purpose: Purpose) -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, purpose.kind(), SockFlag::SOCK_CLOEXEC, None)
}

fn make_folder(socket: &Path) -> Result<(), ListenError> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)))
        .map_err(at("make the folder", folder))
}

/// The lock file `SOCKET.lock`. Only its owner may open it: a lock that any user could take would let any user keep
/// the daemon from starting.
fn lock_beside(socket: &Path, purpose: Purpose) -> Result<LockFile, ListenError> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    for _ in 0..LOCK_TRIES_MAX {
        let file = lock(&path, socket, purpose)?;
        let lock = LockFile { path: path.clone(), file };
        if lock.is_in_place().map_err(at("look at the lock file", &path))? {
            return Ok(lock);
        }
        // Its last holder removed it after it was opened here.
    }
    // Others come and go as fast as this one looks.
    Err(ListenError::AlreadyRunning(socket.to_owned(), purpose))
}

fn lock(path: &Path, socket: &Path, purpose: Purpose) -> Result<Flock<File>, ListenError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
        .map_err(at("open the lock file", path))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_file, errno)| {
        if errno == nix::errno::Errno::EWOULDBLOCK {
            ListenError::AlreadyRunning(socket.to_owned(), purpose)
        } else {
            at("lock", path)(errno.into())
        }
    })
}

/// Removes the socket file of a daemon that died. Called with the lock held.
fn clear_stale(path: &Path, purpose: Purpose) -> Result<(), ListenError> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at("look at", path)(error)),
    };
    if !file.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned(), purpose));
    }
    let tried = new_socket(purpose).and_then(|fd| connect(fd.as_raw_fd(), &UnixAddr::new(path)?));
    match tried {
        Err(nix::errno::Errno::ECONNREFUSED) => {
            fs::remove_file(path).map_err(at("remove the stale socket", path))
        }
        // A live one of the other kind is somebody's, too.
        Ok(()) | Err(nix::errno::Errno::EPROTOTYPE) => {
            Err(ListenError::AlreadyRunning(path.to_owned(), purpose))
        }
        Err(errno) => Err(at("find out who serves", path)(errno.into())),
    }
}

#[cfg(test)]
mod tests;
