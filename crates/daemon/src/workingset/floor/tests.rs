use super::*;
use plimsoll_policy::workingset::floor::Standing;

const TOTAL: u64 = 1 << 22;

/// Of 16 GiB.
fn now(clean: u64, locked: u64, free: u64) -> Now {
    Now {
        floor: FloorReading {
            clean: Reading::Known(Pages(clean)),
            locked: Pages(locked),
            swap_free: Reading::Absent,
            anon: Reading::Known(Pages(TOTAL / 2)),
            free: Reading::Known(Pages(free)),
            mem_total: Pages(TOTAL),
        },
        dirty: Pages(0),
    }
}

fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

#[test]
fn the_next_look_comes_before_the_fastest_program_can_have_come_near() {
    let line = Pages(TOTAL / 8);
    // Near is where both are under a quarter. 4 GiB of free memory above that last a second at 4 GiB each.
    assert_eq!(until_short(&now(0, 0, TOTAL / 4 + (1 << 20)), line, page_size()), FAR);
    // A GiB of cache, locked or not, lasts a quarter.
    assert_eq!(until_short(&now(TOTAL / 4, 1 << 18, 0), line, page_size()), Nanos(250_000_000));
    assert_eq!(until_short(&now(0, 0, 0), line, page_size()), NEAR);
}

#[test]
fn while_swapping_is_held_back_free_swap_saves_nobody_at_the_floor() {
    let tunables = Tunables { workingset_protection: true, ..Tunables::default() };
    let mut short = now(TOTAL / 16, 0, 0);
    short.floor.swap_free = Reading::Known(Pages(TOTAL));
    // The floor of anonymous memory is 15 %.
    for (anon, holds, expected) in
        [(TOTAL / 6, true, Standing::Below), (TOTAL / 2, false, Standing::Swapping)]
    {
        short.floor.anon = Reading::Known(Pages(anon));
        let (read, still) = without_swap(short, &tunables);
        assert_eq!(still, holds);
        assert_eq!(judge(FloorState::default(), &read.floor, &tunables, Nanos(0)).standing, expected);
    }
}

#[test]
fn what_the_programs_asked_for_and_then_did_is_not_done_again() {
    let crossing = Crossing { clean: Pages(1), line: Pages(2), locked: Pages(0), free: Pages(0) };
    let one = VictimId { pid: Pid(7), start_ns: 1 };
    let event = |kind| WorkingSetEvent { time: Nanos(1), cgroup: None, reclaimer: Pid(8), kind };
    let [ask, taken, near] = [
        WorkingSetEventKind::Ask(crossing, one),
        WorkingSetEventKind::Taken(crossing, one),
        WorkingSetEventKind::Near(crossing),
    ]
    .map(event);
    let left = |events: &[WorkingSetEvent]| without_answered(events).copied().collect::<Vec<_>>();
    assert_eq!(left(&[near, ask, near, taken, near]), [near, near, taken, near]);
    assert_eq!(left(&[ask, near]), [ask, near]);
    assert_eq!(left(&[taken, ask]), [taken, ask], "that is the next one");
}
