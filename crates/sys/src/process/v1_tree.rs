//! The trees of cgroup v1: where one is mounted, and the folders in it.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

/// The root's own path, as `/proc/PID/cgroup` shows it.
const TREE_ROOT: &[u8] = b"/";

/// Where the tree of this controller is mounted; where it is on every distribution if `/proc/self/mounts` does not tell.
pub(super) fn mounted(controller: &str) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mount_of(&mounts, controller).unwrap_or_else(|| Path::new("/sys/fs/cgroup").join(controller))
}

/// Lines of `device folder type options ...`. A folder with a space in it is escaped there: it is not looked for.
fn mount_of(mounts: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = kind == "cgroup" && options.split(',').any(|option| option == controller);
        (wanted && !folder.contains('\\')).then(|| PathBuf::from(folder))
    })
}

/// The folder of a cgroup of the tree that is mounted at `tree`; `None` for the tree's own root.
pub(super) fn folder_below(tree: &Path, path: &[u8]) -> Option<PathBuf> {
    let below = path.strip_prefix(TREE_ROOT).filter(|below| !below.is_empty())?;
    // Nobody can name a cgroup `..`; one outside of this cgroup namespace is shown so, and cannot be reached.
    let below = Path::new(OsStr::from_bytes(below));
    let stays = below.components().all(|part| matches!(part, Component::Normal(_)));
    stays.then(|| tree.join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_found_where_it_is_mounted_and_nothing_leads_out_of_it() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,cpu 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
            cgroup /a\\040b cgroup rw,freezer 0 0\n";
        let found = |controller| mount_of(mounts, controller);
        assert_eq!(found("cpu"), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!((found("cpuset"), found("freezer")), (None, None));
        let tree = Path::new("/t");
        assert_eq!(folder_below(tree, b"/a/b"), Some(PathBuf::from("/t/a/b")));
        for outside in [b"/".as_slice(), b"/../x", b"/a/../../x", b"x"] {
            assert_eq!(folder_below(tree, outside), None);
        }
    }
}
