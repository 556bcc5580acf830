use super::{Refused, Request, group_visible, may, may_draw, may_expedite, redact, visible};
use crate::{
    account::{Account, Action},
    incident::{
        Course, Incident, UsageSample,
        tests::{incident, process},
    },
    lines::{Line, LineBook, Members, Membership, Place, Target, UidRange},
    units::{Bytes, Gid, PageSize, Uid},
};
use std::{string::ToString, vec};

const RAM: Bytes = Bytes(8 << 30);
const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);
/// Alice is in it.
const STAFF: Gid = Gid(50);

fn line(hard: &str, action: Action) -> Line {
    Line { hard: hard.parse().unwrap(), soft: None, action }
}

fn ask(peer: Uid, request: Request, administrators: &[(Target, Line)]) -> Result<(), Refused> {
    let mut book = LineBook::new(UidRange::default());
    for (target, line) in administrators {
        book.set(Place::Administrator(target.clone()), *line);
    }
    let staff = Membership { uids: [ALICE].into(), doubt: None };
    book.replace_members(Members::from([(STAFF, staff)]));
    may(peer, &request, &book, RAM, PageSize::from_bytes(4096).unwrap())
}

fn slice() -> Target {
    Target::Cgroup("/machine.slice".parse().unwrap())
}

fn set(target: Target, hard: &str, action: Action, now: bool) -> Request {
    Request::SetLine { target, line: line(hard, action), now }
}

#[test]
fn root_may_everything() {
    let administrators = [(Target::User(ALICE), line("1G", Action::Kill))];
    for target in [
        Target::Default,
        Target::Members(STAFF),
        Target::User(ALICE),
        Target::User(Uid::ROOT),
        slice(),
        Target::System,
    ] {
        for request in [
            Request::ReadGroup(Gid(51)),
            set(target.clone(), "2G", Action::Notify, true),
            Request::ClearLine { target: target.clone() },
            Request::ReadAccount(Account::User(ALICE)),
            Request::ControlDaemon,
        ] {
            assert_eq!(ask(Uid::ROOT, request, &administrators), Ok(()));
        }
    }
}

#[test]
fn anyone_reads_what_concerns_them() {
    for request in [
        Request::ReadStatus,
        Request::ReadDefault,
        Request::ReadIncidents,
        Request::ReadGroup(STAFF),
        Request::ReadAccount(Account::User(ALICE)),
    ] {
        assert_eq!(ask(ALICE, request, &[]), Ok(()));
    }
}

#[test]
fn nobody_but_root_touches_anothers_account_the_default_line_or_the_daemon() {
    let bobs = || Target::User(BOB);
    let cases = [
        (Request::ReadAccount(Account::User(BOB)), Refused::NotYourAccount { target: bobs() }),
        (set(bobs(), "1M", Action::Kill, false), Refused::NotYourAccount { target: bobs() }),
        (Request::ClearLine { target: bobs() }, Refused::NotYourAccount { target: bobs() }),
        (set(Target::Default, "1M", Action::Kill, false), Refused::DefaultLine),
        (Request::ClearLine { target: Target::Default }, Refused::DefaultLine),
        (set(Target::Members(STAFF), "1M", Action::Kill, false), Refused::GroupLine),
        (set(Target::Members(STAFF), "1M", Action::Kill, true), Refused::GroupLine),
        (Request::ClearLine { target: Target::Members(STAFF) }, Refused::GroupLine),
        (Request::ReadGroup(Gid(51)), Refused::NotYourGroup(Gid(51))),
        (
            set(Target::User(Uid::ROOT), "1M", Action::Kill, true),
            Refused::NotYourAccount { target: Target::User(Uid::ROOT) },
        ),
        (Request::ReadAccount(slice().measured().unwrap()), Refused::Measured(slice())),
        (set(slice(), "1M", Action::Kill, false), Refused::Measured(slice())),
        (Request::ClearLine { target: Target::System }, Refused::Measured(Target::System)),
        (Request::ControlDaemon, Refused::Daemon),
    ];
    for (request, refused) in cases {
        assert_eq!(ask(ALICE, request, &[]), Err(refused));
    }
}

