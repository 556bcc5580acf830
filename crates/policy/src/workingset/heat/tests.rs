use super::{CHUNKS_MAX, Chunk, FRACTION, Heat, REUSED};
use crate::{
    units::{Nanos, Pages},
    workingset::{
        Barred, Blocks, CHUNK_PAGES, FileId, Use,
        tests::{file, page_size, pass},
    },
};
use proptest::{collection::vec, prop_assert, proptest};
use std::vec::Vec;

const fn seconds(count: u64) -> Nanos {
    Nanos(count * 1_000_000_000)
}

impl Heat {
    /// The remembered chunks of a file, in order.
    fn of(&self, file: FileId) -> impl Iterator<Item = (u32, &Chunk)> {
        self.all().filter(move |(whose, ..)| *whose == file).map(|(_, chunk, facts)| (chunk, facts))
    }
}

fn passes(heat: &Heat, file: FileId, chunk: u32, now: Nanos) -> u64 {
    let found = heat.of(file).find(|(one, _)| *one == chunk);
    found.map_or(0, |(_, one)| one.passes(Pages(CHUNK_PAGES), now))
}

fn heat() -> Heat {
    Heat::new(page_size())
}

#[test]
fn one_reading_is_one_pass_and_half_of_it_a_minute_later() {
    let mut heat = heat();
    heat.observe(&pass(file(1), 0..1, 1), &[], seconds(1));
    assert_eq!(passes(&heat, file(1), 0, seconds(1)), 1 << FRACTION);
    assert_eq!(passes(&heat, file(1), 0, seconds(61)), 1 << (FRACTION - 1));
}

#[test]
fn one_drain_is_one_pass_at_most_however_much_it_tells_of() {
    let mut heat = heat();
    let often: Vec<Use> =
        pass(file(1), 0..1, 1).into_iter().map(|one| Use { accessed: 1 << 40, ..one }).collect();
    heat.observe(&often, &[], seconds(1));
    assert_eq!(passes(&heat, file(1), 0, seconds(1)), 1 << FRACTION);
}

/// What came into the first two chunks, and nobody has used it yet.
fn added() -> Vec<Use> {
    let each = |one: Use| Use { accessed: 0, blocks: Blocks::default(), added: CHUNK_PAGES / 2, ..one };
    pass(file(1), 0..2, 2).into_iter().map(each).collect()
}

#[test]
fn what_comes_into_the_cache_ahead_of_a_reader_counts_as_used() {
    let mut heat = heat();
    heat.observe(&added(), &[], seconds(1));
    assert_eq!(passes(&heat, file(1), 0, seconds(1)), 1 << (FRACTION - 1));
}

/// A reader from end to end of the first chunks, with so much read ahead of it, each step drained.
fn read_through(heat: &mut Heat, chunks: u32, window: u64, steps: &[u64], begin: Nanos) -> Nanos {
    let pages = u64::from(chunks) * CHUNK_PAGES;
    let part = |from: u64, to: u64, chunk: u32| {
        let first = u64::from(chunk) * CHUNK_PAGES;
        to.min(first + CHUNK_PAGES).saturating_sub(from.max(first))
    };
    let (mut at, mut came, mut now) = (0, 0, begin);
    for step in steps.iter().cycle() {
        let (read, comes) = ((at + step).min(pages), (at + step + window).min(pages).max(came));
        let mut uses = pass(file(1), 0..chunks, chunks);
        for one in &mut uses {
            (one.accessed, one.added) = (part(at, read, one.chunk.chunk), part(came, comes, one.chunk.chunk));
            one.blocks = if one.accessed > 0 { Blocks::ALL } else { Blocks::default() };
        }
        now.0 += 100_000_000;
        heat.observe(&uses, &[], now);
        (at, came) = (read, comes);
        if at == pages {
            break;
        }
    }
    now
}

