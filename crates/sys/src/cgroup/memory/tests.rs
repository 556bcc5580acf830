use super::*;

#[test]
fn the_root_of_the_hierarchy_has_no_limit_and_holds_this_process() {
    let root = match MemoryCgroup::open("/") {
        Ok(root) => root,
        Err(error) => {
            println!("SKIPPED: the_root_of_the_hierarchy_has_no_limit_and_holds_this_process: {error}");
            return;
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