#[test]
fn a_user_sets_a_line_up_to_the_administrators_and_not_a_page_more() {
    let own = || Target::User(ALICE);
    for target in [own(), Target::Members(STAFF), Target::Default] {
        let administrators = [(target, line("1G", Action::Kill))];
        for (hard, now) in [("512M", false), ("512M", true), ("1G", false), ("12.5%", false)] {
            assert_eq!(ask(ALICE, set(own(), hard, Action::Kill, now), &administrators), Ok(()), "{hard}");
        }
        let refused = ask(ALICE, set(own(), "1073745920", Action::Kill, false), &administrators).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "hard limit 1048580K is above the administrator's line of 1.0 GiB; give a lower one, or ask root to raise it"
        );
        ask(ALICE, set(own(), "12.51%", Action::Kill, false), &administrators).unwrap_err();
    }
}

#[test]
fn a_user_without_an_administrators_line_sets_none_and_clears_what_was_left() {
    let own = || Target::User(ALICE);
    let refused = ask(ALICE, set(own(), "1G", Action::Kill, false), &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no line is drawn for you that yours could be lower than; ask root for one ('plimsoll limit set 1000 SIZE', or \
         'default' for every user)"
    );
    assert_eq!(ask(ALICE, Request::ClearLine { target: own() }, &[]), Ok(()));
}

#[test]
fn a_subordinate_uid_draws_no_line() {
    assert_eq!(may_draw(ALICE, ALICE), Ok(()));
    assert_eq!(
        may_draw(Uid(100_033), ALICE).unwrap_err().to_string(),
        "uid 100033 is a subordinate uid of 1000's, whose account its processes are charged to; draw the line as that user, \
         or ask root"
    );
}

#[test]
fn a_default_line_is_nothing_to_draw_below_for_a_user_outside_its_range() {
    let default = [(Target::Default, line("1G", Action::Kill))];
    let system = Uid(500);
    let asked = set(Target::User(system), "1G", Action::Kill, false);
    assert_eq!(ask(system, asked, &default), Err(Refused::NoAdministrators(system)));
}

#[test]
fn a_user_cannot_weaken_the_administrators_action() {
    let own = || Target::User(ALICE);
    let administrators = [(own(), line("1G", Action::Term))];
    assert_eq!(ask(ALICE, set(own(), "1G", Action::Kill, false), &administrators), Ok(()));
    let refused = ask(ALICE, set(own(), "1M", Action::Notify, false), &administrators).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "action 'notify' is weaker than the administrator's 'term'; use 'term' or a stricter one"
    );
}

#[test]
fn a_users_own_line_does_not_bind_the_user() {
    let mut book = LineBook::new(UidRange::default());
    book.set(Place::Administrator(Target::User(ALICE)), line("8G", Action::Notify));
    book.set(Place::Own(ALICE), line("1M", Action::Kill));
    let request = set(Target::User(ALICE), "2G", Action::Notify, false);
    assert_eq!(may(ALICE, &request, &book, RAM, PageSize::from_bytes(4096).unwrap()), Ok(()));
}

#[test]
fn a_line_is_put_only_where_its_setter_may_put_it() {
    let alices = || Target::User(ALICE);
    assert_eq!(Place::of(Uid::ROOT, alices()), Some(Place::Administrator(alices())));
    assert_eq!(
        Place::of(Uid::ROOT, Target::User(Uid::ROOT)),
        Some(Place::Administrator(Target::User(Uid::ROOT)))
    );
    assert_eq!(Place::of(ALICE, alices()), Some(Place::Own(ALICE)));
    assert_eq!(Place::of(BOB, alices()), None);
    assert_eq!(Place::of(ALICE, Target::Default), None);
    assert_eq!(Place::of(ALICE, Target::Members(STAFF)), None);
    assert_eq!(Place::of(ALICE, slice()), None);
    assert_eq!(Place::of(ALICE, Target::System), None);
    assert_eq!(Place::of(Uid::ROOT, Target::Members(STAFF)).map(|place| place.set_by()), Some(Uid::ROOT));
    assert_eq!(Place::Own(ALICE).set_by(), ALICE);
}

