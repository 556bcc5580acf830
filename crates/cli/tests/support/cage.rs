//! A memory cgroup of a test's own with a limit, in whichever hierarchy this machine has; removed when dropped.

use super::{SOON, until};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The cgroup.
#[derive(Debug)]
pub struct Cage {
    folder: PathBuf,
    path: String,
}

impl Cage {
    /// With this limit, and no swap beside it; `None` where there is no memory controller, which is said.
    pub fn of(name: &str, mebibytes: u32) -> Option<Self> {
        let bytes = (u64::from(mebibytes) << 20).to_string();
        let unified = Path::new("/sys/fs/cgroup");
        let name = format!("plimsoll-test-{}-{name}", std::process::id());
        let controllers = fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
        let (folder, limit, swap) = if controllers.split_whitespace().any(|one| one == "memory") {
            (unified.join(&name), "memory.max", ("memory.swap.max", "0"))
        } else if unified.join("memory/memory.limit_in_bytes").exists() {
            let both = ("memory.memsw.limit_in_bytes", bytes.as_str());
            (unified.join("memory").join(&name), "memory.limit_in_bytes", both)
        } else {
            super::skip("no memory cgroup can be made here");
            return None;
        };
        fs::create_dir(&folder).unwrap();
        let cage = Self { folder, path: format!("/{name}") };
        fs::write(cage.folder.join(limit), &bytes).unwrap();
        let swap = (cage.folder.join(swap.0), swap.1);
        if swap.0.exists() {
            fs::write(swap.0, swap.1).unwrap();
        }
        Some(cage)
    }

    /// Its path in its hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the limit is version 2's.
    pub fn is_unified(&self) -> bool {
        self.folder.join("memory.max").exists()
    }

    /// Sets one of its files.
    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.folder.join(file), value).unwrap();
    }

    /// Reads one of its files.
    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap()
    }

    /// Moves a process there.
    pub fn take(&self, pid: u32) {
        self.set("cgroup.procs", &pid.to_string());
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // What was in it is its test's, and ends with it.
        drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        until("the cgroup is empty", SOON, || fs::remove_dir(&self.folder).ok());
    }
}
