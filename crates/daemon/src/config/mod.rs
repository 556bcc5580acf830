//! The configuration: `/etc/plimsoll/plimsoll.toml`, then `/etc/plimsoll/conf.d/*.toml` by name, later wins.
//!
//! [`load`] reads and checks everything before it returns anything, so that a reload with a bad file changes nothing.
//! Every key is listed in [`keys::KEYS`], from which [`keys::reference`] makes `docs/config.md`.

use plimsoll_policy::{
    last_defence::LastDefenceConfig,
    limits::LimitConfig,
    lines::{Line, UidRange},
    machine::MachineConfig,
    preference::Rules,
    reservation::HEADROOM,
    units::Bytes,
    who::Who,
    workingset::Tunables,
};
use serde::Deserialize;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};
use thiserror::Error;

mod file;
pub mod keys;
pub mod login_defs;
pub mod login_path;
mod metrics;
mod rules;

pub use metrics::{Listen, Metrics};

#[cfg(test)]
mod tests;

/// The largest configuration file that is read.
pub const FILE_MAX_BYTES: u64 = 1 << 20;
/// The most files that are read from `conf.d`.
pub const DROP_INS_MAX: usize = 256;

/// Where to read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The main file.
    pub main: PathBuf,
    /// Whether a missing main file is an error (it is when somebody named it) or means the defaults.
    pub main_required: bool,
    /// The folder of drop-ins, where there is one to read.
    pub drop_ins: Option<PathBuf>,
    /// `login.defs`, for the range of uids that belong to people.
    pub login_defs: PathBuf,
}

impl Places {
    /// The machine's own places, or exactly one file, as `--config F` names it, and no drop-ins.
    #[must_use]
    pub fn new(named: Option<&Path>) -> Self {
        let login_defs = PathBuf::from("/etc/login.defs");
        match named {
            Some(main) => Self { main: main.to_path_buf(), main_required: true, drop_ins: None, login_defs },
            None => Self {
                main: PathBuf::from("/etc/plimsoll/plimsoll.toml"),
                main_required: false,
                drop_ins: Some(PathBuf::from("/etc/plimsoll/conf.d")),
                login_defs,
            },
        }
    }
}

/// What is wrong with the configuration, as one line: file, line, what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file or folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Larger than [`FILE_MAX_BYTES`].
    #[error("{}: larger than the {FILE_MAX_BYTES} bytes that are read; split it or shorten it", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// More than [`DROP_INS_MAX`] drop-ins.
    #[error("{}: more than {DROP_INS_MAX} files; merge some of them", path.display())]
    TooMany {
        /// Which folder.
        path: PathBuf,
    },
    /// A key or a value that is not understood.
    #[error("{}:{line}: {message}", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what is allowed.
        message: String,
    },
    /// Two keys that contradict each other, wherever each of them was set.
    #[error("{}: {message}", path.display())]
    Contradiction {
        /// The main file.
        path: PathBuf,
        /// Which keys, and what to do.
        message: String,
    },
}