proptest! {
    #[test]
    fn one_reading_is_one_pass_however_far_is_read_ahead(
        window in 0_u64..2048, steps in vec(60_u64..3000, 1..8),
    ) {
        let mut heat = heat();
        let now = read_through(&mut heat, 6, window, &steps, seconds(1));
        for chunk in 0..6 {
            let passes = passes(&heat, file(1), chunk, now);
            prop_assert!(passes <= 1 << FRACTION, "{chunk}: {passes}");
        }
        // The second one, of what is in the cache, is another.
        heat.observe(&pass(file(1), 0..6, 6), &[], now);
        for chunk in 0..6 {
            prop_assert!(passes(&heat, file(1), chunk, now) >= REUSED);
        }
    }
}

#[test]
fn what_comes_again_counts_again_though_no_read_was_seen() {
    for blind in [false, true] {
        let mut heat = heat();
        for at in [1, 31] {
            if blind {
                heat.was_blind(seconds(at));
            }
            let mut all = added();
            all[0].added = CHUNK_PAGES;
            heat.observe(&all, &[], seconds(at));
        }
        assert!(passes(&heat, file(1), 0, seconds(31)) >= REUSED, "{blind}");
    }
}

#[test]
fn what_came_while_nobody_looked_takes_nothing_from_what_is_seen() {
    let mut heat = heat();
    heat.was_blind(seconds(1));
    let mut all = added();
    all[0].added = CHUNK_PAGES;
    heat.observe(&all, &[], seconds(1));
    heat.observe(&pass(file(1), 0..1, 2), &[], seconds(11));
    assert!(passes(&heat, file(1), 0, seconds(11)) >= REUSED);
}

#[test]
fn what_comes_into_the_cache_around_a_fault_does_not_count() {
    let mut heat = heat();
    let mut faulted = added();
    (faulted[1].accessed, faulted[1].blocks, faulted[1].mapped) = (16, Blocks(1), true);
    heat.observe(&faulted, &[], seconds(1));
    assert_eq!(passes(&heat, file(1), 0, seconds(1)), 0);
    heat.observe(&added(), &[], seconds(2));
    let known: Vec<_> =
        heat.of(file(1)).map(|(chunk, one)| (chunk, one.blocks(Pages(CHUNK_PAGES)))).collect();
    assert_eq!(known, [(1, Blocks(1))], "the file was mapped not long ago");
    // Nor while reads are not watched: faults are.
    let mut inferred = added();
    inferred.iter_mut().for_each(Use::infer);
    heat.was_blind(seconds(3));
    heat.observe(&inferred, &[], seconds(3));
    assert_eq!(passes(&heat, file(1), 0, seconds(3)), 0);
}

/// The first chunk's blocks, used once.
fn used(heat: &mut Heat, blocks: u32, now: Nanos) {
    let mut one = pass(file(1), 0..1, 1);
    one[0].blocks = Blocks(blocks);
    heat.observe(&one, &[], now);
}

fn blocks(heat: &Heat) -> u32 {
    heat.of(file(1)).next().map_or(0, |(_, one)| one.blocks(Pages(CHUNK_PAGES)).0)
}

#[test]
fn what_is_used_of_a_chunk_is_what_counts() {
    let mut heat = heat();
    used(&mut heat, 0b11, seconds(1));
    assert_eq!((blocks(&heat), passes(&heat, file(1), 0, seconds(1))), (0b11, 1 << FRACTION));
    used(&mut heat, 0b11, seconds(1));
    assert_eq!(passes(&heat, file(1), 0, seconds(1)), 2 << FRACTION);
    // Two blocks twice, and two more once.
    used(&mut heat, 0b1100, seconds(1));
    let expected = (6 << FRACTION) / 4;
    assert_eq!((blocks(&heat), passes(&heat, file(1), 0, seconds(1))), (0b1111, expected));
}

#[test]
fn where_most_of_a_chunk_is_used_all_of_it_is() {
    for (set, expected) in [(0x007f_ffff, 0x007f_ffff), (0x00ff_ffff, u32::MAX)] {
        let mut heat = heat();
        used(&mut heat, set, seconds(1));
        assert_eq!(blocks(&heat), expected, "of {set:x}");
    }
}

