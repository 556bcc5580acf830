//! The tokens of make's jobserver: bytes in a pipe. Whoever has taken one may start one more process, and puts it back when
//! that has ended. What is in the pipe is nobody's, and can be taken back.

use crate::hook;
use nix::{sys::stat::Mode, unistd::mkfifo};
use rustix::{
    fs::{Mode as FileMode, OFlags, open},
    io::{FdFlags, fcntl_setfd, ioctl_fionread},
};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const TOKEN: u8 = b'+';
/// Where programs look for a jobserver: cargo's own comes before make's.
const FLAGS: &str = "MAKEFLAGS";
const OTHERS: [&str; 2] = ["CARGO_MAKEFLAGS", "MFLAGS"];
/// Of another jobserver, or of none.
const REPLACED: [&str; 3] = ["--jobserver-auth=", "--jobserver-fds=", "-j"];
/// GNU make knows named pipes from here on.
const NAMED_FROM: (u32, u32) = (4, 4);

/// How long it may take to tell its version.
const TELLS_WITHIN: Duration = Duration::from_secs(2);

/// The pipe.
#[derive(Debug)]
pub(crate) struct Tokens {
    gives: File,
    takes: File,
    /// What programs are told.
    auth: OsString,
    /// The ends that they inherit, where it has no name.
    inherited: Option<(OwnedFd, OwnedFd)>,
    _folder: Option<TempDir>,
    /// So many may run at once, the one that needs no token among them.
    slots: u64,
    /// In the pipe, or taken.
    issued: u64,
}

impl Tokens {
    /// For programs that this process starts from here on: as the make that is installed can take it.
    pub(crate) fn new(slots: u64) -> io::Result<Self> {
        if make_version().is_none_or(|version| version >= NAMED_FROM) {
            Self::named(slots)
        } else {
            Self::inherited(slots)
        }
    }

    fn named(slots: u64) -> io::Result<Self> {
        let mut all = env::temp_dir();
        // Words in make's flags end there.
        if all.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            all = PathBuf::from("/tmp");
        }
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-jobserver-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(all)?;
        let path = folder.path().join("tokens");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let both = || open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, FileMode::empty());
        let mut auth = OsString::from("fifo:");
        auth.push(&path);
        let (gives, takes) = (both()?.into(), both()?.into());
        Ok(Self { gives, takes, auth, inherited: None, _folder: Some(folder), slots, issued: 0 })
    }

    fn inherited(slots: u64) -> io::Result<Self> {
        let (reads, writes) = io::pipe()?;
        let (reads, writes) = (OwnedFd::from(reads), OwnedFd::from(writes));
        // Opened anew: whether it waits is a matter of each open file, and programs may want theirs to.
        let own = |end: &OwnedFd, way| {
            let path = format!("/proc/self/fd/{}", end.as_raw_fd());
            open(path, way | OFlags::NONBLOCK | OFlags::CLOEXEC, FileMode::empty()).map(File::from)
        };
        let (takes, gives) = (own(&reads, OFlags::RDONLY)?, own(&writes, OFlags::WRONLY)?);
        for end in [&reads, &writes] {
            fcntl_setfd(end, FdFlags::empty())?;
        }
        let auth = OsString::from(format!("{},{}", reads.as_raw_fd(), writes.as_raw_fd()));
        Ok(Self { gives, takes, auth, inherited: Some((reads, writes)), _folder: None, slots, issued: 0 })
    }

    /// Tells a program of it.
    pub(crate) fn tell(&self, command: &mut Command) {
        let before = env::var_os(FLAGS).unwrap_or_default();
        command.env(FLAGS, flags(&before, self.slots, &self.auth));
        for other in OTHERS {
            command.env_remove(other);
        }
    }

    /// What this process starts from here on has no part in it.
    pub(crate) fn close_inherited(&mut self) {
        drop(self.inherited.take());
    }

    fn free(&mut self) -> u64 {
        // What somebody has put in besides is issued as well.
        let free = ioctl_fionread(&self.takes).unwrap_or(0);
        self.issued = self.issued.max(free);
        free
    }

    /// How many programs have.
    pub(crate) fn taken(&mut self) -> u64 {
        let free = self.free();
        self.issued.saturating_sub(free)
    }

    /// Lets so many more be taken, as far as there are slots; others are taken back.
    pub(crate) fn offer(&mut self, more: u64) {
        let free = self.free();
        let taken = self.issued.saturating_sub(free);
        let wanted = more.min(self.slots.saturating_sub(1).saturating_sub(taken));
        for _ in free..wanted {
            if !matches!(self.gives.write(&[TOKEN]), Ok(1)) {
                break;
            }
            self.issued = self.issued.saturating_add(1);
        }
        for _ in wanted..free {
            // Somebody may have been quicker.
            if !matches!(self.takes.read(&mut [0]), Ok(1)) {
                break;
            }
            self.issued = self.issued.saturating_sub(1);
        }
    }

    /// Those that are taken beyond so many went with whoever had them.
    pub(crate) fn forget_lost(&mut self, holders: u64) {
        let free = self.free();
        self.issued = self.issued.min(free.saturating_add(holders));
    }
}

/// make's words for it, after those that were there: `k -j4 --jobserver-auth=3,4`.
fn flags(before: &OsStr, slots: u64, auth: &OsStr) -> OsString {
    let before = before.to_string_lossy();
    let is_kept = |word: &&str| !REPLACED.iter().any(|replaced| word.starts_with(replaced));
    // Variables come after it.
    let (options, variables) =
        before.split_once(" -- ").map_or((&*before, None), |(options, rest)| (options, Some(rest)));
    let kept: Vec<&str> = options.split_ascii_whitespace().filter(is_kept).collect();
    let mut flags = OsString::from(kept.join(" "));
    flags.push(format!(" -j{slots} --jobserver-auth="));
    flags.push(auth);
    if let Some(variables) = variables {
        flags.push(" -- ");
        flags.push(variables);
    }
    flags
}

/// Of the make that is found first; `None`: there is none, or it does not say in time.
fn make_version() -> Option<(u32, u32)> {
    let mut command = Command::new("make");
    command
        .arg("--version")
        .env_remove(FLAGS)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut make = command.process_group(0).spawn().ok()?;
    hook::wait(&mut make, Instant::now() + TELLS_WITHIN).ok()??;
    let mut told = [0; 64];
    let length = make.stdout?.read(&mut told).ok()?;
    version(&String::from_utf8_lossy(told.get(..length)?))
}

/// Of `GNU Make 4.3`.
fn version(told: &str) -> Option<(u32, u32)> {
    let mut numbers = told.lines().next()?.strip_prefix("GNU Make ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