#[test]
fn accounts_are_shown_to_their_user_and_root() {
    let account = Account::User(ALICE);
    let mut book = LineBook::new(UidRange::default());
    assert!(visible(&account, ALICE, &book) && visible(&account, Uid::ROOT, &book));
    assert!(!visible(&account, BOB, &book));
    let cgroup = slice().measured().unwrap();
    assert!(visible(&cgroup, Uid::ROOT, &book) && !visible(&cgroup, ALICE, &book));
    assert!(visible(&Account::System, ALICE, &book));
    let group = Account::Group(STAFF);
    assert!(visible(&group, Uid::ROOT, &book) && !visible(&group, ALICE, &book));
    book.replace_members(Members::from([(STAFF, Membership { uids: [ALICE].into(), doubt: None })]));
    assert!(visible(&group, ALICE, &book) && !visible(&group, BOB, &book));
}

#[test]
fn what_a_group_uses_is_its_members_to_read_and_its_line_is_roots_to_draw() {
    let read = |peer| ask(peer, Request::ReadAccount(Account::Group(STAFF)), &[]);
    assert_eq!(
        (read(ALICE), read(Uid::ROOT), read(BOB)),
        (Ok(()), Ok(()), Err(Refused::NotYourGroup(STAFF)))
    );
    let draw = |peer| ask(peer, set(Target::Group(STAFF), "1G", Action::Kill, true), &[]);
    assert_eq!((draw(ALICE), draw(Uid::ROOT)), (Err(Refused::GroupLine), Ok(())));
    let clear = ask(ALICE, Request::ClearLine { target: Target::Group(STAFF) }, &[]);
    assert_eq!(clear, Err(Refused::GroupLine));
}

#[test]
fn whom_only_a_groups_line_is_for_may_draw_any_line_of_their_own() {
    let staff = [(Target::Group(STAFF), line("1G", Action::Kill))];
    assert_eq!(ask(ALICE, set(Target::User(ALICE), "2G", Action::Notify, false), &staff), Ok(()));
    let refused = ask(BOB, set(Target::User(BOB), "1G", Action::Kill, false), &staff);
    assert_eq!(refused, Err(Refused::NoAdministrators(BOB)));
}

#[test]
fn a_groups_line_is_shown_to_its_members_and_root() {
    let group = Target::Members(STAFF);
    let mut book = LineBook::new(UidRange::default());
    assert!(group_visible(&group, Uid::ROOT, &book) && !group_visible(&group, ALICE, &book));
    let staff = Membership { uids: [ALICE].into(), doubt: None };
    book.replace_members(Members::from([(STAFF, staff)]));
    assert!(group_visible(&group, ALICE, &book) && !group_visible(&group, BOB, &book));
}

fn mixed() -> Incident {
    Incident { account: None, peers: vec![process(2, 1001, "b", 1), process(3, 1000, "a", 1)], ..incident() }
}

/// As somebody in no group sees it.
fn seen(incident: &Incident, peer: Uid) -> Option<Incident> {
    redact(incident, peer, &LineBook::default())
}

#[test]
fn root_sees_incidents_whole() {
    assert_eq!(seen(&mixed(), Uid::ROOT), Some(mixed()));
}

#[test]
fn a_user_sees_their_accounts_incidents_and_those_that_took_their_process() {
    assert!(seen(&incident(), ALICE).is_some());
    assert_eq!(seen(&incident(), BOB), None);
    let taken = Incident { victims: vec![process(1, 1001, "b", 1)], ..incident() };
    assert!(seen(&taken, BOB).is_some());
    let only_compared = Incident { peers: vec![process(1, 1001, "b", 1)], ..incident() };
    assert_eq!(seen(&only_compared, BOB), None);
}

#[test]
fn a_member_sees_the_group_s_incidents_without_other_peoples_command_lines() {
    let book = |uids: &[Uid]| {
        let mut book = LineBook::default();
        let crew = Membership { uids: uids.iter().copied().collect(), doubt: None };
        book.replace_members(Members::from([(STAFF, crew)]));
        book
    };
    let of_group = Incident { account: Some(Account::Group(STAFF)), ..incident() };
    let shown = redact(&of_group, BOB, &book(&[ALICE, BOB])).unwrap();
    assert_eq!((&shown.victims[0].cmdline, &shown.victims[0].cgroup), (&None, &None));
    assert_eq!(redact(&of_group, BOB, &book(&[ALICE])), None);
}

