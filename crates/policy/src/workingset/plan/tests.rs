use super::{Budget, Extent, FILES_MAX, Holding, Plan, Tier, Why, plan};
use crate::{
    units::{Nanos, Pages},
    workingset::{
        Barred, Blocks, CHUNK_PAGES, CHUNKS_MAX, ChunkId, FileId, Heat, Use,
        tests::{file, page_size, pass},
    },
};
use std::vec::Vec;

mod scenarios;

const fn seconds(count: u64) -> Nanos {
    Nanos(count * 1_000_000_000)
}

/// In chunks.
const fn budget(hard: u64, soft: u64) -> Budget {
    Budget { hard: Pages(hard * CHUNK_PAGES), soft: Pages(soft * CHUNK_PAGES) }
}

/// A file of so many chunks, read so often from end to end, one reading a second.
fn read(heat: &mut Heat, inode: u64, chunks: u32, times: u64) {
    (0..times).for_each(|at| read_at(heat, inode, chunks, at));
}

fn read_at(heat: &mut Heat, inode: u64, chunks: u32, at: u64) {
    heat.observe(&pass(file(inode), 0..chunks, chunks), &[], seconds(at));
}

fn press(heat: &mut Heat, now: Nanos) {
    let mut one = pass(file(999), 0..1, 1);
    (one[0].accessed, one[0].evicted) = (0, 1);
    heat.observe(&one, &[], now);
}

fn held(plan: &Plan, since: Nanos) -> Vec<Holding> {
    let each = |extent: &Extent| Holding {
        extent: *extent,
        pages: Pages(u64::from(extent.chunks) * CHUNK_PAGES),
        since,
    };
    plan.extents.iter().map(each).collect()
}

const fn extent(inode: u64, first: u32, chunks: u32, tier: Tier) -> Extent {
    Extent { file: file(inode), first, chunks, blocks: Blocks::ALL, tier }
}

fn why(plan: &Plan, inode: u64) -> Option<Why> {
    plan.files.iter().find(|one| one.file == file(inode)).map(|one| one.why)
}

fn pages(plan: &Plan, inode: u64) -> u64 {
    let found = plan.files.iter().find(|one| one.file == file(inode));
    found.map_or(0, |one| one.hard.0 + one.soft.0)
}

#[test]
fn a_chunk_that_is_withheld_is_left_out_for_a_while_and_its_room_is_anothers() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 3);
    read(&mut heat, 2, 2, 2);
    for chunk in [8, 9] {
        heat.withhold(ChunkId { file: file(1), chunk }, Barred::CgroupShare, seconds(60));
    }
    let ten = budget(10, 0);
    let before = plan(&heat, &[], ten, seconds(3));
    assert_eq!(before.extents, [extent(1, 0, 8, Tier::Hard), extent(2, 0, 2, Tier::Hard)]);
    assert_eq!(heat.barred_counts(seconds(3)), [(Barred::CgroupShare, 1)], "files, not chunks");
    assert_eq!(plan(&heat, &[], ten, seconds(60)).extents, [extent(1, 0, 10, Tier::Hard)]);
}

#[test]
fn a_file_that_is_read_again_is_held_as_a_whole() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 2);
    let plan = plan(&heat, &[], budget(20, 0), seconds(2));
    assert_eq!(plan.extents, [extent(1, 0, 10, Tier::Hard)]);
    assert_eq!(why(&plan, 1), Some(Why::Reused));
    assert_eq!(plan.taken(), budget(10, 0));
}

#[test]
fn with_no_budget_nothing_is_held() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 5);
    press(&mut heat, seconds(5));
    assert_eq!(plan(&heat, &[], budget(0, 0), seconds(5)).extents, []);
}

