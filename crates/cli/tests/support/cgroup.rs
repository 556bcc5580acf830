//! Cgroups of a test's own: each goes with its test, and with it whoever is left there.

use super::{SOON, exact, skip, slowness, until};
use plimsoll_sys::cgroup::{Cgroup as Opened, CgroupRoot};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    /// From the root of its hierarchy.
    path: String,
}

fn named(root: &Path, name: &str) -> std::io::Result<Cgroup> {
    let folder = root.join(name);
    fs::create_dir(&folder)?;
    Ok(Cgroup { folder, path: format!("/{name}") })
}

/// A name of this test run's own that ends so.
fn own(name: &str) -> String {
    format!("plimsoll-test-{}-{name}", std::process::id())
}

impl Cgroup {
    /// Below the root of version 2, which needs no controller, under a name of this test run's own that ends so. `None`, and
    /// said, where none can be made.
    pub fn of(name: &str) -> Option<Self> {
        Self::named(&own(name))
    }

    /// Likewise, under this very name.
    pub fn named(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mut words = mounts.lines().map(|line| line.split(' '));
        let root = words.find_map(|mut words| words.nth(1).filter(|_| words.next() == Some("cgroup2")));
        let made = root.and_then(|root| named(Path::new(root), name).ok());
        if made.is_none() {
            skip("no cgroup (v2) can be made here");
        }
        made
    }

    /// In whichever hierarchy has the memory controller, with this limit, and no swap beside it. `None`, and said, where
    /// there is none.
    pub fn limited(name: &str, mebibytes: u32) -> Option<Self> {
        let unified = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
        let root = if controllers.split_whitespace().any(|one| one == "memory") {
            unified.to_owned()
        } else if unified.join("memory/memory.limit_in_bytes").exists() {
            unified.join("memory")
        } else {
            skip("no memory cgroup can be made here");
            return None;
        };
        let cgroup = named(&root, &own(name)).unwrap();
        let bytes = (u64::from(mebibytes) << 20).to_string();
        cgroup.limit(&bytes);
        let (swap, most) = if cgroup.is_unified() {
            ("memory.swap.max", "0")
        } else {
            ("memory.memsw.limit_in_bytes", bytes.as_str())
        };
        if cgroup.folder.join(swap).exists() {
            cgroup.set(swap, most);
        }
        Some(cgroup)
    }

    /// Below this one.
    pub fn within(&self, name: &str) -> Self {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).unwrap();
        Self { folder, path: format!("{}/{name}", self.path) }
    }

    /// Has it that cgroups within can have limits; on version 2 nobody may be in this one itself then.
    pub fn allow_limits_within(&self) {
        if self.is_unified() {
            self.set("cgroup.subtree_control", "+memory");
        }
    }

    /// Sets its limit of memory.
    pub fn limit(&self, bytes: &str) {
        self.set(if self.is_unified() { "memory.max" } else { "memory.limit_in_bytes" }, bytes);
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From the root of its hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// As the kernel numbers it.
    pub fn inode(&self) -> u64 {
        fs::metadata(&self.folder).unwrap().ino()
    }

    /// Whether its memory controller is version 2's.
    pub fn is_unified(&self) -> bool {
        self.folder.join("memory.max").exists()
    }

    /// As the daemon sees it.
    pub fn open(&self, root: &CgroupRoot) -> Opened {
        root.cgroup(self.path.trim_start_matches('/').as_bytes()).unwrap()
    }

    #[track_caller]
    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.folder.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// The number in one of its files.
    pub fn number(&self, file: &str) -> u64 {
        fs::read_to_string(self.folder.join(file)).unwrap().trim_end().parse().unwrap()
    }

    /// Where a process is written that comes here.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    #[track_caller]
    pub fn take(&self, pid: u32) {
        self.set("cgroup.procs", &pid.to_string());
    }

    /// Processes that the kernel's own OOM killer took here.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.is_unified() { "memory.events" } else { "memory.oom_control" };
        exact::number(self.folder.join(file), "oom_kill")
    }

    /// As when a service is started anew: another cgroup of the same name.
    pub fn make_anew(&self) {
        fs::remove_dir(&self.folder).unwrap();
        fs::create_dir(&self.folder).unwrap();
    }

    /// Waits until nobody is left there, and removes it.
    pub fn remove(&self) {
        until("the cgroup is empty", SOON, || fs::remove_dir(&self.folder).ok());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        let end = Instant::now() + SOON * slowness();
        while self.folder.exists() && fs::remove_dir(&self.folder).is_err() && Instant::now() < end {
            thread::yield_now();
        }
        assert!(thread::panicking() || !self.folder.exists(), "{} is not empty", self.path);
    }
}
