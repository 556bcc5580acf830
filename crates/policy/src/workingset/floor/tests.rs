use super::{FLOOR_DEADLINE, FloorReading, FloorState, Standing, judge, soft_reserve};
use crate::{
    reading::Reading,
    units::{Nanos, PageSize, Pages, Pid},
    victim::VictimId,
    workingset::{Ratio, Tunables},
};
use proptest::{prop_assert, proptest};

const NOW: Nanos = Nanos(0);

fn on() -> Tunables {
    Tunables { workingset_protection: true, ..Tunables::default() }
}

/// Of 1000 pages, without swap: the floor is 150.
fn reading(clean: u64, locked: u64) -> FloorReading {
    FloorReading {
        clean: Reading::Known(Pages(clean)),
        locked: Pages(locked),
        swap_free: Reading::Absent,
        anon: Reading::Known(Pages(700)),
        free: Reading::Known(Pages(5)),
        mem_total: Pages(1000),
    }
}

fn fresh(reading: &FloorReading) -> FloorState {
    judge(FloorState::default(), reading, &on(), NOW)
}

fn victim(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 1 }
}

#[test]
fn clean_file_memory_is_judged_with_what_is_locked() {
    for (clean, locked, expected) in [
        (400, 0, Standing::Above),
        (300, 0, Standing::Above),
        (299, 0, Standing::Near),
        (150, 0, Standing::Near),
        (149, 0, Standing::Below),
        (0, 149, Standing::Below),
        (0, 150, Standing::Near),
        (0, 300, Standing::Above),
    ] {
        let state = fresh(&reading(clean, locked));
        assert_eq!(state.standing, expected, "{clean} and {locked} locked");
        assert_eq!(state.below, expected == Standing::Below);
        assert_eq!(state.near, expected != Standing::Above);
        assert_eq!(state.line, Pages(150));
    }
}

#[test]
fn while_much_memory_is_free_little_of_the_cache_is_no_shortage() {
    let booted = |free| fresh(&FloorReading { free: Reading::Known(Pages(free)), ..reading(10, 0) }).standing;
    assert_eq!((booted(900), booted(300)), (Standing::Above, Standing::Above));
    assert_eq!((booted(299), booted(150)), (Standing::Near, Standing::Near));
    assert_eq!(booted(149), Standing::Below);
}

#[test]
fn while_something_can_be_swapped_nobody_is_ended() {
    let swap = |free| FloorReading { swap_free: Reading::Known(Pages(free)), ..reading(10, 0) };
    assert_eq!(fresh(&swap(500)).standing, Standing::Swapping);
    assert!(fresh(&swap(500)).spares && fresh(&swap(500)).near);
    assert_eq!(fresh(&swap(0)).standing, Standing::Below);
    assert_eq!(
        fresh(&swap(3)).standing,
        Standing::Below,
        "what waits in the caches of single CPUs is no swap"
    );
}

#[test]
fn a_crossing_between_two_readings_ends_nobody_while_something_can_be_swapped() {
    let near = |swap_free| fresh(&FloorReading { swap_free, ..reading(200, 0) });
    let known = |free| Reading::Known(Pages(free));
    for (swap_free, spares) in
        [(Reading::Absent, false), (known(3), false), (known(500), true), (Reading::Unreadable, true)]
    {
        let state = near(swap_free);
        assert_eq!((state.standing, state.spares), (Standing::Near, spares), "{swap_free:?}");
    }
    assert!(!fresh(&reading(10, 0)).spares && FloorState::default().spares);
}

#[test]
fn swap_does_not_help_when_anonymous_memory_is_at_its_own_floor() {
    let both = |anon| FloorReading {
        swap_free: Reading::Known(Pages(500)),
        anon: Reading::Known(Pages(anon)),
        ..reading(10, 0)
    };
    assert_eq!(fresh(&both(151)).standing, Standing::Swapping);
    assert_eq!(fresh(&both(150)).standing, Standing::Below);
    assert_eq!(fresh(&both(37)).standing, Standing::NothingToFree, "killing would not bring the cache back");
}