#[test]
fn a_file_that_is_read_once_is_held_only_while_memory_is_short() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 1);
    assert_eq!(plan(&heat, &[], budget(20, 0), seconds(1)), Plan::default());
    press(&mut heat, seconds(1));
    let short = plan(&heat, &[], budget(20, 0), seconds(1));
    assert_eq!((pages(&short, 1), why(&short, 1)), (10 * CHUNK_PAGES, Some(Why::Recent)));
    assert_eq!(
        plan(&heat, &[], budget(9, 0), seconds(1)),
        Plan::default(),
        "larger than the budget: a stream"
    );
}

#[test]
fn what_is_used_of_it_since_counts_beside_what_is_locked() {
    let mut heat = Heat::new(page_size());
    (0..2).for_each(|at| start(&mut heat, 1, 40, Blocks(1), seconds(at)));
    let first = plan(&heat, &[], budget(40, 0), seconds(2));
    let held: Vec<Holding> = first
        .extents
        .iter()
        .map(|extent| Holding { extent: *extent, pages: Pages(40 * 16), since: seconds(2) })
        .collect();
    // Long settled; now all of it is read, which is more than there is room for.
    (100..103).for_each(|at| read_at(&mut heat, 1, 40, at));
    let next = plan(&heat, &held, budget(10, 0), seconds(103));
    assert_eq!(pages(&next, 1), 10 * CHUNK_PAGES);
    assert_eq!(next.extents, [extent(1, 0, 10, Tier::Hard)]);
}

#[test]
fn what_the_kernel_locks_beyond_what_is_used_is_reckoned_with() {
    let mut heat = Heat::new(page_size());
    (0..2).for_each(|at| start(&mut heat, 1, 10, Blocks(1), seconds(at)));
    let whole: Vec<Holding> = plan(&heat, &[], budget(10, 0), seconds(2))
        .extents
        .iter()
        .map(|extent| Holding { extent: *extent, pages: Pages(10 * CHUNK_PAGES), since: seconds(2) })
        .collect();
    for at in [3, 30] {
        assert_eq!(pages(&plan(&heat, &whole, budget(4, 0), seconds(at)), 1), 4 * CHUNK_PAGES, "at {at} s");
    }
}

/// A library of so many chunks, of each of which some blocks are used at each start of a program.
fn start(heat: &mut Heat, inode: u64, chunks: u32, blocks: Blocks, now: Nanos) {
    let uses: Vec<Use> =
        pass(file(inode), 0..chunks, chunks).into_iter().map(|one| Use { blocks, ..one }).collect();
    heat.observe(&uses, &[], now);
}

#[test]
fn what_is_used_of_each_chunk_is_all_that_it_takes_of_the_budget() {
    let mut heat = Heat::new(page_size());
    let quarter = Blocks(0x0f0f);
    (0..2).for_each(|at| start(&mut heat, 1, 40, quarter, seconds(at)));
    let plan = plan(&heat, &[], budget(10, 0), seconds(2));
    assert_eq!(plan.extents, [Extent { blocks: quarter, ..extent(1, 0, 40, Tier::Hard) }]);
    assert_eq!((plan.taken(), why(&plan, 1)), (budget(10, 0), Some(Why::Reused)));
}

#[test]
fn what_lies_between_what_was_used_once_is_not_what_comes_next() {
    let mut heat = Heat::new(page_size());
    let mut part = pass(file(1), 0..1, 3);
    part[0].blocks = Blocks(1);
    heat.observe(&part, &[], seconds(1));
    heat.observe(&pass(file(2), 0..1, 3), &[], seconds(1));
    press(&mut heat, seconds(1));
    let short = plan(&heat, &[], budget(200, 0), seconds(1));
    let block = Extent { blocks: Blocks(1), ..extent(1, 0, 1, Tier::Hard) };
    assert_eq!(short.extents, [block, extent(2, 0, 3, Tier::Hard)]);
}

