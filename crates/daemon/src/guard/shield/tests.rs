use super::*;
use plimsoll_policy::{
    reading::Reading,
    units::{Pages, Pid, Uid},
};

fn candidate(pid: u32, pages: u64) -> Candidate {
    Candidate {
        pid: Pid(pid),
        start_ns: 0,
        uid: Uid(60_001),
        mm: 0,
        usage: Reading::Known(Pages(pages)),
        standing: Standing::Free,
    }
}

#[test]
fn a_cgroup_covers_itself_and_what_is_below_but_no_namesake() {
    assert!(is_within("/system.slice/ssh.service", "/system.slice"));
    assert!(is_within("/system.slice", "/system.slice"));
    assert!(!is_within("/system.slice2/x", "/system.slice"));
    assert!(!is_within("/user.slice", "/system.slice"));
}

#[test]
fn a_process_is_protected_by_its_executable_and_not_by_its_name() {
    let own = std::fs::metadata("/proc/self/exe").unwrap();
    let proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let shield =
        Shield { executables: HashMap::from([((own.dev(), own.ino()), false)]), ..Shield::default() };
    let mut candidates = [candidate(std::process::id(), 10), candidate(1, 5)];
    shield.by_executable(&proc, &mut candidates);
    let owner_may_protect = own.uid() == 0 && own.mode() & 0o022 == 0;
    let expected =
        if owner_may_protect { Standing::Protected(Protection::Executable) } else { Standing::Free };
    assert_eq!(candidates[0].standing, expected);
    assert_eq!(candidates[1].standing, Standing::Free);
}

#[test]
fn a_program_of_the_login_path_protects_system_users_only() {
    let own = std::fs::metadata("/proc/self/exe").unwrap();
    let proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let executables = HashMap::from([((own.dev(), own.ino()), true)]);
    let shield = Shield { executables, first_user: Uid(1000), ..Shield::default() };
    let mut candidates = [candidate(std::process::id(), 10)];
    shield.by_executable(&proc, &mut candidates);
    assert_eq!(candidates[0].standing, Standing::Free);
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
