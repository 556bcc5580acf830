use super::*;
use plimsoll_policy::units::Pid;

const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);

/// Alice's subordinate uids are Alice.
fn owner(uid: Uid) -> Uid {
    if uid.0 >= 100_000 { ALICE } else { uid }
}

fn file(key: u64, uid: Uid, born_ns: u64) -> SharedRecord {
    let name = SharedName { kind: Kind::Memfd, device: (0, 1), ..SharedName::SMALL };
    let file = SharedFile {
        key,
        number: 7,
        kind: Kind::Memfd,
        pages: Pages(20),
        before: Pages(0),
        uid,
        owner: uid,
        stays: false,
        is_open_to_others: false,
        is_crowded: false,
        name,
    };
    SharedRecord::File { file, telling: 0, born_ns }
}

fn holding(key: u64, mm: u64, user: Uid) -> SharedRecord {
    SharedRecord::Held(Holding { key, mm, pid: Pid(7), uid: user, user, is_contained: false })
}

fn found(records: impl IntoIterator<Item = SharedRecord>) -> SharedMemory {
    let mut found = SharedMemory::default();
    for record in records {
        assert!(found.take(record, &owner));
    }
    found
}

#[test]
fn nobody_takes_more_than_a_share_of_the_room() {
    let (share, mut of_user) = (Share { all: 3, of_user: 2 }, BTreeMap::new());
    let mut takes = |kept, user| share.takes(kept, &mut of_user, user);
    assert!(takes(0, ALICE) && takes(1, ALICE));
    assert!(!takes(2, ALICE));
    assert!(takes(2, BOB));
    assert!(!takes(3, BOB), "there is no more");
}

#[test]
fn subordinate_uids_have_one_share_together_and_their_small_files_are_one_sum() {
    let count = u32::try_from(FILES_MAX.of_user).unwrap() + 1;
    let mut memory = found((0..count).map(|n| file(u64::from(n), Uid(100_000 + n), 0)));
    assert_eq!(memory.partly, [ALICE].into());
    let small = memory.take_files().filter(|file| file.kind == Kind::Small).collect::<Vec<_>>();
    assert_eq!((small.len(), small[0].owner, small[0].pages), (1, ALICE, Pages(20)));
    let sums = [Uid(100_000), Uid(100_001), BOB].map(|uid| SharedRecord::Small {
        key: 1,
        uid,
        telling: 1,
        pages: Pages(2),
    });
    let owners: Vec<_> = found(sums).take_files().map(|file| (file.owner, file.pages)).collect();
    assert_eq!(owners, [(ALICE, Pages(4)), (BOB, Pages(2))]);
}

#[test]
fn sums_are_of_the_last_telling() {
    let small = |telling, pages| SharedRecord::Small { key: 1, uid: BOB, telling, pages: Pages(pages) };
    let mut memory = found([small(0, 5), small(0, 5), small(1, 5), small(1, 3)]);
    assert_eq!(memory.take_files().map(|file| file.pages).collect::<Vec<_>>(), [Pages(8)]);
}

#[test]
fn who_is_known_in_part_is_told_and_whose_files_are_not_all_there() {
    let memory = found([SharedRecord::Partly(BOB), SharedRecord::Unlisted(Uid(100_007))]);
    assert_eq!(memory.partly, [ALICE, BOB].into());
    assert_eq!(memory.unlisted, [ALICE].into());
}

#[test]
fn each_holder_is_known_once() {
    let mut memory = found([holding(1, 9, BOB), holding(1, 9, BOB), holding(1, 8, Uid(100_000))]);
    let users: Vec<_> = memory.take_holdings().map(|one| (one.mm, one.user)).collect();
    assert_eq!(users, [(8, ALICE), (9, BOB)]);
}

#[test]
fn the_first_holders_of_a_file_are_known_whatever_crowd_holds_others() {
    let crowd = u64::try_from(HOLDINGS_MAX.of_user).unwrap() + 10;
    let mut memory = found((0..crowd).map(|mm| holding(1, mm, BOB)));
    assert_eq!(memory.partly, [BOB].into());
    for mm in 0..6 {
        assert!(memory.take(holding(2, mm, BOB), &owner));
    }
    let of_two = memory.take_holdings().filter(|one| one.key == 2).count();
    assert_eq!(of_two, usize::try_from(FIRST_HOLDERS).unwrap());
}

#[test]
fn what_is_older_than_the_notes_of_who_was_handed_files_may_have_been_handed() {
    let mut memory = found([file(1, ALICE, 40), file(2, ALICE, 50), file(3, BOB, 50), file(4, BOB, 0)]);
    if let SharedRecord::File { mut file, .. } = file(5, ALICE, 0) {
        file.kind = Kind::Anonymous;
        memory.files.insert(5, (file, 0));
    }
    memory.mark_older(|_, uid| if uid == BOB { 60 } else { 50 });
    let open: Vec<_> = memory.take_files().map(|file| (file.key, file.is_open_to_others)).collect();
    assert_eq!(open, [(1, true), (2, false), (3, true), (4, true), (5, false)]);
}
