use super::*;
use plimsoll_policy::units::Pid;

const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);
const NOW: Nanos = Nanos(5_000_000_000);
const QUICK: Duration = Duration::from_millis(1);

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 7 }
}

fn enter(places: &mut Places<u32>, pids: std::ops::Range<u32>, owner: Uid) -> Vec<Result<(), Refused>> {
    pids.map(|pid| places.enter(id(pid), owner, pid, NOW)).collect()
}

fn all_next(places: &mut Places<u32>) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| places.next()).collect()
}

#[test]
fn one_victim_is_taken_once_until_it_has_left() {
    let mut places = Places::default();
    assert_eq!(places.enter(id(1), ALICE, 1, NOW), Ok(()));
    assert_eq!(places.enter(id(1), ALICE, 1, NOW), Err(Refused::Known));
    let [(tag, 1)] = all_next(&mut places)[..] else { panic!() };
    assert_eq!(places.enter(id(1), ALICE, 1, NOW), Err(Refused::Known));
    // A later process of the same number is another.
    assert_eq!(places.enter(VictimId { start_ns: 8, ..id(1) }, ALICE, 1, NOW), Ok(()));
    places.leave(tag, QUICK, NOW);
    assert_eq!(places.enter(id(1), ALICE, 1, NOW), Ok(()));
}

#[test]
fn a_storm_of_one_user_leaves_places_to_the_next_one() {
    let mut places = Places::default();
    let storm = enter(&mut places, 0..1000, ALICE);
    assert_eq!(storm.iter().filter(|one| one.is_ok()).count(), WAITING_EACH);
    assert_eq!(storm.last(), Some(&Err(Refused::OverShare)));
    assert_eq!(all_next(&mut places).len(), AT_WORK_EACH);
    assert_eq!(places.enter(id(2000), BOB, 2000, NOW), Ok(()));
    let [(_, 2000)] = all_next(&mut places)[..] else { panic!("behind the storm") };
}

#[test]
fn several_users_together_leave_places_to_the_next_one() {
    let mut places = Places::default();
    for round in 0..1000 {
        for user in 0..6 {
            places.enter(id(round * 6 + user), Uid(2000 + user), 1, NOW).ok();
        }
    }
    let bobs = enter(&mut places, 10_000..10_004, BOB);
    assert!(bobs.iter().all(Result::is_ok), "{bobs:?}");
    all_next(&mut places);
    assert!(places.at_work_of(BOB) > 0, "all places are somebody else's");
    // None of theirs leaves, and another one comes.
    places.enter(id(20_000), ALICE, 20_000, NOW).unwrap();
    assert_eq!(places.next().map(|(_, pid)| pid), Some(20_000));
}

#[test]
fn those_of_whom_there_are_fewest_go_first_and_then_in_their_order() {
    let mut places = Places::default();
    enter(&mut places, 0..20, ALICE);
    enter(&mut places, 100..120, BOB);
    enter(&mut places, 200..201, Uid(0));
    let first = all_next(&mut places);
    assert_eq!(first.iter().map(|(_, pid)| *pid).collect::<Vec<_>>(), [0, 100, 200, 1, 101, 2, 102, 3, 103]);
    places.leave(first[1].0, QUICK, NOW);
    assert_eq!(places.next().map(|(_, pid)| pid), Some(104));
    assert_eq!(places.next(), None);
}

#[test]
fn who_has_cost_much_of_late_is_refused_until_it_is_made_good() {
    let mut places = Places::default();
    for pid in 0..3 {
        places.enter(id(pid), ALICE, pid, NOW).unwrap();
        let (tag, _) = places.next().unwrap();
        // More than is noted of one.
        places.leave(tag, Duration::from_secs(60), NOW);
    }
    assert_eq!(places.enter(id(9), ALICE, 9, NOW), Err(Refused::OverShare));
    assert_eq!(places.enter(id(10), BOB, 10, NOW), Ok(()));
    let later = NOW.saturating_add(Nanos(60_000_000_000));
    assert_eq!(places.enter(id(9), ALICE, 9, later), Ok(()));
    // Root could stop the daemon, and may have what it likes.
    let mut places = Places::default();
    for pid in 0..20 {
        places.enter(id(pid), Uid(0), pid, NOW).unwrap();
        let (tag, _) = places.next().unwrap();
        places.leave(tag, Duration::from_secs(60), NOW);
    }
}
