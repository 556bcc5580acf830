mod groups;

use super::{
    Cleared, HARD_BYTES_MIN, Line, LineBook, LineError, MEASURED_LINES_MAX, OWN_LINES_MAX, Place, Resolved,
    StoredLine, Target, UidRange, validate, validate_for_job,
};
use crate::{
    account::{Action, Source},
    size::Size,
    units::{Bytes, Gid, PageSize, Pages, Uid},
};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest, strategy::Strategy};
use std::{
    string::{String, ToString},
    vec,
    vec::Vec,
};

const RAM: Bytes = Bytes(8 << 30);
const ALICE: Uid = Uid(1000);
const ALICES: Target = Target::User(ALICE);

fn page() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

fn line(hard: &str) -> Line {
    Line { hard: hard.parse().unwrap(), soft: None, action: Action::Kill }
}

fn with(hard: &str, soft: &str, action: Action) -> Line {
    Line { soft: Some(soft.parse().unwrap()), action, ..line(hard) }
}

fn book(config: &[(Target, Line)], set: &[(Place, Line)]) -> LineBook {
    let mut book = LineBook::default();
    book.replace_config(UidRange::default(), config.iter().cloned());
    for (place, line) in set {
        book.set(place.clone(), *line);
    }
    book
}

fn mib(pages: Pages) -> u64 {
    pages.0 / 256
}

fn resolved(book: &LineBook, uid: Uid) -> Resolved {
    book.resolve(uid, RAM, page()).unwrap()
}

#[test]
fn a_line_that_makes_no_sense_is_refused_with_its_own_error() {
    let refused = |line: Line| validate(&line, RAM).unwrap_err().to_string();
    assert_eq!(
        refused(line("0")),
        "hard limit 0: a line of 0 would kill every process; to remove a line use 'limit clear'"
    );
    assert_eq!(
        refused(line("0%")),
        "hard limit 0%: a line of 0 would kill every process; to remove a line use 'limit clear'"
    );
    assert_eq!(refused(line("4K")), "hard limit 4K: less than 65536 bytes; give a larger size");
    assert_eq!(
        refused(line("9G")),
        "hard limit 9G: more than this machine's RAM of 8.0 GiB; give at most 100%"
    );
    assert_eq!(
        refused(with("1G", "9G", Action::Kill)),
        "soft limit 9G: more than this machine's RAM of 8.0 GiB; give at most 100%"
    );
    assert_eq!(
        refused(with("1G", "50%", Action::Kill)),
        "soft limit 50%: above the hard limit 1G; give at most the hard limit"
    );
    assert!(matches!(
        validate(&with("1G", "0", Action::Kill), RAM),
        Err(LineError::Zero { limit: "soft", .. })
    ));
    assert_eq!(
        refused(Line { action: Action::Deny, ..line("1G") }),
        "action 'deny' is for jobs ('plimsoll run --strict'); use kill, term or notify"
    );
}

#[test]
fn a_strict_jobs_line_has_no_soft_limit() {
    let deny = |soft: &str| validate_for_job(&with("1G", soft, Action::Deny), RAM);
    assert_eq!(deny("512M"), Err(LineError::SoftOfStrict));
    assert_eq!(validate_for_job(&Line { action: Action::Deny, ..line("1G") }, RAM), Ok(()));
    assert_eq!(validate_for_job(&with("1G", "512M", Action::Kill), RAM), Ok(()));
}

#[test]
fn lines_at_the_bounds_are_accepted() {
    for good in [
        line("100%"),
        line("8G"),
        line("64K"),
        with("1G", "1G", Action::Term),
        with("50%", "4096M", Action::Notify),
    ] {
        assert_eq!(validate(&good, RAM), Ok(()));
    }
}

#[test]
fn the_soft_limit_is_nine_tenths_of_hard_where_not_given() {
    let book = book(&[(ALICES, line("1000K"))], &[]);
    assert_eq!((resolved(&book, ALICE).hard, resolved(&book, ALICE).soft), (Pages(250), Pages(225)));
}

#[test]
fn a_line_rounds_down_to_pages_of_any_size() {
    let book = book(&[(ALICES, line("131071"))], &[]);
    for (page_bytes, pages) in [(4096, 31), (16384, 7), (65536, 1)] {
        let page = PageSize::from_bytes(page_bytes).unwrap();
        assert_eq!(book.resolve(ALICE, RAM, page).unwrap().hard, Pages(pages));
    }
}