#[test]
fn blocks_that_were_not_used_when_others_were_are_forgotten() {
    let mut heat = heat();
    used(&mut heat, 0b1111, seconds(0));
    used(&mut heat, 0b0001, seconds(299));
    assert_eq!(blocks(&heat), 0b1111);
    used(&mut heat, 0b0011, seconds(301));
    assert_eq!(blocks(&heat), 0b1111, "for ten minutes at most");
    used(&mut heat, 0b0011, seconds(602));
    assert_eq!(blocks(&heat), 0b0011);
    used(&mut heat, 0b0001, seconds(5000));
    assert_eq!(blocks(&heat), 0b0011, "nothing of it was used meanwhile");
}

#[test]
fn while_not_all_is_seen_no_block_is_forgotten() {
    let mut heat = heat();
    for minute in 0..20 {
        heat.was_blind(seconds(minute * 60));
        used(&mut heat, if minute == 0 { 0b1100 } else { 0b0001 }, seconds(minute * 60));
    }
    assert_eq!(blocks(&heat), 0b1101);
    // It was last blind in the period that the first of these ends.
    for minute in [25, 30, 35] {
        used(&mut heat, 0b0001, seconds(minute * 60));
    }
    assert_eq!(blocks(&heat), 0b0001);
}

#[test]
fn what_is_forgotten_takes_its_warmth_along() {
    let mut heat = heat();
    // All of it ten times, then one block of 32.
    (0..10).for_each(|_| used(&mut heat, u32::MAX, seconds(0)));
    for at in [301, 602] {
        used(&mut heat, 1, seconds(at));
    }
    assert_eq!(blocks(&heat), 1);
    let left = passes(&heat, file(1), 0, seconds(602));
    assert!(left < 11 << (FRACTION - 3), "{left}: of ten passes an eighth and less, and one");
}

#[test]
fn a_file_read_every_ninety_seconds_is_reused_and_one_read_every_two_minutes_is_not() {
    for (every, expected) in [(90, true), (120, false)] {
        let mut heat = heat();
        (0..20).for_each(|round| heat.observe(&pass(file(1), 0..1, 1), &[], seconds(round * every)));
        assert_eq!(passes(&heat, file(1), 0, seconds(19 * every)) >= REUSED, expected, "every {every} s");
    }
}

#[test]
fn a_barred_file_is_counted_by_its_bar_and_not_by_its_use() {
    let mut heat = heat();
    let writing = |now| {
        let barred = Some(Barred::OpenForWriting);
        (pass(file(1), 0..2, 2).into_iter().map(|one| Use { barred, ..one }).collect::<Vec<_>>(), now)
    };
    let (uses, now) = writing(seconds(1));
    heat.observe(&uses, &[], now);
    assert_eq!((heat.files(), heat.barred(file(1), now)), (0, Some(Barred::OpenForWriting)));
    assert_eq!(heat.barred_counts(now), [(Barred::OpenForWriting, 1)]);
    assert_eq!(heat.barred(file(1), seconds(61)), None, "seen once, and not since");
}

#[test]
fn a_file_that_is_closed_after_writing_is_barred_no_longer() {
    let mut heat = heat();
    let mut uses = pass(file(1), 0..2, 2);
    uses[0].barred = Some(Barred::OpenForWriting);
    heat.observe(&uses, &[], seconds(1));
    assert!(heat.barred(file(1), seconds(1)).is_some(), "another piece, used before, does not tell of it");
    heat.observe(&pass(file(1), 0..2, 2), &[], seconds(2));
    assert_eq!(heat.barred(file(1), seconds(2)), None);
    assert_eq!(heat.files(), 1);
}

#[test]
fn what_could_not_be_held_stays_barred_until_its_time() {
    let mut heat = heat();
    heat.observe(&pass(file(1), 0..1, 1), &[], seconds(1));
    heat.bar(file(1), Barred::Leased, seconds(10));
    heat.observe(&pass(file(1), 0..1, 1), &[], seconds(2));
    assert_eq!(heat.barred(file(1), seconds(9)), Some(Barred::Leased));
    assert_eq!(heat.barred(file(1), seconds(10)), None);
}

