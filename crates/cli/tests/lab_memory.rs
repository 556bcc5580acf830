//! Lines on machines that swap, limit memory by cgroup, or run out of it altogether: in the guests of the lab only.
#![cfg(test)]

mod support;

use serde_json::json;
use support::{
    ALICE, BOB, CAROL, Fixture, SOON, assert_has,
    cgroup::Cgroup,
    exact,
    guest::{self, Swap},
    program::Program,
    until, wait_for,
};

/// Takes 40 MiB; pushes them out, takes them in again, and takes 40 more, as it is told.
const SWAPPED: &str = "private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n\
    memory = mmap.mmap(-1, 40 << 20, flags=private)\n\
    memory.madvise(mmap.MADV_NOHUGEPAGE)\n\
    def touch(memory):\n\
    \x20   for page in range(0, len(memory), 4096): memory[page] = 1 + page % 251\n\
    touch(memory)\n\
    say('touched')\n\
    while True:\n\
    \x20   told = hear()\n\
    \x20   if told == 'out': memory.madvise(21)\n\
    \x20   elif told == 'in': assert sum(memory[page] for page in range(0, len(memory), 4096)) > 0\n\
    \x20   elif told == 'more': touch(mmap.mmap(-1, 40 << 20, flags=private))\n\
    \x20   say('done')\n";

/// Pages of a process that are in swap.
fn swapped_pages(pid: u32) -> u64 {
    exact::status(pid).unwrap().swap.unwrap().0 / exact::page_bytes()
}

/// Pushes a program's memory out until most of it is in swap.
fn push_out(program: &mut Program) {
    let pid = program.pid();
    wait_for("it is swapped out", || {
        program.tell("out");
        program.stage("done");
        swapped_pages(pid) > exact::pages_of_kib(30 << 10)
    });
}

/// Usage and the kernel's own count, with part of it in swap: before 6.2 the kernel tells the last pages of a thread late.
#[track_caller]
fn assert_exact(fixture: &Fixture, program: &Program) {
    let mut seen = (0, 0);
    let equal = || {
        seen = (fixture.usage_pages(ALICE), exact::process_pages(program.pid()).unwrap());
        (seen.0 == seen.1).then_some(())
    };
    until("usage is exact", SOON, equal);
}

/// A program near its line goes out to swap and comes back, three times.
fn swaps_at_the_line(fixture: &Fixture) {
    fixture.limit(ALICE, "56M", &["--soft", "32M"]);
    let mut program = fixture.python(ALICE, SWAPPED);
    program.stage("touched");
    for _ in 0..3 {
        push_out(&mut program);
        assert_exact(fixture, &program);
        program.tell("in");
        program.stage("done");
        assert_exact(fixture, &program);
    }
    assert!(program.runs());
    assert!(fixture.history().is_empty(), "{:?}", fixture.history());
}

#[test]
fn swap_in_at_the_line_counts_a_page_once_and_kills_nobody() {
    let Some(disk) = guest::disk() else { return };
    let fixture = fixture!();
    let _swap = Swap::on(disk);
    swaps_at_the_line(&fixture);
}

#[test]
fn compressed_swap_counts_as_any_other() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    let _swap = Swap::compressed(256);
    swaps_at_the_line(&fixture);
}

#[test]
fn pages_in_swap_stay_charged_and_the_line_holds_with_them() {
    let Some(disk) = guest::disk() else { return };
    let fixture = fixture!();
    let _swap = Swap::on(disk);
    fixture.limit(ALICE, "64M", &[]);
    let mut program = fixture.python(ALICE, SWAPPED);
    program.stage("touched");
    push_out(&mut program);
    let swapped = swapped_pages(program.pid());
    assert!(fixture.usage_pages(ALICE) >= swapped, "{swapped} pages in swap");
    // In memory there would be room for it.
    program.tell("more");
    program.killed();
    let incidents = fixture.incidents(1);
    assert_eq!((incidents.len(), &incidents[0]["action"]), (1, &"kill".into()), "{incidents:?}");
    wait_for("nothing is left", || fixture.usage_pages(ALICE) == 0);
}

#[test]
fn the_line_acts_before_the_memory_max_of_the_victim_s_cgroup() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    let cgroup = Cgroup::of("wide").unwrap();
    cgroup.limit("256M");
    fixture.limit(ALICE, "64M", &[]);
    let mut program = fixture.python(ALICE, SWAPPED);
    program.stage("touched");
    cgroup.take(program.pid());
    assert_exact(&fixture, &program);
    program.tell("more");
    program.killed();
    assert_eq!(fixture.incidents(1).len(), 1);
    assert_eq!(cgroup.oom_kills(), 0);
}

#[test]
fn whom_the_kernel_takes_at_memory_max_leaves_no_charge_and_is_told_as_the_kernel_s() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    let cgroup = Cgroup::of("narrow").unwrap();
    cgroup.limit("24M");
    fixture.limit(ALICE, "256M", &[]);
    let mut program = fixture.python(ALICE, SWAPPED);
    program.stage("touched");
    // Charged where it was before: what it takes from now on is the cgroup's.
    cgroup.take(program.pid());
    program.tell("more");
    program.killed();
    assert_eq!(cgroup.oom_kills(), 1);
    wait_for("nothing is left", || fixture.usage_pages(ALICE) == 0);
    let told = fixture.incidents(1);
    assert_eq!(
        (told.len(), &told[0]["guard"], &told[0]["origin"]["scope"]),
        (1, &"kernel".into(), &"cgroup".into())
    );
}

#[test]
fn the_kernel_s_own_oom_killer_spares_the_daemon_and_lines_hold_after_it() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut small = fixture.python(BOB, "say('ready')\nhear()\n").ready();
    // More than the machine has, by a user without a line; huge pages, or it would take minutes here.
    let mut hog = fixture
        .python(
            CAROL,
            "open('/proc/self/oom_score_adj', 'w').write('500')\n\
         unreserved = 0x4000\n\
         memory = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | unreserved)\n\
         memory.madvise(mmap.MADV_HUGEPAGE)\n\
         say('ready')\n\
         hear()\n\
         for page in range(0, len(memory), 65536): memory[page] = 1\n",
        )
        .ready();
    let daemon = fixture.daemon_pid();
    hog.tell("");
    hog.end_within(SOON * 3);
    hog.killed();
    assert_ne!(exact::number("/proc/vmstat", "oom_kill"), 0);
    assert_eq!((fixture.daemon_pid(), fixture.status()["daemon"].clone()), (daemon, true.into()));
    assert!(small.runs());
    let told = until("the kernel's kill is told", SOON, || {
        fixture.history().into_iter().find(|one| one["victims"][0]["pid"] == hog.pid())
    });
    assert_has(&told, &json!({"guard": "kernel", "reason": "kernel-out-of-memory"}));
    assert_has(&told, &json!({"account": null, "origin": {"scope": "machine"}}));
    let (victim, cause) = (&told["victims"][0], &told["origin"]["cause"]);
    assert_eq!(
        (&victim["uid"], &victim["comm"], cause),
        (&CAROL.into(), &"python3".into(), &"exhausted".into()),
        "{told}"
    );
    println!("{}", fixture.ok(&["why", "-v", &format!("pid:{}", hog.pid())]));
    let so_far = fixture.history().len();
    let mut program = fixture.python(ALICE, SWAPPED);
    program.stage("touched");
    assert_exact(&fixture, &program);
    program.tell("more");
    program.killed();
    assert_eq!(fixture.incidents(so_far + 1).len(), so_far + 1);
}
