use super::{
    Directory, Known, Named, Wanted,
    asking::{Answers, GroupAnswer},
    files::Files,
    lookup::{Fact, Job, LookUp},
    services::{NameServices, Person, Trouble},
};
use plimsoll_policy::units::{Gid, Uid};
use std::{collections::BTreeSet, fs, ops::ControlFlow};

const STAFF: Gid = Gid(50);
const USERS: Gid = Gid(100);
const GONE: Gid = Gid(4711);

fn uids<const N: usize>(numbers: [u32; N]) -> BTreeSet<Uid> {
    numbers.into_iter().map(Uid).collect()
}

/// Users with their primary group, groups with what they list; what fails, and whom nobody enumerates.
#[derive(Default)]
struct Script {
    users: Vec<(&'static str, u32, Gid)>,
    groups: Vec<(&'static str, Gid, Vec<&'static str>)>,
    failing: &'static [&'static str],
    enumerates: bool,
}

impl Script {
    fn works(&self, question: &str) -> Result<(), Trouble> {
        if self.failing.contains(&question) { Err(format!("{question} failed")) } else { Ok(()) }
    }

    fn find(&self, wanted: impl Fn(&(&str, u32, Gid)) -> bool) -> Option<Person> {
        let (name, uid, primary) = self.users.iter().find(|user| wanted(user))?;
        Some(Person { name: (*name).to_owned(), uid: Uid(*uid), primary: *primary })
    }
}

impl NameServices for Script {
    fn user_named(&self, name: &str) -> Result<Option<Person>, Trouble> {
        self.works("user_named")?;
        Ok(self.find(|user| user.0 == name))
    }

    fn user(&self, uid: Uid) -> Result<Option<Person>, Trouble> {
        self.works("user")?;
        Ok(self.find(|user| user.1 == uid.0))
    }

    fn group_named(&self, name: &str) -> Result<Option<Gid>, Trouble> {
        self.works("group_named")?;
        Ok(self.groups.iter().find(|group| group.0 == name).map(|group| group.1))
    }

    fn group(&self, gid: Gid) -> Result<Option<Vec<String>>, Trouble> {
        self.works("group")?;
        let found = self.groups.iter().find(|group| group.1 == gid);
        Ok(found.map(|group| group.2.iter().map(ToString::to_string).collect()))
    }

    fn groups_of(&self, person: &Person) -> Result<Vec<Gid>, Trouble> {
        self.works("groups_of")?;
        let listing = self.groups.iter().filter(|group| group.2.contains(&person.name.as_str()));
        Ok(listing.map(|group| group.1).chain([person.primary]).collect())
    }

