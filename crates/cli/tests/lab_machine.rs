//! The machine guard on a whole machine, with the selection programs of the real kernel: in the guests of the lab only, because
//! it chooses among all there are.
#![cfg(test)]

#[path = "sandbox/memory.rs"]
mod memory;
mod support;

use memory::{DIRE, Memory, PLENTY, waiting};
use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use support::{
    ALICE, Fixture,
    cgroup::Cgroup,
    guest::{self, command},
    program::Program,
    wait_for,
};

/// A `/proc/meminfo` that tells what the test wants, for the whole guest; and nothing waits in the lists of single CPUs, which
/// would count as available after a kill.
struct Meminfo(PathBuf);

impl Meminfo {
    fn over(fixture: &Fixture) -> Self {
        for (name, text) in [("zoneinfo", waiting(0)), ("meminfo", PLENTY.text())] {
            fs::write(fixture.path(name), text).unwrap();
            command("mount", &["--bind", fixture.path(name).to_str().unwrap(), &format!("/proc/{name}")]);
        }
        Self(fixture.path("meminfo"))
    }

    /// Written over in place: the mount is of this very file.
    fn is(&self, memory: Memory) {
        let mut file = fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        file.write_all(memory.text().as_bytes()).unwrap();
    }
}

impl Drop for Meminfo {
    fn drop(&mut self) {
        drop(Command::new("umount").args(["/proc/meminfo", "/proc/zoneinfo"]).status());
    }
}

/// Takes so much, and more or less of it when it is told.
const HOLDS: &str = "private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n\
    memory = mmap.mmap(-1, 256 << 20, flags=private)\n\
    memory.madvise(mmap.MADV_NOHUGEPAGE)\n\
    while True:\n\
    \x20   mebibytes = int(hear())\n\
    \x20   memory.madvise(mmap.MADV_DONTNEED)\n\
    \x20   for page in range(0, mebibytes << 20, 4096): memory[page] = 1\n\
    \x20   say('has')\n";

fn has(program: &mut Program, mebibytes: u32) {
    program.tell(&mebibytes.to_string());
    program.stage("has");
}

fn selection(fixture: &Fixture) -> Value {
    fixture.status()["pressure"]["selection"].clone()
}

/// Whoever else there is in a guest: nothing makes room when the hogs are gone.
fn protecting_others() -> String {
    let mut others = vec![std::env::current_exe().unwrap(), env!("CARGO_BIN_EXE_plimsoll").into()];
    others.extend(["bash", "timeout", "setsid", "sleep"].map(|name| Path::new("/usr/bin").join(name)));
    format!("[protect]\nexe = {others:?}\n")
}

/// Has the guard end somebody as soon as memory is short, which is from then on what the test says it is.
fn ends_at_once(fixture: &Fixture, protect: &str) -> Meminfo {
    let meminfo = Meminfo::over(fixture);
    let config = format!("[machine]\nspike_ms = 0\nnotice = false\nreclaim = false\n{protect}");
    fs::write(fixture.path("plimsoll.toml"), config).unwrap();
    fixture.reload();
    meminfo
}

#[test]
fn two_in_a_row_come_from_the_ready_list_of_the_programs_and_the_second_is_right_after_the_world_changed() {
    let Some(_) = guest::disk() else { return };
    let protect = protecting_others();
    let fixture = fixture!(&protect);
    let meminfo = ends_at_once(&fixture, &protect);
    let holder = |mebibytes| {
        let mut program = fixture.python(ALICE, HOLDS);
        has(&mut program, mebibytes);
        program
    };
    let _spare = holder(8);
    let (mut first, mut second, mut third) = (holder(160), holder(100), holder(60));
    meminfo.is(Memory { available_mib: 165, ..PLENTY });
    wait_for("the list comes from the programs", || {
        let selection = selection(&fixture);
        selection["from"] == "programs" && !selection["ready_ns"].is_null()
    });
    // One shrinks, which nobody notes before the next list; one grows, which is noted.
    has(&mut second, 1);
    has(&mut third, 120);
    meminfo.is(DIRE);
    let incidents = fixture.incidents(2);
    meminfo.is(PLENTY);
    let victims: Vec<_> =
        incidents.iter().take(2).map(|one| one["victims"][0]["pid"].as_u64().unwrap()).collect();
    assert_eq!(victims, [u64::from(first.pid()), u64::from(third.pid())], "{incidents:?}");
    first.killed();
    third.killed();
    let last = &selection(&fixture)["last"];
    let (processes, looks) = (last["processes"].as_u64().unwrap(), last["looks"].as_u64().unwrap());
    assert!(processes >= 3 && looks <= processes, "{last}");
}

/// Hides memory: of each huge page one page is handed to a pipe, and the whole is let go of.
const HIDES: &str = "HUGE = 2 << 20\n\
    libc = ctypes.CDLL(None)\n\
    class Piece(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n\
    mebibytes = int(hear()); pipes = [os.pipe() for _ in range(mebibytes // 32 + 1)]\n\
    for turn in range(mebibytes // 2):\n\
    \x20   area = mmap.mmap(-1, 2 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   at = ctypes.addressof(ctypes.c_char.from_buffer(area)); at += -at % HUGE\n\
    \x20   area.madvise(mmap.MADV_HUGEPAGE); ctypes.memset(at, 1, HUGE)\n\
    \x20   end = pipes[turn % len(pipes)][1]\n\
    \x20   assert libc.vmsplice(end, ctypes.byref(Piece(at, 4096)), ctypes.c_ulong(1), 0) == 4096\n\
    \x20   area.close()\n\
    say('has')\nhear()\n";