#[test]
fn of_more_bars_than_can_be_remembered_those_go_that_end_first() {
    let mut heat = heat();
    for inode in 0..10_000 {
        heat.bar(file(inode), Barred::Refused, seconds(100 + inode));
    }
    let (_, count) = heat.barred_counts(seconds(1))[0];
    assert!((3500..=4096).contains(&count), "{count}");
    assert!(heat.barred(file(9_999), seconds(1)).is_some() && heat.barred(file(0), seconds(1)).is_none());
}

#[test]
fn a_block_that_is_in_memory_in_part_is_used_as_often_as_one_that_is_whole() {
    let mut heat = heat();
    for second in 1..=3 {
        let mut faulted = pass(file(1), 0..2, 2);
        for (one, accessed) in faulted.iter_mut().zip([1, 16]) {
            (one.accessed, one.blocks, one.mapped) = (accessed, Blocks(1), true);
        }
        heat.observe(&faulted, &[], seconds(second));
    }
    let [part, whole] = [0, 1].map(|chunk| passes(&heat, file(1), chunk, seconds(3)));
    assert!(part == whole && whole > 2 * REUSED - REUSED / 2, "{part} {whole}");
}

#[test]
fn a_fault_that_waits_for_the_disk_counts_once() {
    let mut heat = heat();
    let fault = |added| {
        let mut uses = pass(file(1), 0..1, 1);
        uses.iter_mut().for_each(|one| (one.accessed, one.mapped, one.added) = (16, true, added));
        uses
    };
    // It begins, and brings in the page; in the next turn the page is there.
    heat.observe(&fault(CHUNK_PAGES), &[], seconds(1));
    heat.observe(&fault(0), &[], Nanos(1_500_000_000));
    assert!(passes(&heat, file(1), 0, seconds(2)) <= 1 << FRACTION);
    // The next is another.
    heat.observe(&fault(0), &[], seconds(3));
    assert!(passes(&heat, file(1), 0, seconds(3)) > REUSED);
}

#[test]
fn each_start_of_a_program_counts_however_soon_its_pages_are_taken_again() {
    let mut heat = heat();
    for start in 1..=3 {
        let mut uses = pass(file(1), 0..1, 1);
        uses.iter_mut().for_each(|one| (one.mapped, one.added) = (true, CHUNK_PAGES));
        heat.observe(&uses, &[], Nanos(start * 400_000_000));
        uses.iter_mut().for_each(|one| {
            (one.accessed, one.blocks, one.mapped, one.added) = (0, Blocks::default(), false, 0);
            one.evicted = CHUNK_PAGES;
        });
        heat.observe(&uses, &[], Nanos(start * 400_000_000 + 200_000_000));
    }
    let found = passes(&heat, file(1), 0, seconds(2));
    assert!(found > 2 << FRACTION, "{found}");
}

#[test]
fn what_came_in_before_a_fault_was_done_is_forgotten_once_that_is_seen() {
    let mut heat = heat();
    // Read ahead of a fault that waits for its page.
    let mut coming = pass(file(1), 0..3, 3);
    coming
        .iter_mut()
        .for_each(|one| (one.accessed, one.blocks, one.added) = (0, Blocks::default(), CHUNK_PAGES));
    heat.observe(&coming, &[], seconds(1));
    assert_eq!(heat.of(file(1)).count(), 3);
    let mut faulted = pass(file(1), 1..2, 3);
    (faulted[0].accessed, faulted[0].blocks, faulted[0].mapped) = (16, Blocks(1), true);
    heat.observe(&faulted, &[], seconds(2));
    let known: Vec<_> =
        heat.of(file(1)).map(|(chunk, one)| (chunk, one.blocks(Pages(CHUNK_PAGES)))).collect();
    assert_eq!(known, [(1, Blocks(1))]);
    assert!(passes(&heat, file(1), 1, seconds(2)) <= 1 << FRACTION);
    // What was seen being read stays.
    heat.observe(&pass(file(2), 0..2, 2), &[], seconds(3));
    let mut mapped = pass(file(2), 0..1, 2);
    mapped[0].mapped = true;
    heat.observe(&mapped, &[], seconds(4));
    assert_eq!(heat.of(file(2)).count(), 2);
}

