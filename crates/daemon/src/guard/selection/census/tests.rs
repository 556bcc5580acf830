use super::{Census, Effort, LOOKS_MAX};
use crate::{
    facts::{
        cgroups::{Group, NotKnown},
        cmdlines::Line,
    },
    guard::selection::{
        eligibility::Eligibility,
        population::{Growth, Population, Seen, Source},
    },
};
use plimsoll_policy::{
    preference::{Effect, Mark, PREFERRED, Pattern, Rule, Rules, Scope, Wish},
    reading::Reading,
    selection::{Protection, Standing, select},
    units::{Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::Selector,
    cgroup::CgroupId,
    process::{HeldFolder, Portrait, ProcRoot, ProcessError},
};
use std::{path::Path, sync::Arc};

/// Processes with what a rough and what a close look shows of them.
#[derive(Debug, Default)]
struct Village {
    people: Vec<(Seen, Option<Seen>)>,
    mark: Option<Mark>,
    mark_not_known: bool,
    cgroup: Option<&'static [u8]>,
    looks: usize,
    portraits: usize,
    floor: Option<Pages>,
    grown: Vec<(u32, u64)>,
    lost: bool,
    now: u64,
    oom_group: bool,
}

fn seen(pid: u32, pages: u64) -> Seen {
    Seen::of_tests(VictimId { pid: Pid(pid), start_ns: 1 }, pages, b"villager")
}

impl Village {
    fn of(people: impl IntoIterator<Item = Seen>) -> Self {
        Self { people: people.into_iter().map(|one| (one, Some(one))).collect(), ..Self::default() }
    }
}

impl Population for Village {
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn begin_decision(&mut self) {}

    fn own_pid(&self) -> Pid {
        Pid(900)
    }

    fn census(&mut self, mut visit: impl FnMut(&Seen)) -> Result<Source, ProcessError> {
        if self.people.is_empty() {
            return Err(ProcessError::Vanished(Pid(0)));
        }
        self.people.iter().for_each(|(rough, _)| visit(rough));
        Ok(Source::Programs)
    }

    fn look_closely(&mut self, id: VictimId) -> Option<Seen> {
        self.looks += 1;
        self.people.iter().find(|(rough, _)| rough.id == id).and_then(|(_, close)| *close)
    }

    fn portray(&mut self, _: VictimId, _: Option<u64>, into: &mut Portrait) -> Result<bool, ProcessError> {
        // Its own: all of them run this test.
        let own = Pid(std::process::id());
        let mut root = ProcRoot::open(Path::new("/proc")).unwrap();
        let start_ns = root.process(own).unwrap().start_ns;
        let own = HeldFolder::open(&root, VictimId { pid: own, start_ns })?;
        own.portray(self.cgroup, into)?;
        self.portraits += 1;
        Ok(true)
    }

    fn mark_of(&mut self, _: &[u8], _: Option<u64>) -> Result<Option<Mark>, NotKnown> {
        if self.mark_not_known { Err(NotKnown) } else { Ok(self.mark) }
    }

    fn group_of(&mut self, cgroup: &[u8], _: Option<u64>, scope: Scope) -> Result<Option<Group>, NotKnown> {
        let whole = self.oom_group || scope == Scope::Cgroup;
        Ok(whole.then(|| Group { path: cgroup.to_owned(), id: CgroupId(1) }))
    }

    fn watch(&mut self, floor: Pages) -> bool {
        self.floor = Some(floor);
        true
    }

    fn grown(&mut self, mut visit: impl FnMut(Growth)) -> Option<bool> {
        self.grown.drain(..).for_each(|(pid, mm)| {
            visit(Growth { id: VictimId { pid: Pid(pid), start_ns: 1 }, mm });
        });
        Some(!self.lost)
    }

    fn unwatch(&mut self) {
        self.floor = None;
    }

    fn equip(&mut self, _: Selector) {}
}

/// Who comes first, and what it took to be sure.
fn by(rules: &Rules) -> Eligibility {
    Eligibility { rules: Arc::new(rules.clone()), ..Eligibility::default() }
}

fn choose(village: &mut Village, rules: &Rules, shmem: u64) -> (Option<u32>, Effort) {
    let mut census = Census::new();
    census.take(village, Reading::Known(Pages(shmem))).unwrap();
    assert_eq!(census.taken(), Some(Nanos(village.now)));
    let effort = census.resolve(village, &by(rules), LOOKS_MAX, |_| false);
    (select(census.candidates(), |_| false).victims.first().map(|one| one.pid.0), effort)
}

fn rule(effect: Effect) -> Rule {
    Rule { comm: vec![Pattern::new("villager").unwrap()], ..Rule::new(effect) }
}

#[test]
fn only_those_who_may_come_first_are_looked_at_closely() {
    let mut village = Village::of((10..1010).map(|pid| seen(pid, u64::from(pid))));
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(1009));
    // A mark could make the largest count a quarter: those of more than that may come first until that is known.
    assert_eq!(village.looks, 16);
}

