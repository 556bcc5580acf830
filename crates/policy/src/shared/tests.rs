use super::*;

const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);

fn file(key: u64, pages: u64) -> SharedFile<u64> {
    SharedFile {
        before: Pages(pages),
        key,
        number: 0,
        kind: Kind::Memfd,
        pages: Pages(pages),
        uid: ALICE,
        owner: ALICE,
        stays: false,
        is_open_to_others: false,
        is_crowded: false,
        name: key,
    }
}

fn holding(key: u64, mm: u64, uid: Uid) -> Holding {
    Holding { key, mm, pid: Pid(7), uid, user: uid, is_contained: false }
}

fn owned(files: &[SharedFile<u64>], holdings: &[Holding]) -> Ownership<u64> {
    ownership(files.iter().copied(), holdings.iter().copied(), &Foreign::new(), &BTreeSet::new())
}

/// What ends with Alice's processes, and what lasts.
fn of_alice(files: &[SharedFile<u64>], holdings: &[Holding]) -> (u64, u64) {
    owned(files, holdings).users.get(&ALICE).map_or((0, 0), |owned| (owned.ending.0, owned.lasting.0))
}

#[test]
fn it_is_charged_once_however_many_hold_it_and_each_holder_has_a_part_of_what_comes_back() {
    let holders: Vec<Holding> =
        (1..=8).flat_map(|mm| [holding(1, mm, ALICE), holding(1, mm, ALICE)]).collect();
    let found = owned(&[file(1, 80)], &holders);
    assert_eq!(found.users[&ALICE].ending, Pages(80));
    assert_eq!(found.spaces.len(), 8);
    let in_common = Some(InCommon { file: (1, 0), pages: Pages(80) });
    assert!(found.spaces.values().all(|held| *held == Held { pages: Pages(80), part: Pages(10), in_common }));
    let alone = owned(&[file(1, 80)], &[holding(1, 1, ALICE)]);
    assert_eq!(alone.spaces[&1], Held { pages: Pages(80), part: Pages(80), in_common: None });
}

#[test]
fn of_what_processes_have_in_common_the_largest_is_told() {
    let files = [file(1, 30), file(2, 50), file(3, 40), file(4, 90)];
    let of_first: Vec<Holding> = (1..=4).map(|key| holding(key, 1, ALICE)).collect();
    let of_second = (1..=3).map(|key| holding(key, 2, ALICE));
    let found = owned(&files, &of_first.into_iter().chain(of_second).collect::<Vec<_>>());
    let largest = Some(InCommon { file: (2, 0), pages: Pages(50) });
    assert!(found.spaces.values().all(|held| held.in_common == largest));
}

#[test]
fn what_two_walks_found_is_sure_and_no_more_of_it_than_either() {
    let grown = SharedFile { before: Pages(30), ..file(1, 80) };
    let shrunk = SharedFile { before: Pages(70), ..file(2, 20) };
    let fresh = SharedFile { before: Pages(0), ..file(3, 50) };
    let lasting = SharedFile { stays: true, ..file(4, 9) };
    let holders: Vec<Holding> = (1..=4).map(|key| holding(key, 1, ALICE)).collect();
    let found = owned(&[grown, shrunk, fresh, lasting], &holders);
    assert_eq!((found.users[&ALICE].ending, found.users[&ALICE].sure), (Pages(150), Pages(50)));
}

#[test]
fn what_nobody_holds_lasts_and_the_largest_of_it_is_named() {
    let files: Vec<_> = (1..=5).map(|key| file(key, key * 10)).collect();
    let found = owned(&files, &[]);
    assert_eq!(found.users[&ALICE].lasting, Pages(150));
    assert_eq!(found.users[&ALICE].largest, [(5, Pages(50)), (4, Pages(40)), (3, Pages(30))]);
    assert!(found.spaces.is_empty());
}

#[test]
fn what_stays_when_its_holders_end_ends_nobody() {
    assert_eq!(of_alice(&[SharedFile { stays: true, ..file(1, 9) }], &[holding(1, 1, ALICE)]), (0, 9));
}

#[test]
fn what_another_may_have_made_grow_ends_nobody() {
    let own = holding(1, 1, ALICE);
    assert_eq!(of_alice(&[file(1, 9)], &[own]), (9, 0));
    assert_eq!(of_alice(&[SharedFile { is_open_to_others: true, ..file(1, 9) }], &[own]), (0, 9));
    for other in [holding(1, 100, BOB), holding(1, 300, Uid::ROOT), holding(1, 300, BOB)] {
        assert_eq!(of_alice(&[file(1, 9)], &[own, other]), (0, 9), "{other:?}");
        assert_eq!(of_alice(&[file(1, 9)], &[other]), (0, 9), "{other:?}");
    }
}

