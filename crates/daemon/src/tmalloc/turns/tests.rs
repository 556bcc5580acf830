use super::*;
use proptest::prelude::*;

const FLOODER: Uid = Uid(1);
const FLOODERS_CONNECTIONS: u64 = 256;
/// Some moment.
const BEGIN: Nanos = Nanos(1_000_000_000_000);
/// What a turn takes.
const TURN: Duration = Duration::from_micros(20);

/// The owner of a connection in these tests: the lowest numbers are the flooder's.
fn owner(id: ConnectionId) -> Uid {
    if id.0 < FLOODERS_CONNECTIONS { FLOODER } else { Uid(u32::try_from(id.0).unwrap()) }
}

fn ready(turns: &mut Turns, id: u64) {
    turns.ready(ConnectionId(id), owner(ConnectionId(id)));
}

fn after(begin: Nanos, time: Duration) -> Nanos {
    begin.saturating_add(Nanos(time.as_nanos().try_into().unwrap()))
}

/// Has a user spend until it has to wait; until when.
fn exhaust(turns: &mut Turns, owner: Uid) -> Nanos {
    while turns.pace.until(owner) <= BEGIN {
        turns.spent(owner, TURN, BEGIN);
    }
    turns.pace.until(owner)
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
            let before = core::iter::from_fn(|| turns.next(BEGIN)).take_while(|id| id.0 != other).count();
            waited.push(before);
        }
        turns.next(BEGIN);
    }
    assert!(waited.iter().all(|turns| *turns <= 1), "{waited:?}");
}

#[test]
fn connections_of_one_user_take_turns() {
    let mut turns = Turns::default();
    (0..3).for_each(|id| ready(&mut turns, id));
    let mut served = Vec::new();
    for _ in 0..6 {
        let id = turns.next(BEGIN).unwrap();
        served.push(id.0);
        turns.ready(id, FLOODER);
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn who_floods_has_an_eighth_of_the_time_and_nobody_else_waits_for_it() {
    let (mut turns, mut now) = (Turns::default(), BEGIN);
    let (mut flooders, mut sleeps) = (Duration::ZERO, 0);
    let other = FLOODERS_CONNECTIONS;
    while now < after(BEGIN, Duration::from_secs(10)) {
        (0..FLOODERS_CONNECTIONS).for_each(|id| ready(&mut turns, id));
        ready(&mut turns, other);
        let mut served = Vec::new();
        while let Some(id) = turns.next(now) {
            now = after(now, TURN);
            turns.spent(owner(id), TURN, now);
            flooders += if owner(id) == FLOODER { TURN } else { Duration::ZERO };
            served.push(id.0);
            if served.len() == 8 {
                break;
            }
        }
        assert!(served.iter().take(2).any(|id| *id == other), "{served:?}");
        // It sleeps until somebody may be read: nothing is due before, and something is then.
        if let Some(due) = turns.due().filter(|due| *due > now) {
            now = due;
            sleeps += 1;
        }
    }
    let part = Duration::from_secs(10) / PARTS;
    assert!(flooders >= part && flooders <= part + Duration::from_millis(150), "{flooders:?}");
    assert!(sleeps > 1000, "{sleeps}");
}

#[test]
fn whoever_is_not_read_yet_is_due_when_that_is_made_good_and_root_at_once() {
    let mut turns = Turns::default();
    assert_eq!(turns.due(), None);
    let until = exhaust(&mut turns, FLOODER);
    ready(&mut turns, 1);
    assert_eq!((turns.next(BEGIN), turns.due()), (None, Some(until)));
    // What comes meanwhile changes nothing.
    ready(&mut turns, 1);
    ready(&mut turns, 2);
    assert_eq!((turns.next(BEGIN), turns.due()), (None, Some(until)));
    for _ in 0..100_000 {
        turns.spent(Uid(0), TURN, BEGIN);
    }
    turns.ready(ConnectionId(7), Uid(0));
    assert!(turns.due().is_some_and(|due| due <= BEGIN));
    assert_eq!((turns.next(BEGIN), turns.next(BEGIN)), (Some(ConnectionId(7)), None));
    // More was noted since, for a connection that was taken: then it is that much later.
    turns.spent(FLOODER, TURN, BEGIN);
    assert_eq!(turns.next(until), None);
    let until = turns.due().unwrap();
    assert_eq!(until, turns.pace.until(FLOODER));
    let served = [turns.next(until), turns.next(until), turns.next(until)];
    assert_eq!(served, [Some(ConnectionId(1)), Some(ConnectionId(2)), None]);
    assert_eq!(turns.due(), None);
}

proptest! {
    #[test]
    fn nobody_is_forgotten_and_nobody_is_served_twice(
        ids in proptest::collection::vec((0_u64..300, any::<bool>()), 0..400)
    ) {
        let (mut turns, mut now) = (Turns::default(), BEGIN);
        for (id, poor) in &ids {
            ready(&mut turns, *id);
            if *poor {
                exhaust(&mut turns, owner(ConnectionId(*id)));
            }
        }
        let mut served = Vec::new();
        while let Some(due) = turns.due() {
            now = now.max(due);
            served.extend(core::iter::from_fn(|| turns.next(now)).map(|id| id.0));
        }
        served.sort_unstable();
        let wanted: Vec<u64> = ids.into_iter().map(|(id, _)| id).collect::<BTreeSet<u64>>().into_iter().collect();
        prop_assert_eq!(served, wanted);
        prop_assert!(turns.order.is_empty() && turns.parked.is_empty() && turns.queued.is_empty());
    }
}