#[test]
fn a_users_line_comes_before_the_default_line_even_when_higher() {
    let book = book(&[(Target::Default, line("1G")), (ALICES, line("2G"))], &[]);
    assert_eq!(mib(resolved(&book, ALICE).hard), 2048);
    assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(ALICES));
    assert_eq!(mib(resolved(&book, Uid(1001)).hard), 1024);
    assert_eq!(resolved(&book, Uid(1001)).set_as, Place::Administrator(Target::Default));
}

#[test]
fn the_default_line_is_for_the_range_only() {
    let book = book(&[(Target::Default, line("1G"))], &[]);
    for (uid, limited) in [(0, false), (999, false), (1000, true), (60_000, true), (60_001, false)] {
        assert_eq!(book.resolve(Uid(uid), RAM, page()).is_some(), limited, "{uid}");
    }
    assert_eq!(mib(book.resolve_default(RAM, page()).unwrap().hard), 1024);
}

#[test]
fn state_wins_over_the_configuration_per_target() {
    let place = Place::Administrator(ALICES);
    let mut book = book(&[(ALICES, line("1G"))], &[(place.clone(), line("2G"))]);
    assert_eq!((mib(resolved(&book, ALICE).hard), resolved(&book, ALICE).source), (2048, Source::State));
    assert_eq!(book.clear(place), Cleared::StillInConfig);
    assert_eq!((mib(resolved(&book, ALICE).hard), resolved(&book, ALICE).source), (1024, Source::Config));
}

#[test]
fn a_users_configured_line_comes_before_a_default_line_set_later() {
    let book = book(&[(ALICES, line("1G"))], &[(Place::Administrator(Target::Default), line("2G"))]);
    assert_eq!(mib(resolved(&book, ALICE).hard), 1024);
}

#[test]
fn a_users_own_line_counts_only_where_lower() {
    let own = Place::Own(ALICE);
    let mut book = book(&[(ALICES, line("1G"))], &[(own.clone(), line("512M"))]);
    assert_eq!((mib(resolved(&book, ALICE).hard), resolved(&book, ALICE).set_as), (512, own.clone()));
    book.set(Place::Administrator(ALICES), line("256M"));
    assert_eq!(mib(resolved(&book, ALICE).hard), 256);
    book.set(own, line("256M"));
    assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(ALICES));
}

#[test]
fn a_users_own_line_counts_under_the_default_line_and_not_alone() {
    let own = (Place::Own(ALICE), line("512M"));
    assert_eq!(
        mib(resolved(&book(&[(Target::Default, line("1G"))], core::slice::from_ref(&own)), ALICE).hard),
        512
    );
    let alone = book(&[], &[own]);
    assert_eq!(alone.resolve(ALICE, RAM, page()), None);
    assert!(alone.is_empty(), "nothing has to be attached for it");
}

#[test]
fn lines_of_users_own_are_so_many_and_the_administrators_are_always_kept() {
    let mut book = LineBook::default();
    for uid in 0..u32::try_from(OWN_LINES_MAX).unwrap() {
        assert!(book.has_room(&Place::Own(Uid(1000 + uid))));
        book.set(Place::Own(Uid(1000 + uid)), line("1G"));
    }
    assert!(book.has_room(&Place::Own(ALICE)), "it takes the place of hers");
    assert!(!book.has_room(&Place::Own(Uid(999))));
    assert!(book.has_room(&Place::Administrator(Target::User(Uid(999)))));
    // Nor are more taken over from a file.
    let mut stored = book.to_stored();
    stored.push(StoredLine { target: Target::User(Uid(999)), set_by: Uid(999), line: line("1G") });
    stored.push(StoredLine { target: Target::User(Uid(999)), set_by: Uid::ROOT, line: line("1G") });
    let mut loaded = LineBook::default();
    assert_eq!(loaded.load_stored(stored).len(), 1);
    assert!(loaded.get(&Place::Administrator(Target::User(Uid(999)))).is_some());
}

#[test]
fn lines_that_the_kernel_measures_need_no_programs_and_are_so_many() {
    let cgroup = |number: usize| Target::Cgroup(std::format!("/{number}").parse().unwrap());
    let mut book = book(&[(Target::System, line("4G"))], &[]);
    for number in 1..MEASURED_LINES_MAX {
        let place = Place::Administrator(cgroup(number));
        assert!(book.has_room(&place));
        book.set(place, line("1G"));
    }
    assert!(book.is_empty(), "nothing has to be attached for them");
    assert_eq!(book.measured().len(), MEASURED_LINES_MAX);
    assert!(book.has_room(&Place::Administrator(cgroup(1))), "it takes the place of its own");
    assert!(book.has_room(&Place::Administrator(Target::System)));
    assert!(!book.has_room(&Place::Administrator(cgroup(0))));
    assert!(book.has_room(&Place::Administrator(ALICES)));
    assert_eq!(book.resolve(ALICE, RAM, page()), None);
    let found = book.resolve_target(&Target::System, RAM, page()).unwrap();
    assert_eq!(
        (mib(found.hard), found.source, found.set_as.target()),
        (4096, Source::Config, Target::System)
    );
    assert_eq!(book.clear(Place::Administrator(cgroup(1))), Cleared::Removed);
    assert_eq!(book.clear(Place::Administrator(Target::System)), Cleared::StillInConfig);
}

