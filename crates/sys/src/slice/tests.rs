use super::UserSlices;
use plimsoll_policy::{
    last_defence::slice::Max,
    units::{Bytes, Uid},
};
use std::{fs, path::Path};

const EVENTS: &str = "low 0\nhigh 0\nmax 0\noom 2\noom_kill 1\n";

fn tree(controllers: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let slice = root.path().join("user.slice/user-1000.slice");
    fs::create_dir_all(&slice).unwrap();
    fs::write(root.path().join("cgroup.controllers"), controllers).unwrap();
    for (name, text) in [
        ("memory.max", "max\n"),
        ("memory.stat", "anon 10\nshmem 20\nkernel 30\nslab_reclaimable 5\nsock 1\n"),
        ("memory.events", EVENTS),
        ("memory.events.local", EVENTS),
    ] {
        fs::write(slice.join(name), text).unwrap();
    }
    root
}

fn at(path: &Path) -> Option<UserSlices> {
    UserSlices::at(path.to_path_buf())
}

#[test]
fn a_slice_is_read_as_the_kernel_writes_it() {
    let tree = tree("cpu memory pids\n");
    let slices = at(tree.path()).unwrap();
    let slice = slices.slice(Uid(1000)).unwrap();
    assert_eq!(slice.memory_max().unwrap(), Max::Unlimited);
    assert_eq!(slice.held().unwrap(), Bytes(56));
    assert!(slices.slice(Uid(1001)).is_none());
}

#[test]
fn events_are_read_anew_each_time() {
    let tree = tree("memory\n");
    let mut events = at(tree.path()).unwrap().slice(Uid(1000)).unwrap().events().unwrap();
    let first = events.read().unwrap();
    assert_eq!((first.own_oom, first.oom_kill), (2, 1));
    fs::write(
        tree.path().join("user.slice/user-1000.slice/memory.events"),
        EVENTS.replace("kill 1", "kill 9"),
    )
    .unwrap();
    let second = events.read().unwrap();
    assert_eq!((second.id, second.own_oom, second.oom_kill), (first.id, 2, 9));
}

#[test]
fn a_tree_without_the_memory_controller_has_no_slices() {
    let tree = tree("cpu pids\n");
    assert!(at(tree.path()).is_none());
    assert!(at(Path::new("/nowhere")).is_none());
}

#[test]
fn a_slice_that_went_away_is_told_from_one_that_cannot_be_read() {
    let tree = tree("memory\n");
    let slice = at(tree.path()).unwrap().slice(Uid(1000)).unwrap();
    let file = tree.path().join("user.slice/user-1000.slice/memory.max");
    fs::write(&file, "much\n").unwrap();
    assert!(!slice.memory_max().unwrap_err().is_gone());
    fs::remove_file(&file).unwrap();
    assert!(slice.memory_max().unwrap_err().is_gone());
}