#[test]
fn a_device_that_goes_takes_its_files_along() {
    let mut heat = heat();
    let elsewhere = FileId { device: 9 << 20, ..file(1) };
    heat.observe(&pass(file(1), 0..2, 2), &[], seconds(1));
    heat.observe(&pass(elsewhere, 0..3, 3), &[], seconds(1));
    heat.bar(file(2), Barred::Refused, seconds(100));
    heat.forget_device(file(1).device);
    assert_eq!((heat.files(), heat.chunks()), (1, 3));
    assert_eq!(heat.barred_counts(seconds(1)), []);
}

#[test]
fn memory_is_short_for_a_while_after_reclaim_took_pages() {
    let mut heat = heat();
    heat.observe(&pass(file(1), 0..1, 1), &[], seconds(1));
    assert!(!heat.is_pressed(seconds(1)));
    let evicted: Vec<Use> =
        pass(file(1), 0..1, 1).into_iter().map(|one| Use { accessed: 0, evicted: 1, ..one }).collect();
    heat.observe(&evicted, &[], seconds(2));
    assert!(heat.is_pressed(seconds(31)) && !heat.is_pressed(seconds(32)));
}

#[test]
fn a_flood_of_files_read_once_leaves_what_was_used_again() {
    let mut heat = heat();
    for round in 0..3 {
        heat.observe(&pass(file(1), 0..100, 100), &[], seconds(round));
    }
    for inode in 0..4 * CHUNKS_MAX as u64 {
        heat.observe(&pass(file(1000 + inode), 0..1, 1), &[], Nanos(3_000_000_000 + inode * 5_000_000));
        assert!(heat.chunks() <= CHUNKS_MAX);
    }
    assert_eq!(heat.of(file(1)).count(), 100);
}

#[test]
fn a_stream_larger_than_memory_leaves_room_for_others_and_is_known_as_one() {
    let mut heat = heat();
    let size = u32::try_from(2 * CHUNKS_MAX).unwrap();
    let mut now = 0;
    // The small file was used again, and long ago; the stream is used twice in a second.
    for _ in 0..2 {
        heat.observe(&pass(file(1), 0..50, 50), &[], seconds(now));
    }
    for _ in 0..2 {
        for start in (0..size).step_by(64) {
            for _ in 0..2 {
                heat.observe(&pass(file(2), start..start + 64, size), &[], seconds(now));
            }
            now += u64::from(start % 256 == 0);
        }
    }
    assert!(heat.chunks() <= CHUNKS_MAX);
    assert_eq!(heat.of(file(1)).count(), 50, "a large file's many pieces are worth less each");
    let (_, facts) = heat.each().find(|(one, _)| *one == file(2)).unwrap();
    assert!(facts.is_overflowed(seconds(now)));
}

proptest! {
    #[test]
    fn however_it_is_used_it_stays_within_its_bounds_and_its_counts_are_right(
        uses in vec((0_u64..40, 0_u32..600, 0_u64..2000, 0_u64..10), 0..400),
    ) {
        let mut heat = heat();
        for (at, (inode, chunk, accessed, evicted)) in uses.iter().enumerate() {
            let mut one = pass(file(*inode), *chunk..chunk + 1, 600);
            (one[0].accessed, one[0].evicted) = (*accessed, *evicted);
            heat.observe(&one, &[file(inode / 2)], Nanos(at as u64 * 700_000_000));
        }
        let counted: usize = heat.each().map(|(file, _)| heat.of(file).count()).sum();
        prop_assert!(counted == heat.chunks() && counted <= CHUNKS_MAX);
        prop_assert!(heat.each().all(|(file, _)| heat.of(file).count() > 0));
    }
}
