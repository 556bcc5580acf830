//! A program that goes back and forth around its user's soft limit keeps neither the guard nor itself busy.
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "this whole file is one test module, its helpers included"
)]

mod support;

use std::{fs, time::Instant};
use support::{exact::page_bytes, slowness};

const USER: u32 = 60_201;

/// Flips 2 MiB above a base until it is told to stop: says `turns N seconds S`.
const FLIP: &str = "
import select
base, piece = int(hear()), 2 << 20
held = mmap.mmap(-1, base, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(held)), 1, base)
flipped = mmap.mmap(-1, piece, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
flipped.madvise(mmap.MADV_NOHUGEPAGE)
at = ctypes.addressof(ctypes.c_char.from_buffer(flipped))
say('flips')
turns = 0
while not select.select([0], [], [], 0)[0]:
    ctypes.memset(at, 1, piece)
    flipped.madvise(mmap.MADV_DONTNEED)
    turns += 1
say('turns', turns)
hear(); hear()
";

/// Ticks of a hundredth of a second that all threads of the daemon had.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn flipping_around_the_soft_limit_brings_an_account_near_once_a_second() {
    let world = world!();
    let mut program = world.python(USER, FLIP);
    world.limit(USER, "64M", &["--soft=48M"]);
    let has = world.facts(USER).usage.0 * page_bytes();
    // With half of the 2 MiB it is at its soft limit.
    program.tell(&((47 << 20) - has).to_string());
    program.stage("flips");
    let (began, before) = (Instant::now(), ticks(world.daemon_pid()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (took, used) = (began.elapsed(), ticks(world.daemon_pid()) - before);
    program.tell("");
    let turns: u64 = program.stage("turns").parse().unwrap();
    assert!(turns > 10, "{turns} turns");
    // It was 20 to 46 of a hundred.
    let permille = u128::from(used) * 10_000 / took.as_millis().max(1);
    assert!(
        permille < 100 * u128::from(slowness()),
        "{permille} thousandths of a CPU, {turns} turns in {took:?}"
    );
    assert!(world.history().is_empty());
}
