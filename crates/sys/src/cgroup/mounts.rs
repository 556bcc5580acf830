//! Where cgroups are mounted: in more than one place on machines that use both versions.

use plimsoll_wire::text::{parse_mount, unescape};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupMount {
    pub(crate) place: PathBuf,
    /// Version 2.
    pub(crate) unified: bool,
    /// All of the tree, as this cgroup namespace has it.
    pub(crate) whole: bool,
}

impl CgroupMount {
    /// Those of this mount namespace.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        fs::read("/proc/self/mountinfo").map(|text| Self::listed(&text).collect())
    }

    fn listed(mountinfo: &[u8]) -> impl Iterator<Item = Self> {
        let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok());
        mounts.filter(|mount| matches!(mount.filesystem, b"cgroup" | b"cgroup2")).filter_map(|mount| {
            let place = PathBuf::from(OsString::from_vec(unescape(mount.mount_point)?));
            Some(Self { place, unified: mount.filesystem == b"cgroup2", whole: mount.root == b"/" })
        })
    }

    /// Whether it is a tree of version 2 with the memory controller.
    pub(crate) fn has_memory(&self) -> bool {
        self.unified && has_memory(&self.place)
    }
}

/// Whether this cgroup of version 2 has the memory controller.
pub(crate) fn has_memory(cgroup: &Path) -> bool {
    let controllers = fs::read_to_string(cgroup.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cgroup_v2_mount_is_found_and_no_other() {
        let mountinfo = b"30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            31 30 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
            32 30 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
            torn line\n";
        let found = CgroupMount::listed(mountinfo).filter(|mount| mount.unified);
        let found: Vec<_> = found.map(|mount| mount.place).collect();
        assert_eq!(found, [Path::new("/sys/fs/cgroup/unified")]);
    }
}
