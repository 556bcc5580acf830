use super::*;
use plimsoll_policy::{
    reading::Reading,
    units::{Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{Errno, Subject};

fn candidate(pid: u32, pages: u64) -> Candidate {
    let id = VictimId { pid: Pid(pid), start_ns: 0 };
    Candidate { usage: Reading::Known(Pages(pages)), ..Candidate::of(id, Uid(60_001)) }
}

#[test]
fn a_cgroup_covers_itself_and_what_is_below_but_no_namesake() {
    assert!(is_within(b"/system.slice/ssh.service", b"/system.slice"));
    assert!(is_within(b"/system.slice", b"/system.slice"));
    assert!(!is_within(b"/system.slice2/x", b"/system.slice"));
    assert!(!is_within(b"/user.slice", b"/system.slice"));
}

fn own_exe() -> ExeIdentity {
    let own = std::fs::metadata("/proc/self/exe").unwrap();
    ExeIdentity { device: own.dev(), inode: own.ino(), owner: Uid(0), mode: 0o755, links: 1 }
}

fn protecting(of_system: bool) -> Shield {
    let own = ProtectedExe::at(Path::new("/proc/self/exe"), of_system).unwrap().unwrap();
    Shield { executables: vec![own], first_user: Uid(1000), ..Shield::default() }
}

#[test]
fn a_process_is_protected_by_its_executable_if_only_root_writes_it() {
    let shield = protecting(false);
    let by = |exe| shield.protection(Uid(1000), exe, None);
    assert_eq!(by(Some(own_exe())), Some(Protection::Executable));
    assert_eq!(by(Some(ExeIdentity { mode: 0o775, ..own_exe() })), None);
    assert_eq!(by(Some(ExeIdentity { owner: Uid(1000), ..own_exe() })), None);
    assert_eq!(by(Some(ExeIdentity { inode: 1, ..own_exe() })), None);
    assert_eq!(by(None), None);
}

#[test]
fn a_program_of_the_login_path_protects_system_users_only() {
    let shield = protecting(true);
    assert_eq!(shield.protection(Uid(999), Some(own_exe()), None), Some(Protection::Executable));
    assert_eq!(shield.protection(Uid(1000), Some(own_exe()), None), None);
}

#[test]
fn who_runs_what_was_replaced_is_protected_until_its_number_is_another_file_s() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tool");
    std::fs::write(&path, "first").unwrap();
    let paths = vec![(path.clone(), false)];
    let shield = Shield { paths, first_user: Uid(1000), ..Shield::default() }.renewed().unwrap();
    assert!(shield.renewed().is_none());
    let identity = |links| {
        let file = std::fs::metadata(&path).unwrap();
        ExeIdentity { device: file.dev(), inode: file.ino(), links, ..own_exe() }
    };
    let first = identity(0);
    std::fs::write(folder.path().join("new"), "second").unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    let renewed = shield.renewed().unwrap();
    let by = |exe| renewed.protection(Uid(1000), Some(exe), None);
    assert_eq!((by(identity(1)), by(first)), (Some(Protection::Executable), Some(Protection::Executable)));
    assert_eq!((by(ExeIdentity { links: 1, ..first }), renewed.len()), (None, 1));
    assert!(renewed.renewed().is_none());
    // While it is being replaced there is none.
    std::fs::remove_file(&path).unwrap();
    let without = renewed.renewed().unwrap();
    assert_eq!((without.len(), without.executables().len()), (0, 2));
}

#[test]
fn a_process_is_protected_by_its_cgroup() {
    let shield = Shield { cgroups: vec!["/system.slice/db.service".into()], ..Shield::default() };
    let by = |path: &[u8]| shield.protection(Uid(1000), None, Some(path));
    assert_eq!(by(b"/system.slice/db.service/worker"), Some(Protection::Cgroup));
    assert_eq!(by(b"/system.slice/db.service2"), None);
}

#[test]
fn as_many_are_looked_up_as_it_takes_to_find_those_that_selection_can_reach() {
    let mut candidates: Vec<Candidate> = (0..200).map(|pages| candidate(2, pages)).collect();
    let mut asked = 0;
    let protects = |one: &Candidate| {
        asked += 1;
        one.usage.latest() >= Some(Pages(100))
    };
    mark(&mut candidates, protects, Protection::Cgroup);
    assert_eq!(asked, 100 + VICTIMS_MAX);
    let free = candidates.iter().find(|one| one.standing == Standing::Free).unwrap();
    assert_eq!(free.usage, Reading::Known(Pages(99)));
}

#[test]
fn one_whose_cgroup_could_not_be_read_is_not_taken_for_unprotected() {
    let shield = Shield { cgroups: vec!["/db.service".into()], ..Shield::default() };
    let subject = Subject::Process(Pid(7));
    let failed =
        ProcessError::Failed { operation: "read cgroup", subject, errno: Errno::from_raw_os_error(24) };
    assert!(shield.may_cover(Err(failed)) && shield.may_cover(Ok(Some("/db.service/x".into()))));
    // Nobody is out of reach by a path that is too long to be told.
    let too_long =
        ProcessError::Failed { operation: "read cgroup", subject, errno: Errno::from_raw_os_error(36) };
    assert!(!shield.may_cover(Err(too_long)));
    let others = [Ok(None), Ok(Some("/web.service".into())), Err(ProcessError::Vanished(Pid(7)))];
    assert!(others.into_iter().all(|cgroup| !shield.may_cover(cgroup)));
}
