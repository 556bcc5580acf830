use super::{Slot, SlotLimits, Slots};
use plimsoll_policy::units::Uid;
use std::{io::Read, os::unix::net::UnixStream, sync::Arc};

const LIMITS: SlotLimits = SlotLimits { total: 6, per_user: 2, kept_for_root: 2 };

fn take(slots: &Arc<Slots>, uid: u32) -> Option<Slot> {
    let (stream, _other) = UnixStream::pair().unwrap();
    slots.take(Uid(uid), &Arc::new(stream))
}

#[test]
fn a_user_gets_no_more_than_a_users_share_and_others_still_get_theirs() {
    let slots = Slots::new(LIMITS);
    let held = [take(&slots, 1000), take(&slots, 1000)];
    assert!(held.iter().all(Option::is_some));
    assert!(take(&slots, 1000).is_none());
    assert!(take(&slots, 1001).is_some());
}

#[test]
fn the_last_seats_are_roots() {
    let slots = Slots::new(LIMITS);
    let _held: Vec<_> = [1, 1, 2, 2].map(|uid| take(&slots, uid).unwrap()).into();
    assert!(take(&slots, 3).is_none());
    let _root = [take(&slots, 0).unwrap(), take(&slots, 0).unwrap()];
    assert!(take(&slots, 0).is_none(), "the total holds for root as well");
    assert_eq!(slots.taken(), 6);
}

#[test]
fn root_may_hold_more_than_a_users_share() {
    let slots = Slots::new(LIMITS);
    let held: Vec<_> = (0..8).map_while(|_| take(&slots, 0)).collect();
    assert_eq!(held.len(), 6);
}

#[test]
fn a_dropped_seat_is_free_again() {
    let slots = Slots::new(LIMITS);
    let first = take(&slots, 1000).unwrap();
    let _second = take(&slots, 1000).unwrap();
    drop(first);
    assert!(take(&slots, 1000).is_some());
}

#[test]
fn ending_all_wakes_a_reader_and_lets_it_still_write() {
    let slots = Slots::new(LIMITS);
    let (stream, mut client) = UnixStream::pair().unwrap();
    let stream = Arc::new(stream);
    let _seat = slots.take(Uid(7), &stream).unwrap();
    slots.end_all();
    let mut reader: &UnixStream = &stream;
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    std::io::Write::write_all(&mut reader, b"bye").unwrap();
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"bye");
}
