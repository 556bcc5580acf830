use super::*;
use proptest::prelude::*;
use std::{string::String, vec::Vec};

/// What holds after each step, whoever did it.
fn holds(tree: &Tree, added: i64) {
    let estimate = tree.approximate();
    assert_eq!(tree.exact(), added, "{tree:?}");
    assert!(added.abs_diff(estimate.pages) <= estimate.bound.0, "{added} is not {estimate:?}");
    let room = tree.limit - estimate.pages;
    if tree.batch > 0 {
        assert!(room >= 4 * i64::try_from(estimate.bound.0).unwrap(), "{estimate:?} with {room} left");
        assert!(added < tree.limit, "{added} of {} and not known", tree.limit);
    } else {
        assert_eq!(estimate.pages, added);
    }
}

fn step(tree: &mut Tree, added: &mut i64, cpu: u32, pages: i64) {
    tree.add(cpu, pages);
    *added += pages;
    holds(tree, *added);
}

#[test]
fn known_shapes() {
    // CPUs, branches, largest batch, largest bound, exact within.
    let known = [
        (1, 0, 8, 8, 40),
        (2, 0, 16, 32, 80),
        (16, 0, 128, 2048, 640),
        (17, 2, 136, 3400, 1000),
        (64, 4, 512, 40_960, 3200),
        (256, 16, 1280, 409_600, 12_800),
        (1024, 64, 1280, 1_638_400, 51_200),
    ];
    for (cpus, branches, batch, bound, exact) in known {
        let shape = Shape::of(cpus);
        let found = (shape.branches(), shape.max_batch(), shape.max_bound().0, shape.exact_within().0);
        assert_eq!(found, (branches, batch, bound, exact), "{cpus} CPUs");
    }
    assert_eq!(Shape::of(0), Shape::of(1));
}

#[test]
fn far_from_the_limit_on_256_cpus_one_event_in_1_000_writes_where_others_write() {
    for room_gib in [8, 16, 64, 1024] {
        let mut tree = Tree::new(Shape::of(256), (room_gib << 18) + (2 << 18));
        // The batch of where it is measured is not that of where it began.
        (0..512).for_each(|event| tree.add(event % 256, 512));
        tree.collect();
        let before = tree.writes().all();
        let events = 1_000_000;
        // So many come and go that usage stays where it is.
        for event in 0..events {
            tree.add(event % 256, if event / 256 / 4000 % 2 == 0 { 1 } else { -1 });
        }
        let writes = tree.writes().all() - before;
        assert!(writes <= u64::from(events) / 1000, "{writes} writes, {room_gib} GiB below the limit");
    }
}

/// All orders of so many steps on small machines, near the limit and at it.
#[test]
fn small_worlds_are_exact_where_it_matters() {
    let steps: Vec<(u32, i64)> =
        [0, 1].into_iter().flat_map(|cpu| [-9, -7, 1, 7, 8, 40].map(|pages| (cpu, pages))).collect();
    let depth = 5;
    let mut worlds = 0;
    for start in [0, 30, 80, 118, 160] {
        for number in 0..steps.len().pow(depth) {
            let mut tree = Tree::new(Shape::of(2), 200);
            let mut added = 0;
            step(&mut tree, &mut added, 0, start);
            let mut rest = number;
            for _ in 0..depth {
                let (cpu, pages) = steps[rest % steps.len()];
                rest /= steps.len();
                step(&mut tree, &mut added, cpu, pages);
            }
            worlds += 1;
        }
    }
    assert_eq!(worlds, 5 * 12_usize.pow(5));
}

#[test]
fn a_crossing_is_seen_by_the_very_page() {
    let shape = Shape::of(256);
    let limit = 10 << 18;
    let mut tree = Tree::new(shape, limit);
    let mut added = 0;
    for event in 0.. {
        step(&mut tree, &mut added, event * 7 % 256, 1);
        assert_eq!(added >= limit, tree.approximate().pages >= limit);
        if added > limit + 10 {
            break;
        }
    }
}

