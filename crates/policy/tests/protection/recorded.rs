//! Traces as text, replayed.

use crate::{
    demo::{BUDGET, FAST, SLOW, demo, hard, machine},
    replay::{Outcome, replay},
    scene::mib,
    trace::Trace,
};
use std::{fs, path::PathBuf};

fn trace_path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/protection/traces", &format!("{name}.trace")].iter().collect()
}

fn recorded(name: &str) -> Trace {
    Trace::read(&fs::read_to_string(trace_path(name)).unwrap())
}

/// The two that the machine in small made. `PLIMSOLL_WRITE_TRACES=1` writes them anew.
#[test]
fn the_demos_traces_are_what_the_machine_in_small_makes_of_it() {
    for (name, disk) in [("demo-fast-disk", FAST), ("demo-slow-disk", SLOW)] {
        let played = demo(machine(disk)).play(24_000, hard(0));
        if std::env::var_os("PLIMSOLL_WRITE_TRACES").is_some() {
            fs::write(trace_path(name), played.trace.write()).unwrap();
        }
        assert_eq!(recorded(name), played.trace, "{name}");
    }
}

#[test]
fn in_a_replay_of_the_demo_the_hot_files_are_found_in_the_cache() {
    for name in ["demo-fast-disk", "demo-slow-disk"] {
        let trace = recorded(name);
        let without = replay(&trace, hard(0), 20_000);
        let with = replay(&trace, BUDGET, 20_000);
        let hot = trace.file("hot");
        assert!(without.share(hot) <= 10, "{name}: {} %", without.share(hot));
        assert!(with.share(hot) >= 90, "{name}: {} %", with.share(hot));
        for library in ["libLLVM", "libclang-cpp", "libc", "clang"] {
            let file = trace.file(library);
            assert!(with.share(file) >= 95, "{name}, {library}: {} %", with.share(file));
            assert!(with.whole_at_ms[file].is_some_and(|whole| whole < 10_000), "{name}, {library}");
        }
        assert!(with.whole_at_ms[hot].is_some_and(|whole| whole < 10_000), "{name}");
        assert!(with.protector.planned(&trace.files[trace.file("stream")]) <= BUDGET.hard.0 - mib(461));
    }
}

#[test]
fn in_a_replay_of_what_a_machine_did_the_hot_files_are_found_in_the_cache() {
    let trace = recorded("recorded-demo");
    let budget = hard(trace.memory * 2 / 5);
    let (without, with) = (replay(&trace, hard(0), 7_000), replay(&trace, budget, 7_000));
    for name in ["hot", "prog/libLLVM-14.so.1", "prog/libclang-cpp.so.14"] {
        let file = trace.file(name);
        assert!(without.share(file) <= 20, "{name}: {} %", without.share(file));
        assert!(with.share(file) >= 95, "{name}: {} %", with.share(file));
    }
    let hot = trace.file("hot");
    assert!(with.whole_at_ms[hot].is_some_and(|whole| whole < 5_000), "{:?}", with.whole_at_ms[hot]);
    let library = &trace.files[trace.file("prog/libLLVM-14.so.1")];
    let planned = with.protector.planned(library);
    assert!(planned > 0 && planned < library.pages() * 3 / 4, "only what is used of it: {planned}");
    let stream = &trace.files[trace.file("stream")];
    assert!(with.protector.planned(stream) + mib(64) + planned <= budget.total().0);
}

#[test]
fn in_a_replay_of_a_build_a_backup_takes_nothing_from_the_compiler() {
    let trace = recorded("recorded-build");
    let compiler = trace.file("build/cc1");
    let held_of_backup = |outcome: &Outcome| {
        let parts =
            trace.files.iter().zip(&outcome.most).filter(|(file, _)| file.name.starts_with("backup/"));
        parts.map(|(_, most)| *most).sum::<u64>()
    };
    let whole = replay(&trace, hard(trace.memory), 0).protector.planned(&trace.files[compiler]);
    for (percent, has_room) in [(10, false), (13, false), (30, true)] {
        let outcome = replay(&trace, hard(trace.memory * percent / 100), 5_000);
        let planned = outcome.protector.planned(&trace.files[compiler]);
        let least = if percent > 10 { whole } else { whole * 3 / 4 };
        assert!(whole > 0 && planned >= least, "{percent} %: {planned} of {whole} pages");
        assert_eq!(held_of_backup(&outcome) > 0, has_room, "{percent} %: what is left is not left idle");
    }
}

#[test]
fn a_replay_with_too_little_room_never_holds_more_than_that() {
    let trace = recorded("demo-fast-disk");
    for room in [1, 16, 100, 230] {
        let outcome = replay(&trace, hard(mib(room)), 5_000);
        let taken = outcome.protector.plan.taken();
        assert!(taken.hard.0 <= mib(room) && taken.hard.0 + 512 > mib(room), "{room} MiB: {taken:?}");
    }
}