#[test]
fn who_hides_memory_in_pipes_is_told_of_when_memory_is_short_and_ended_before_who_shows_less() {
    let Some(_) = guest::disk() else { return };
    let protect = protecting_others();
    let fixture = fixture!(&protect);
    let meminfo = ends_at_once(&fixture, &protect);
    let (mut hider, mut other) = (fixture.python(ALICE, HIDES), fixture.python(ALICE, HOLDS));
    has(&mut hider, 160);
    has(&mut other, 100);
    wait_for("the programs list who there is", || {
        meminfo.is(Memory { available_mib: 165, unseen_mib: 1000, ..PLENTY });
        selection(&fixture)["from"] == "programs"
    });
    let told = format!("most by process {} (160.0 MiB)", hider.pid());
    wait_for("it is told who hides it", || fixture.log().contains(&told));
    meminfo.is(Memory { unseen_mib: 1000, ..DIRE });
    let incident = fixture.incidents(1).remove(0);
    meminfo.is(PLENTY);
    assert_eq!(incident["victims"][0]["pid"].as_u64(), Some(hider.pid().into()), "{incident}");
    assert!(incident["victims"][0]["usage_bytes"].as_u64().unwrap() >= 160 << 20, "{incident}");
    hider.killed();
}

/// Guards the machine itself, and would end nobody but where hardly anything is left.
const FAR: &str = "[machine]\nterm_memory = 0.1\nkill_memory = 0.1\nnotice = false\nreclaim = false\n";

fn guarding_from_afar(fixture: &Fixture) {
    fs::write(fixture.path("plimsoll.toml"), FAR).unwrap();
    fixture.reload();
    wait_for("the programs tell when to look", || fixture.status()["pressure"]["looks"] == "programs");
}

fn wake_ups(fixture: &Fixture) -> u64 {
    fixture.status()["guards"]["own"]["wake_ups"].as_u64().unwrap()
}

fn wake_ups_in(fixture: &Fixture, span: Duration) -> u64 {
    let before = wake_ups(fixture);
    std::thread::sleep(span);
    wake_ups(fixture) - before
}

#[test]
fn a_cpu_that_works_has_memory_looked_at() {
    let fixture = fixture!();
    guarding_from_afar(&fixture);
    let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut busy = Killed(busy);
    let times = wake_ups_in(&fixture, Duration::from_secs(4));
    assert!(busy.0.try_wait().unwrap().is_none(), "the loop runs all the time");
    // Three times at least, ten times a second where memory is small, and the question twice.
    assert!((5..=46).contains(&times), "woken {times} times in 4 s");
}

#[test]
fn a_machine_whose_cpus_idle_wakes_nobody() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    guarding_from_afar(&fixture);
    let cgroup = Cgroup::limited("idle", 1024).unwrap();
    let account = format!("cgroup:{}", cgroup.path());
    for account in [&account, "system"] {
        fixture.ok(&["limit", "set", account, "64M", "--action", "notify"]);
    }
    let woken_in = |seconds| wake_ups_in(&fixture, Duration::from_secs(seconds));
    // The question takes some, for it has a CPU work, which is a time to look.
    std::thread::sleep(Duration::from_secs(3));
    let question = (0..4).map(|_| woken_in(1)).min().unwrap();
    // One of five, as a guest has other things to do now and then. A timer would come eight times more.
    let mut spans = (0..5).map(|_| woken_in(9)).inspect(|woken| {
        println!("MEASURED: woken {question} times in 1 s, {woken} in 9 s");
    });
    assert!(spans.any(|woken| woken <= question + 5), "woken more often in each of five times 9 s");
    fixture.ok(&["limit", "clear", "system"]);
    fixture.ok(&["limit", "set", &account, "64M"]);
    std::thread::sleep(Duration::from_secs(3));
    let mut hog = fixture.within(&cgroup, ALICE, "bloat", &["--mebibytes=512"]);
    hog.killed();
    let incident = fixture.incidents(1).remove(0);
    println!("MEASURED: {} MiB over", incident["overshoot_bytes"].as_u64().unwrap() >> 20);
}

/// Ended when dropped.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Takes more than there is, and goes over all of it again and again.
const THRASHES: &str = "memory = mmap.mmap(-1, int(hear()) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    memory.madvise(mmap.MADV_NOHUGEPAGE)\n\
    say('begins')\n\
    round = 0\n\
    while True:\n\
    \x20   round += 1\n\
    \x20   for page in range(0, len(memory), 4096): memory[page] = round & 255\n";

#[test]
fn a_guest_that_thrashes_with_swap_free_has_its_hog_killed() {
    let Some(disk) = guest::disk() else { return };
    let _swap = guest::Swap::on(disk);
    let fixture = fixture!();
    let config = "[machine]\nnotice = false\nreclaim = false\nterm_grace_ms = 60000\n";
    fs::write(fixture.path("plimsoll.toml"), config).unwrap();
    fixture.reload();
    let total = fixture.status()["pressure"]["mem_total_bytes"].as_u64().unwrap() >> 20;
    let mut hog = fixture.python(ALICE, THRASHES);
    hog.tell(&(total + 100).to_string());
    hog.stage("begins");
    hog.killed();
    let incident = fixture.incidents(1).remove(0);
    assert_eq!(incident["reason"], "machine-thrashing", "{incident}");
    assert_eq!(incident["victims"][0]["pid"].as_u64(), Some(u64::from(hog.pid())), "{incident}");
    let left = &fixture.status()["pressure"];
    let half = left["swap_total_bytes"].as_u64().unwrap() / 2;
    assert!(left["swap_free_bytes"].as_u64().unwrap() > half, "{left}");
}