#[test]
fn what_another_held_once_ends_nobody_as_long_as_it_is_there() {
    let (own, of_bob) = (holding(1, 1, ALICE), holding(1, 100, BOB));
    let first = owned(&[file(1, 9)], &[own, of_bob]);
    let later =
        |number| ownership([SharedFile { number, ..file(1, 9) }], [own], &first.foreign, &BTreeSet::new());
    assert_eq!(later(0).users[&ALICE].lasting, Pages(9));
    assert_eq!(later(0).foreign, first.foreign);
    assert_eq!(later(1).users[&ALICE].ending, Pages(9), "another file of the same key");
    let unheld = ownership([], [], &first.foreign, &BTreeSet::new()) as Ownership<u64>;
    assert!(unheld.foreign.is_empty());
}

#[test]
fn what_a_container_of_roots_holds_is_not_charged_to_the_machines_user_of_that_uid() {
    let contained = Holding { is_contained: true, ..holding(1, 300, ALICE) };
    assert_eq!(of_alice(&[file(1, 9)], &[contained]), (0, 0));
    assert_eq!(of_alice(&[file(1, 9)], &[contained, holding(1, 1, ALICE)]), (0, 0));
}

#[test]
fn a_subordinate_uids_is_the_users_whom_its_processes_count_for_or_who_owns_the_namespace() {
    let inside = SharedFile { uid: Uid(100_005), owner: Uid(100_005), ..file(1, 9) };
    let of_her = Holding { user: ALICE, ..holding(1, 1, Uid(100_005)) };
    assert_eq!(of_alice(&[inside], &[of_her]), (9, 0));
    // Nobody holds it, but another file of that uid is held.
    assert_eq!(of_alice(&[inside], &[Holding { key: 2, ..of_her }]), (0, 9));
    let mounted = SharedFile { uid: Uid(100_005), ..file(1, 9) };
    assert_eq!(of_alice(&[mounted], &[]), (0, 9));
    // Another of her processes, with another uid.
    assert_eq!(of_alice(&[inside], &[of_her, holding(1, 2, ALICE)]), (9, 0));
}

#[test]
fn who_is_known_in_part_may_hold_what_had_a_path_but_no_memfd_that_nobody_was_handed() {
    let ending = |kind, user| {
        let files = [SharedFile { kind, ..file(1, 9) }];
        let found = ownership(files, [holding(1, 1, ALICE)], &Foreign::new(), &BTreeSet::from([user]));
        (found.users[&ALICE].ending.0, found.foreign.len())
    };
    assert_eq!(ending(Kind::File, BOB), (0, 1));
    assert_eq!(ending(Kind::File, ALICE), (9, 0), "her own");
    assert_eq!(ending(Kind::Memfd, BOB), (9, 0));
    assert_eq!(ending(Kind::Anonymous, BOB), (9, 0));
}

#[test]
fn a_crowd_that_has_a_file_mapped_may_have_others_in_it_only_where_a_path_led_there() {
    let of_kind = |kind| {
        let crowded = SharedFile { kind, is_crowded: true, ..file(1, 9) };
        of_alice(&[crowded], &[holding(1, 1, ALICE)])
    };
    assert_eq!([Kind::File, Kind::Memfd, Kind::Anonymous].map(of_kind), [(0, 9), (9, 0), (9, 0)]);
}

#[test]
fn who_holds_a_pipe_hides_a_part_of_what_lies_in_it_unless_another_user_holds_it_too() {
    let pipe = |key, pages| SharedFile { kind: Kind::Pipe, ..file(key, pages) };
    let (one, other) = (holding(1, 1, ALICE), Holding { pid: Pid(8), ..holding(1, 2, ALICE) });
    let hidden = |holdings: &[Holding]| {
        let files =
            [pipe(1, 80), pipe(2, 7), SharedFile { is_open_to_others: true, ..pipe(3, 5) }, file(4, 9)];
        owned(&files, holdings).hidden.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(hidden(&[one, one]), [((1, Pid(7)), Pages(80))], "both ends");
    assert_eq!(hidden(&[one, other]), [((1, Pid(7)), Pages(40)), ((2, Pid(8)), Pages(40))]);
    assert_eq!(hidden(&[one, holding(2, 1, ALICE)]), [((1, Pid(7)), Pages(87))]);
    // Who else may have filled it, it is its own now.
    assert_eq!(hidden(&[holding(3, 1, ALICE)]), [((1, Pid(7)), Pages(5))]);
    assert_eq!(hidden(&[one, holding(1, 3, BOB)]), []);
    assert_eq!(hidden(&[holding(1, 3, BOB)]), []);
    assert_eq!(hidden(&[holding(4, 1, ALICE)]), [], "shared memory is shown");
}
