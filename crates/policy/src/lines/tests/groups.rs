//! Lines of groups: whom they are for, which of several counts, and who is known to be in a group.

use super::{ALICE, ALICES, RAM, book, line, mib, page, resolved, with};
use crate::{
    account::{Action, Source},
    lines::{
        Answer, Cleared, Line, LineBook, Members, Membership, Place, Resolved, StoredLine, Target, UidRange,
        renewed,
    },
    units::{Bytes, Gid, Uid},
};
use proptest::{prelude::any, prop_assert, proptest};
use std::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};

const STAFF: Gid = Gid(50);
const WHEEL: Gid = Gid(10);
const OF_STAFF: Target = Target::Members(STAFF);
const OF_WHEEL: Target = Target::Members(WHEEL);

fn members(groups: &[(Gid, &[Uid])]) -> Members {
    let known = |uids: &[Uid]| Membership { uids: uids.iter().copied().collect(), doubt: None };
    groups.iter().map(|(gid, uids)| (*gid, known(uids))).collect()
}

fn alice_in(groups: &[Gid], lines: &[(Target, Line)]) -> LineBook {
    let mut book = book(lines, &[]);
    book.replace_members(
        groups.iter().map(|gid| (*gid, members(&[(*gid, &[ALICE])])[gid].clone())).collect(),
    );
    book
}

#[test]
fn a_groups_line_is_for_its_members_and_for_nobody_else() {
    let book = alice_in(&[STAFF], &[(OF_STAFF, line("1G"))]);
    assert_eq!(mib(resolved(&book, ALICE).hard), 1024);
    assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(OF_STAFF));
    assert_eq!(book.resolve(Uid(1001), RAM, page()), None);
}

#[test]
fn a_groups_line_comes_after_the_users_and_before_the_default_whatever_their_sizes() {
    for (user, group, default) in [("1G", "2G", "3G"), ("3G", "2G", "1G"), ("2G", "1G", "3G")] {
        let lines = [(ALICES, line(user)), (OF_STAFF, line(group)), (Target::Default, line(default))];
        assert_eq!(resolved(&alice_in(&[STAFF], &lines), ALICE).set_as, Place::Administrator(ALICES));
        assert_eq!(resolved(&alice_in(&[STAFF], &lines[1..]), ALICE).set_as, Place::Administrator(OF_STAFF));
        let left = alice_in(&[], &lines[1..]);
        assert_eq!(resolved(&left, ALICE).set_as, Place::Administrator(Target::Default));
    }
}

#[test]
fn a_groups_line_holds_for_a_member_outside_the_range_of_the_default() {
    let mut book = book(&[(OF_STAFF, line("1G")), (Target::Default, line("2G"))], &[]);
    book.replace_members(members(&[(STAFF, &[Uid(33), ALICE])]));
    assert_eq!(mib(resolved(&book, Uid(33)).hard), 1024);
    assert_eq!(book.resolve(Uid(34), RAM, page()), None);
}

#[test]
fn of_several_groups_the_most_generous_line_counts() {
    // Where hard and soft are the same the milder action is the more generous one.
    for (staff, wheel, winner) in [
        (line("1G"), line("2G"), OF_WHEEL),
        (line("2G"), line("1G"), OF_STAFF),
        (line("25%"), line("3G"), OF_WHEEL),
        (line("50%"), line("3G"), OF_STAFF),
        (with("1G", "512M", Action::Kill), with("1G", "513M", Action::Kill), OF_WHEEL),
        (with("25%", "1G", Action::Kill), with("2G", "512M", Action::Kill), OF_STAFF),
        (with("1G", "512M", Action::Term), with("1G", "512M", Action::Kill), OF_STAFF),
        (with("1G", "512M", Action::Kill), with("1G", "512M", Action::Notify), OF_WHEEL),
        (line("1G"), line("1G"), OF_WHEEL),
    ] {
        let book = alice_in(&[STAFF, WHEEL], &[(OF_STAFF, staff), (OF_WHEEL, wheel)]);
        assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(winner), "{staff:?} or {wheel:?}");
    }
}

