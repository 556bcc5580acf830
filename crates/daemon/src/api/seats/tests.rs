use super::{Seat, SeatLimits, Seats};
use plimsoll_policy::units::Uid;
use std::{io::Read, os::unix::net::UnixStream, sync::Arc};

const LIMITS: SeatLimits = SeatLimits { total: 6, per_user: 2, kept_for_root: 2 };

fn take(seats: &Arc<Seats>, uid: u32) -> Option<Seat> {
    let (stream, _other) = UnixStream::pair().unwrap();
    seats.take(Uid(uid), &Arc::new(stream))
}

#[test]
fn a_user_gets_no_more_than_a_users_share_and_others_still_get_theirs() {
    let seats = Seats::new(LIMITS);
    let held = [take(&seats, 1000), take(&seats, 1000)];
    assert!(held.iter().all(Option::is_some));
    assert!(take(&seats, 1000).is_none());
    assert!(take(&seats, 1001).is_some());
}

#[test]
fn the_last_seats_are_roots() {
    let seats = Seats::new(LIMITS);
    let _held: Vec<_> = [1, 1, 2, 2].map(|uid| take(&seats, uid).unwrap()).into();
    assert!(take(&seats, 3).is_none());
    let _root = [take(&seats, 0).unwrap(), take(&seats, 0).unwrap()];
    assert!(take(&seats, 0).is_none(), "the total holds for root as well");
    assert_eq!(seats.taken(), 6);
}

#[test]
fn root_may_hold_more_than_a_users_share() {
    let seats = Seats::new(LIMITS);
    let held: Vec<_> = (0..8).map_while(|_| take(&seats, 0)).collect();
    assert_eq!(held.len(), 6);
}

#[test]
fn a_dropped_seat_is_free_again() {
    let seats = Seats::new(LIMITS);
    let first = take(&seats, 1000).unwrap();
    let _second = take(&seats, 1000).unwrap();
    drop(first);
    assert!(take(&seats, 1000).is_some());
}

#[test]
fn ending_all_wakes_a_reader_and_lets_it_still_write() {
    let seats = Seats::new(LIMITS);
    let (stream, mut client) = UnixStream::pair().unwrap();
    let stream = Arc::new(stream);
    let _seat = seats.take(Uid(7), &stream).unwrap();
    seats.end_all();
    let mut reader: &UnixStream = &stream;
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    std::io::Write::write_all(&mut reader, b"bye").unwrap();
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"bye");
}