#[test]
fn what_comes_after_the_end_of_a_file_is_its_beginning() {
    let mut heat = Heat::new(page_size());
    heat.observe(&pass(file(1), 80..82, 100), &[], seconds(1));
    press(&mut heat, seconds(1));
    let ahead = plan(&heat, &[], budget(100, 0), seconds(1));
    assert_eq!(ahead.extents, [extent(1, 0, 46, Tier::Hard), extent(1, 80, 20, Tier::Hard)]);
    heat.observe(&pass(file(1), 10..11, 100), &[], seconds(2));
    let ahead = plan(&heat, &[], budget(100, 0), seconds(2));
    assert_eq!(ahead.extents, [extent(1, 0, 75, Tier::Hard), extent(1, 80, 20, Tier::Hard)]);
}

#[test]
fn what_is_held_ahead_stays_whole_until_it_is_known_what_is_used_of_it() {
    let mut heat = Heat::new(page_size());
    heat.observe(&pass(file(1), 0..1, 2), &[], seconds(1));
    press(&mut heat, seconds(1));
    let ahead = plan(&heat, &[], budget(9, 0), seconds(1));
    assert_eq!(ahead.extents, [extent(1, 0, 2, Tier::Hard)]);
    let mut part = pass(file(1), 1..2, 2);
    part[0].blocks = Blocks(1);
    heat.observe(&part, &[], seconds(2));
    let held = held(&ahead, seconds(1));
    assert_eq!(plan(&heat, &held, budget(9, 0), seconds(20)).extents, [extent(1, 0, 2, Tier::Hard)]);
    let settled = plan(&heat, &held, budget(9, 0), seconds(21)).extents;
    assert_eq!(
        settled,
        [extent(1, 0, 1, Tier::Hard), Extent { blocks: Blocks(1), ..extent(1, 1, 1, Tier::Hard) }]
    );
}

#[test]
fn what_a_first_reading_comes_to_next_is_held_while_memory_is_short() {
    let mut heat = Heat::new(page_size());
    // Three chunks of a hundred, and three further on.
    heat.observe(&pass(file(1), 0..3, 100), &[], seconds(1));
    heat.observe(&pass(file(1), 20..23, 100), &[], seconds(1));
    press(&mut heat, seconds(1));
    let short = plan(&heat, &[], budget(200, 0), seconds(1));
    assert_eq!(
        (short.extents.as_slice(), why(&short, 1)),
        (&[extent(1, 0, 87, Tier::Hard)][..], Some(Why::Recent))
    );
    let mut some = heat.clone();
    some.withhold(ChunkId { file: file(1), chunk: 21 }, Barred::CgroupShare, seconds(2));
    let around = plan(&some, &[], budget(200, 0), seconds(1));
    assert_eq!(around.extents, [extent(1, 0, 21, Tier::Hard), extent(1, 22, 65, Tier::Hard)]);
    // What was read goes first.
    let tight = plan(&heat, &[], budget(100, 0), seconds(1));
    assert_eq!(pages(&tight, 1), 87 * CHUNK_PAGES);
    heat.observe(&pass(file(2), 0..90, 90), &[], seconds(2));
    let both = plan(&heat, &[], budget(100, 0), seconds(2));
    assert_eq!(pages(&both, 2), 90 * CHUNK_PAGES);
    assert_eq!(pages(&both, 1), 10 * CHUNK_PAGES);
    let of_first: Vec<_> =
        both.extents.iter().filter(|one| one.file == file(1)).map(|one| (one.first, one.chunks)).collect();
    assert_eq!(of_first, [(0, 7), (20, 3)]);
}

#[test]
fn what_is_held_after_one_reading_does_not_pass_for_reused() {
    let mut heat = Heat::new(page_size());
    heat.observe(&pass(file(2), 0..8, 8), &[], seconds(60));
    heat.observe(&pass(file(1), 0..10, 10), &[], seconds(90));
    press(&mut heat, seconds(90));
    let once = plan(&heat, &[], budget(10, 0), seconds(90));
    assert_eq!((pages(&once, 1), why(&once, 1)), (10 * CHUNK_PAGES, Some(Why::Recent)));
    // The second has 1.6 passes now. The first has 0.9, which would be 1.8 by being held.
    heat.observe(&pass(file(2), 0..8, 8), &[], seconds(99));
    let both = plan(&heat, &held(&once, seconds(90)), budget(10, 0), seconds(100));
    assert_eq!((pages(&both, 2), why(&both, 2)), (8 * CHUNK_PAGES, Some(Why::Reused)));
    assert_eq!((pages(&both, 1), why(&both, 1)), (2 * CHUNK_PAGES, Some(Why::Recent)));
}

