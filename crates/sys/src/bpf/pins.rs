//! Where the programs and maps live on between two daemons: a directory of a bpf file system.
//!
//! `maps/`, `programs/` and `links/` below it. Links are pinned last and removed first, so a directory with links is
//! complete, and one without enforces nothing.

use super::{error::BpfError, map::Map};
use plimsoll_wire::abi;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The pin directory.
#[derive(Debug, Clone)]
pub struct Pins {
    root: PathBuf,
}

/// What the loader made the maps for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// `PLIMSOLL_SCHEMA` of the programs.
    pub schema: u32,
    /// Possible CPUs.
    pub cpus: u32,
    /// Bit mask of charged `rss_stat` members.
    pub charged_members: u32,
    /// Address spaces that can be tracked.
    pub processes_max: u32,
    /// Accounts.
    pub accounts_max: u32,
}

/// What a pin directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinState {
    /// Nothing.
    Absent,
    /// Remains of a load or a removal that did not finish: nothing is enforced.
    Partial,
    /// Programs of our schema, in force.
    Ours(Meta),
    /// Programs of another schema.
    Foreign(u32),
}

fn cause(path: &Path, operation: &'static str, error: &dyn std::fmt::Display) -> BpfError {
    BpfError::Pin { path: path.to_path_buf(), operation, cause: error.to_string() }
}

impl Pins {
    /// The pins below `root`, which need not exist yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.root.join("maps").join(name)
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.root.join("programs").join(name)
    }

    pub(super) fn link(&self, name: &str) -> PathBuf {
        self.root.join("links").join(name)
    }

    pub(super) fn create_directories(&self) -> Result<(), BpfError> {
        for name in ["maps", "programs", "links"] {
            let path = self.root.join(name);
            fs::create_dir_all(&path).map_err(|error| cause(&path, "create", &error))?;
        }
        Ok(())
    }

    /// What is there.
    ///
    /// # Errors
    /// [`BpfError`] when the directory or its `meta` map cannot be read.
    pub fn state(&self) -> Result<PinState, BpfError> {
        let links = self.root.join("links");
        let linked = match fs::read_dir(&links) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if self.root.join("maps").exists() {
                    PinState::Partial
                } else {
                    PinState::Absent
                });
            }
            Err(error) => return Err(cause(&links, "read", &error)),
        };
        if !linked {
            return Ok(PinState::Partial);
        }
        let meta = Map::open(&self.map("meta"), "meta")?;
        let mut value = vec![0; meta.value_bytes()];
        meta.read(&0_u32.to_ne_bytes(), &mut value)?;
        let word = |index: usize| {
            value
                .get(index.saturating_mul(4)..)
                .and_then(|rest| rest.first_chunk())
                .copied()
                .map(u32::from_ne_bytes)
        };
        let (Some(schema), Some(cpus), Some(charged_members), Some(processes_max), Some(accounts_max)) =
            (word(0), word(1), word(3), word(4), word(5))
        else {
            return Ok(PinState::Foreign(0));
        };
        if schema != abi::PLIMSOLL_SCHEMA {
            return Ok(PinState::Foreign(schema));
        }
        Ok(PinState::Ours(Meta { schema, cpus, charged_members, processes_max, accounts_max }))
    }

    /// Removes every pin, links first: from then on nothing is enforced and nothing is attached. The directory itself
    /// stays: it is what a daemon locks. Returns whether anything was there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first pin that could not be removed.
    pub fn remove(&self) -> Result<bool, BpfError> {
        let mut removed = false;
        for name in ["links", "programs", "maps"] {
            let directory = self.root.join(name);
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(cause(&directory, "read", &error)),
            };
            for entry in entries {
                let path = entry.map_err(|error| cause(&directory, "read", &error))?.path();
                fs::remove_file(&path).map_err(|error| cause(&path, "remove", &error))?;
                removed = true;
            }
            fs::remove_dir(&directory).map_err(|error| cause(&directory, "remove", &error))?;
        }
        Ok(removed)
    }
}
