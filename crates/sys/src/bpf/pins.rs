//! Where the programs and maps live on between two daemons: a directory of a bpf file system.
//!
//! `maps/`, `programs/` and `links/` below it. Links are pinned last and removed first, so a directory with links is
//! complete, and one without enforces nothing.
//!
//! What is to take their place is pinned in `loading/`, while they stay in force. When that is complete it is renamed to
//! `next/`: from then on whoever finds it removes what it replaces and moves it there. So a crash at any moment leaves
//! either the old in force, or the new.

use super::{
    error::BpfError,
    map::Map,
    program::SyscallProgram,
    site::{Site, Table as _},
};
use plimsoll_wire::abi;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

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
    /// The programs can take a process other than the one whose event crossed (Linux 6.13).
    pub signals_others: bool,
    /// Threads keep page counts to themselves, which are read after each fault (Linux 6.1).
    pub task_caches: bool,
    /// They refuse a fork in the memory of a victim, because they cannot signal the child.
    pub refuses_forks: bool,
    /// Tells the programs from those of another build.
    pub build: u64,
    /// Tells the maps from those of another layout.
    pub layout: u64,
}

/// So many of the entries the account that has most of them can have: the last eighth is for all others.
pub(super) const fn entries_for_most(processes_max: u32) -> u32 {
    processes_max.saturating_sub(processes_max / 8)
}

impl From<&abi::plimsoll_meta> for Meta {
    fn from(meta: &abi::plimsoll_meta) -> Self {
        let has = |feature: u32| meta.features & feature != 0;
        Self {
            schema: meta.schema,
            cpus: meta.nr_cpus,
            charged_members: meta.charged_members,
            processes_max: meta.max_processes,
            accounts_max: meta.max_accounts,
            signals_others: has(abi::PLIMSOLL_FEATURE_SIGNAL_OTHERS),
            task_caches: has(abi::PLIMSOLL_FEATURE_TASK_CACHES),
            refuses_forks: has(abi::PLIMSOLL_FEATURE_REFUSE_FORKS),
            build: meta.build,
            layout: meta.layout,
        }
    }
}

impl Meta {
    /// From so many address spaces on the account that has most of them gets no more.
    #[must_use]
    pub const fn entries_for_most(&self) -> u32 {
        entries_for_most(self.processes_max)
    }

    /// Whether the programs are those of this plimsoll.
    #[must_use]
    pub fn is_this_build(&self) -> bool {
        self.build == BUILD
    }

    /// Whether the programs of this plimsoll can go on with the maps.
    #[must_use]
    pub fn is_this_layout(&self) -> bool {
        self.layout == LAYOUT
    }
}

pub(super) const BUILD: u64 = number(env!("PLIMSOLL_BPF_BUILD"));
pub(super) const LAYOUT: u64 = number(env!("PLIMSOLL_BPF_LAYOUT"));

/// The number that build.rs wrote.
pub(super) const fn number(digits: &str) -> u64 {
    let (mut rest, mut value) = (digits.as_bytes(), 0_u64);
    while let [digit, more @ ..] = rest {
        value = value.wrapping_mul(10).wrapping_add((*digit - b'0') as u64);
        rest = more;
    }
    value
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

/// Programs that are pinned, told from those that were pinned before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edition {
    device: u64,
    inode: u64,
}

pub(super) fn cause(path: &Path, operation: &'static str, error: &dyn std::fmt::Display) -> BpfError {
    BpfError::Pin { path: path.to_path_buf(), operation, cause: error.to_string() }
}