#[test]
fn a_close_look_decides_where_the_rough_one_was_wrong() {
    let rough = |pid, pages| Seen { error: Pages(500), ..seen(pid, pages) };
    let mut village = Village {
        people: vec![
            (rough(10, 1000), Some(seen(10, 600))),
            (rough(11, 700), Some(seen(11, 1100))),
            (seen(12, 5), Some(seen(12, 6))),
        ],
        ..Village::default()
    };
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(11));
    assert_eq!(village.looks, 2);
}

#[test]
fn whoever_has_gone_or_is_dying_by_the_time_of_the_close_look_is_left_out() {
    let dying = Seen { standing: Standing::Dying, ..seen(11, 900) };
    let people = vec![(seen(10, 1000), None), (seen(11, 900), Some(dying)), (seen(12, 5), Some(seen(12, 5)))];
    let mut village = Village { people, ..Village::default() };
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(12));
}

#[test]
fn the_daemon_itself_and_kernel_threads_are_never_looked_at() {
    let thread = Seen { standing: Standing::Protected(Protection::KernelThread), ..seen(11, 900) };
    let mut village = Village::of([seen(900, 1000), thread, seen(12, 5)]);
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(12));
    assert_eq!(village.looks, 1);
}

#[test]
fn behind_more_protected_ones_than_are_looked_at_somebody_is_found() {
    let keepers = (1_000..).take(LOOKS_MAX + 90).map(|pid| Seen { uid: Uid(7), ..seen(pid, 900) });
    let mut village = Village::of(keepers.chain([seen(10, 800), seen(11, 700)]));
    let exe = vec![Pattern::new("*").unwrap()];
    let never = Rule { uid: vec![Uid(7)], exe, ..Rule::new(Effect::Never) };
    assert_eq!(choose(&mut village, &Rules::new(vec![never]).unwrap(), 0).0, Some(10));
}

#[test]
fn rules_and_marks_are_asked_about_those_who_may_come_first() {
    let small = Seen { uid: Uid(7), ..seen(11, 300) };
    let mut village = Village::of([seen(10, 1000), small, seen(12, 200)]);
    let prefer = Rule { uid: vec![Uid(7)], ..rule(Effect::Weight(PREFERRED)) };
    assert_eq!(choose(&mut village, &Rules::new(vec![prefer]).unwrap(), 0).0, Some(11));
    village.mark = Some(Mark { wish: Wish::Omit, owner: Uid(0) });
    let cgroup = ProcRoot::open(Path::new("/proc")).unwrap().cgroup(Pid(std::process::id())).unwrap();
    let expected = if cgroup.is_some() { None } else { Some(10) };
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, expected);
}

#[test]
fn nobody_is_selected_of_whom_it_is_not_known_whether_a_mark_protects_them() {
    let mut village = Village { mark_not_known: true, ..Village::of([seen(10, 1000)]) };
    village.cgroup = Some(b"/x.service");
    let mut census = Census::new();
    census.take(&mut village, Reading::Absent).unwrap();
    let eligibility = Eligibility::default();
    census.resolve(&mut village, &eligibility, LOOKS_MAX, |_| false);
    assert!(
        select(census.candidates(), |_| false).victims.is_empty()
            && census.some_unlooked_before(None, |_| false)
    );
    village.mark_not_known = false;
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(10));
}