#[test]
fn what_cannot_be_read_ends_nobody() {
    let good = reading(10, 0);
    for failed in [Reading::Unreadable, Reading::Absent, Reading::Stale { value: Pages(0), age_ns: 1 }] {
        assert!(!fresh(&FloorReading { clean: failed, ..good }).below);
        assert!(!fresh(&FloorReading { anon: failed, ..good }).below);
        assert!(!fresh(&FloorReading { free: failed, ..good }).below);
        if failed != Reading::Absent {
            assert!(!fresh(&FloorReading { swap_free: failed, ..good }).below);
        }
    }
    let near = judge(fresh(&good), &FloorReading { clean: Reading::Unreadable, ..good }, &on(), NOW);
    assert!(near.near && !near.below, "victims stay ready");
}

#[test]
fn off_and_a_floor_of_nothing_do_nothing() {
    let off = Tunables::default();
    let zero = Tunables { clean_min_ratio: Ratio::default(), ..on() };
    for tunables in [off, zero] {
        let state = judge(fresh(&reading(10, 0)), &reading(0, 0), &tunables, NOW);
        assert_eq!((state.near, state.below, state.standing), (false, false, Standing::Off));
    }
}

#[test]
fn near_and_under_end_a_little_above_where_they_began() {
    let under = fresh(&reading(149, 0));
    assert_eq!(judge(under, &reading(158, 0), &on(), NOW).standing, Standing::Below);
    assert_eq!(judge(under, &reading(159, 0), &on(), NOW).standing, Standing::Near);
    let near = fresh(&reading(299, 0));
    assert!(judge(near, &reading(308, 0), &on(), NOW).near);
    assert!(!judge(near, &reading(309, 0), &on(), NOW).near);
}

#[test]
fn one_ends_at_a_time_until_it_is_gone_or_late() {
    let mut state = fresh(&reading(10, 0));
    assert_eq!(state.dying(), None);
    state.sent(victim(7), NOW);
    let later = Nanos(FLOOR_DEADLINE.0 - 1);
    state = judge(state, &reading(10, 0), &on(), later);
    assert_eq!((state.below, state.dying()), (true, Some(victim(7))));
    let mut gone = state;
    gone.gone(victim(8));
    assert_eq!(gone.dying(), Some(victim(7)), "another one's end is not this one's");
    gone.gone(victim(7));
    assert_eq!(gone.dying(), None);
    assert_eq!(judge(state, &reading(10, 0), &on(), FLOOR_DEADLINE).dying(), None);
}

proptest! {
    #[test]
    fn more_clean_memory_never_stands_worse(
        clean in 0_u64..2000, more in 0_u64..2000, locked in 0_u64..500, swap in 0_u64..50,
    ) {
        let reading = |clean| FloorReading { swap_free: Reading::Known(Pages(swap)), ..reading(clean, locked) };
        let (less, more) = (fresh(&reading(clean)), fresh(&reading(clean + more)));
        prop_assert!(less.near || !more.near);
        prop_assert!(less.below || !more.below);
        prop_assert!(less.near || !less.below);
    }
}

#[test]
fn the_soft_tier_goes_ahead_of_need_where_nothing_else_is_left() {
    let page_size = PageSize::from_bytes(4096).unwrap();
    let reserve = |reading: FloorReading, soft| soft_reserve(&reading, Pages(soft), 0, page_size);
    let of_memory = |pages| FloorReading { mem_total: Pages(pages), ..reading(10, 0) };
    assert_eq!((reserve(of_memory(1024), 1), reserve(of_memory(1024), 0)), (Pages(32), Pages(0)));
    // 64 MiB are in hand from 2 GiB of memory on.
    assert_eq!(reserve(of_memory(1 << 30), 1), Pages(16384));
    // 256 CPUs may each keep 125 pages to themselves.
    assert_eq!(soft_reserve(&of_memory(1 << 30), Pages(1), 256, page_size), Pages(16384 + 32000));
    assert_eq!(soft_reserve(&of_memory(1024), Pages(1), 256, page_size), Pages(32));
    for swap_free in [Reading::Known(Pages(500)), Reading::Unreadable] {
        assert_eq!(reserve(FloorReading { swap_free, ..of_memory(1024) }, 1), Pages(0), "{swap_free:?}");
    }
    assert_eq!(
        reserve(FloorReading { swap_free: Reading::Known(Pages(0)), ..of_memory(1024) }, 1),
        Pages(32)
    );
}