pub(super) fn create_folder(path: &Path) -> Result<(), BpfError> {
    fs::create_dir_all(path).map_err(|error| cause(path, "create", &error))
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

    pub(super) fn maps(&self) -> PathBuf {
        self.root.join("maps")
    }

    pub(super) fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    pub(super) fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// Beside the others: it outlives the programs, as long as a daemon has something to say.
    pub(super) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// What is in force there, of this version; `operation`: what was to be done with it.
    pub(super) fn require_ours(&self, operation: &'static str) -> Result<Meta, BpfError> {
        match self.state()? {
            PinState::Ours(meta) => Ok(meta),
            PinState::Foreign(found) => {
                Err(BpfError::Schema { path: self.root.clone(), found, expected: abi::PLIMSOLL_SCHEMA })
            }
            PinState::Absent | PinState::Partial => Err(BpfError::Pin {
                path: self.root.clone(),
                operation,
                cause: "nothing is in force there".into(),
            }),
        }
    }

    /// What is there.
    ///
    /// # Errors
    /// [`BpfError`] when the directory or its `meta` map cannot be read.
    pub fn state(&self) -> Result<PinState, BpfError> {
        let links = self.links();
        let linked = match fs::read_dir(&links) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(if self.maps().exists() { PinState::Partial } else { PinState::Absent });
            }
            Err(error) => return Err(cause(&links, "read", &error)),
        };
        if !linked {
            return Ok(PinState::Partial);
        }
        let map = Map::open(&self.maps().join("meta"), "meta")?;
        let mut value = vec![0; map.value_bytes()];
        map.read(&0_u32.to_ne_bytes(), &mut value)?;
        // Every version's begins with its schema.
        let schema = u32::read_from_prefix(&value).map(|(schema, _)| schema).unwrap_or_default();
        Ok(match abi::plimsoll_meta::read_from_bytes(&value) {
            Ok(meta) if schema == abi::PLIMSOLL_SCHEMA => PinState::Ours(Meta::from(&meta)),
            Ok(_) | Err(_) => PinState::Foreign(schema),
        })
    }

    /// Which programs are pinned; `None`: none are. Whatever changes what is in force pins all of its programs anew, also where
    /// they go on with the same maps, and a bpf file system does not use the number of a pin again.
    #[must_use]
    pub fn edition(&self) -> Option<Edition> {
        let pin = fs::metadata(self.programs().join("reserve")).ok()?;
        Some(Edition { device: pin.dev(), inode: pin.ino() })
    }

    /// Where what is to take the place of these is made.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::new(&self.root.join(LOADING))
    }

    fn next(&self) -> Self {
        Self::new(&self.root.join("next"))
    }

    /// Brings to an end what an earlier process had begun: what it had not completed goes, what it had is in force.
    ///
    /// # Errors
    /// [`BpfError::Pin`]
    pub fn settle(&self) -> Result<(), BpfError> {
        self.beside().remove_folder()?;
        if self.next().root.exists() {
            self.promote()?;
            // Whoever made them is not known.
            self.sign(0)?;
        }
        Ok(())
    }

    /// What was made beside takes the place of these: links first, then what they hold. Maps stay where the new
    /// programs go on with them.
    ///
    /// # Errors
    /// [`BpfError::Pin`]; [`Pins::settle`] goes on from there.
    pub fn replace(&self) -> Result<(), BpfError> {
        let (from, to) = (self.beside().root, self.next().root);
        fs::rename(&from, &to).map_err(|error| cause(&from, "rename", &error))?;
        self.promote()?;
        // Last: where the old number stays, the next daemon loads again.
        self.sign(BUILD)
    }

    /// Writes down which build the programs are of.
    fn sign(&self, build: u64) -> Result<(), BpfError> {
        let map = Map::open(&self.maps().join("meta"), "meta")?;
        // Another version's has nothing of ours to be written down.
        if map.value_bytes() != size_of::<abi::plimsoll_meta>() {
            return Ok(());
        }
        if let Some(meta) = map.get::<abi::plimsoll_meta>(&0_u32.to_ne_bytes())? {
            map.write(&0_u32.to_ne_bytes(), abi::plimsoll_meta { build, ..meta }.as_bytes())?;
        }
        Ok(())
    }

    fn promote(&self) -> Result<(), BpfError> {
        let next = self.next();
        for name in FOLDERS {
            let (from, to) = (next.root.join(name), self.root.join(name));
            if from.exists() {
                remove_entries(&to)?;
                fs::rename(&from, &to).map_err(|error| cause(&from, "rename", &error))?;
            }
        }
        fs::remove_dir(&next.root).map_err(|error| cause(&next.root, "remove", &error))
    }

    /// Removes what a load that failed has left; of one beside others the folder, too, in which programs in force would be
    /// looked for.
    pub(super) fn undo(&self) -> Result<(), BpfError> {
        if self.root.ends_with(LOADING) { self.remove_folder() } else { self.remove_programs().map(drop) }
    }

    /// Removes the programs, and the folder.
    fn remove_folder(&self) -> Result<(), BpfError> {
        self.remove_programs()?;
        match fs::remove_dir(&self.root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cause(&self.root, "remove", &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes every pin, the journal too. The directory itself stays: it is what a daemon locks. Returns whether
    /// programs were there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first pin that could not be removed.
    pub fn remove(&self) -> Result<bool, BpfError> {
        // Those in force first, then those that would have taken their place.
        let mut removed = self.remove_programs()?;
        for other in [self.beside(), self.next()] {
            removed |= other.root.exists();
            other.remove_folder()?;
        }
        self.remove_journal()?;
        Ok(removed)
    }

    /// Removes the journal: for whoever has made it and has nothing in it.
    ///
    /// # Errors
    /// [`BpfError::Pin`]
    pub fn remove_journal(&self) -> Result<(), BpfError> {
        remove_pin(&self.journal())
    }

    /// Removes the programs and their maps, links first: from then on nothing is enforced and nothing is attached.
    /// Returns whether anything was there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first pin that could not be removed.
    pub fn remove_programs(&self) -> Result<bool, BpfError> {
        let mut removed = false;
        for name in FOLDERS {
            removed |= remove_entries(&self.root.join(name))?;
        }
        Ok(removed)
    }
}

/// The folder in which programs are made that will take the place of others.
const LOADING: &str = "loading";

/// Links first: without them nothing is in force.
const FOLDERS: [&str; 3] = ["links", "programs", "maps"];

/// Removes a pin, if it is there.
pub(super) fn remove_pin(path: &Path) -> Result<(), BpfError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cause(path, "remove", &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes a folder with what is in it; whether there was anything.
pub(super) fn remove_entries(directory: &Path) -> Result<bool, BpfError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(cause(directory, "read", &error)),
    };
    let mut removed = false;
    for entry in entries {
        let path = entry.map_err(|error| cause(directory, "read", &error))?.path();
        fs::remove_file(&path).map_err(|error| cause(&path, "remove", &error))?;
        removed = true;
    }
    fs::remove_dir(directory).map_err(|error| cause(directory, "remove", &error))?;
    Ok(removed)
}

impl Site for Pins {
    type Program = SyscallProgram;
    type Map = Map;
    type Walk = File;

    fn program(&self, name: &'static str) -> Result<SyscallProgram, BpfError> {
        SyscallProgram::open(&self.programs().join(name), name)
    }

    fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        Map::open(&self.maps().join(name), name)
    }

    fn walk(&self) -> Result<File, BpfError> {
        File::open(self.links().join("scan")).map_err(BpfError::Scan)
    }
}
