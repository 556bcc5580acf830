use super::{Order, Starts};
use plimsoll_policy::units::Uid;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);
const MS: Duration = Duration::from_millis(1);

/// The next has a turn, which costs that much; who it was, and their number.
fn turn(order: &mut Order<()>, cost: impl Fn(Uid) -> Duration) -> Option<(Uid, u64)> {
    let place @ (owner, _) = order.first()?.0;
    order.leave(owner);
    order.spent(owner, cost(owner));
    Some(place)
}

#[test]
fn users_take_turns_root_goes_first_and_each_ones_own_keep_their_order() {
    let mut order = Order::default();
    let owners = [ALICE, ALICE, ALICE, BOB, BOB, Uid::ROOT, Uid::ROOT];
    for owner in owners {
        order.join(owner, ());
    }
    let told: Vec<_> = std::iter::from_fn(|| turn(&mut order, |_| MS)).collect();
    assert_eq!(told, [5, 6, 0, 3, 1, 4, 2].map(|number: u8| (owners[usize::from(number)], number.into())));
}

#[test]
fn who_had_a_thousand_turns_while_nobody_else_wanted_one_owes_nobody() {
    let mut order = Order::default();
    for _ in 0..1000 {
        order.join(ALICE, ());
        turn(&mut order, |_| MS);
    }
    for owner in [BOB, ALICE, BOB, ALICE] {
        order.join(owner, ());
    }
    let owners: Vec<Uid> = std::iter::from_fn(|| turn(&mut order, |_| MS)).map(|(owner, _)| owner).collect();
    assert_eq!(owners, [BOB, ALICE, BOB, ALICE]);
}

#[test]
fn whose_starts_cost_more_has_fewer() {
    let mut order = Order::default();
    for _ in 0..200 {
        order.join(ALICE, ());
        order.join(BOB, ());
    }
    let told: Vec<_> =
        (0..110).map_while(|_| turn(&mut order, |owner| if owner == ALICE { 10 * MS } else { MS })).collect();
    let of_alice = told.iter().filter(|(owner, _)| *owner == ALICE).count();
    assert!((10..=11).contains(&of_alice), "{of_alice} of 110");
}

proptest! {
    /// Any mix of coming and going, at any cost: one's own keep their order, and of two who wait all the time neither has more
    /// than the other by more than two of the dearest turns.
    #[test]
    fn those_who_wait_have_as_much_as_each_other(
        steps in proptest::collection::vec((0_u32..5, 1_u64..40), 1..200),
    ) {
        let mut order = Order::default();
        let mut queues: BTreeMap<Uid, Vec<u64>> = BTreeMap::new();
        // What each had while both wait, by pairs.
        let mut had: BTreeMap<(Uid, Uid), Duration> = BTreeMap::new();
        for (owner, cost) in steps {
            if owner > 0 {
                let owner = Uid(owner);
                let (_, number) = order.join(owner, ());
                let queue = queues.entry(owner).or_default();
                if queue.is_empty() {
                    had.retain(|(one, other), _| *one != owner && *other != owner);
                }
                queue.push(number);
                continue;
            }
            let Some((owner, number)) = turn(&mut order, |_| MS * u32::try_from(cost).unwrap()) else { continue };
            prop_assert_eq!(queues.get_mut(&owner).unwrap().remove(0), number);
            if queues[&owner].is_empty() {
                had.retain(|(one, other), _| *one != owner && *other != owner);
                continue;
            }
            let others = queues.iter().filter(|(other, queue)| **other != owner && !queue.is_empty());
            for other in others.map(|(other, _)| *other).collect::<Vec<_>>() {
                let more = had.entry((owner, other)).or_default();
                *more += MS * u32::try_from(cost).unwrap();
                let (more, less) = (*more, had.get(&(other, owner)).copied().unwrap_or_default());
                prop_assert!(more <= less + 80 * MS, "{owner} had {more:?} while {other} had {less:?}");
            }
            prop_assert!(order.owners.len() <= 4);
        }
    }
}

#[test]
fn one_at_a_time_in_the_order_in_which_they_came() {
    let (starts, told) = (Arc::new(Starts::default()), Arc::new(Mutex::new(Vec::new())));
    let held = starts.enter(ALICE);
    let threads: Vec<_> = (0..8_u64)
        .map(|number| {
            let (at_door, told) = (Arc::clone(&starts), Arc::clone(&told));
            let one = thread::spawn(move || {
                let turn = at_door.enter(ALICE);
                told.lock().unwrap().push(number);
                turn.end(Duration::ZERO);
            });
            while starts.lock().order.next_number < number + 2 {
                thread::yield_now();
            }
            one
        })
        .collect();
    assert!(told.lock().unwrap().is_empty());
    drop(held);
    threads.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(*told.lock().unwrap(), Vec::from_iter(0..8));
}

#[test]
fn who_has_used_it_up_waits_and_root_does_not() {
    let starts = Arc::new(Starts::default());
    starts.enter(ALICE).end(Duration::from_millis(1000));
    let began = Instant::now();
    let (sender, came) = mpsc::channel();
    let at_door = Arc::clone(&starts);
    let waits = thread::spawn(move || {
        at_door.enter(BOB).end(Duration::ZERO);
        sender.send(()).unwrap();
    });
    while starts.lock().order.first().is_none() {
        thread::yield_now();
    }
    starts.enter(Uid::ROOT).end(Duration::from_secs(1000));
    // Seven seconds are owed, and it was one of all users' that was spent.
    assert!(came.recv_timeout(Duration::from_millis(300)).is_err());
    let mut state = starts.lock();
    state.debt = super::Debt::default();
    state.note(Uid::ROOT, Duration::ZERO);
    drop(state);
    waits.join().unwrap();
    came.recv().unwrap();
    assert!(began.elapsed() < Duration::from_secs(7));
}

#[test]
fn who_is_the_first_by_what_another_spent_is_woken() {
    let starts = Arc::new(Starts::default());
    starts.enter(ALICE).end(Duration::from_millis(200));
    let (sender, came) = mpsc::channel();
    let waits = [ALICE, BOB].map(|owner| {
        let (at_door, sender) = (Arc::clone(&starts), sender.clone());
        let one = thread::spawn(move || {
            let turn = at_door.enter(owner);
            sender.send(owner).unwrap();
            turn.end(Duration::ZERO);
        });
        while starts.lock().order.owners.get(&owner).is_none_or(|one| one.waiting.is_empty()) {
            thread::yield_now();
        }
        one
    });
    // Each of them is the first at some time, and 0.7 s are owed.
    for owner in [ALICE, BOB, BOB, ALICE] {
        starts.lock().order.spent(owner, Duration::from_millis(300));
        starts.note(owner, Duration::ZERO);
    }
    for _ in 0..2 {
        came.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    waits.into_iter().for_each(|one| one.join().unwrap());
}
