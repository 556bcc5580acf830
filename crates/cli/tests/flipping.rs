//! A program that goes back and forth around its user's soft limit keeps neither the guard nor itself busy.
#![cfg(test)]

mod support;

use std::time::Duration;
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

#[test]
fn flipping_around_the_soft_limit_brings_an_account_near_once_a_second() {
    let fixture = fixture!();
    let mut program = fixture.python(USER, FLIP);
    fixture.limit(USER, "64M", &["--soft=48M"]);
    let has = fixture.facts(USER).usage.0 * page_bytes();
    // With half of the 2 MiB it is at its soft limit.
    program.tell(&((47 << 20) - has).to_string());
    program.stage("flips");
    let percent = fixture.percent_of_a_cpu(Duration::from_secs(2));
    program.tell("");
    let turns: u64 = program.stage("turns").parse().unwrap();
    assert!(turns > 10, "{turns} turns");
    // It was 20 to 46 of a hundred. Emulated it is 19 to 32, and was 100 to 126: one thread has no more than a CPU.
    let most = (5.0 * f64::from(slowness())).min(60.0);
    assert!(percent < most, "{percent:.1} % of a CPU, {turns} turns");
    assert!(fixture.history().is_empty());
}
