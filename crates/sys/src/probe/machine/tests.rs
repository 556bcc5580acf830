use super::*;

#[test]
fn only_a_switched_on_multi_gen_lru_is_present() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("enabled");
    for (text, present) in [("0x0007\n", true), ("0x0001\n", true), ("0x0000\n", false), ("0x0006\n", false)]
    {
        fs::write(&file, text).unwrap();
        assert_eq!(multi_gen_lru(&file) == Answer::Present, present, "{text}");
    }
    fs::write(&file, "yes\n").unwrap();
    assert!(matches!(multi_gen_lru(&file), Answer::Unknown(_)));
    assert!(matches!(multi_gen_lru(&folder.path().join("none")), Answer::Absent(_)));
}

#[test]
fn every_cgroup_v2_mount_is_found_and_no_other() {
    let mountinfo = b"30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        31 30 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
        32 30 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
        torn line\n";
    let found: Vec<_> = cgroup2_mounts(mountinfo).collect();
    assert_eq!(found, [Path::new("/sys/fs/cgroup/unified")]);
}

#[test]
fn pressure_that_is_not_there_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(pressure(&folder.path().join("memory")), Answer::Absent(_)));
    assert!(matches!(pressure(folder.path()), Answer::Unknown(_)));
}