#[test]
fn a_share_of_ram_is_compared_by_what_it_is_on_this_machine() {
    let book = alice_in(&[STAFF, WHEEL], &[(OF_STAFF, line("25%")), (OF_WHEEL, line("3G"))]);
    let on = |ram| book.resolve(ALICE, Bytes(ram), page()).unwrap().set_as;
    assert_eq!(on(8 << 30), Place::Administrator(OF_WHEEL));
    assert_eq!(on(16 << 30), Place::Administrator(OF_STAFF));
}

#[test]
fn the_state_wins_over_the_configuration_for_one_group_and_does_not_outbid_another() {
    let mut book = alice_in(&[STAFF, WHEEL], &[(OF_STAFF, line("3G")), (OF_WHEEL, line("2G"))]);
    let place = Place::Administrator(OF_STAFF);
    book.set(place.clone(), line("1G"));
    assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(OF_WHEEL));
    book.set(Place::Administrator(OF_WHEEL), line("512M"));
    let found = resolved(&book, ALICE);
    assert_eq!((found.set_as, found.source, mib(found.hard)), (place.clone(), Source::State, 1024));
    assert_eq!(book.clear(place.clone()), Cleared::StillInConfig);
    assert_eq!(resolved(&book, ALICE).source, Source::Config);
    assert_eq!(book.clear(place), Cleared::StillInConfig);
    assert_eq!(book.clear(Place::Administrator(Target::Members(Gid(7)))), Cleared::NothingSet);
}

#[test]
fn a_users_own_line_tightens_a_groups_and_never_loosens_it() {
    let mut book = alice_in(&[STAFF], &[(OF_STAFF, with("1G", "256M", Action::Term))]);
    book.set(Place::Own(ALICE), with("512M", "512M", Action::Notify));
    let found = resolved(&book, ALICE);
    assert_eq!((mib(found.hard), mib(found.soft), found.action), (512, 256, Action::Term));
    book.set(Place::Own(ALICE), line("2G"));
    assert_eq!(resolved(&book, ALICE).set_as, Place::Administrator(OF_STAFF));
}

#[test]
fn members_are_known_only_of_groups_that_were_looked_for() {
    let book = alice_in(&[STAFF], &[(OF_STAFF, line("1G")), (OF_WHEEL, line("1G"))]);
    assert!(book.membership(STAFF).is_some() && book.membership(WHEEL).is_none());
    assert!(book.is_member(ALICE, STAFF) && !book.is_member(ALICE, WHEEL) && !book.is_member(Uid(7), STAFF));
    assert_eq!(book.gids(), BTreeSet::from([STAFF, WHEEL]));
    assert_eq!(book.member_uids(), BTreeSet::from([ALICE]));
    assert!(book.explicit_uids().is_empty());
}

