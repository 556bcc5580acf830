//! A piece of the cgroup tree for a test of its own, emptied and removed at its end, whatever happens.

use super::{Cgroup, CgroupRoot};
use crate::process::testing::{own_name, skip};
use rustix::{
    fs::{AtFlags, Mode, OFlags, chownat, mkdirat, openat, unlinkat},
    process::geteuid,
};
use std::{
    fs::File,
    io::Write as _,
    time::{Duration, Instant},
};

/// A user of the range kept for tests.
pub(super) const USER: u32 = 60_300;

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until something is so; it must become so.
#[track_caller]
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < DEADLINE, "after {DEADLINE:?} still not true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One cgroup below the root, and what a test makes in it.
pub(super) struct Grove {
    pub(super) root: CgroupRoot,
    name: String,
    below: Vec<String>,
}

impl Grove {
    /// `None` where there is no cgroup v2 to write to, which is said.
    pub(super) fn plant() -> Option<Self> {
        if !geteuid().is_root() {
            skip("needs root");
            return None;
        }
        let root = match CgroupRoot::open() {
            Ok(root) => root,
            Err(error) => {
                skip(format_args!("{error}"));
                return None;
            }
        };
        let name = own_name();
        let top = root.cgroup(b"/").unwrap();
        if let Err(errno) = mkdirat(top.dir(), &name, Mode::from(0o755)) {
            skip(format_args!("no cgroup can be made here: {errno}"));
            return None;
        }
        Some(Self { root, name, below: Vec::new() })
    }

    /// The whole piece.
    pub(super) fn top(&self) -> Cgroup {
        self.root.cgroup(self.name.as_bytes()).unwrap()
    }

    /// A cgroup in it; its parent must be there.
    pub(super) fn make(&mut self, path: &str) -> Cgroup {
        mkdirat(self.top().dir(), path, Mode::from(0o755)).unwrap();
        self.below.push(path.to_owned());
        self.root.cgroup(format!("{}/{path}", self.name).as_bytes()).unwrap()
    }

    /// Removes a cgroup that was made.
    pub(super) fn remove(&mut self, path: &str) {
        unlinkat(self.top().dir(), path, AtFlags::REMOVEDIR).unwrap();
        self.below.retain(|made| made != path);
    }

    /// Gives a folder to the test's user.
    pub(super) fn give_away(cgroup: &Cgroup) {
        let user = rustix::fs::Uid::from_raw(USER);
        chownat(cgroup.dir(), c".", Some(user), None, AtFlags::empty()).unwrap();
    }
}

/// Writes a file of a cgroup.
pub(super) fn write(cgroup: &Cgroup, file: &str, text: &str) {
    let file = openat(cgroup.dir(), file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    File::from(file).write_all(text.as_bytes()).unwrap();
}

/// Moves a process there.
pub(super) fn take(cgroup: &Cgroup, pid: plimsoll_policy::units::Pid) {
    write(cgroup, "cgroup.procs", &pid.to_string());
}

impl Drop for Grove {
    fn drop(&mut self) {
        let top = self.top();
        // What still runs there is the test's, and ends with it.
        write(&top, "cgroup.kill", "1");
        let root = self.root.cgroup(b"").unwrap();
        let mut folders: Vec<_> = self.below.iter().map(|path| format!("{}/{path}", self.name)).collect();
        folders.sort_by_key(|path| core::cmp::Reverse(path.len()));
        folders.push(self.name.clone());
        until("the cgroups are empty", || {
            folders.retain(|path| unlinkat(root.dir(), path, AtFlags::REMOVEDIR).is_err());
            folders.is_empty()
        });
    }
}