#[test]
fn with_an_eighth_of_a_file_in_its_second_round_all_of_it_is_held() {
    for (chunks, expected) in [(4, 0), (5, 40)] {
        let mut heat = Heat::new(page_size());
        read(&mut heat, 1, 40, 1);
        heat.observe(&pass(file(1), 0..chunks, 40), &[], seconds(1));
        let plan = plan(&heat, &[], budget(100, 0), seconds(1));
        assert_eq!(pages(&plan, 1), expected * CHUNK_PAGES, "{chunks} of 40");
    }
}

#[test]
fn a_stream_in_its_second_round_is_known_before_the_round_is_over() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 2);
    read(&mut heat, 2, 100, 1);
    // As many chunks of the second round as would fit the budget.
    heat.observe(&pass(file(2), 0..19, 100), &[], seconds(9));
    let plan = plan(&heat, &[], budget(20, 0), seconds(9));
    assert_eq!(pages(&plan, 1), 10 * CHUNK_PAGES);
    let after = plan.extents.iter().filter(|one| one.file == file(2)).map(|one| one.chunks).sum::<u32>();
    assert_eq!(after, 10, "what is left");
}

#[test]
fn executables_of_running_programs_go_before_what_is_read_as_often() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 3);
    read(&mut heat, 2, 10, 3);
    heat.observe(&[], &[file(2)], seconds(3));
    let plan = plan(&heat, &[], budget(10, 0), seconds(3));
    assert_eq!((pages(&plan, 2), why(&plan, 2)), (10 * CHUNK_PAGES, Some(Why::Running)));
    assert_eq!((pages(&plan, 1), why(&plan, 1)), (0, Some(Why::NoRoom)));
}

#[test]
fn an_executable_counts_as_used_as_long_as_it_runs() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 1);
    for minute in 1..60 {
        heat.observe(&[], &[file(1), file(7)], seconds(minute * 20));
    }
    assert_eq!(pages(&plan(&heat, &[], budget(20, 0), seconds(1180)), 1), 10 * CHUNK_PAGES);
    assert_eq!(pages(&plan(&heat, &[], budget(20, 0), seconds(1211)), 1), 0, "it has ended");
}

#[test]
fn what_is_held_gives_way_only_to_what_is_twice_as_hot() {
    let heated = |times| {
        let mut heat = Heat::new(page_size());
        read(&mut heat, 1, 10, 3);
        read(&mut heat, 2, 10, times);
        heat
    };
    let first = plan(&heated(0), &[], budget(10, 0), seconds(9));
    assert_eq!(pages(&first, 1), 10 * CHUNK_PAGES);
    let again = |times| plan(&heated(times), &held(&first, seconds(9)), budget(10, 0), seconds(9));
    assert_eq!(pages(&again(5), 1), 10 * CHUNK_PAGES);
    assert_eq!(pages(&again(7), 2), 10 * CHUNK_PAGES);
}

#[test]
fn what_is_in_the_soft_tier_gives_way_to_what_is_half_as_hot_again() {
    let heated = |times| {
        let mut heat = Heat::new(page_size());
        read(&mut heat, 1, 10, 6);
        read(&mut heat, 2, 10, times);
        heat
    };
    let first = plan(&heated(0), &[], budget(0, 10), seconds(9));
    assert_eq!(first.extents, [extent(1, 0, 10, Tier::Soft)]);
    let again = |times| plan(&heated(times), &held(&first, seconds(9)), budget(0, 10), seconds(9));
    assert_eq!(pages(&again(8), 1), 10 * CHUNK_PAGES);
    assert_eq!(pages(&again(10), 2), 10 * CHUNK_PAGES);
}

