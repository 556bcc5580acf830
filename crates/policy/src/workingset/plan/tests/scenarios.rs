//! Random scenarios: files of any size, read in any manner, with any budget.

use super::{budget, held, plan, seconds};
use crate::workingset::{
    CHUNK_PAGES, FileId, Heat, Plan, Tier, Why,
    tests::{file, page_size, pass},
};
use proptest::{collection::vec, prelude::any, prop_assert, prop_assert_eq, proptest, strategy::Strategy};
use std::{collections::BTreeMap, vec::Vec};

/// So many chunks, of which each reading takes a part from a place on; and whether programs run from it.
#[derive(Debug, Clone)]
struct Read {
    chunks: u32,
    readings: Vec<(u32, u32, u64)>,
    running: bool,
}

fn reads() -> impl Strategy<Value = Vec<Read>> {
    let reading = (0_u32..64, 1_u32..64, 0_u64..100);
    let one = (1_u32..64, vec(reading, 0..12), any::<bool>());
    vec(one.prop_map(|(chunks, readings, running)| Read { chunks, readings, running }), 0..12)
}

const NOW: u64 = 100;

fn heat(files: &[Read]) -> Heat {
    let mut heat = Heat::new(page_size());
    let mut events: Vec<(u64, usize, u32, u32)> = Vec::new();
    for (index, one) in files.iter().enumerate() {
        for (first, count, at) in &one.readings {
            let first = first % one.chunks;
            events.push((*at, index, first, (first + count).min(one.chunks)));
        }
    }
    events.sort_unstable();
    for (at, index, first, end) in events {
        heat.observe(&pass(file(index as u64), first..end, files[index].chunks), &[], seconds(at));
    }
    let running = files.iter().enumerate().filter(|(_, one)| one.running);
    let running: Vec<FileId> = running.map(|(index, _)| file(index as u64)).collect();
    heat.observe(&[], &running, seconds(NOW));
    heat
}

fn chunks(plan: &Plan, tier: Tier) -> u64 {
    plan.extents.iter().filter(|one| one.tier == tier).map(|one| u64::from(one.chunks)).sum()
}

proptest! {
    #[test]
    fn no_plan_takes_more_than_its_budget_and_all_of_it_is_in_the_files(
        files in reads(), hard in 0_u64..200, soft in 0_u64..200,
    ) {
        let plan = plan(&heat(&files), &[], budget(hard, soft), seconds(NOW));
        prop_assert!(chunks(&plan, Tier::Hard) <= hard && chunks(&plan, Tier::Soft) <= soft);
        prop_assert_eq!(plan.taken(), budget(chunks(&plan, Tier::Hard), chunks(&plan, Tier::Soft)));
        let mut last: Option<(FileId, u32)> = None;
        for one in &plan.extents {
            let size = files[usize::try_from(one.file.inode).unwrap()].chunks;
            prop_assert!(one.chunks > 0 && one.first + one.chunks <= size);
            prop_assert!(last.is_none_or(|last| last <= (one.file, one.first)), "in order, without overlap");
            last = Some((one.file, one.first + one.chunks));
        }
    }

    #[test]
    fn the_plan_for_what_is_held_already_is_the_same(files in reads(), hard in 0_u64..200, soft in 0_u64..200) {
        let heat = heat(&files);
        let first = plan(&heat, &[], budget(hard, soft), seconds(NOW));
        for since in [0, NOW] {
            let again = plan(&heat, &held(&first, seconds(since)), budget(hard, soft), seconds(NOW));
            prop_assert_eq!(&again.extents, &first.extents);
        }
    }

    #[test]
    fn nothing_useful_is_left_out_while_there_is_room(files in reads(), hard in 0_u64..200) {
        let plan = plan(&heat(&files), &[], budget(hard, 0), seconds(NOW));
        let wanted: u64 = plan.files.iter().map(|one| one.wanted.0).sum();
        prop_assert_eq!(plan.taken().hard.0, wanted.min(hard * CHUNK_PAGES));
    }

    #[test]
    fn a_larger_budget_never_protects_less(
        files in reads(), hard in 0_u64..200, soft in 0_u64..50, more in 0_u64..100,
    ) {
        let heat = heat(&files);
        let taken = |hard, soft| plan(&heat, &[], budget(hard, soft), seconds(NOW)).taken();
        let (less, harder, softer) = (taken(hard, soft), taken(hard + more, soft), taken(hard, soft + more));
        prop_assert!(harder.hard >= less.hard && harder.total() >= less.total());
        prop_assert!(softer.hard >= less.hard && softer.total() >= less.total());
    }

    #[test]
    fn a_stream_takes_nothing_from_a_reused_file_that_fits(
        files in reads(), hard in 1_u64..150, times in 2_u64..20, cut in 0_u32..200,
    ) {
        let quiet = heat(&files);
        let mut loud = quiet.clone();
        let (stream, size) = (files.len() as u64, u32::try_from(hard).unwrap() + 1 + cut);
        for at in 0..times {
            loud.observe(&pass(file(stream), 0..size, size), &[], crate::units::Nanos(seconds(NOW).0 + at));
        }
        // In the middle of a round.
        loud.observe(&pass(file(stream), 0..cut.min(size), size), &[], seconds(NOW + 1));
        let plan = |heat: &Heat| plan(heat, &[], budget(hard, 0), seconds(NOW + 1));
        let fitting = |plan: &Plan| -> BTreeMap<FileId, u64> {
            let ours = plan.files.iter().filter(|one| one.file != file(stream));
            let fitting = ours.filter(|one| !matches!(one.why, Why::TooLarge | Why::NoRoom));
            fitting.map(|one| (one.file, one.hard.0)).collect()
        };
        let (before, after) = (fitting(&plan(&quiet)), fitting(&plan(&loud)));
        for (one, pages) in &before {
            let part = after.get(one).copied().unwrap_or(0);
            // A file that has a level that fits and one that does not may lose of the latter.
            let whole = quiet_level(&quiet, *one, hard);
            prop_assert!(part >= (*pages).min(whole), "{}: {} became {}", one, pages, part);
        }
        let alone: u64 = after.values().sum();
        let stream = plan(&loud).files.iter().filter(|one| one.file == file(stream)).map(|one| one.hard.0).sum::<u64>();
        prop_assert!(stream + alone <= hard * CHUNK_PAGES);
    }
}

/// What of a file is in levels that fit.
fn quiet_level(heat: &Heat, file: FileId, hard: u64) -> u64 {
    let none = super::super::Held::new(&[], seconds(NOW));
    let pieces = super::super::rank::pieces(heat, &none, budget(hard, 0), seconds(NOW + 1));
    let fitting = |one: &&super::super::rank::Piece| {
        one.file == file && one.class == super::super::rank::Class::Fitting
    };
    pieces.iter().filter(fitting).map(|one| one.cost.0).sum()
}
