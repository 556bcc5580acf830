use super::Portrait;
use crate::process::{
    HeldFolder, ProcessError,
    testing::{Guest, proc_root},
};
use plimsoll_policy::{units::Pid, victim::VictimId};
use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

fn portray(guest: &Guest) -> Portrait {
    let id = VictimId { pid: guest.pid(), start_ns: guest.start_ns() };
    let mut portrait = Portrait::default();
    HeldFolder::open(&proc_root(), id).unwrap().portray(None, &mut portrait).unwrap();
    portrait
}

#[test]
fn a_program_of_the_machine_is_what_it_says() {
    let portrait = portray(&Guest::asleep());
    let path = fs::canonicalize("/bin/sleep").unwrap();
    assert_eq!(portrait.exe().unwrap(), path.as_os_str().as_encoded_bytes());
    assert_eq!(portrait.exe_is_what_it_says(), portrait.exe_identity().unwrap().only_root_writes());
    assert_eq!(
        portrait.oom_score_adj(),
        Some(fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap())
    );
    let own = proc_root().cgroup(Pid(std::process::id())).unwrap();
    assert_eq!(portrait.cgroup().map(|path| String::from_utf8(path.to_vec()).unwrap()), own);
}

#[test]
fn a_program_that_others_may_write_is_not_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("sleep");
    fs::copy("/bin/sleep", &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).unwrap();
    let portrait = portray(&Guest::start(Command::new(&copy).arg("60")));
    assert_eq!(portrait.exe().unwrap(), copy.as_os_str().as_encoded_bytes());
    assert!(!portrait.exe_is_what_it_says());
}

#[test]
fn a_program_that_another_file_took_the_place_of_is_not_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("sleep");
    fs::copy("/bin/sleep", &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let guest = Guest::start(Command::new(&copy).arg("60"));
    assert_eq!(
        portray(&guest).exe_is_what_it_says(),
        portray(&guest).exe_identity().unwrap().only_root_writes()
    );
    fs::rename(&copy, folder.path().join("old")).unwrap();
    fs::copy("/bin/sleep", &copy).unwrap();
    let portrait = portray(&guest);
    assert!(portrait.exe().unwrap().ends_with(b"/old") && portrait.exe_identity().is_some());
    fs::remove_file(folder.path().join("old")).unwrap();
    let portrait = portray(&guest);
    assert!(portrait.exe().unwrap().ends_with(b" (deleted)") && !portrait.exe_is_what_it_says());
}

#[test]
fn whoever_has_gone_has_no_portrait() {
    let guest = Guest::asleep();
    let id = VictimId { pid: guest.pid(), start_ns: guest.start_ns() };
    let held = HeldFolder::open(&proc_root(), id).unwrap();
    drop(guest);
    let gone = held.portray(None, &mut Portrait::default());
    assert!(matches!(gone, Err(ProcessError::Vanished(_))), "{gone:?}");
}

#[test]
fn a_cgroup_that_is_known_is_not_read() {
    let guest = Guest::asleep();
    let id = VictimId { pid: guest.pid(), start_ns: guest.start_ns() };
    let mut portrait = Portrait::default();
    HeldFolder::open(&proc_root(), id).unwrap().portray(Some(b"/known.slice"), &mut portrait).unwrap();
    assert_eq!(portrait.cgroup(), Some(b"/known.slice".as_slice()));
}

#[test]
fn what_could_not_be_read_this_time_is_not_taken_for_missing() {
    use super::unless_passing;
    use crate::process::Subject;
    use rustix::io::Errno as E;
    let failed = |errno: E| {
        let subject = Subject::Process(Pid(7));
        unless_passing(())(ProcessError::Failed { operation: "read", subject, errno })
    };
    for want in [E::MFILE, E::NFILE, E::NOMEM] {
        failed(want).unwrap_err();
    }
    for own_doing in [E::NAMETOOLONG, E::NOTCONN, E::IO] {
        failed(own_doing).unwrap();
    }
    unless_passing(())(ProcessError::Vanished(Pid(7))).unwrap_err();
}