#[test]
fn an_adj_that_the_look_at_all_did_not_show_is_read_of_those_who_may_come_first() {
    let unread = |pid, pages| Seen { oom_score_adj: None, ..seen(pid, pages) };
    let mut village = Village::of([unread(10, 1000), unread(11, 600), unread(12, 100)]);
    assert_eq!(choose(&mut village, &Rules::default(), 0).0, Some(10));
    // At 1000 the second could count more than the first at -1000; the third not.
    assert_eq!(village.looks, 2);
}

#[test]
fn workers_that_map_the_same_memory_are_not_taken_for_hogs() {
    let worker = |pid| Seen { shared: Pages(10_000), ..seen(pid, 10) };
    let mut village = Village::of((10..60).map(worker).chain([seen(99, 1000)]));
    assert_eq!(choose(&mut village, &Rules::default(), 10_000).0, Some(99));
    // Each of a memory of its own.
    assert_eq!(choose(&mut village, &Rules::default(), 500_000).0, Some(59));
}

#[test]
fn a_population_that_cannot_be_looked_at_is_an_error_and_not_an_empty_one() {
    let mut census = Census::new();
    census.take(&mut Village::of([seen(10, 5)]), Reading::Absent).unwrap();
    census.take(&mut Village::default(), Reading::Absent).unwrap_err();
    assert_eq!((census.taken(), census.candidates().len()), (None, 0));
}

/// A list that is ready, and the rules that it was made by.
fn warmed(village: &mut Village) -> (Census, Eligibility) {
    let (mut census, eligibility) = (Census::new(), Eligibility::default());
    census.take(village, Reading::Absent).unwrap();
    census.resolve(village, &eligibility, LOOKS_MAX, |_| false);
    census.keep_warm(village, &eligibility, |_| false);
    (census, eligibility)
}

#[test]
fn who_has_grown_since_is_found_without_another_look_at_all() {
    let mut village = Village::of([seen(10, 1000), seen(11, 100), seen(12, 1)]);
    let (mut census, eligibility) = warmed(&mut village);
    // Half of the first one's, at the weight of 2000 permille that an oom_score_adj can give.
    assert_eq!(village.floor, Some(Pages(250)));
    village.people[1].1 = Some(seen(11, 3000));
    village.people.push((seen(13, 0), Some(seen(13, 2000))));
    village.grown = vec![(11, 11), (13, 13), (10, 10)];
    let looks = village.looks;
    assert!(census.catch_up(&mut village));
    census.resolve(&mut village, &eligibility, LOOKS_MAX, |_| false);
    let victims = select(census.candidates(), |_| false).victims;
    assert_eq!(victims.iter().map(|one| one.pid.0).collect::<Vec<_>>(), [11, 13, 10, 12]);
    assert!(village.looks - looks <= 4);
}

#[test]
fn a_list_is_not_trusted_when_it_is_old_or_somebody_may_be_missing() {
    let mut village = Village::of([seen(10, 1000)]);
    let (mut census, ..) = warmed(&mut village);
    village.lost = true;
    assert!(!census.catch_up(&mut village));
    village.lost = false;
    assert!(census.catch_up(&mut village));
    village.now = super::warm::STALE_AFTER.0 + 1;
    assert!(!census.catch_up(&mut village));
    village.now = 0;
    census.cool(&mut village);
    assert!(!census.catch_up(&mut village) && village.floor.is_none());
}

#[test]
fn a_list_is_told_to_be_ready_only_while_it_is_selected_from() {
    let mut village = Village { now: 5, ..Village::of([seen(10, 1000)]) };
    assert_eq!((Census::new().ready_since(Nanos(5)), Census::new().source()), (None, None));
    let (mut census, ..) = warmed(&mut village);
    let limit = super::warm::STALE_AFTER.0 + 5;
    assert_eq!((census.ready_since(Nanos(limit)), census.source()), (Some(Nanos(5)), Some(Source::Programs)));
    assert_eq!(census.ready_since(Nanos(limit + 1)), None);
    census.cool(&mut village);
    assert_eq!(census.ready_since(Nanos(5)), None);
}

