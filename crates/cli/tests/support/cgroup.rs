//! Cgroups (v2) of a test's own, which need no controller.

use super::{SOON, until};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// One that goes with its test, and with it whoever is left there.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Below the root, under a name of this test run's own that ends so. `None`, and said, where none can be made.
    pub fn of(name: &str) -> Option<Self> {
        Self::named(&format!("plimsoll-test-{}-{name}", std::process::id()))
    }

    /// Below the root, under this very name.
    pub fn named(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let root =
            mounts.lines().find(|line| line.contains(" cgroup2 ")).and_then(|line| line.split(' ').nth(1));
        let made =
            root.map(|root| Self(Path::new(root).join(name))).filter(|one| fs::create_dir(&one.0).is_ok());
        if made.is_none() {
            super::skip("no cgroup (v2) can be made here");
        }
        made
    }

    /// Below this one.
    pub fn within(&self, name: &str) -> Self {
        let below = Self(self.0.join(name));
        fs::create_dir(&below.0).unwrap();
        below
    }

    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// From the root of the hierarchy, of one that is below the root.
    pub fn path(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// Where a process is written that comes here.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    pub fn take(&self, pid: u32) {
        fs::write(self.processes(), pid.to_string()).unwrap();
    }

    /// As when a service is started anew: another cgroup of the same name.
    pub fn make_anew(&self) {
        fs::remove_dir(&self.0).unwrap();
        fs::create_dir(&self.0).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(fs::write(self.0.join("cgroup.kill"), "1"));
        until("the cgroup is empty", SOON, || fs::remove_dir(&self.0).ok());
    }
}
