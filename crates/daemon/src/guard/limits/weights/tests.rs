use super::{Entry, Known, Tried, UNJUDGED_MAX, Weights};
use plimsoll_policy::{
    account::Counted,
    preference::{JudgedBy, Judgement, Scope},
    reading::Reading,
    selection::{Candidate, Weight},
    units::{Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use std::collections::BTreeSet;

const ALICE: Counted = Counted::User(Uid(1000));

fn known(pid: u32) -> Known {
    Known {
        whose: ALICE,
        id: VictimId { pid: Pid(pid), start_ns: 1 },
        tracked_ns: 1,
        judgement: Judgement {
            weight: Weight::NEUTRAL,
            protection: None,
            scope: Scope::Process,
            by: JudgedBy::OomScoreAdj,
            session: false,
        },
        judged: Nanos(1),
        cmdline: None,
        asked: None,
    }
}

#[test]
fn those_whose_command_line_never_comes_do_not_keep_the_others_from_being_asked_for() {
    let mut weights = Weights::default();
    let all = u32::try_from(UNJUDGED_MAX * 2 + UNJUDGED_MAX / 2).unwrap();
    weights.known.extend((0..all).map(|pid| (u64::from(pid), known(pid))));
    let mut asked = BTreeSet::new();
    // Nobody answers.
    for round in 1..=3 {
        let wanted = weights.without_cmdline(ALICE);
        assert_eq!(wanted.len(), UNJUDGED_MAX);
        for one in wanted {
            asked.insert(one.id.pid.0);
            weights.known.get_mut(&u64::from(one.id.pid.0)).unwrap().asked = Some(Nanos(round));
        }
    }
    assert_eq!(asked.len(), usize::try_from(all).unwrap(), "everybody once");
    // From then on in turn.
    let oldest = weights.without_cmdline(ALICE);
    assert!(oldest.iter().all(|one| weights.known[&u64::from(one.id.pid.0)].asked < Some(Nanos(3))));
}

#[test]
fn the_largest_are_examined_first_and_those_who_cannot_be_looked_at_take_turns_after_all_others() {
    let mut weights = Weights::default();
    // By number: larger and larger, tried at these moments; one of them was another program then.
    for (mm, when) in [(1, 0), (2, 30), (3, 0), (4, 10), (5, 20), (6, 5)] {
        if when > 0 {
            let tracked_ns = if mm == 6 { 0 } else { 1 };
            weights.tried.insert(mm, Tried { whose: ALICE, tracked_ns, when: Nanos(when) });
        }
    }
    let people: Vec<(Candidate, Entry)> = (1..=6_u32)
        .map(|pid| {
            let mm = u64::from(pid);
            let id = VictimId { pid: Pid(pid), start_ns: 1 };
            let usage = Reading::Known(Pages(mm * 100));
            let candidate = Candidate { mm, usage, ..Candidate::of(id, Uid(1000)) };
            (candidate, Entry { mm, user: Uid(1), tracked_ns: 1, weight: None, never: false, session: false })
        })
        .collect();
    let mut turns: Vec<(&Candidate, &Entry)> = people.iter().map(|(one, entry)| (one, entry)).collect();
    turns.sort_by(|one, other| weights.by_turn(*one, *other));
    let numbers: Vec<u32> = turns.iter().map(|(one, _)| one.pid.0).collect();
    assert_eq!(numbers, [6, 3, 1, 4, 5, 2]);
}
