use super::{CgroupRoot, Errno, find_id, open_by_id};
use crate::{
    cgroup::{
        CgroupErrorKind, CgroupId,
        testing::{Grove, take},
    },
    process::testing::{Guest, proc_root},
};
use std::{os::fd::AsFd as _, path::Path};

#[test]
fn no_path_leads_out_of_the_tree() {
    let Some(grove) = Grove::plant() else { return };
    let name = String::from_utf8(grove.top().path().to_vec()).unwrap();
    for path in ["..", "/..", ".", "x/", "//", "x/../..", "a\0b"] {
        let error = grove.root.cgroup(path.as_bytes()).unwrap_err();
        assert!(matches!(error.kind, CgroupErrorKind::Failed(_)), "{path:?}: {error}");
    }
    for path in [format!("{name}/.."), format!("{name}/../{name}"), format!("/{name}//")] {
        let error = grove.root.cgroup(path.as_bytes()).unwrap_err();
        assert!(matches!(error.kind, CgroupErrorKind::Failed(_)), "{path}: {error}");
    }
    // A file of a cgroup is no cgroup, what is not there is gone, and what lies elsewhere is not there.
    grove.root.cgroup(format!("{name}/cgroup.procs").as_bytes()).unwrap_err();
    assert!(grove.root.cgroup(b"etc/passwd").unwrap_err().is_gone());
}

#[test]
fn a_cgroup_that_was_made_again_by_the_same_name_is_another() {
    let Some(mut grove) = Grove::plant() else { return };
    let first = grove.make("job");
    assert_eq!(grove.root.cgroup(first.path()).unwrap().id(), first.id());
    grove.remove("job");
    assert!(first.check_there().unwrap_err().is_gone());
    let second = grove.make("job");
    assert_eq!(first.path(), second.path());
    assert_ne!(first.id(), second.id());
    assert!(first.check_there().unwrap_err().is_gone());
    assert!(first.marks().unwrap_err().is_gone());
    assert!(grove.root.by_id(first.id()).unwrap_err().is_gone());
    assert!(grove.root.oom_group_of(&first, None).unwrap_err().is_gone());
    second.check_there().unwrap();
}

#[test]
fn a_cgroup_is_found_by_its_id_with_and_without_a_file_handle() {
    let Some(mut grove) = Grove::plant() else { return };
    grove.make("a");
    let wanted = grove.make("a/b");
    let found = grove.root.by_id(wanted.id()).unwrap();
    assert_eq!((found.id(), found.path()), (wanted.id(), wanted.path()));
    let walked = find_id(grove.root.dir.as_fd(), wanted.id()).unwrap();
    assert_eq!(walked, wanted.path());
    let handle = open_by_id(grove.root.dir.as_fd(), wanted.id()).unwrap();
    assert_eq!(grove.root.path_of(&handle).unwrap().strip_prefix(b"/").unwrap(), wanted.path());
    assert_eq!(grove.root.by_id(grove.root.id()).unwrap().path(), b"");
    assert!(grove.root.by_id(CgroupId(u64::MAX)).unwrap_err().is_gone());
}

#[test]
fn what_is_no_cgroup_v2_tree_is_said_to_be_unsupported() {
    for path in ["/", "/proc", "/sys/fs/cgroup/memory"] {
        let Err(error) = CgroupRoot::at(Path::new(path)) else { panic!("{path}") };
        assert!(
            matches!(error.kind, CgroupErrorKind::Unsupported(_) | CgroupErrorKind::Gone),
            "{path}: {error}"
        );
    }
}

#[test]
fn the_cgroup_of_a_process_is_opened_by_what_proc_says() {
    let Some(mut grove) = Grove::plant() else { return };
    let wanted = grove.make("a b:c");
    let guest = Guest::asleep();
    take(&wanted, guest.pid());
    let path = proc_root().cgroup(guest.pid()).unwrap().unwrap();
    assert_eq!(grove.root.cgroup(path.as_bytes()).unwrap().id(), wanted.id());
}

#[test]
fn links_and_other_filesystems_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    let open = |path: &Path, name: &[u8]| {
        super::open_below(std::fs::File::open(path).unwrap().as_fd(), name).map(drop)
    };
    assert_eq!(open(folder.path(), b"real"), Ok(()));
    assert_eq!(open(folder.path(), b"link"), Err(Errno::NOTDIR));
    assert_eq!(open(folder.path(), b"real/.."), Err(Errno::INVAL));
    // Another filesystem is mounted there.
    assert_eq!(open(Path::new("/"), b"proc"), Err(Errno::XDEV));
    assert_eq!(open(Path::new("/"), b"proc/sys/kernel"), Err(Errno::XDEV));
}

#[test]
fn names_are_shown_safely() {
    let Some(mut grove) = Grove::plant() else { return };
    let cgroup = grove.make("a\x1b[2J b");
    assert!(cgroup.to_string().ends_with("/a\\x1b[2J b"), "{cgroup}");
    assert_eq!(cgroup.name(), b"a\x1b[2J b");
    grove.remove("a\x1b[2J b");
    assert!(!cgroup.check_there().unwrap_err().to_string().contains('\x1b'));
}