    fn each_user(&self, visit: &mut dyn FnMut(Uid, Gid) -> ControlFlow<()>) -> Result<(), Trouble> {
        self.works("each_user")?;
        for user in self.users.iter().filter(|_| self.enumerates) {
            if visit(Uid(user.1), user.2).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn script() -> Script {
    Script {
        users: vec![("ann", 1, STAFF), ("ben", 2, USERS), ("cat", 3, USERS), ("dan", 4, STAFF)],
        groups: vec![("staff", STAFF, vec!["ben", "nobody-any-more"]), ("users", USERS, vec![])],
        failing: &[],
        enumerates: true,
    }
}

fn job<const N: usize>(gids: &[Gid], numbers: [u32; N]) -> Job {
    Job { gids: gids.iter().copied().collect(), uids: uids(numbers), ..Job::default() }
}

fn facts(services: &Script, job: &Job) -> Vec<Fact> {
    let mut facts = Vec::new();
    let ended = LookUp::new(services, job).run(&mut |fact| {
        facts.push(fact);
        ControlFlow::Continue(())
    });
    assert!(ended.is_continue());
    facts
}

fn answers(services: &Script, job: &Job) -> Answers {
    let mut answers = Answers::default();
    let mut facts = facts(services, job);
    assert_eq!(facts.pop(), Some(Fact::End));
    assert!(!facts.into_iter().any(|fact| answers.take(fact)));
    answers
}

#[test]
fn members_are_those_listed_and_those_whose_primary_group_it_is() {
    let found = answers(&script(), &job(&[STAFF, GONE], [2, 3, 9]));
    let staff = &found.of_groups[&STAFF];
    assert!(staff.answer.knows_group && !staff.unknown && staff.strays == 1);
    assert_eq!(staff.answer.members, uids([1, 2, 4]));
    // Nothing is said of 9, whom nobody knows.
    assert_eq!(staff.answer.others, uids([3]));
    assert!(found.of_groups[&GONE].unknown && !found.of_groups[&GONE].answer.knows_group);
    assert_eq!(found.trouble, None);
}

#[test]
fn users_that_nobody_enumerates_are_found_by_their_numbers() {
    let services = Script { enumerates: false, ..script() };
    let found = answers(&services, &job(&[STAFF, USERS], [1, 2]));
    assert_eq!(found.of_groups[&STAFF].answer.members, uids([1, 2]));
    assert_eq!(found.of_groups[&USERS].answer.members, uids([2]));
    assert_eq!(found.of_groups[&USERS].answer.others, uids([1]));
}

#[test]
fn each_fact_is_told_once() {
    let found = facts(&script(), &job(&[STAFF], [1, 2, 3, 4]));
    assert_eq!(
        found.len(),
        found.iter().map(|fact| format!("{fact:?}")).collect::<BTreeSet<_>>().len(),
        "{found:?}"
    );
}

#[test]
fn whatever_question_fails_nobody_is_said_to_be_no_member_for_want_of_its_answer() {
    let questions = ["user_named", "user", "group_named", "group", "groups_of", "each_user"];
    for failing in questions {
        let services = Script { failing: Box::leak(Box::new([failing])), ..script() };
        let mut job = job(&[STAFF], [1, 2, 3, 4]);
        job.users.insert("ann".to_owned());
        job.groups.insert("users".to_owned());
        let found = answers(&services, &job);
        assert_eq!(found.trouble, Some(format!("{failing} failed")));
        let said = found.of_groups.get(&STAFF).cloned().unwrap_or_default().answer;
        assert!(said.others.is_subset(&uids([3])), "{failing}: {said:?}");
        assert!(said.members.is_subset(&uids([1, 2, 4])), "{failing}: {said:?}");
        assert_eq!(said.knows_group, failing != "group");
    }
}

#[test]
fn names_become_numbers_and_unknown_ones_are_said_to_be() {
    let mut job = Job::default();
    job.users.extend(["ann".to_owned(), "zoe".to_owned()]);
    job.groups.extend(["users".to_owned(), "wheel".to_owned()]);
    let found = answers(&script(), &job);
    assert_eq!((found.users["ann"], found.users["zoe"]), (Some(Uid(1)), None));
    assert_eq!((found.groups["users"], found.groups["wheel"]), (Some(USERS), None));
    assert_eq!(found.of_groups[&USERS].answer.members, uids([2, 3]));
}

#[test]
fn whoever_stops_listening_is_told_nothing_more() {
    let job = job(&[STAFF, USERS], [1, 2, 3, 4]);
    for wanted in 1..facts(&script(), &job).len() {
        let mut told = 0;
        let ended = LookUp::new(&script(), &job).run(&mut |_| {
            told += 1;
            if told == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(ended.is_break());
        assert_eq!(told, wanted);
    }
}

#[test]
fn a_fact_survives_its_line_whatever_the_name_holds() {
    for fact in [
        Fact::User("a\"\n\\\u{7}é".to_owned(), Uid(7)),
        Fact::Member(STAFF, Uid(u32::MAX - 1)),
        Fact::Unknown(GONE),
        Fact::End,
    ] {
        let line = serde_json::to_string(&fact).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Fact>(&line).unwrap(), fact);
    }
}

/// A directory over files of its own; nobody is asked but by [`World::hear`].
struct World {
    folder: tempfile::TempDir,
    directory: Directory,
}

impl World {
    fn new(passwd: &str, group: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut directory, wrong) = Directory::open(folder.path());
        assert_eq!(wrong, None);
        directory.files = Files { passwd: folder.path().join("passwd"), group: folder.path().join("group") };
        fs::write(&directory.files.passwd, passwd).unwrap();
        fs::write(&directory.files.group, group).unwrap();
        Self { folder, directory }
    }

    fn hear(&mut self, wanted: &Wanted, answers: &Answers) -> Known {
        let (known, remembered) = self.directory.combine(wanted, &self.directory.files.read(), answers);
        self.directory.memory.put(remembered).unwrap();
        known
    }

    fn restarted(&self) -> Directory {
        let (directory, wrong) = Directory::open(self.folder.path());
        assert_eq!(wrong, None);
        Directory { files: self.directory.files.clone(), ..directory }
    }
}

fn staff() -> Wanted {
    Wanted { gids: [STAFF].into(), ..Wanted::default() }
}

fn said(members: BTreeSet<Uid>, others: BTreeSet<Uid>) -> Answers {
    let answer = plimsoll_policy::lines::Answer { knows_group: true, members, others };
    let of_groups = [(STAFF, GroupAnswer { answer, ..GroupAnswer::default() })].into();
    Answers { of_groups, ..Answers::default() }
}

fn silence() -> Answers {
    Answers { unfinished: Some("they did not answer".to_owned()), ..Answers::default() }
}

const PASSWD: &str = "ann:x:1:50::/:\nben:x:2:100::/:\ncat:x:3:100::/:\n";
const GROUP: &str = "staff:x:50:ben,far-away\nusers:x:100:\n";

#[test]
fn this_machines_files_name_members_without_asking_anybody() {
    let world = World::new(PASSWD, GROUP);
    let known = world.directory.recall(&staff());
    assert_eq!(known.members[&STAFF].uids, uids([1, 2]));
    assert!(known.members[&STAFF].doubt.is_some());
    assert!(!known.lacks_numbers());
}

#[test]
fn a_member_of_the_directorys_stays_one_while_it_is_silent_and_after_a_restart() {
    let mut world = World::new(PASSWD, GROUP);
    let known = world.hear(&staff(), &said(uids([1, 2, 9]), uids([3])));
    assert_eq!((&known.members[&STAFF].uids, &known.members[&STAFF].doubt), (&uids([1, 2, 9]), &None));
    let known = world.hear(&staff(), &silence());
    assert_eq!(known.members[&STAFF].uids, uids([1, 2, 9]));
    assert_eq!(
        known.members[&STAFF].doubt.as_deref(),
        Some("they did not answer; 1 member known before keeps its line")
    );
    assert_eq!(world.restarted().recall(&staff()).members[&STAFF].uids, uids([1, 2, 9]));
    // The services know the group and not the user: that is no answer about them either.
    let known = world.hear(&staff(), &said(uids([1, 2]), uids([3])));
    assert_eq!(known.members[&STAFF].uids, uids([1, 2, 9]));
    let known = world.hear(&staff(), &said(uids([1, 2]), uids([9])));
    assert_eq!((&known.members[&STAFF].uids, &known.members[&STAFF].doubt), (&uids([1, 2]), &None));
    assert_eq!(world.restarted().recall(&staff()).members[&STAFF].uids, uids([1, 2]));
}

#[test]
fn a_group_that_nobody_knows_is_said_and_keeps_whom_it_had() {
    let mut world = World::new("", "");
    let unknown = GroupAnswer { unknown: true, ..GroupAnswer::default() };
    let nobody = Answers { of_groups: [(STAFF, unknown)].into(), ..Answers::default() };
    let doubt = |known: Known| known.members[&STAFF].doubt.clone().unwrap();
    assert_eq!(doubt(world.hear(&staff(), &nobody)), "no group has this number now");
    world.hear(&staff(), &said(uids([8, 9]), uids([])));
    assert_eq!(
        doubt(world.hear(&staff(), &nobody)),
        "no group has this number now; 2 members known before keep their line"
    );
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    let mut world = World::new(PASSWD, GROUP);
    world.hear(&staff(), &said(uids([9]), uids([])));
    world.hear(&Wanted::default(), &Answers::default());
    assert_eq!(world.restarted().recall(&staff()).members[&STAFF].uids, uids([1, 2]));
}

#[test]
fn a_configured_name_is_the_files_then_the_services_then_what_it_was() {
    let mut world = World::new(PASSWD, GROUP);
    let wanted = Wanted {
        users: ["ann".to_owned(), "far".to_owned()].into(),
        groups: ["staff".to_owned(), "afar".to_owned()].into(),
        ..Wanted::default()
    };
    let known = world.directory.recall(&wanted);
    assert_eq!(
        (&known.users["ann"], &known.groups["staff"]),
        (&Named::Number(Uid(1)), &Named::Number(STAFF))
    );
    assert!(matches!(known.users["far"], Named::Unanswered(_)) && known.lacks_numbers());
    assert_eq!(known.members[&STAFF].uids, uids([1, 2]));
    let denied = Answers {
        users: [("far".to_owned(), None)].into(),
        groups: [("afar".to_owned(), None)].into(),
        ..Answers::default()
    };
    let known = world.hear(&wanted, &denied);
    assert_eq!((&known.users["far"], &known.groups["afar"]), (&Named::Nobody, &Named::Nobody));
    let found = Answers {
        users: [("far".to_owned(), Some(Uid(9)))].into(),
        groups: [("afar".to_owned(), Some(GONE))].into(),
        ..Answers::default()
    };
    world.hear(&wanted, &found);
    for later in [denied, silence()] {
        let known = world.hear(&wanted, &later);
        assert_eq!(
            (&known.users["far"], &known.groups["afar"]),
            (&Named::Number(Uid(9)), &Named::Number(GONE))
        );
        assert_eq!(known.notes.len(), 2, "{:?}", known.notes);
        assert!(!world.restarted().recall(&wanted).lacks_numbers());
    }
}

#[test]
fn only_what_the_files_do_not_have_is_asked_for_by_name() {
    let mut world = World::new(PASSWD, GROUP);
    world.hear(&staff(), &said(uids([9]), uids([])));
    let wanted = Wanted {
        users: ["ann".to_owned(), "far".to_owned()].into(),
        groups: ["users".to_owned(), "afar".to_owned()].into(),
        gids: [STAFF].into(),
    };
    let job = world.directory.job(&wanted, &world.directory.files.read(), uids([33]));
    assert_eq!((job.users, job.groups), (["far".to_owned()].into(), ["afar".to_owned()].into()));
    assert_eq!((job.gids, job.uids), ([STAFF, USERS].into(), uids([1, 2, 9, 33])));
}

#[test]
fn a_file_that_cannot_be_read_is_said_and_nobody_leaves_for_it() {
    let mut world = World::new(PASSWD, GROUP);
    world.hear(&staff(), &said(uids([1, 2]), uids([])));
    fs::remove_file(&world.directory.files.group).unwrap();
    nix::unistd::mkfifo(&world.directory.files.group, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let known = world.hear(&staff(), &Answers::default());
    assert_eq!(known.members[&STAFF].uids, uids([1, 2]));
    assert!(known.members[&STAFF].doubt.as_ref().unwrap().contains("not a plain file"), "{known:?}");
}

#[test]
fn a_change_of_the_files_is_noticed() {
    let mut world = World::new(PASSWD, GROUP);
    assert!(!world.directory.files_changed(), "they were never read");
    world.directory.ask(&Wanted::default(), uids([]));
    assert!(!world.directory.files_changed());
    let group = world.directory.files.group.clone();
    fs::write(&group, format!("{GROUP}wheel:x:10:\n")).unwrap();
    assert!(world.directory.files_changed());
    world.directory.ask(&Wanted::default(), uids([]));
    fs::write(group.with_extension("new"), format!("{GROUP}wheel:x:11:\n")).unwrap();
    fs::rename(group.with_extension("new"), &group).unwrap();
    assert!(world.directory.files_changed());
}

#[test]
fn a_memory_that_is_no_memory_is_said_and_replaced() {
    for rubbish in ["{", "{\"version\":7,\"names\":{}}", "{\"version\":1,\"names\":{\"x\":1}}"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.json");
        fs::write(&path, rubbish).unwrap();
        let (mut directory, wrong) = Directory::open(folder.path());
        let wrong = wrong.unwrap();
        assert!(wrong.contains("names.json") && !wrong.contains('\n'), "{wrong}");
        let (_, mut remembered) =
            directory.combine(&Wanted::default(), &directory.files.read(), &Answers::default());
        remembered.members.insert(GONE, uids([1]));
        directory.memory.put(remembered).unwrap();
        assert_eq!(Directory::open(folder.path()).1, None);
    }
}
