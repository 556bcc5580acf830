//! Crowds of processes that have their memory from tmalloc and fill a line: nobody is killed, and the line is used.
#![cfg(test)]

mod support;

use plimsoll_policy::reservation::{ALLOWANCE, kept_for_copies};
use plimsoll_sys::process::page_size;
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use support::{Fixture, SOON, program::Program, until};

/// Who allocates.
const USER: u32 = 60_200;

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn compile(fixture: &Fixture) {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libtmalloc.a");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-I"])
        .arg(source("../tmalloc/include"))
        .arg(source("tests/crowd/crowd.c"))
        .arg(library)
        .args(["-lgcc_s", "-lpthread", "-ldl", "-o"])
        .arg(fixture.path("crowd"))
        .status()
        .unwrap();
    assert!(status.success());
}

/// One crowd: how its processes come to be, how many, the bytes of a piece, what each inherits besides and mallocs, and the
/// line in MiB.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    how: &'static str,
    processes: u32,
    piece: u64,
    inherited: u64,
    plain: u64,
    line_mib: u64,
}

const CROWD: Crowd =
    Crowd { how: "fork", processes: 32, piece: 300_000, inherited: 100 << 10, plain: 0, line_mib: 256 };

/// Runs one, of which nobody may be killed: the fullest that the line was seen, in thousandths, what is kept for copies
/// among it.
#[track_caller]
fn nobody_is_killed(fixture: &Fixture, crowd: Crowd) -> u64 {
    let Crowd { how, processes, piece, inherited, plain, line_mib } = crowd;
    fixture.limit(USER, &format!("{line_mib}M"), &["--action", "kill"]);
    let mut command = fixture.as_user(USER, fixture.path("crowd").to_str().unwrap());
    command.arg(how).args([u64::from(processes), piece].map(|one| one.to_string()));
    command.arg("0.7").args([inherited, plain].map(|one| one.to_string()));
    let mut program = Program::of(command);
    let allowance = page_size().to_pages(ALLOWANCE);
    let mut full = 0;
    let status = until("the crowd ends", 6 * SOON, || {
        let facts = fixture.facts(USER);
        let kept = kept_for_copies(facts.copyable, facts.processes, allowance);
        full = full.max((facts.usage.0 + kept.0) * 1000 / facts.hard.0);
        program.try_end()
    });
    println!("{crowd:?}: {full} thousandths full");
    let kills: Vec<_> = fixture.history().into_iter().filter(|one| one["action"] == "kill").collect();
    assert!(status.success() && kills.is_empty(), "{crowd:?}: {status}, {kills:#?}");
    assert_eq!(program.line(), "0 killed, 0 failed");
    fixture.ok(&["limit", "clear", &USER.to_string()]);
    full
}

/// How many rounds; `PLIMSOLL_CROWDS`: so many.
fn rounds() -> u64 {
    std::env::var("PLIMSOLL_CROWDS").map_or(3, |rounds| rounds.parse().unwrap())
}

#[test]
fn forked_processes_with_nothing_but_grants_fill_a_line_and_nobody_is_killed() {
    let fixture = fixture!();
    compile(&fixture);
    nobody_is_killed(&fixture, CROWD);
    let pick = |seed: u64, of: &[u64]| of[usize::try_from(seed >> 7).unwrap() % of.len()];
    for round in 1..rounds() {
        let seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let crowd = Crowd {
            processes: u32::try_from(pick(seed, &[1, 2, 7, 16, 32, 64])).unwrap(),
            piece: pick(seed.wrapping_mul(7), &[100, 4000, 45_056, 300_000, 1 << 20]),
            inherited: 0,
            line_mib: pick(seed.wrapping_mul(31), &[16, 64, 256, 1024]),
            ..CROWD
        };
        let full = nobody_is_killed(&fixture, crowd);
        assert!(crowd.line_mib < 64 || full >= 900, "{crowd:?}: {full} thousandths");
    }
}

#[test]
fn nor_is_anybody_of_threads_programs_workers_and_those_that_malloc_besides() {
    let fixture = fixture!();
    compile(&fixture);
    nobody_is_killed(&fixture, Crowd { how: "threads", processes: 8, ..CROWD });
    nobody_is_killed(&fixture, Crowd { how: "exec", ..CROWD });
    let workers = Crowd { how: "prefork", processes: 8, inherited: 128 << 20, ..CROWD };
    assert!(nobody_is_killed(&fixture, workers) >= 900);
    nobody_is_killed(&fixture, Crowd { plain: 2 << 20, ..CROWD });
}
