use super::*;

#[test]
fn the_root_of_the_hierarchy_has_no_limit_and_holds_this_process() {
    let root = match MemoryCgroup::open("/") {
        Ok(root) => root,
        Err(error) => {
            return crate::process::testing::skip(format_args!("{error}"));
        }
    };
    // Version 2 has no `memory.max` at its root.
    assert!(root.limit().map_or(true, |limit| limit.is_none()));
    assert!(root.stat().unwrap().inactive_file.is_some());
    assert!(root.processes().unwrap().contains(&Pid(std::process::id())));
}

#[test]
fn a_cgroup_that_is_not_there_is_said_to_be_missing() {
    let error = MemoryCgroup::open("/no-such-cgroup").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_that_is_kept_open_is_read_anew_and_one_that_took_its_place_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.stat");
    let kept = Kept::default();
    assert_eq!(kept.read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    let long = "x".repeat(10_000);
    for text in ["1", "22", &long] {
        fs::write(&path, text).unwrap();
        assert_eq!(kept.read(&path).unwrap(), text.as_bytes());
    }
    // As one of a cgroup that was removed: it can be read no more.
    *kept.0.lock().unwrap() = Some(File::options().write(true).open(&path).unwrap());
    fs::write(&path, "3").unwrap();
    assert_eq!(kept.read(&path).unwrap(), b"3");
}