/// Everything that can be configured, with the defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// `[limits]`
    pub limits: Limits,
    /// `[machine]`
    pub machine: Machine,
    /// `[last_defence]`
    pub last_defence: LastDefenceConfig,
    /// `[protect]`
    pub protect: Protect,
    /// `[history]`
    pub history: History,
    /// `[tmalloc]`
    pub tmalloc: Tmalloc,
    /// `[reaping]`
    pub reaping: Reaping,
    /// `[fragmentation]`
    pub fragmentation: Fragmentation,
    /// `[workingset]`
    pub workingset: Workingset,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[maps]`
    pub maps: Maps,
    /// `[[rules]]`
    pub rules: Rules,
}

/// What is charged to an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charge {
    /// Anonymous and swapped pages.
    #[default]
    Anon,
    /// File and shared-memory pages too.
    Rss,
}

/// Whether shared memory is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedCharge {
    /// To the user who owns it.
    #[default]
    Owner,
    /// To nobody.
    Ignore,
}

/// The line of one user or group, whose name the caller resolves. What depends on the machine's RAM is not checked yet:
/// [`plimsoll_policy::lines::validate`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLine {
    /// [`Who::User`] or [`Who::Uid`] in [`Limits::users`], [`Who::Members`] or [`Who::MembersOf`] in [`Limits::groups`],
    /// [`Who::Group`] or [`Who::Gid`] in [`Limits::budgets`],
    /// [`Who::Cgroup`] in [`Limits::cgroups`].
    pub who: Who,
    /// Their line.
    pub line: Line,
}

/// `[limits]`: accounts and their lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// For every user in the uid range without a line of their own or of a group.
    pub default: Option<Line>,
    /// Lines of single users, each [`Who`] once. The same user may still be here by name and by uid.
    pub users: Vec<NamedLine>,
    /// Lines for each member of a group, each [`Who`] once. The same group may still be here by name and by gid.
    pub groups: Vec<NamedLine>,
    /// Lines for all members of a group together, in the same way.
    pub budgets: Vec<NamedLine>,
    /// Lines of cgroups, each once.
    pub cgroups: Vec<NamedLine>,
    /// For the machine.
    pub system: Option<Line>,
    /// What usage is.
    pub charge: Charge,
    /// Whom `default` is for.
    pub uids: UidRange,
    /// How patient the ladder is. `dry_run` is not configured here.
    pub ladder: LimitConfig,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            default: None,
            users: Vec::new(),
            groups: Vec::new(),
            budgets: Vec::new(),
            cgroups: Vec::new(),
            system: None,
            charge: Charge::Anon,
            uids: UidRange::default(),
            ladder: LimitConfig::default(),
        }
    }
}

/// `[machine]`: the guard of the whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Whether it guards at all.
    pub enabled: bool,
    /// When it acts; valid by [`MachineConfig::validate`]. `dry_run` is not configured here.
    pub guard: MachineConfig,
}

impl Default for Machine {
    fn default() -> Self {
        Self { enabled: true, guard: MachineConfig::default() }
    }
}

/// `[protect]`: what is never selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protect {
    /// Executables by absolute path: the login path, then the configured ones.
    pub exe: Vec<String>,
    /// Cgroups (and all below them) by path from the root of the hierarchy.
    pub cgroup: Vec<String>,
}

impl Default for Protect {
    fn default() -> Self {
        let exe = login_path::LOGIN_PATH.iter().map(|path| (*path).to_owned()).collect();
        Self { exe, cgroup: Vec::new() }
    }
}

/// `[history]`: how much is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The database of incidents; its write-ahead log beside it takes some MiB more at most.
    pub max_bytes: Bytes,
    /// Older incidents are forgotten.
    pub max_age_days: u32,
    /// The oldest above this number are forgotten.
    pub max_incidents: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { max_bytes: Bytes(64 << 20), max_age_days: 180, max_incidents: 100_000 }
    }
}

/// `[tmalloc]`: memory that is asked for before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmalloc {
    /// What grants leave free under each line.
    pub headroom: Bytes,
}

impl Default for Tmalloc {
    /// Stacks, libc and what a program allocates without asking come to some hundred KiB in each of a few processes.
    fn default() -> Self {
        Self { headroom: HEADROOM }
    }
}

/// Whose victims are freed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expedited {
    /// Those of the guards, and those that a client names.
    #[default]
    Ours,
    /// Those that anybody kills, too.
    Any,
}

/// `[reaping]`: how the memory of killed processes comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaping {
    /// Whose is freed from outside.
    pub expedite: Expedited,
    /// Of those that anybody kills, who has so much.
    pub expedite_from: Bytes,
}

impl Default for Reaping {
    /// Nothing runs at signals unless somebody wants it. A smaller victim is free before help could come.
    fn default() -> Self {
        Self { expedite: Expedited::Ours, expedite_from: Bytes(64 << 20) }
    }
}

/// `[fragmentation]`: blocks of several pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragmentation {
    /// Memory is compacted where they run out.
    pub enabled: bool,
}

impl Default for Fragmentation {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// `[workingset]`: files in use that stay in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workingset {
    /// le9uo's four, by name.
    pub tunables: Tunables,
    /// The memory cgroup that is protected, by path from the root of the hierarchy; `None`: the machine.
    pub cgroup: Option<String>,
}

/// `[maps]`: sizes of the kernel maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    /// Address spaces that are accounted at the same time; 0: chosen from the machine's size.
    pub max_processes: u32,
    /// Accounts with a line.
    pub max_accounts: u32,
}

impl Default for Maps {
    fn default() -> Self {
        Self { max_processes: 0, max_accounts: 4096 }
    }
}

/// Reads the whole configuration, later files over earlier ones.
///
/// # Errors
/// [`ConfigError`] for the first thing that is wrong; nothing is half-applied.
pub fn load(places: &Places) -> Result<Config, ConfigError> {
    let mut merged = file::Raw::default();
    match read_capped(&places.main) {
        Ok(bytes) => merged = file::Raw::parse(&places.main, &bytes)?,
        Err(ConfigError::Read { source, .. })
            if source.kind() == io::ErrorKind::NotFound && !places.main_required => {}
        Err(error) => return Err(error),
    }
    for path in places.drop_ins.as_deref().map_or_else(|| Ok(Vec::new()), drop_ins)? {
        merged.overlay(file::Raw::parse(&path, &read_capped(&path)?)?);
    }
    let range = match read_capped(&places.login_defs) {
        Ok(bytes) => login_defs::parse(&bytes),
        // No login.defs, or one that cannot be read: the range that shadow itself falls back to.
        Err(_) => UidRange::default(),
    };
    merged.resolve(range).map_err(|message| ConfigError::Contradiction { path: places.main.clone(), message })
}

/// The `*.toml` files of the folder by name, hidden ones left out; a missing folder has none.
fn drop_ins(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |source| ConfigError::Read { path: folder.to_path_buf(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            if paths.len() == DROP_INS_MAX {
                return Err(ConfigError::TooMany { path: folder.to_path_buf() });
            }
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_capped(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_path_buf(), source };
    // A pipe or a device could keep the reader waiting for ever, so only plain files are opened.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= FILE_MAX_BYTES) {
        Ok(bytes)
    } else {
        Err(ConfigError::TooLarge { path: path.to_path_buf() })
    }
}