#[test]
fn the_machines_incidents_are_everyones_without_other_peoples_command_lines() {
    let shown = seen(&mixed(), BOB).unwrap();
    assert_eq!((&shown.victims[0].cmdline, &shown.victims[0].cgroup), (&None, &None));
    assert_eq!((&shown.peers[1].cmdline, &shown.peers[1].cgroup), (&None, &None));
    assert_eq!(shown.peers[0], mixed().peers[0]);
    assert_eq!(shown.victims[0].comm, "python3");
}

#[test]
fn a_process_of_another_user_in_ones_own_account_is_concealed_too() {
    let foreign = Incident { victims: vec![process(1, 1001, "b", 1)], ..incident() };
    assert_eq!(seen(&foreign, ALICE).unwrap().victims[0].cmdline, None);
}

#[test]
fn what_the_kernel_s_log_says_is_for_who_lost_a_process() {
    use crate::incident::origin::{Killer, Origin};
    let origin = Origin {
        cgroup: Some("/user.slice/a.scope".into()),
        container: crate::container::container_of("/lxc/web"),
        summary: Some("a secret".into()),
        advice: vec!["another".into()],
        ..Origin::of(Killer::Kernel)
    };
    let machine = Incident { origin: Some(origin.clone()), ..mixed() };
    let own = seen(&machine, machine.victims[0].uid).unwrap().origin;
    assert_eq!(own, Some(origin));
    let other = seen(&machine, Uid(4_242)).unwrap().origin.unwrap();
    assert_eq!(other, Origin::of(Killer::Kernel));
}

#[test]
fn whose_slice_systemd_oomd_took_reads_which_cgroup_it_was() {
    use crate::incident::origin::{Killer, Origin};
    let origin = Origin {
        cgroup: Some("/user.slice/user-1000.slice/app.scope".into()),
        summary: Some("due to memory pressure".into()),
        ..Origin::of(Killer::SystemdOomd)
    };
    let whole = Incident { victims: vec![], origin: Some(origin.clone()), ..incident() };
    assert_eq!(whole.account, Some(Account::User(ALICE)));
    assert_eq!(seen(&whole, ALICE).unwrap().origin, Some(origin.clone()));
    assert_eq!(seen(&whole, BOB), None);
    // The machine's is everybody's to see, and the cgroup nobody's.
    let machine = Incident { account: None, ..whole };
    assert_eq!(seen(&machine, ALICE).unwrap().origin, Some(Origin::of(Killer::SystemdOomd)));
}

#[test]
fn how_another_user_s_account_grew_is_not_shown_and_the_machine_is() {
    let course = Course {
        account: vec![UsageSample { at_ms: -1000, usage_bytes: 5, line_bytes: Some(9) }],
        mem_total_bytes: Some(64),
        trace: Some("{}".into()),
        ..Course::default()
    };
    let told = |victim: u32, peer: u32| {
        let victims = vec![process(1, victim, "b", 1)];
        let incident = Incident { victims, course: Some(course.clone()), ..incident() };
        seen(&incident, Uid(peer)).unwrap().course.unwrap()
    };
    assert_eq!(told(1001, 0), course);
    let untraced = Course { trace: None, ..course.clone() };
    assert_eq!(told(1001, 1000), untraced, "their own account, and no trace");
    assert_eq!(
        told(1001, 1001),
        Course { account: vec![], ..untraced.clone() },
        "their process, another's account"
    );
}

#[test]
fn a_dying_process_is_expedited_for_whom_it_counts_for_and_for_root() {
    let (alice, bob, subordinate) = (Uid(1000), Uid(1001), Uid(100_000));
    assert_eq!(may_expedite(alice, alice, alice), Ok(()));
    assert_eq!(may_expedite(subordinate, alice, alice), Ok(()));
    assert_eq!(may_expedite(Uid::ROOT, Uid::ROOT, alice), Ok(()));
    for victims in [bob, Uid::ROOT] {
        assert_eq!(may_expedite(alice, alice, victims), Err(Refused::NotYourProcess));
    }
}