#[test]
fn a_users_own_line_weakens_neither_action_nor_soft_limit() {
    let own = (Place::Own(ALICE), with("512M", "512M", Action::Notify));
    let book = book(&[(ALICES, with("1G", "128M", Action::Term))], &[own]);
    let found = resolved(&book, ALICE);
    assert_eq!((mib(found.hard), mib(found.soft), found.action), (512, 128, Action::Term));
}

#[test]
fn an_own_line_may_be_stricter_than_the_administrators() {
    let own = (Place::Own(ALICE), line("512M"));
    let book = book(&[(ALICES, with("1G", "1G", Action::Notify))], &[own]);
    assert_eq!(resolved(&book, ALICE).action, Action::Kill);
}

#[test]
fn the_administrators_clear_removes_the_users_own_line_too() {
    let places = [(Place::Own(ALICE), line("512M")), (Place::Administrator(ALICES), line("1G"))];
    let mut cleared = book(&[], &places);
    assert_eq!(cleared.clear(Place::Administrator(ALICES)), Cleared::Removed);
    assert!(cleared.is_empty());
    assert_eq!(cleared.clear(Place::Administrator(ALICES)), Cleared::NothingSet);

    let mut only_own = book(&[], &places);
    assert_eq!(only_own.clear(Place::Own(ALICE)), Cleared::Removed);
    assert_eq!(mib(resolved(&only_own, ALICE).hard), 1024);
}

#[test]
fn explicit_users_are_those_with_any_line_of_their_own() {
    let book = book(
        &[(Target::Default, line("1G")), (Target::User(Uid(7)), line("1G"))],
        &[(Place::Administrator(Target::User(Uid(5))), line("1G")), (Place::Own(Uid(6)), line("1G"))],
    );
    assert_eq!(book.explicit_uids().into_iter().collect::<Vec<_>>(), [Uid(5), Uid(6), Uid(7)]);
    assert_eq!(book.numbered_uids().into_iter().collect::<Vec<_>>(), [Uid(5), Uid(7)]);
}

#[test]
fn a_new_configuration_takes_the_place_of_the_old_one_and_keeps_what_was_set() {
    let administrators = Place::Administrator(Target::User(Uid(7)));
    let mut book = book(&[(ALICES, line("1G"))], &[(administrators, line("1G"))]);
    book.replace_config(UidRange { min: Uid(500), max: Uid(600) }, [(Target::Default, line("2G"))]);
    assert!(book.resolve(ALICE, RAM, page()).is_none());
    assert!(book.resolve(Uid(500), RAM, page()).is_some());
    assert!(book.resolve(Uid(7), RAM, page()).is_some());
}

#[test]
fn the_state_keeps_who_set_a_line_and_what_was_typed() {
    let quarter = with("25%", "20%", Action::Term);
    let saved = book(
        &[(Target::Default, line("1G"))],
        &[(Place::Administrator(ALICES), quarter), (Place::Own(ALICE), line("512M"))],
    );
    let json = serde_json::to_string(&saved.to_stored()).unwrap();
    assert_eq!(
        json,
        r#"[{"target":"user:1000","set_by":0,"line":{"hard":"25%","soft":"20%","action":"term"}},{"target":"user:1000","set_by":1000,"line":{"hard":"512M","action":"kill"}}]"#
    );
    let mut loaded = book(&[(Target::Default, line("1G"))], &[]);
    let stored: Vec<StoredLine> = serde_json::from_str(&json).unwrap();
    assert_eq!(loaded.load_stored(stored), vec![]);
    assert_eq!(loaded, saved);
}

#[test]
fn a_stored_line_that_nobody_could_have_set_is_left_out_and_returned() {
    let forged =
        [Target::Default, ALICES].map(|target| StoredLine { target, set_by: Uid(1001), line: line("1G") });
    let mut book = LineBook::default();
    assert_eq!(book.load_stored(forged.clone()), forged);
    assert!(book.is_empty());
}

