use super::{
    CgroupFacts, Cgroups, Found, Group, Key, NotKnown, PATIENCE_IN_ALL, is_passing, unless_it_stays,
};
use crate::offload::Offload;
use plimsoll_policy::{
    preference::{Mark, Wish},
    units::{Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{CgroupError, CgroupErrorKind, CgroupId, CgroupRoot},
    process::{Errno, ProcRoot},
};
use std::{
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

fn folder(path: &str, id: u64) -> CgroupFacts {
    let own = Group { path: path.as_bytes().to_vec(), id: CgroupId(id) };
    CgroupFacts { own, mark: None, oom_group: None }
}

/// One for which cgroups below 10 are not to be had before `Sender` says so, or goes.
fn cgroups(patience: Duration) -> (Cgroups, Sender<()>) {
    let (release, stuck): (_, Receiver<()>) = channel();
    let look_up = move |key: &Key| {
        Some(match key {
            Key::Id(id) if *id < 10 => {
                let _released = stuck.recv();
                Found::Cgroup(folder(&format!("/{id}"), *id))
            }
            Key::Id(id) => Found::Cgroup(folder(&format!("/{id}"), *id)),
            Key::Path(path) => Found::Cgroup(folder(core::str::from_utf8(path).unwrap(), 1)),
            Key::Process(id) => Found::Path(format!("/of/{}", id.pid).into_bytes()),
        })
    };
    (Cgroups::with(&Offload::start().unwrap(), Box::new(look_up), patience), release)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn what_is_found_is_told_and_known_by_its_path_too() {
    let (mut cgroups, _release) = cgroups(LONG);
    assert_eq!(cgroups.find(&Key::Id(10)), Some(&Found::Cgroup(folder("/10", 10))));
    assert_eq!(cgroups.at_path(b"/10", Some(10)).unwrap().unwrap().own.id, CgroupId(10));
    assert_eq!(cgroups.at_path(b"/else", Some(10)).unwrap().unwrap().own.id, CgroupId(1));
    assert_eq!(cgroups.at_path(b"/else", None).unwrap().unwrap().own.id, CgroupId(1));
    let process = Key::Process(VictimId { pid: Pid(7), start_ns: 1 });
    assert_eq!(cgroups.find(&process), Some(&Found::Path(b"/of/7".to_vec())));
}

#[test]
fn one_that_does_not_answer_is_waited_for_once_and_known_ones_stay_known() {
    let (mut cgroups, release) = cgroups(Duration::from_millis(300));
    cgroups.find(&Key::Id(10)).unwrap();
    assert_eq!(cgroups.find(&Key::Id(1)), None);
    let began = Instant::now();
    for id in 2..10 {
        assert_eq!(cgroups.find(&Key::Id(id)), None);
    }
    let waited = began.elapsed();
    assert!(waited < Duration::from_millis(300) * 8, "each was waited for: {waited:?}");
    assert!(cgroups.find(&Key::Id(10)).is_some() && cgroups.at_path(b"/10", Some(10)).is_ok());
    assert_eq!(cgroups.at_path(b"/2", Some(2)), Err(NotKnown), "that is not one without a mark");
    assert_eq!(cgroups.at_path(b"/else", None), Err(NotKnown));
    // A process could be anywhere by now.
    let process = Key::Process(VictimId { pid: Pid(7), start_ns: 1 });
    assert_eq!(cgroups.find(&process), None);
    release.send(()).unwrap();
    let end = Instant::now() + LONG;
    while cgroups.find(&Key::Id(11)).is_none() {
        assert!(Instant::now() < end, "it is never asked again");
        std::thread::yield_now();
    }
    assert_eq!(
        cgroups.find(&Key::Id(1)),
        Some(&Found::Cgroup(folder("/1", 1))),
        "its answer was late and is known"
    );
}

#[test]
fn a_cgroup_made_again_at_the_same_path_has_its_own_mark() {
    let omit = Mark { wish: Wish::Omit, owner: Uid(0) };
    let look_up = move |key: &Key| match key {
        // The one before, which has gone since it was looked at, and the one that is there.
        Key::Id(10) => Some(Found::Cgroup(folder("/x.service", 10))),
        Key::Id(id) => Some(Found::Cgroup(CgroupFacts { mark: Some(omit), ..folder("/x.service", *id) })),
        Key::Path(_) | Key::Process(_) => Some(Found::Nothing),
    };
    let mut cgroups = Cgroups::with(&Offload::start().unwrap(), Box::new(look_up), LONG);
    cgroups.find(&Key::Id(10)).unwrap();
    let found = cgroups.at_path(b"/x.service", Some(11)).unwrap().unwrap();
    assert_eq!((found.own.id, found.mark), (CgroupId(11), Some(omit)));
}

#[test]
fn what_could_not_be_found_out_is_not_taken_for_nothing_and_leaves_what_was_known() {
    let mut asked = 0;
    let look_up = move |key: &Key| {
        asked += 1;
        (asked == 1).then(|| match key {
            Key::Id(id) => Found::Cgroup(folder("/10", *id)),
            Key::Path(_) | Key::Process(_) => Found::Nothing,
        })
    };
    let mut cgroups = Cgroups::with(&Offload::start().unwrap(), Box::new(look_up), LONG);
    let known = Some(Found::Cgroup(folder("/10", 10)));
    assert_eq!(cgroups.find(&Key::Id(10)).cloned(), known);
    cgroups.refresh(&Key::Id(10));
    assert_eq!(cgroups.find(&Key::Id(10)).cloned(), known);
    assert_eq!(cgroups.find(&Key::Id(11)), None);
    assert_eq!(cgroups.at_path(b"/11", None), Err(NotKnown));
}

#[test]
fn many_slow_answers_are_waited_for_as_long_as_one_decision_may_take_in_all() {
    let slow = Duration::from_millis(2);
    let (release, stuck): (Sender<()>, Receiver<()>) = channel();
    let look_up = move |key: &Key| {
        if *key == Key::Id(1) {
            let _released = stuck.recv();
        }
        let began = Instant::now();
        while began.elapsed() < slow {
            std::thread::yield_now();
        }
        Some(Found::Nothing)
    };
    let mut cgroups = Cgroups::with(&Offload::start().unwrap(), Box::new(look_up), LONG);
    cgroups.begin();
    for id in 10..13 {
        cgroups.find(&Key::Id(id));
    }
    assert!(cgroups.left <= PATIENCE_IN_ALL - 3 * slow, "{:?}", cgroups.left);
    // What is left is all that is waited, however long one answer may take.
    let began = Instant::now();
    assert_eq!(cgroups.find(&Key::Id(1)), None);
    assert!(began.elapsed() < LONG && cgroups.left.is_zero());
    release.send(()).unwrap();
    let end = Instant::now() + LONG;
    while cgroups.find(&Key::Id(2)).is_none() {
        cgroups.begin();
        assert!(Instant::now() < end, "the next decision waits no more");
    }
}

#[test]
fn so_many_cgroups_do_not_fill_the_memory() {
    let (mut cgroups, _release) = cgroups(LONG);
    for id in 10..3000 {
        cgroups.find(&Key::Id(id)).unwrap();
    }
    assert!(cgroups.known.len() <= super::KNOWN_MAX);
}

#[test]
fn this_process_is_found_where_proc_says_and_its_folder_by_path_and_by_id() {
    let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let pid = Pid(std::process::id());
    let start_ns = proc.process(pid).unwrap().start_ns;
    let expected = proc.cgroup(pid).unwrap().map(String::into_bytes);
    let mut cgroups = Cgroups::new(&Offload::start().unwrap(), CgroupRoot::open().ok(), proc);
    (cgroups.patience, cgroups.left) = (LONG, LONG);
    let path = match cgroups.find(&Key::Process(VictimId { pid, start_ns })) {
        Some(Found::Path(path)) => Some(path.clone()),
        _ => None,
    };
    assert_eq!(path, expected);
    if let Ok(root) = CgroupRoot::open() {
        let own = cgroups.at_path(b"/", None).unwrap().unwrap().own.clone();
        assert_eq!(own.id, root.id());
        assert_eq!(cgroups.find(&Key::Id(u64::MAX)), Some(&Found::Nothing));
        let Some(Found::Cgroup(by_id)) = cgroups.find(&Key::Id(own.id.0)) else { panic!("not by its id") };
        assert_eq!(by_id.own, own);
    }
}

#[test]
fn what_is_missing_for_want_of_something_is_not_missing_for_good() {
    let error = |kind| CgroupError { operation: "read", path: "/x".into(), kind };
    let passing = error(CgroupErrorKind::Failed(Errno::from_raw_os_error(24)));
    assert!(is_passing(&passing) && unless_it_stays(())(passing).is_err());
    assert!(unless_it_stays(())(error(CgroupErrorKind::Denied)).is_ok(), "else nobody could be selected");
    // Its mark went with it, and whoever was in it is somewhere else.
    assert!(!is_passing(&error(CgroupErrorKind::Gone)));
    assert!(unless_it_stays(())(error(CgroupErrorKind::Gone)).is_err());
}
