use crate::{
    last_defence::ranking::{ADJUSTMENT_MAX, Compared, Raised, choose, put_back, share},
    units::{Bytes, Pages, Pid},
    victim::VictimId,
};
use proptest::{prop_assert, prop_assert_eq, proptest};
use std::vec::Vec;

const GIB: u64 = 1 << 30;

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: u64::from(pid) * 1000 }
}

fn process(pid: u32, usage: u64, own: i16) -> Compared {
    Compared { id: id(pid), usage: Pages(usage), own, protected: false }
}

#[test]
fn the_largest_process_is_raised_by_the_share_of_the_line() {
    let chosen = choose(&[process(1, 10, 0), process(2, 30, 0), process(3, 20, 0)], None, 125);
    assert_eq!(chosen, Some(Raised { id: id(2), before: 0, set: 125 }));
}

#[test]
fn it_is_above_smaller_ones_that_put_themselves_first() {
    let chosen = choose(&[process(1, 10, 300), process(2, 30, 0)], None, 50);
    assert_eq!(chosen, Some(Raised { id: id(2), before: 0, set: 350 }));
}

#[test]
fn protected_processes_and_negative_adjustments_are_left_alone() {
    let shielded = Compared { protected: true, ..process(1, 90, 900) };
    let kept = process(2, 80, -500);
    let chosen = choose(&[shielded, kept, process(3, 5, 10)], None, 50).unwrap();
    assert_eq!(chosen, Raised { id: id(3), before: 10, set: 60 });
    assert_eq!(choose(&[shielded, kept], None, 50), None);
    assert_eq!(choose(&[], None, 50), None);
}

#[test]
fn nothing_is_written_for_one_that_is_first_already() {
    assert_eq!(choose(&[process(1, 10, ADJUSTMENT_MAX)], None, 50), None);
    let chosen = choose(&[process(1, 10, 990)], None, 50).unwrap();
    assert_eq!(chosen.set, ADJUSTMENT_MAX);
}

#[test]
fn two_of_about_the_same_size_do_not_change_places_at_each_look() {
    let pair = |first, second| [process(1, first, 0), process(2, second, 0)];
    assert_eq!(choose(&pair(800, 890), Some(id(1)), 9).unwrap().id, id(1));
    assert_eq!(choose(&pair(800, 910), Some(id(1)), 9).unwrap().id, id(2));
    assert_eq!(choose(&pair(800, 801), None, 9).unwrap().id, id(2));
    assert_eq!(choose(&pair(800, 801), Some(id(7)), 9).unwrap().id, id(2));
    assert_eq!(choose(&pair(800, 800), None, 9).unwrap().id, id(1));
}

#[test]
fn a_line_weighs_what_it_is_of_all_memory() {
    assert_eq!(share(Bytes(GIB), Bytes(64 * GIB)), 16);
    assert_eq!(share(Bytes(32 * GIB), Bytes(64 * GIB)), 500);
    assert_eq!(share(Bytes(1), Bytes(64 * GIB)), 1);
    assert_eq!(share(Bytes(128 * GIB), Bytes(64 * GIB)), 1000);
    assert_eq!(share(Bytes(u64::MAX), Bytes(1)), 1000);
    assert_eq!(share(Bytes(GIB), Bytes(0)), 1000);
}

#[test]
fn only_what_is_as_we_left_it_is_put_back() {
    assert_eq!(put_back(125, 0, 125), Some(0));
    assert_eq!(put_back(126, 0, 125), None);
    assert_eq!(put_back(0, 0, 125), None);
    assert_eq!(put_back(-5, 0, 125), None);
}

proptest! {
    #[test]
    fn who_is_raised_is_above_all_it_was_compared_with(
        sizes in proptest::collection::vec((0_u64..1000, -1000_i16..=1000, proptest::bool::ANY), 0..8),
        holder in 0_u32..8,
        share in 1_i16..=1000,
    ) {
        let processes: Vec<Compared> = (0..).zip(&sizes)
            .map(|(pid, (usage, own, protected))| Compared { protected: *protected, ..process(pid, *usage, *own) })
            .collect();
        if let Some(raised) = choose(&processes, Some(id(holder)), share) {
            let chosen = processes.iter().find(|one| one.id == raised.id).unwrap();
            prop_assert_eq!(raised.before, chosen.own);
            prop_assert!(raised.set > chosen.own && raised.set <= ADJUSTMENT_MAX && !chosen.protected && chosen.own >= 0);
            for other in processes.iter().filter(|one| !one.protected && one.own >= 0 && one.id != raised.id) {
                prop_assert!(raised.set > other.own || raised.set == ADJUSTMENT_MAX);
                // Larger by more than an eighth: then it would have been chosen.
                prop_assert!(other.usage.0 <= chosen.usage.0 + chosen.usage.0 / 8);
            }
        }
    }
}
