use super::*;

#[test]
fn a_folder_elsewhere_is_told_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(try_mount_bpffs(folder.path()), Ok(Bpffs::Elsewhere));
    assert_eq!(try_mount_bpffs(&folder.path().join("not/yet/there")), Ok(Bpffs::Elsewhere));
}

#[test]
fn a_path_that_only_begins_like_the_mount_point_is_elsewhere() {
    assert_eq!(try_mount_bpffs(Path::new("/sys/fs/bpf-not")), Ok(Bpffs::Elsewhere));
}

#[test]
fn a_pin_folder_that_does_not_exist_yet_is_judged_by_the_one_above_it() {
    let first = try_mount_bpffs(Path::new("/sys/fs/bpf/plimsoll-not-there")).unwrap();
    assert!(matches!(first, Bpffs::Present | Bpffs::Mounted));
    assert_eq!(try_mount_bpffs(Path::new(BPFFS_PATH)), Ok(Bpffs::Present));
}
