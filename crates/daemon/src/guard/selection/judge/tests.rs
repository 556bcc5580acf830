use super::{JudgeRequest, Unjudged, examine, judge};
use crate::guard::Eligibility;
use plimsoll_policy::{
    preference::{AVOIDED, Effect, JudgedBy, Mark, Pattern, Rule, Rules},
    selection::Protection,
    units::{Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{CgroupError, CgroupErrorKind},
    process::{Errno, Portrait, ProcRoot},
};
use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

fn proc() -> ProcRoot {
    ProcRoot::open(Path::new("/proc")).unwrap()
}

/// This very process.
fn case(cmdline: Option<&str>) -> Unjudged {
    case_of(Pid(std::process::id()), cmdline)
}

fn case_of(pid: Pid, cmdline: Option<&str>) -> Unjudged {
    let start_ns = proc().process(pid).unwrap().start_ns;
    Unjudged {
        id: VictimId { pid, start_ns },
        mm: 7,
        user: Uid(9),
        tracked_ns: 9,
        cmdline: cmdline.map(Into::into),
    }
}

fn judged(rules: Vec<Rule>, unjudged: Vec<Unjudged>) -> Vec<super::Judged> {
    let rules = Arc::new(Rules::new(rules).unwrap());
    let eligibility = Eligibility { rules: Arc::clone(&rules), ..Eligibility::default() };
    let request = JudgeRequest { whose: Uid(1).into(), unjudged, eligibility };
    let answer = examine(request, &mut proc(), &mut Portrait::default());
    assert!(Arc::ptr_eq(&answer.rules, &rules));
    answer.judged
}

fn pattern(text: &str) -> Vec<Pattern> {
    vec![Pattern::new(text).unwrap()]
}

#[test]
fn a_process_is_judged_by_what_it_runs_and_a_later_one_of_its_number_is_not() {
    let exe = std::env::current_exe().unwrap();
    let rule = || Rule { exe: pattern(exe.to_str().unwrap()), ..Rule::new(Effect::Weight(AVOIDED)) };
    let found = judged(vec![rule()], vec![case(None)]);
    let [verdict] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (verdict.judgement.weight, verdict.judgement.by, &verdict.unjudged),
        (AVOIDED, JudgedBy::Rule(0), &case(None))
    );
    let mut later = case(None);
    later.id.start_ns += 50_000_000;
    assert!(judged(vec![rule()], vec![later]).is_empty());
}

#[test]
fn one_of_whom_it_is_not_known_whether_it_is_marked_has_no_verdict() {
    let eligibility = Eligibility::default();
    let mut portrait = Portrait::default();
    let mut judged = |kind: fn() -> Result<Option<Mark>, CgroupErrorKind>| {
        let marks = |_: &[u8]| kind().map_err(|kind| CgroupError { operation: "x", path: "/".into(), kind });
        judge(case(None), &mut proc(), &eligibility, (&marks, &mut portrait)).is_ok()
    };
    assert!(judged(|| Ok(None)));
    let in_a_cgroup = proc().cgroup(Pid(std::process::id())).unwrap().is_some();
    assert_eq!(judged(|| Err(CgroupErrorKind::Failed(Errno::from_raw_os_error(24)))), !in_a_cgroup);
}

#[test]
fn a_command_line_counts_once_it_was_read() {
    let rule = || Rule { cmdline: pattern("*--big*"), ..Rule::new(Effect::Weight(AVOIDED)) };
    let found = judged(vec![rule()], vec![case(None), case(Some("x --big y"))]);
    let judges: Vec<_> = found.iter().map(|one| one.judgement.by).collect();
    assert_eq!(judges, [JudgedBy::OomScoreAdj, JudgedBy::Rule(0)]);
}

#[test]
fn never_protects_only_an_executable_that_nobody_else_can_write() {
    // Root's and everybody's to run, whoever runs this test; and a copy that others can write.
    let theirs = std::fs::canonicalize("/bin/sleep").unwrap();
    assert!(!is_open(&theirs), "{} is writable", theirs.display());
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("sleep");
    std::fs::copy(&theirs, &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    for (exe, wanted) in [(&theirs, Some(Protection::Executable)), (&open, None)] {
        let mut child = Sleeper::run(exe);
        let rule = Rule { exe: pattern(exe.to_str().unwrap()), ..Rule::new(Effect::Never) };
        let found = judged(vec![rule], vec![case_of(child.pid(), None)]);
        child.end();
        assert_eq!(found.first().unwrap().judgement.protection, wanted, "{}", exe.display());
    }
}

/// Runs an executable that takes seconds to sleep; ended with the test.
struct Sleeper(std::process::Child);

impl Sleeper {
    /// Once it runs that executable and no other: a child of ours is first what we are.
    fn run(exe: &Path) -> Self {
        let child = Self(std::process::Command::new(exe).arg("60").spawn().unwrap());
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while std::fs::read_link(format!("/proc/{}/exe", child.0.id())).is_ok_and(|link| link != exe) {
            assert!(std::time::Instant::now() < end, "it does not begin");
            std::thread::yield_now();
        }
        child
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn end(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_open(exe: &Path) -> bool {
    let file = std::fs::metadata(exe).unwrap();
    file.uid() != 0 || file.mode() & 0o022 != 0
}
