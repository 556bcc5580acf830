use super::*;
use proptest::prelude::*;

const FLOODER: Uid = Uid(1);
const FLOODERS_CONNECTIONS: u64 = 256;

/// The owner of a connection in these tests: the lowest numbers are the flooder's.
fn owner(id: ConnectionId) -> Uid {
    if id.0 < FLOODERS_CONNECTIONS { FLOODER } else { Uid(u32::try_from(id.0).unwrap()) }
}

fn ready(turns: &mut Turns, id: u64) {
    turns.ready(ConnectionId(id), owner(ConnectionId(id)));
}

#[test]
fn a_message_waits_for_one_turn_of_a_user_who_floods_however_many_connections_that_has() {
    let mut turns = Turns::default();
    let mut waited = Vec::new();
    for round in 0..100 {
        // All of the flooder's have more to say at any time.
        (0..FLOODERS_CONNECTIONS).for_each(|id| ready(&mut turns, id));
        if round % 3 == 0 {
            let other = FLOODERS_CONNECTIONS + round;
            ready(&mut turns, other);
            let before = core::iter::from_fn(|| turns.next()).take_while(|id| id.0 != other).count();
            waited.push(before);
        }
        turns.next();
    }
    assert!(waited.iter().all(|turns| *turns <= 1), "{waited:?}");
}

#[test]
fn connections_of_one_user_take_turns() {
    let mut turns = Turns::default();
    (0..3).for_each(|id| ready(&mut turns, id));
    let mut served = Vec::new();
    for _ in 0..6 {
        let id = turns.next().unwrap();
        served.push(id.0);
        turns.ready(id, FLOODER);
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

proptest! {
    #[test]
    fn nobody_is_forgotten_and_nobody_is_served_twice(ids in proptest::collection::vec(0_u64..300, 0..400)) {
        let mut turns = Turns::default();
        ids.iter().for_each(|id| ready(&mut turns, *id));
        let mut served: Vec<u64> = core::iter::from_fn(|| turns.next()).map(|id| id.0).collect();
        prop_assert!(turns.is_empty());
        served.sort_unstable();
        let wanted: Vec<u64> = ids.into_iter().collect::<BTreeSet<u64>>().into_iter().collect();
        prop_assert_eq!(served, wanted);
    }
}
