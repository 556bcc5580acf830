//! The demo of le9uo, on a machine in small: a file that is read every two seconds, a stream, a hog, and a compiler.

use crate::scene::{Habit, Machine, Played, Scene, mib};
use plimsoll_policy::{
    units::Pages,
    workingset::{Budget, CHUNK_PAGES, FILES_MAX, Tier, Why},
};

/// Pages in 10 ms: 3.2 GB/s and 150 MB/s.
pub(crate) const FAST: u64 = 8192;
pub(crate) const SLOW: u64 = 366;

const HOT: usize = 0;
/// Its first round gives way to a stream once: nobody knows yet that there will be another. After that nothing moves.
const CHUNKS_OF_HOT: u64 = 150;
const STREAM: usize = 1;
const LIBRARIES: std::ops::Range<usize> = 2..6;

/// Of 1536 MiB; the hog takes 1.2 GB/s, and ends when the kernel finds nothing left.
pub(crate) fn machine(disk_per_step: u64) -> Machine {
    Machine { memory: mib(1536), disk_per_step, hog_per_step: mib(12), floor: 0, protected_from_ms: 0 }
}

pub(crate) const fn hard(pages: u64) -> Budget {
    Budget { hard: Pages(pages), soft: Pages(0) }
}

/// 40 % of the memory: room for the file and the compiler, not for the stream.
pub(crate) const BUDGET: Budget = hard(mib(614));

pub(crate) fn demo(machine: Machine) -> Scene {
    let mut scene = Scene::new(machine);
    let hot = scene.file("hot", 300 << 20);
    let stream = scene.file("stream", 4 << 30);
    let libraries = [("libLLVM", 120), ("libclang-cpp", 38), ("libc", 2), ("clang", 1)]
        .map(|(name, size)| scene.file(name, size << 20));
    scene.worker(Habit::Rounds { files: vec![hot], pause_ms: 2000, executables: false });
    scene.worker(Habit::Rounds { files: vec![stream], pause_ms: 0, executables: false });
    scene.worker(Habit::Rounds { files: libraries.to_vec(), pause_ms: 1000, executables: true });
    scene
}

/// How long a worker's rounds took that began at that time or later: the middle one and the longest, in ms.
fn rounds(played: &Played, worker: usize, from_ms: u64) -> (u64, u64) {
    let began = played.rounds_ms[worker].iter().filter(|(began, _)| *began >= from_ms);
    let mut took: Vec<u64> = began.map(|(_, took)| *took).collect();
    took.sort_unstable();
    (took[took.len() / 2], *took.last().unwrap())
}

#[test]
fn without_protection_every_round_reads_from_the_disk() {
    assert!(rounds(&demo(machine(FAST)).play(20_000, hard(0)), 0, 0).0 >= 200);
    assert!(rounds(&demo(machine(SLOW)).play(20_000, hard(0)), 0, 0).0 >= 4500);
}

#[test]
fn the_timed_file_and_the_compiler_are_planned_as_a_whole_within_ten_seconds() {
    for disk in [FAST, SLOW] {
        let played = demo(machine(disk)).play(20_000, BUDGET);
        for file in [HOT].into_iter().chain(LIBRARIES) {
            let whole = played.whole_at_ms[file];
            assert!(whole.is_some_and(|whole| whole < 10_000), "file {file}, disk {disk}: {whole:?}");
        }
        let (middle, longest) = rounds(&played, 0, 10_000);
        assert!(middle <= 20 && longest <= 120, "disk {disk}: {middle} ms, {longest} ms");
        assert!(rounds(&played, 2, 10_000).1 <= 20, "disk {disk}: {:?}", played.rounds_ms[2]);
        assert!(played.protector.churn <= CHUNKS_OF_HOT, "disk {disk}: {}", played.protector.churn);
    }
}

#[test]
fn the_stream_never_has_more_than_what_is_left() {
    for disk in [FAST, SLOW] {
        let played = demo(machine(disk)).play(20_000, BUDGET);
        for (index, stream) in played.planned[STREAM].iter().enumerate() {
            let others = [HOT].into_iter().chain(LIBRARIES).map(|file| played.planned[file][index]);
            assert!(stream + others.sum::<u64>() <= BUDGET.hard.0);
        }
        // Once the others are known, they have all they can use.
        let left = BUDGET.hard.0 - played.trace.files[HOT].pages() - mib(161);
        assert!(played.planned[STREAM].iter().rev().take(30).all(|stream| *stream <= left), "disk {disk}");
    }
    let played = demo(machine(FAST)).play(10_000, BUDGET);
    let stream = *played.planned[STREAM].last().unwrap();
    assert!(stream + CHUNK_PAGES > BUDGET.hard.0 - mib(461), "what is left is not left idle: {stream}");
}