#[test]
fn what_is_compared_is_looked_at_exactly_only_where_the_bound_does_not_tell() {
    let estimate = |pages, bound| Estimate { pages, bound: Pages(bound) };
    assert_eq!(estimate(10, 5).compare(16), Some(Ordering::Less));
    assert_eq!(estimate(10, 5).compare(15), None);
    assert_eq!(estimate(10, 5).compare(5), None);
    assert_eq!(estimate(10, 5).compare(4), Some(Ordering::Greater));
    assert_eq!(estimate(10, 0).compare(10), Some(Ordering::Equal));
}

/// Steps as they are in the wild: single pages, huge pages, what an exit frees.
fn pages() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -1_i64..=1,
        2 => -64_i64..=64,
        2 => Just(512_i64),
        1 => Just(-512_i64),
        1 => -200_000_i64..=200_000,
    ]
}

fn events(cpus: u32) -> impl Strategy<Value = Vec<(u32, i64, u16)>> {
    prop::collection::vec((0..cpus, pages(), 1_u16..600), 1..120)
}

proptest! {
    #[test]
    fn on_any_machine_the_bound_holds(
        (cpus, events) in (1_u32..=1024).prop_flat_map(|cpus| (Just(cpus), events(cpus))),
        limit in prop_oneof![0_i64..2000, 0_i64..3_000_000, Just(1 << 44)],
        moves in prop::option::of((0_usize..120, 0_i64..3_000_000)),
    ) {
        let mut tree = Tree::new(Shape::of(cpus), limit);
        let mut added = 0;
        for (at, (cpu, pages, times)) in events.into_iter().enumerate() {
            if let Some((_, limit)) = moves.filter(|(moment, _)| *moment == at) {
                tree.set_limit(limit);
                holds(&tree, added);
            }
            // A large step once, small ones often: so that batches fill.
            for time in 0..if pages.abs() > 1 { 1 } else { times } {
                step(&mut tree, &mut added, (cpu + u32::from(time) % 3) % cpus, pages);
            }
            for with in [added - 1, added, added + 1, tree.limit] {
                prop_assert_eq!(tree.compare(with), added.cmp(&with));
            }
        }
        tree.collect();
        // At rest, with all collected, nothing is off.
        prop_assert_eq!(tree.total, added);
        prop_assert_eq!(tree.kept.iter().filter(|kept| **kept != 0).count(), 0);
    }

    #[test]
    fn the_batch_grows_with_the_room_and_its_bound_fits(cpus in 1_u32..=4096, room in any::<i64>(), more in 0_i64..1 << 40) {
        let shape = Shape::of(cpus);
        let (batch, larger) = (shape.batch_for(room), shape.batch_for(room.saturating_add(more)));
        prop_assert!(batch <= larger);
        prop_assert!(batch == 0 || batch >= MIN_BATCH);
        prop_assert!(shape.bound(batch).0.saturating_mul(ROOM_PER_BOUND) <= room.max(0).cast_unsigned());
    }
}

/// The curve in the documentation: writes to shared memory for 1,000 events by the distance to the line, of 256 CPUs.
#[test]
fn the_curve_falls_with_the_distance() {
    let mut told = String::new();
    let mut before = 1_001;
    for (room_mib, most) in [(16, 1_000), (64, 130), (256, 40), (1024, 12), (4096, 3), (8192, 1)] {
        let mut tree = Tree::new(Shape::of(256), room_mib << 8);
        (0..100_000_u32).for_each(|event| tree.add(event % 256, if event / 256 % 2 == 0 { 1 } else { -1 }));
        // Pages come and go on each CPU, in strides that are longer than any batch.
        let start = tree.writes().all();
        let events = 256 * 4 * 1500;
        let mut event = 0;
        for stride in 0..4 {
            for _ in 0..1500 {
                for cpu in 0..256 {
                    // As many CPUs take as others give back, so that usage stays.
                    let sign = if (cpu + stride) % 2 == 0 { 1 } else { -1 };
                    tree.add(cpu, sign);
                    event += 1;
                }
            }
        }
        assert_eq!(event, events);
        let writes = (tree.writes().all() - start) * 1000 / u64::from(u32::try_from(events).unwrap());
        told.push_str(&std::format!("{room_mib} MiB: {writes}; "));
        assert!(writes <= most && writes <= before, "{told}");
        before = writes;
    }
}
