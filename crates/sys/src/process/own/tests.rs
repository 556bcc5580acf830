use super::*;

#[test]
fn the_oom_score_is_set_and_can_be_read_back() {
    let kept: i32 = fs::read_to_string(OWN_OOM_SCORE_ADJ).unwrap().trim().parse().unwrap();
    assert_eq!(set_oom_score_adj_self(kept + 1), OomScore::Set);
    assert_eq!(fs::read_to_string(OWN_OOM_SCORE_ADJ).unwrap().trim(), (kept + 1).to_string());
    assert_eq!(set_oom_score_adj_self(kept), OomScore::Set);
}

#[test]
fn a_value_that_the_kernel_does_not_have_is_refused() {
    assert_eq!(set_oom_score_adj_self(5000), OomScore::Unsupported);
    assert_eq!(write_adjustment(Path::new("/proc/self/nowhere"), 0), OomScore::Unsupported);
}

#[test]
fn memory_that_is_locked_shows_in_the_status() {
    assert_eq!(lock_memory(), MemoryLock::Locked);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    assert_ne!(locked.trim(), "0 kB");
    rustix::mm::munlockall().unwrap();
}

#[test]
fn as_many_files_may_be_open_as_may_be() {
    let before = getrlimit(Resource::Nofile);
    let lower = before.current.map(|current| current - 1);
    setrlimit(Resource::Nofile, Rlimit { current: lower, ..before }).unwrap();
    assert_eq!(raise_open_files(), Ok(before.maximum));
    assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
}