#[test]
fn a_list_that_was_never_made_is_not_trusted() {
    assert!(!Census::new().catch_up(&mut Village::of([seen(10, 5)])));
}

#[test]
fn a_command_line_that_was_read_ahead_is_held_against_the_rules() {
    let mut village = Village::of([seen(10, 1000), seen(11, 500)]);
    let line = || vec![Pattern::new("*--type=renderer*").unwrap()];
    let eligibility =
        by(&Rules::new(vec![Rule { cmdline: line(), ..Rule::new(Effect::Weight(PREFERRED)) }]).unwrap());
    let mut census = Census::new();
    let mut first = |census: &mut Census| {
        census.resolve(&mut village, &eligibility, LOOKS_MAX, |_| false);
        select(census.candidates(), |_| false).victims[0].pid.0
    };
    census.take(&mut Village::of([seen(10, 1000), seen(11, 500)]), Reading::Absent).unwrap();
    assert_eq!(first(&mut census), 10);
    let id = |pid| VictimId { pid: Pid(pid), start_ns: 1 };
    let line = |pid, text: &str| Line { id: id(pid), program: seen(pid, 0).program(), text: text.into() };
    let wanted = census.wanted_command_lines();
    assert_eq!(wanted.iter().map(|one| one.id).collect::<Vec<_>>(), [id(10), id(11)]);
    assert_eq!(wanted[0].program, seen(10, 0).program());
    census.learn(vec![line(10, "browser"), line(11, "browser --type=renderer")]);
    assert_eq!(first(&mut census), 11);
    assert_eq!(census.wanted_command_lines().len(), 2, "they are read again");
    // In the next list it is known from the start, and those that have gone are forgotten.
    census.take(&mut Village::of([seen(11, 500), seen(10, 1000)]), Reading::Absent).unwrap();
    assert_eq!(first(&mut census), 11);
    census.take(&mut Village::of([seen(10, 1000)]), Reading::Absent).unwrap();
    assert_eq!(first(&mut census), 10);
    census.learn(vec![]);
    assert_eq!(census.cmdlines.len(), 1);
}

#[test]
fn a_command_line_of_the_program_before_exec_is_not_held_against_the_one_after_it() {
    let rule = Rule {
        cmdline: vec![Pattern::new("*--type=renderer*").unwrap()],
        ..Rule::new(Effect::Weight(PREFERRED))
    };
    let eligibility = by(&Rules::new(vec![rule]).unwrap());
    let mut village = Village::of([seen(10, 1000), seen(11, 500)]);
    let mut census = Census::new();
    census.take(&mut village, Reading::Absent).unwrap();
    let id = VictimId { pid: Pid(11), start_ns: 1 };
    let first = |census: &mut Census, village: &mut Village| {
        census.resolve(village, &eligibility, LOOKS_MAX, |_| false);
        let first = select(census.candidates(), |_| false).victims[0].id();
        let stands = census.confirm(first, village, &eligibility);
        census.resolve(village, &eligibility, LOOKS_MAX, |_| false);
        (stands, select(census.candidates(), |_| false).victims[0].pid.0)
    };
    assert_eq!(first(&mut census, &mut village), (true, 10));
    let read = |execs| {
        let program = Seen { execs: Some(execs), ..seen(11, 500) }.program();
        vec![Line { id, program, text: "browser --type=renderer".into() }]
    };
    census.learn(read(1));
    assert_eq!(first(&mut census, &mut village), (true, 11));
    let portraits = village.portraits;
    census.learn(read(1));
    assert_eq!((first(&mut census, &mut village), village.portraits), ((true, 11), portraits), "nothing new");
    // It calls exec: first what was read of it is of another program, then its new line is read.
    village.people[1].1 = Some(Seen { execs: Some(2), ..seen(11, 500) });
    assert_eq!(first(&mut census, &mut village), (true, 10));
    census.learn(read(2));
    assert_eq!(first(&mut census, &mut village), (true, 11));
}
