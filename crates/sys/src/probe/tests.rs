use super::*;
use crate::process::{BPFFS_PATH, kernel_version, try_mount_bpffs};
use std::path::Path;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn what_needs_no_rights_is_found_out_by_anyone() {
    let facts = probe_bpf();
    let version = kernel_version().unwrap().to_string();
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        assert_eq!(facts.btf, Answer::Present);
        assert!(!matches!(facts.percpu_counters, Answer::Unknown(_)), "{version}: {facts:?}");
    } else {
        assert!(matches!(facts.btf, Answer::Absent(_)), "{facts:?}");
    }
}

#[test]
fn the_machine_is_told_as_its_files_tell_it() {
    let facts = probe_machine();
    assert_eq!(facts.pidfd, Answer::Present);
    assert_eq!(facts.process_mrelease, Answer::Present);
    let swapping = std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    assert_eq!(facts.swap == Answer::Present, swapping);
    let listed = std::fs::read_to_string("/proc/filesystems").unwrap().contains("cgroup2");
    assert!(listed || matches!(facts.memory_controller, Answer::Absent(_)));
    assert!(facts.capabilities.is_some());
    if is_root() && try_mount_bpffs(Path::new(BPFFS_PATH)).is_ok() {
        assert_eq!(probe_machine().bpffs, Answer::Present);
    }
}
