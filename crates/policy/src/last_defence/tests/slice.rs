use crate::{
    last_defence::slice::{Max, Ours, Present, Step, Wanted, plan},
    units::Bytes,
};
use proptest::{prelude::Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

const fn at(bytes: u64) -> Max {
    Max::At(Bytes(bytes))
}

const fn present(property: Max) -> Present {
    Present { property, in_force: Some(property) }
}

const fn set(before: Max, bytes: u64) -> Option<Ours> {
    Some(Ours::Set { before, set: Bytes(bytes) })
}

const fn wanted(line: u64, value: u64) -> Option<Wanted> {
    Some(Wanted { line: Bytes(line), value: Bytes(value) })
}

#[test]
fn a_slice_without_a_limit_gets_one_and_gets_it_back_when_the_line_goes() {
    let step = plan(present(Max::Unlimited), None, wanted(10, 14));
    assert_eq!(step, Step::Set { value: Bytes(14), before: Max::Unlimited });
    let ours = set(Max::Unlimited, 14);
    assert_eq!(plan(present(at(14)), ours, wanted(10, 14)), Step::Keep);
    assert_eq!(plan(present(at(14)), ours, None), Step::PutBack(Max::Unlimited));
}

#[test]
fn a_line_that_moves_takes_the_limit_along_and_keeps_what_was_before() {
    let step = plan(present(at(14)), set(at(100), 14), wanted(20, 28));
    assert_eq!(step, Step::Set { value: Bytes(28), before: at(100) });
}

#[test]
fn an_administrators_lower_limit_is_never_raised() {
    assert_eq!(plan(present(at(12)), None, wanted(10, 14)), Step::Keep);
    assert_eq!(plan(present(at(14)), None, wanted(10, 14)), Step::Keep);
    // Also where only the kernel's file is lower, or only the property.
    let file = Present { property: Max::Unlimited, in_force: Some(at(12)) };
    assert_eq!(plan(file, None, wanted(10, 14)), Step::Keep);
    let property = Present { property: at(12), in_force: None };
    assert_eq!(plan(property, None, wanted(10, 14)), Step::Keep);
    // And where ours would rise above what was there before.
    assert_eq!(plan(present(at(14)), set(at(20), 14), wanted(30, 40)), Step::PutBack(at(20)));
}

#[test]
fn what_somebody_changed_since_is_left_until_the_line_is_drawn_anew() {
    let ours = set(Max::Unlimited, 14);
    assert_eq!(plan(present(at(99)), ours, wanted(10, 14)), Step::Yield);
    assert_eq!(plan(present(at(99)), ours, None), Step::Forget);
    let past_systemd = Present { property: at(14), in_force: Some(at(99)) };
    assert_eq!(plan(past_systemd, ours, wanted(10, 14)), Step::Yield);
    assert_eq!(plan(past_systemd, ours, None), Step::Forget);
    let yielded = Some(Ours::Yielded { line: Bytes(10) });
    assert_eq!(plan(present(at(99)), yielded, wanted(10, 15)), Step::Keep);
    assert_eq!(plan(present(at(99)), yielded, None), Step::Forget);
    let anew = plan(present(at(99)), yielded, wanted(11, 15));
    assert_eq!(anew, Step::Set { value: Bytes(15), before: at(99) });
    assert_eq!(plan(present(at(9)), yielded, wanted(11, 15)), Step::Forget);
}

#[test]
fn a_slice_that_is_away_is_put_back_by_its_property() {
    let away = Present { property: at(14), in_force: None };
    assert_eq!(plan(away, set(Max::Unlimited, 14), None), Step::PutBack(Max::Unlimited));
    assert_eq!(plan(away, set(Max::Unlimited, 14), wanted(10, 14)), Step::Keep);
}

/// Somebody's doing, or ours.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Line(Option<(u64, u64)>),
    Administrator(Max),
}

fn doings() -> impl Strategy<Value = Doing> {
    prop_oneof![
        (1_u64..6, 1_u64..4).prop_map(|(line, room)| Doing::Line(Some((line, line + room)))),
        proptest::strategy::Just(Doing::Line(None)),
        (1_u64..12).prop_map(|value| Doing::Administrator(at(value))),
        proptest::strategy::Just(Doing::Administrator(Max::Unlimited)),
    ]
}

proptest! {
    #[test]
    fn the_limit_is_never_looser_than_the_administrators_and_comes_back(
        doings in proptest::collection::vec(doings(), 1..40)
    ) {
        // What the administrator last said, the limit now, what we know, the line.
        let (mut theirs, mut now, mut ours, mut line) = (Max::Unlimited, Max::Unlimited, None, None);
        for doing in doings {
            match doing {
                Doing::Line(new) => line = new,
                // Saying what is set already changes nothing that could be told later.
                Doing::Administrator(value) if value == now => {}
                Doing::Administrator(value) => (theirs, now) = (value, value),
            }
            let wanted = line.and_then(|(line, value)| wanted(line, value));
            match plan(present(now), ours, wanted) {
                Step::Keep => {}
                Step::Set { value, before } => {
                    now = Max::At(value);
                    ours = Some(Ours::Set { before, set: value });
                }
                Step::PutBack(before) => (now, ours) = (before, None),
                Step::Yield => ours = Some(Ours::Yielded { line: Bytes(line.unwrap().0) }),
                Step::Forget => ours = None,
            }
            prop_assert!(now <= theirs, "{now:?} allows more than {theirs:?}");
        }
        // Without a line, what they said last is there again.
        let last = plan(present(now), ours, None);
        prop_assert_eq!(if let Step::PutBack(before) = last { before } else { now }, theirs);
    }
}
