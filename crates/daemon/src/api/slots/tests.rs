use super::{Admitted, Caller, Slot, SlotLimits, Slots};
use crate::api::peer::Peer;
use plimsoll_policy::units::Uid;
use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

const LIMITS: SlotLimits = SlotLimits { total: 6, per_user: 2, kept_for_root: 2 };
const NOBODY_WAITS: SlotLimits = SlotLimits { total: 0, per_user: 0, kept_for_root: 0 };
const THREE_WAIT: SlotLimits = SlotLimits { total: 3, per_user: 2, kept_for_root: 0 };

fn caller(uid: u32) -> Caller {
    let peer = Peer { uid: Uid(uid), owner: Uid(uid), pid: None };
    Caller { peer, stream: Arc::new(UnixStream::pair().unwrap().0) }
}

fn take(slots: &Arc<Slots>, uid: u32) -> Option<Slot> {
    match slots.admit(&caller(uid), Instant::now()) {
        Admitted::Served(slot) => Some(slot),
        Admitted::Waits | Admitted::TurnedAway => None,
    }
}

fn waits(slots: &Arc<Slots>, uid: u32) -> bool {
    matches!(slots.admit(&caller(uid), Instant::now()), Admitted::Waits)
}

/// Who has a slot after this one.
fn next(slot: Slot) -> Option<(Slot, u32)> {
    slot.hand_on().map(|(slot, caller)| (slot, caller.peer.owner.0))
}

#[test]
fn a_user_gets_no_more_than_a_users_share_and_others_still_get_theirs() {
    let slots = Slots::new(LIMITS, NOBODY_WAITS);
    let held = [take(&slots, 1000), take(&slots, 1000)];
    assert!(held.iter().all(Option::is_some));
    assert!(take(&slots, 1000).is_none());
    assert!(take(&slots, 1001).is_some());
}

#[test]
fn the_last_seats_are_roots() {
    let slots = Slots::new(LIMITS, NOBODY_WAITS);
    let _held: Vec<_> = [1, 1, 2, 2].map(|uid| take(&slots, uid).unwrap()).into();
    assert!(take(&slots, 3).is_none());
    let _root = [take(&slots, 0).unwrap(), take(&slots, 0).unwrap()];
    assert!(take(&slots, 0).is_none(), "the total holds for root as well");
    assert_eq!(slots.taken(), 6);
}

#[test]
fn root_may_hold_more_than_a_users_share() {
    let slots = Slots::new(LIMITS, NOBODY_WAITS);
    let held: Vec<_> = (0..8).map_while(|_| take(&slots, 0)).collect();
    assert_eq!(held.len(), 6);
}

#[test]
fn a_dropped_seat_is_free_again() {
    let slots = Slots::new(LIMITS, NOBODY_WAITS);
    let first = take(&slots, 1000).unwrap();
    let _second = take(&slots, 1000).unwrap();
    drop(first);
    assert!(take(&slots, 1000).is_some());
}

#[test]
fn ending_all_wakes_a_reader_and_lets_it_still_write() {
    let slots = Slots::new(LIMITS, NOBODY_WAITS);
    let (stream, mut client) = UnixStream::pair().unwrap();
    let stream = Arc::new(stream);
    let peer = Peer { uid: Uid(7), owner: Uid(7), pid: None };
    let Admitted::Served(_seat) = slots.admit(&Caller { peer, stream: Arc::clone(&stream) }, Instant::now())
    else {
        panic!("it is the first")
    };
    slots.end_all();
    let mut reader: &UnixStream = &stream;
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    std::io::Write::write_all(&mut reader, b"bye").unwrap();
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"bye");
}

#[test]
fn who_waits_has_the_next_slot_of_their_owners_in_order_and_no_one_else_has_it() {
    let slots = Slots::new(LIMITS, THREE_WAIT);
    let [first, second] = [take(&slots, 1), take(&slots, 1)].map(Option::unwrap);
    assert!(waits(&slots, 1) && waits(&slots, 1));
    assert!(
        matches!(slots.admit(&caller(1), Instant::now()), Admitted::TurnedAway),
        "two of one user's wait"
    );
    // Others are not held up, and have no slot of this user's.
    let [other, more] = [take(&slots, 2), take(&slots, 2)].map(Option::unwrap);
    assert!(waits(&slots, 2));
    assert!(matches!(slots.admit(&caller(3), Instant::now()), Admitted::TurnedAway), "three wait");
    let (first, owner) = next(first).unwrap();
    assert_eq!(owner, 1);
    let (other, owner) = next(other).unwrap();
    assert_eq!((owner, slots.taken()), (2, 4));
    // A slot that is free is not for who comes later.
    drop(second);
    assert!(waits(&slots, 1));
    let (_first, _) = next(first).unwrap();
    assert!(next(other).is_some_and(|(_, owner)| owner == 1), "both of that user's are free");
    assert!(next(more).is_none());
    assert_eq!(slots.waits_since(), None);
}

#[test]
fn who_waits_too_long_is_given_up_and_the_others_wait_on() {
    let slots = Slots::new(LIMITS, THREE_WAIT);
    let _held = [take(&slots, 1), take(&slots, 1)].map(Option::unwrap);
    let (began, second) = (Instant::now(), Duration::from_secs(1));
    for after in [0, 1] {
        assert!(matches!(slots.admit(&caller(1), began + second * after), Admitted::Waits));
    }
    assert_eq!(slots.waits_since(), Some(began));
    assert!(slots.give_up(2 * second, began + 2 * second - Duration::from_nanos(1)).is_empty());
    assert_eq!(slots.give_up(2 * second, began + 2 * second).len(), 1);
    assert_eq!(slots.waits_since(), Some(began + second));
    slots.end_all();
    assert_eq!(slots.waits_since(), None, "they are not served any more");
}
