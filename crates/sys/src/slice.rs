//! The cgroup v2 slices of users, as systemd lays them out: read, never written (systemd owns them).

use crate::cgroup::{CgroupMount, has_memory};
use plimsoll_policy::{
    last_defence::slice::Max,
    units::{Bytes, Uid},
};
use plimsoll_wire::text::{
    MemoryEvents, WireError, parse_memory_events, parse_memory_held, parse_memory_max,
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::PathBuf,
};
use thiserror::Error;

/// The longest file that is read: `memory.stat` has some 70 lines of at most 60 bytes.
const TEXT_MAX_BYTES: u64 = 64 * 1024;

/// Why a file of a slice could not be used.
#[derive(Debug, Error)]
pub enum SliceError {
    /// It could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was read and not understood.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What was wrong with it.
        error: WireError,
    },
}

impl SliceError {
    /// The slice is not there, or not any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Read { source, .. } => {
                source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ENODEV)
            }
            Self::Unreadable { .. } => false,
        }
    }
}

/// The place of all users' slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSlices {
    root: PathBuf,
}

impl UserSlices {
    /// Below the first cgroup v2 mount that has the memory controller; `None` where there is none.
    #[must_use]
    pub fn find() -> Option<Self> {
        let mounts = CgroupMount::all().ok()?;
        mounts.into_iter().find(CgroupMount::has_memory).map(|mount| Self { root: mount.place })
    }

    /// Below a given root; `None` where it has no memory controller.
    #[must_use]
    pub fn at(root: PathBuf) -> Option<Self> {
        has_memory(&root).then_some(Self { root })
    }

    /// A user's slice; `None` where the user has none now.
    #[must_use]
    pub fn slice(&self, user: Uid) -> Option<UserSlice> {
        let folder = self.root.join("user.slice").join(unit(user));
        folder.join("memory.max").exists().then_some(UserSlice { folder })
    }
}

/// The name of a user's slice, as logind gives it (`systemd-logind.service(8)`).
#[must_use]
pub fn unit(user: Uid) -> String {
    format!("user-{user}.slice")
}

/// One user's slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSlice {
    folder: PathBuf,
}

impl UserSlice {
    /// `memory.max`, as the kernel enforces it.
    ///
    /// # Errors
    /// [`SliceError`].
    pub fn memory_max(&self) -> Result<Max, SliceError> {
        self.parse("memory.max", parse_memory_max)
    }

    /// What it holds now that reclaim cannot free.
    ///
    /// # Errors
    /// [`SliceError`].
    pub fn held(&self) -> Result<Bytes, SliceError> {
        self.parse("memory.stat", parse_memory_held)
    }

    /// Opens what happens to it.
    ///
    /// # Errors
    /// [`SliceError`].
    pub fn events(&self) -> Result<SliceEvents, SliceError> {
        let open = |name| {
            let path = self.folder.join(name);
            File::open(&path)
                .map(|file| (path.clone(), file))
                .map_err(|source| SliceError::Read { path, source })
        };
        let id = fs::metadata(&self.folder)
            .map(|folder| folder.ino())
            .map_err(|source| SliceError::Read { path: self.folder.clone(), source })?;
        Ok(SliceEvents { id, all: open("memory.events")?, local: open("memory.events.local")? })
    }

    fn parse<T>(&self, name: &str, parse: fn(&[u8]) -> Result<T, WireError>) -> Result<T, SliceError> {
        let path = self.folder.join(name);
        let text = File::open(&path).and_then(|file| read_capped(&file));
        let text = text.map_err(|source| SliceError::Read { path: path.clone(), source })?;
        parse(&text).map_err(|error| SliceError::Unreadable { path, error })
    }
}

fn read_capped(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(TEXT_MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// What happened to a slice and everything in it. Its descriptor has an exceptional condition (`POLLPRI`) after each
/// change, until it is read.
#[derive(Debug)]
pub struct SliceEvents {
    id: u64,
    all: (PathBuf, File),
    local: (PathBuf, File),
}

/// Two counts of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceCounts {
    /// Which slice: one that was made anew counts anew.
    pub id: u64,
    /// Times that the slice's own `memory.max` was at fault: a limit further in is not counted.
    pub own_oom: u64,
    /// Processes of the slice, and of what is in it, that any OOM killer of the kernel ended.
    pub oom_kill: u64,
}

impl SliceEvents {
    /// Reads both counts.
    ///
    /// # Errors
    /// [`SliceError`]; [`SliceError::is_gone`] when the slice has gone.
    pub fn read(&mut self) -> Result<SliceCounts, SliceError> {
        let all = read_events(&mut self.all)?;
        let local = read_events(&mut self.local)?;
        Ok(SliceCounts { id: self.id, own_oom: local.oom, oom_kill: all.oom_kill })
    }
}

impl AsFd for SliceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.1.as_fd()
    }
}

fn read_events((path, file): &mut (PathBuf, File)) -> Result<MemoryEvents, SliceError> {
    let text = file.rewind().and_then(|()| read_capped(file));
    let text = text.map_err(|source| SliceError::Read { path: path.clone(), source })?;
    parse_memory_events(&text).map_err(|error| SliceError::Unreadable { path: path.clone(), error })
}

#[cfg(test)]
mod tests;