#[test]
fn what_was_reused_is_held_half_a_minute_longer_than_it_would_be_taken() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 2);
    let first = plan(&heat, &[], budget(10, 0), seconds(2));
    let later = seconds(50);
    assert_eq!(pages(&plan(&heat, &[], budget(10, 0), later), 1), 0);
    assert_eq!(pages(&plan(&heat, &held(&first, seconds(2)), budget(10, 0), later), 1), 10 * CHUNK_PAGES);
    assert_eq!(pages(&plan(&heat, &held(&first, seconds(2)), budget(10, 0), seconds(120)), 1), 0);
}

#[test]
fn once_it_has_settled_what_is_held_takes_what_is_really_locked() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 4);
    read(&mut heat, 2, 10, 3);
    let first = plan(&heat, &[], budget(12, 0), seconds(4));
    assert_eq!((pages(&first, 1), pages(&first, 2)), (10 * CHUNK_PAGES, 2 * CHUNK_PAGES));
    let mut holdings = held(&first, seconds(4));
    holdings[0].pages = Pages(5 * CHUNK_PAGES);
    let soon = plan(&heat, &holdings, budget(12, 0), seconds(10));
    assert_eq!(pages(&soon, 2), 2 * CHUNK_PAGES, "more of it may still come");
    let settled = plan(&heat, &holdings, budget(12, 0), seconds(24));
    assert_eq!((pages(&settled, 1), pages(&settled, 2)), (5 * CHUNK_PAGES, 7 * CHUNK_PAGES));
    assert_eq!(settled.extents[0], extent(1, 0, 10, Tier::Hard));
}

#[test]
fn a_barred_file_is_let_go() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 4);
    let first = plan(&heat, &[], budget(12, 0), seconds(4));
    heat.bar(file(1), Barred::Unlinked, seconds(60));
    assert_eq!(plan(&heat, &held(&first, seconds(4)), budget(12, 0), seconds(5)), Plan::default());
}

#[test]
fn a_file_that_shrank_is_held_up_to_its_end() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 10, 4);
    heat.observe(&pass(file(1), 0..1, 3), &[], seconds(4));
    let plan = plan(&heat, &[], budget(12, 0), seconds(4));
    assert_eq!(plan.extents, [extent(1, 0, 3, Tier::Hard)]);
}

#[test]
fn of_more_files_than_can_be_held_those_with_most_use_are() {
    let mut heat = Heat::new(page_size());
    read(&mut heat, 1, 100, 2);
    let small = |inode: u64, bytes| Use {
        chunk: ChunkId { file: FileId { inode, ..file(0) }, chunk: 0 },
        blocks: Blocks::ALL,
        mapped: false,
        accessed: 1,
        added: 0,
        evicted: 0,
        file_bytes: bytes,
        barred: None,
    };
    let uses: Vec<Use> = (0..1500).map(|one| small(100 + one, 4096)).collect();
    (0..20).for_each(|at| heat.observe(&uses, &[], seconds(at)));
    let plan = plan(&heat, &[], budget(200, 0), seconds(20));
    assert_eq!(plan.files.iter().filter(|one| one.hard.0 > 0).count(), FILES_MAX);
    assert_eq!(
        pages(&plan, 1),
        100 * CHUNK_PAGES,
        "many that are hotter and small do not crowd out a large one"
    );
    assert_eq!(why(&plan, 1599), Some(Why::TooMany));
}

#[test]
fn a_file_of_which_too_much_is_reused_to_remember_is_a_stream() {
    let mut heat = Heat::new(page_size());
    let size = u32::try_from(CHUNKS_MAX).unwrap() + 2000;
    for start in (0..size).step_by(100) {
        for _ in 0..2 {
            heat.observe(&pass(file(1), start..start + 100, size), &[], seconds(u64::from(start) / 1000));
        }
    }
    let plan = plan(&heat, &[], budget(u64::from(size), 0), seconds(11));
    assert_eq!(why(&plan, 1), Some(Why::TooLarge));
}