#[test]
fn a_groups_line_is_stored_and_only_roots_is_believed() {
    let mut saved = LineBook::new(UidRange::default());
    saved.set(Place::Administrator(OF_STAFF), line("25%"));
    let json = serde_json::to_string(&saved.to_stored()).unwrap();
    assert_eq!(json, r#"[{"target":"@50","set_by":0,"line":{"hard":"25%","action":"kill"}}]"#);
    let mut loaded = LineBook::new(UidRange::default());
    let stored: Vec<StoredLine> = serde_json::from_str(&json).unwrap();
    assert!(loaded.load_stored(stored).is_empty());
    assert_eq!(loaded, saved);
    let forged = StoredLine { target: OF_STAFF, set_by: ALICE, line: line("1G") };
    assert_eq!(loaded.load_stored([forged.clone()]), [forged]);
}

#[test]
fn nobody_and_services_have_no_default_line_and_may_have_lines_of_their_own() {
    let everyone = UidRange { min: Uid(0), max: Uid(4_294_967_294) };
    let mut book = LineBook::new(everyone);
    book.replace_config(everyone, [(Target::Default, line("1G"))]);
    for (uid, limited) in
        [(61_183, true), (61_184, false), (65_534, false), (65_535, false), (65_536, true), (0, true)]
    {
        assert_eq!(book.resolve(Uid(uid), RAM, page()).is_some(), limited, "{uid}");
    }
    book.set(Place::Administrator(Target::User(Uid(65_534))), line("1G"));
    assert!(book.resolve(Uid(65_534), RAM, page()).is_some());
}

/// Every combination of a few lines in every place, against a model that shares no code with the rule.
#[test]
fn in_every_small_world_the_line_is_the_one_that_the_words_say() {
    let some = [None, Some(1), Some(2), Some(3)];
    let gib = |size: u64| line(&std::format!("{size}G"));
    let mut combinations = 0;
    for (user, staff) in some.iter().flat_map(|user| some.iter().map(move |staff| (*user, *staff))) {
        for (wheel, default) in some.iter().flat_map(|wheel| some.iter().map(move |last| (*wheel, *last))) {
            for (own, groups) in some.iter().flat_map(|own| (0..4).map(move |groups| (*own, groups))) {
                let (in_staff, in_wheel) = (groups & 1 != 0, groups & 2 != 0);
                let lines =
                    [(ALICES, user), (OF_STAFF, staff), (OF_WHEEL, wheel), (Target::Default, default)];
                let config: Vec<_> =
                    lines.iter().filter_map(|(target, size)| Some((target.clone(), gib((*size)?)))).collect();
                let known = [in_staff.then_some(STAFF), in_wheel.then_some(WHEEL)];
                let mut book = alice_in(&known.into_iter().flatten().collect::<Vec<_>>(), &config);
                if let Some(own) = own {
                    book.set(Place::Own(ALICE), gib(own));
                }
                let of_groups = staff.filter(|_| in_staff).max(wheel.filter(|_| in_wheel));
                let theirs = user.or(of_groups).or(default);
                let expected = theirs.map(|theirs| own.map_or(theirs, |own| own.min(theirs)));
                let found = book.resolve(ALICE, RAM, page());
                assert_eq!(
                    found.as_ref().map(|line| mib(line.hard) / 1024),
                    expected,
                    "{lines:?} {own:?} {groups}"
                );
                let by_themselves = found.is_some_and(|line| line.set_as == Place::Own(ALICE));
                assert_eq!(by_themselves, own.zip(theirs).is_some_and(|(own, theirs)| own < theirs));
                combinations += 1;
            }
        }
    }
    assert_eq!(combinations, 4096);
}

fn uids(bits: u8) -> BTreeSet<Uid> {
    (0..2_u32).filter(|bit| bits & (1 << bit) != 0).map(Uid).collect()
}

/// Two users, each in any of the sets or not: who was in, who the files name, who is said to be in or not.
#[test]
fn nobody_who_was_a_member_stops_being_one_unless_the_services_say_so() {
    for bits in 0..512_u16 {
        let pick = |shift: u16| uids(u8::try_from(bits >> shift & 3).unwrap());
        let (before, in_files) = (pick(0), pick(2));
        let answer = Answer { knows_group: bits & 256 != 0, members: pick(4), others: pick(6) };
        let after = renewed(&before, &in_files, &answer);
        for uid in uids(3) {
            let named = in_files.contains(&uid) || answer.members.contains(&uid);
            let sent_away = answer.knows_group && answer.others.contains(&uid);
            let expected = named || (before.contains(&uid) && !sent_away);
            assert_eq!(after.contains(&uid), expected, "{uid}: {before:?} {in_files:?} {answer:?}");
        }
    }
}

proptest! {
    #[test]
    fn an_answer_that_never_came_takes_nobody_away(before: BTreeSet<u32>, files: BTreeSet<u32>, said: BTreeSet<u32>) {
        let set = |numbers: BTreeSet<u32>| numbers.into_iter().map(Uid).collect::<BTreeSet<_>>();
        let (before, files) = (set(before), set(files));
        let unreachable = Answer { others: set(said), ..Answer::default() };
        let after = renewed(&before, &files, &unreachable);
        prop_assert!(before.is_subset(&after) && files.is_subset(&after));
        prop_assert!(after.is_subset(&before.union(&files).copied().collect()));
    }

    #[test]
    fn joining_one_more_group_never_lowers_a_line(sizes in proptest::collection::vec(1_u64..5, 1..5), more in any::<u64>()) {
        let gid = |number: usize| Gid(u32::try_from(number).unwrap());
        let lines: Vec<_> = (0..sizes.len())
            .map(|number| (Target::Members(gid(number)), line(&std::format!("{}G", sizes[number]))))
            .collect();
        let hard = |gids: &[Gid]| alice_in(gids, &lines).resolve(ALICE, RAM, page()).map(|line: Resolved| line.hard);
        let joined: Vec<_> = (0..sizes.len()).filter(|number| more & (1 << number) != 0).map(gid).collect();
        for number in 0..sizes.len() {
            prop_assert!(hard(&[joined.clone(), Vec::from([gid(number)])].concat()) >= hard(&joined));
        }
    }
}

const ALL_STAFF: Target = Target::Group(STAFF);
const ALL_WHEEL: Target = Target::Group(WHEEL);

fn groups_of_alice(book: &LineBook) -> Vec<Gid> {
    book.groups_of_members(RAM, page()).remove(&ALICE).unwrap_or_default()
}

#[test]
fn a_line_for_all_together_is_charged_besides_and_draws_none_for_a_member() {
    let drawn = [(OF_STAFF, line("1G")), (ALL_STAFF, line("4G"))];
    let both = alice_in(&[STAFF], &drawn);
    assert_eq!((mib(resolved(&both, ALICE).hard), groups_of_alice(&both)), (1024, vec![STAFF]));
    let alone = alice_in(&[STAFF], &[(ALL_STAFF, line("4G"))]);
    let counted = resolved(&alone, ALICE);
    assert!(counted.is_none() && counted.action == Action::Notify);
    assert_eq!(counted.set_as, Place::Administrator(ALL_STAFF));
    assert_eq!(alone.resolve(Uid(7), RAM, page()), None);
    assert_eq!((alone.gids(), alone.member_uids()), ([STAFF].into(), [ALICE].into()));
    assert!(!alone.is_empty());
}

#[test]
fn the_tightest_of_several_groups_lines_comes_first() {
    let mut book = alice_in(&[STAFF, WHEEL], &[(ALL_STAFF, line("2G")), (ALL_WHEEL, line("1G"))]);
    assert_eq!(groups_of_alice(&book), vec![WHEEL, STAFF]);
    book.set(Place::Administrator(ALL_WHEEL), line("3G"));
    assert_eq!(groups_of_alice(&book), vec![STAFF, WHEEL]);
    assert_eq!(book.clear(Place::Administrator(ALL_STAFF)), Cleared::StillInConfig);
    assert_eq!(book.groups_of_members(RAM, page()), BTreeMap::from([(ALICE, vec![STAFF, WHEEL])]));
}

#[test]
fn a_member_with_a_groups_line_alone_may_draw_a_tighter_one() {
    let mut book = alice_in(&[STAFF], &[(ALL_STAFF, line("4G"))]);
    book.set(Place::Own(ALICE), with("512M", "256M", Action::Term));
    let found = resolved(&book, ALICE);
    assert_eq!((mib(found.hard), mib(found.soft), found.action), (512, 256, Action::Term));
}
