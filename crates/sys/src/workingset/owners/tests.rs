use super::*;
use crate::workingset::{
    Locks, Mounts,
    testing::{Disk, evict, open, run, until},
};
use plimsoll_policy::workingset::{Blocks, Tier};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// A memory cgroup of a test's own, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, which is said, where there is no tree to make it in.
    fn make(test: &str) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let tree = if v1.exists() { v1 } else { Path::new("/sys/fs/cgroup") };
        let path = tree.join(format!("plimsoll-test-{test}-{}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|why| crate::process::testing::skip(format_args!("no cgroup can be made: {why}")))
            .ok()?;
        Some(Self(path))
    }

    fn id(&self) -> CgroupId {
        CgroupId(fs::metadata(&self.0).unwrap().ino())
    }

    fn set_limit(&self, limit: &str) {
        let v2 = self.0.join("memory.max");
        let file = if v2.exists() { v2 } else { self.0.join("memory.limit_in_bytes") };
        fs::write(file, limit).unwrap();
    }

    /// Has a process in the cgroup read a file.
    fn read(&self, file: &Path) {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec cat \"$1\" >/dev/null";
        run("sh", &["-c", script, self.0.to_str().unwrap(), file.to_str().unwrap()]).unwrap();
    }

    fn remove(&self) {
        until("the cgroup can be removed", || fs::remove_dir(&self.0).is_ok());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn locked_pages_are_whose_who_read_them_first_until_its_cgroup_is_removed() {
    let Some(disk) = Disk::make("ext4") else { return };
    let Some(cgroup) = Cgroup::make("owners") else { return };
    let (file, path) = (disk.file("hot", 1024), disk.at("hot"));
    evict(&path);
    cgroup.read(&path);
    let mut hot = open(&mut Mounts::new().unwrap(), file).unwrap();
    let locked = hot.lock(&Locks::reserve(Bytes(16 << 20)).unwrap(), 0..2, Blocks::ALL, Tier::Hard);
    assert_eq!(locked, Ok(Pages(1024)));
    let owners = Owners::open().unwrap();
    let id = cgroup.id();
    let charged = |chunk| Charged { chunk, cgroup: id, pages: Pages(512) };
    for sampling in [Sampling::Close, Sampling::Coarse] {
        assert_eq!(owners.look(&hot, |_| true, sampling), Ok(vec![charged(0), charged(1)]));
    }
    assert_eq!(owners.look(&hot, |chunk| chunk == 1, Sampling::Close), Ok(vec![charged(1)]));
    cgroup.remove();
    // The kernel takes a removed cgroup down a little later.
    until("the removed cgroup is seen", || {
        let after = owners.look(&hot, |_| true, Sampling::Close).unwrap();
        after.len() == 2 && after.iter().all(|one| one.cgroup != id)
    });
    assert_eq!(owners.limits(id), Err(Refusal::Gone));
}

#[test]
fn the_limits_of_a_cgroup_are_its_own_and_those_around_it() {
    let Some(cgroup) = Cgroup::make("limits") else { return };
    let owners = Owners::open().unwrap();
    assert_eq!(owners.limits(cgroup.id()), Ok(vec![]));
    cgroup.set_limit("67108864");
    let own = Limited { cgroup: cgroup.id(), limit: Bytes(64 << 20) };
    assert_eq!(owners.limits(cgroup.id()), Ok(vec![own]));
    let inner = Cgroup(cgroup.0.join("inner"));
    fs::create_dir(&inner.0).unwrap();
    if inner.0.join("memory.limit_in_bytes").exists() {
        inner.set_limit("33554432");
        let tighter = Limited { cgroup: inner.id(), limit: Bytes(32 << 20) };
        assert_eq!(owners.limits(inner.id()), Ok(vec![tighter, own]));
    }
}