#[test]
fn an_unknown_field_in_a_line_is_an_error() {
    let read = |json: &str| serde_json::from_str::<Line>(json);
    assert_eq!(read(r#"{"hard":"1G"}"#).unwrap(), line("1G"));
    for bad in [
        r#"{"hard":"1G","sotf":"1G"}"#,
        r#"{"soft":"1G"}"#,
        r#"{"hard":"12Q"}"#,
        r#"{"hard":"1G","action":"x"}"#,
    ] {
        read(bad).unwrap_err();
    }
}

#[test]
fn a_stored_line_that_no_longer_fits_the_machine_is_reported() {
    let places = [(Place::Own(ALICE), line("4G")), (Place::Administrator(ALICES), line("25%"))];
    let book = book(&[], &places);
    assert_eq!(book.faults(RAM), vec![]);
    let faults = book.faults(Bytes(2 << 30));
    assert!(matches!(faults[..], [(Place::Own(ALICE), LineError::MoreThanRam { .. })]), "{faults:?}");
}

#[test]
fn a_line_too_small_is_never_in_force() {
    let tiny = Line { hard: Size::Bytes(Bytes(HARD_BYTES_MIN.0 - 1)), ..line("1G") };
    let zero = Line { hard: Size::Bytes(Bytes(0)), ..line("1G") };
    for bad in [tiny, zero] {
        assert_eq!(book(&[], &[(Place::Own(ALICE), bad)]).resolve(ALICE, RAM, page()), None);
    }
    let under_default = book(&[(Target::Default, line("1G"))], &[(Place::Own(ALICE), tiny)]);
    assert_eq!(mib(resolved(&under_default, ALICE).hard), 1024);
}

#[test]
fn a_target_reads_back_from_its_text_and_nothing_else_does() {
    let cgroup = || Target::Cgroup("/machine.slice/a b".parse().unwrap());
    for target in
        [Target::Default, ALICES, Target::Members(Gid(50)), Target::Group(Gid(0)), cgroup(), Target::System]
    {
        assert_eq!(target.to_string().parse(), Ok(target));
    }
    for bad in [
        "",
        "alice",
        "user:",
        "user:-1",
        "user:4294967295",
        "Default",
        "@",
        "@staff",
        "group:",
        "group:4294967295",
        "cgroup:",
        "cgroup:/",
        "cgroup:x",
        "cgroup:/a/../b",
        "System",
    ] {
        let error = bad.parse::<Target>().unwrap_err();
        assert_eq!(
            error.to_string(),
            std::format!(
                "'{bad}' is none of 'default', 'system', 'user:' and a uid, '@' or 'group:' and a gid, 'job:' and a number, \
                 'cgroup:' and a path"
            )
        );
    }
}

fn any_line() -> impl Strategy<Value = Line> {
    let size = || {
        prop_oneof![
            (16_u32..34).prop_map(|shift| Size::Bytes(Bytes((1 << shift) + 4095))),
            (1_u64..9).prop_map(|gib| Size::Bytes(Bytes(gib << 30))),
            (1_u8..=100).prop_map(|percent| std::format!("{percent}%").parse().unwrap()),
        ]
    };
    (size(), proptest::option::of(size()), 0_usize..4).prop_map(|(hard, soft, action)| Line {
        hard,
        soft,
        action: Action::ALL[action],
    })
}

proptest! {
    #[test]
    fn an_own_line_only_ever_tightens(
        own in any_line(),
        config in proptest::option::of(any_line()),
        default in proptest::option::of(any_line()),
    ) {
        let default = default.map(|line| (Target::Default, line));
        let config: Vec<_> = config.map(|line| (ALICES, line)).into_iter().chain(default).collect();
        let before = book(&config, &[]).resolve(ALICE, RAM, page());
        let after = book(&config, &[(Place::Own(ALICE), own)]).resolve(ALICE, RAM, page());
        prop_assert_eq!(before.is_some(), after.is_some());
        if let Some((before, after)) = before.zip(after) {
            prop_assert!(after.hard <= before.hard && after.soft <= before.soft);
            prop_assert!(after.action.strictness() >= before.action.strictness());
            prop_assert!(after.soft <= after.hard && after.hard > Pages(0));
        }
    }

    #[test]
    fn whatever_is_stored_is_loaded_back(lines in proptest::collection::vec((0_u32..4, any_line()), 0..8)) {
        let mut saved = LineBook::default();
        for (uid, line) in lines {
            let place = if uid == 0 { Place::Administrator(Target::Default) } else { Place::Own(Uid(uid)) };
            saved.set(place, line);
        }
        let json: String = serde_json::to_string(&saved.to_stored()).unwrap();
        let mut loaded = LineBook::default();
        loaded.load_stored(serde_json::from_str::<Vec<StoredLine>>(&json).unwrap());
        prop_assert_eq!(loaded, saved);
    }
}