#[test]
fn protection_that_begins_under_pressure_takes_hold_within_ten_seconds() {
    for disk in [FAST, SLOW] {
        let late = Machine { protected_from_ms: 3000, floor: mib(230), ..machine(disk) };
        let played = demo(late).play(20_000, BUDGET);
        let (middle, longest) = rounds(&played, 0, 12_500);
        assert!(middle <= 20 && longest <= 20, "disk {disk}: {:?}", played.rounds_ms[0]);
    }
}

#[test]
fn a_file_larger_than_the_budget_is_protected_in_part_and_its_time_falls_with_the_part() {
    let play = |budget| {
        let mut scene = Scene::new(machine(SLOW));
        let large = scene.file("large", 300 << 20);
        scene.worker(Habit::Rounds { files: vec![large], pause_ms: 2000, executables: false });
        scene.play(60_000, hard(mib(budget)))
    };
    let unprotected = rounds(&play(0), 0, 20_000).0;
    for part in [75, 150, 225] {
        let played = play(part);
        let (middle, expected) = (rounds(&played, 0, 20_000).0, unprotected * (300 - part) / 300);
        assert!(
            middle.abs_diff(expected) <= unprotected / 10,
            "{part} MiB: {middle} ms, expected {expected} ms"
        );
        let file = &played.trace.files[0];
        let lowest: Vec<u32> = (0..u32::try_from(part / 2).unwrap()).collect();
        assert_eq!(played.protector.chunks(file), lowest, "its beginning, always the same");
        assert_eq!(played.protector.churn, 0);
        assert_eq!(played.protector.plan.files[0].why, Why::TooLarge);
    }
}

#[test]
fn the_hot_part_of_a_database_is_protected_and_not_the_rest() {
    let mut scene = Scene::new(machine(FAST));
    let database = scene.file("database", 2 << 30);
    let hot = scene.file("hot", 100 << 20);
    // 200 MiB from 1 GiB on, in parts of 512 KiB.
    let part = 2048..2448;
    scene.worker(Habit::Database { file: database, hot: part, cold_per_mille: 100, per_step: 40 });
    scene.worker(Habit::Rounds { files: vec![hot], pause_ms: 2000, executables: false });
    let played = scene.play(20_000, hard(mib(320)));
    let protector = &played.protector;
    let held = protector.chunks(&played.trace.files[database]);
    let within = held.iter().filter(|chunk| (512..612).contains(*chunk)).count();
    assert_eq!(within, 100, "{held:?}");
    assert!(held.len() <= 110, "{held:?}");
    assert_eq!(protector.planned(&played.trace.files[hot]), mib(100));
    assert_eq!(protector.plan.files[database].why, Why::HotPart);
    assert!(protector.churn <= 20, "{}", protector.churn);
}

#[test]
fn a_build_of_thousands_of_small_files_does_not_crowd_out_the_timed_file() {
    let mut scene = Scene::new(Machine { hog_per_step: mib(6), ..machine(FAST) });
    let hot = scene.file("hot", 300 << 20);
    let headers: Vec<usize> = (0..200).map(|one| scene.file(&format!("header{one}"), 40 << 10)).collect();
    let sources: Vec<usize> = (0..4200).map(|one| scene.file(&format!("source{one}"), 12 << 10)).collect();
    // Each source is read with all headers of its folder.
    let order = sources.chunks(20).flat_map(|some| headers.iter().chain(some)).copied().collect();
    scene.worker(Habit::Rounds { files: vec![hot], pause_ms: 2000, executables: false });
    scene.worker(Habit::Rounds { files: order, pause_ms: 3000, executables: false });
    let played = scene.play(9_000, BUDGET);
    let plan = &played.protector.plan;
    assert_eq!(played.protector.planned(&played.trace.files[hot]), mib(300));
    let held = plan.files.iter().filter(|file| file.hard.0 > 0).count();
    assert!(held <= FILES_MAX && plan.extents.len() <= FILES_MAX + 8, "{held} files");
    let of_headers =
        headers.iter().filter(|file| played.protector.planned(&played.trace.files[**file]) > 0).count();
    assert_eq!(of_headers, 200, "what every step of the build reads is held");
    assert!(played.protector.churn < 200, "{}", played.protector.churn);
}

#[test]
fn what_is_next_best_goes_to_the_soft_tier() {
    let budget = Budget { hard: Pages(mib(165)), soft: Pages(mib(320)) };
    let played = demo(machine(FAST)).play(20_000, budget);
    let plan = &played.protector.plan;
    for library in LIBRARIES {
        let file = &played.trace.files[library];
        let planned = plan.files.iter().find(|plan| plan.file == file.id).unwrap();
        assert_eq!(planned.hard.0, file.pages());
    }
    let timed = plan.files.iter().find(|plan| plan.file == played.trace.files[HOT].id).unwrap();
    assert_eq!(timed.soft.0 + timed.hard.0, mib(300), "{timed:?}");
    assert!(timed.soft.0 >= mib(290), "{timed:?}");
    assert!(played.protector.tier(Tier::Soft) <= 160);
    assert!(played.protector.churn <= CHUNKS_OF_HOT, "{}", played.protector.churn);
}
