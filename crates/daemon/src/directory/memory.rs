//! What was known of names and members, kept in the state folder: a directory server is often the last thing to be there
//! after a boot, and until then those whom it named keep their lines.
//!
//! It is what the name services said last and nothing that anybody set: a file that cannot be used is said and replaced.

use crate::state::{open_ours, replace_file};
use plimsoll_policy::units::{Gid, Uid};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::OpenOptions,
    io::Read as _,
    path::{Path, PathBuf},
};

const FILE_NAME: &str = "names.json";
const VERSION: u32 = 1;
/// About 500,000 members: what is larger was not written here.
const FILE_MAX_BYTES: u64 = 4 << 20;

/// What is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remembered {
    /// Users that the configuration names.
    pub(super) users: BTreeMap<String, Uid>,
    /// Groups that the configuration names.
    pub(super) groups: BTreeMap<String, Gid>,
    /// Members of groups that have a line.
    pub(super) members: BTreeMap<Gid, BTreeSet<Uid>>,
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    version: u32,
    names: T,
}

/// The file.
#[derive(Debug)]
pub(super) struct Memory {
    folder: PathBuf,
    saved: Remembered,
}

impl Memory {
    /// What the file of an earlier daemon holds, and what was wrong with it. The folder is there already.
    pub(super) fn open(folder: &Path) -> (Self, Option<String>) {
        let path = folder.join(FILE_NAME);
        let (saved, wrong) = match read(&path) {
            Ok(saved) => (saved, None),
            Err(error) => {
                let wrong = format!("what was known of groups is lost, {}: {error}", path.display());
                (Remembered::default(), Some(wrong))
            }
        };
        (Self { folder: folder.to_path_buf(), saved }, wrong)
    }

    pub(super) const fn get(&self) -> &Remembered {
        &self.saved
    }

    /// Keeps it, and writes it where it is new.
    pub(super) fn put(&mut self, names: Remembered) -> Result<(), String> {
        if names == self.saved {
            return Ok(());
        }
        let written = serde_json::to_vec(&Stored { version: VERSION, names: &names })
            .map_err(|error| error.to_string())
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                replace_file(&self.folder, FILE_NAME, &bytes).map_err(|error| error.to_string())
            });
        self.saved = names;
        written
    }
}

fn read(path: &Path) -> Result<Remembered, String> {
    let file = match open_ours(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(crate::state::StateError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Remembered::default());
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let stored: Stored<serde_json::Value> =
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if stored.version != VERSION {
        return Err(format!("version {} is not this plimsoll's {VERSION}", stored.version));
    }
    serde_json::from_value(stored.names).map_err(|error| error.to_string())
}
