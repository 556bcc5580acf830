//! A process that holds its own address space for ever costs nobody else an incident, a name, a survey or the reaper.
//!
//! Any user can make one: whoever unmaps a page that was written to waits for the file system, with the lock of the address
//! space held, and the file system is theirs (FUSE). `/proc/PID/cmdline`, `smaps_rollup` and `maps` wait for that lock, and so
//! does `process_mrelease`.
#![cfg(test)]

mod support;

use plimsoll_wire::text::ProcessState;
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use support::{Fixture, SOON, exact, program::Program, slowness, until, wait_for};

/// Users of no other suite.
const ALICE: u32 = 60_170;
const BOB: u32 = 60_171;

/// A file system that never answers a write. Each process has a file of its own there, by its number.
const SERVER: &str = r"
def attributes(node):
    return struct.pack('<6Q10I', node, 4096, 8, 0, 0, 0, 0, 0, 0, 0o40755 if node == 1 else 0o100666, 1, 0, 0, 0, 4096, 0)
def answer(request, error, body=b''):
    os.write(device, struct.pack('<IiQ', 16 + len(body), error, request) + body)
import struct
libc = ctypes.CDLL(None, use_errno=True)
try: device = os.open('/dev/fuse', os.O_RDWR)
except OSError as error: say('refused', error); sys.exit()
options = f'fd={device},rootmode=40000,user_id=0,group_id=0,allow_other'.encode()
if libc.mount(b'stuck', FOLDER.encode(), b'fuse', 6, options) != 0:
    say('refused', os.strerror(ctypes.get_errno())); sys.exit()
say('mounted')
while True:
    text = os.read(device, 1 << 20)
    _, operation, request, node = struct.unpack_from('<IIQQ', text)
    if operation == 26: answer(request, 0, struct.pack('<4I2H2I', 7, 31, 65536, 0, 16, 12, 4096, 1).ljust(64, b'\0'))
    elif operation == 1:
        node = int(text[40:].rstrip(b'\0'))
        answer(request, 0, struct.pack('<4Q2I', node, 0, 60, 60, 0, 0) + attributes(node))
    elif operation == 3: answer(request, 0, struct.pack('<Q2I', 60, 0, 0) + attributes(node))
    elif operation in (14, 27): answer(request, 0, struct.pack('<Q2I', 1, 0, 0))
    elif operation == 15: answer(request, 0, bytes(4096))
    elif operation == 16: say('stuck')
    elif operation not in (2, 42): answer(request, -38)
";

/// Maps its file, writes to it, and has something else mapped over it: does not come back.
const STICK: &str = r"
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def stick():
    at = libc.mmap(None, 4096, 3, 1, os.open(f'{FOLDER}/{os.getpid()}', os.O_RDWR), 0)
    ctypes.memset(at, 1, 1)
    libc.mmap(at, 4096, 3, 0x32, -1, 0)
def fill(mebibytes):
    block = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, mebibytes << 20, 4096): block[at] = 1
    return block
";

/// The file system; where it ends, every request fails, and whoever waited goes on.
struct Stuck {
    server: Program,
    folder: String,
    /// Who waits for it: cannot be ended before it has.
    waiting: Vec<Program>,
}

impl Stuck {
    /// `None` where no such file system can be mounted, which is said.
    fn mount(fixture: &Fixture) -> Option<Self> {
        let folder = fixture.path("stuck").display().to_string();
        fs::create_dir(&folder).unwrap();
        let mut server = fixture.root_python(&format!("FOLDER = {folder:?}\n{SERVER}"));
        let said = server.line();
        if said != "mounted" {
            support::skip(format_args!("no FUSE file system can be mounted here: {said}"));
            return None;
        }
        Some(Self { server, folder, waiting: Vec::new() })
    }

    /// A script of a user's that has `stick` and `fill`.
    fn python(&self, fixture: &Fixture, user: u32, script: &str) -> Program {
        fixture.python(user, &format!("FOLDER = {:?}\n{STICK}{script}", self.folder))
    }

    /// A script whose process gets stuck after it has said its number: that.
    fn stick(&mut self, fixture: &Fixture, user: u32, script: &str) -> u32 {
        let mut program = self.python(fixture, user, script);
        let pid = program.stage("sticks").parse().unwrap();
        self.waiting.push(program);
        assert_eq!(self.server.line(), "stuck");
        wait_for("it sleeps with its address space held", || {
            exact::state(pid) == Some(ProcessState::Uninterruptible)
        });
        let read =
            Command::new("timeout").args(["0.2", "cat", &format!("/proc/{pid}/cmdline")]).output().unwrap();
        assert_eq!(read.status.code(), Some(124), "{read:?}");
        pid
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.server.stop();
        drop(Command::new("umount").args(["--lazy", &self.folder]).status());
    }
}

/// Fills up to its line's soft limit, and past the line when it is told to.
const HOG: &str =
    "near = fill(60)\nsay('near', os.getpid()); hear()\nmore = fill(64)\nsay('past the line')\n";

#[test]
fn a_process_that_is_stuck_costs_nobody_an_incident_and_nobody_else_a_command_line() {
    let fixture = fixture!();
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    fixture.limit(ALICE, "64M", &[]);
    fixture.limit(BOB, "64M", &[]);
    let sticks = stuck.stick(&fixture, ALICE, "held = fill(36)\nsay('sticks', os.getpid())\nstick()\n");
    // Who is stuck is the largest, and is written about while nothing can be read of it.
    let mut hers = stuck.python(&fixture, ALICE, "say('starts')\nmore = fill(64)\n");
    hers.stage("starts");
    let mut his = stuck.python(&fixture, BOB, HOG);
    let pid: u32 = his.stage("near").parse().unwrap();
    until("he is near", SOON, || (fixture.account(BOB)?["near"] == true).then_some(()));
    // A name is read within moments of somebody's being near, or after a stuck one of another's was waited for.
    std::thread::sleep(Duration::from_secs(2));
    his.tell("go on");
    his.killed();
    let by_both = |all: &Vec<Value>| {
        [ALICE, BOB].iter().all(|user| all.iter().any(|one| one["account"] == *format!("user:{user}")))
    };
    let incidents = until("incidents of both", SOON, || Some(fixture.history()).filter(by_both));
    let of = |user: u32| {
        let account = format!("user:{user}");
        incidents
            .iter()
            .find(|one| one["account"] == *account)
            .unwrap_or_else(|| panic!("{user}: {incidents:#?}"))
    };
    assert_eq!(of(ALICE)["victims"][0]["pid"], sticks);
    let victim = &of(BOB)["victims"][0];
    assert_eq!(victim["pid"], pid);
    // The programs have its start only.
    assert!(victim["cmdline"].as_str().is_some_and(|line| line.contains("past the line")), "{victim}");
}

#[test]
fn a_process_that_is_stuck_keeps_nobody_elses_copies_from_being_charged() {
    let fixture = fixture!();
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    fixture.limit(ALICE, "100M", &["--soft", "30M"]);
    fixture.limit(BOB, "100M", &[]);
    let forks = "held = fill(40)\nchild = os.fork()\nif child == 0: stick()\nsay('sticks', child); hear()\n";
    let child = stuck.stick(&fixture, ALICE, forks);
    // Long enough for two surveys.
    std::thread::sleep(Duration::from_millis(1200));
    let mut scripted = fixture.scripted(&[BOB]);
    let parent = scripted.make(1, &format!("start {BOB}"));
    scripted.tell(1, "touch 61440");
    let forked = scripted.make(1, "fork 2");
    let wrote = scripted.attempt(2, "write");
    assert!(wrote.is_ok() || wrote == Err("gone".to_owned()), "{wrote:?}");
    let incident = fixture.incidents(1).remove(0);
    let victim = incident["victims"][0]["pid"].as_u64().unwrap();
    assert!([parent, forked].map(u64::from).contains(&victim), "{incident}");
    assert!(Path::new(&format!("/proc/{child}")).exists());
}

#[test]
fn processes_that_are_stuck_keep_no_copies_of_their_own_user_from_being_found() {
    let fixture = fixture!();
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    // So far from it nobody counts copies as they are made.
    fixture.limit(ALICE, "1G", &[]);
    let forks = "held = fill(20)\nchild = os.fork()\nif child == 0: stick()\nsay('sticks', child); hear()\n";
    let family = |copies: bool| {
        let write = if copies { "for at in range(0, 40 << 20, 4096): held[at] = 2" } else { "pass" };
        format!(
            "held = fill(40)\nchild = os.fork()\nif child == 0:\n    {write}\n    say('is there')\nhear()\n"
        )
    };
    // In no order of their addresses.
    let mut families = Vec::new();
    for copies in [true, false, true, false] {
        families.push(stuck.python(&fixture, ALICE, &family(copies)));
        stuck.stick(&fixture, ALICE, forks);
    }
    families.iter_mut().for_each(|one| assert_eq!(one.line(), "is there"));
    let mebibytes = || (fixture.usage_pages(ALICE) * exact::page_bytes()) >> 20;
    let before = mebibytes();
    let since = Instant::now();
    fixture.limit(ALICE, "1G", &["--soft", "100M"]);
    // And no others are: of what those share that are stuck (20 MiB and the interpreter) half may be copies.
    let most = before + 2 * 40 + 4 * 14;
    while since.elapsed() < Duration::from_secs(4) * slowness() {
        let found = mebibytes();
        assert!(found <= most, "{found} of {before} after {:?}", since.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    let found = mebibytes();
    assert!(found >= before + 2 * 40, "{found} of {before}");
    assert_eq!(fixture.history(), Vec::<Value>::new());
}

/// The v1 freezer: what is in it does not run when it is killed, so that nobody but the reaper frees its memory.
struct Freezer {
    folder: PathBuf,
}

impl Freezer {
    const MOUNTED: &str = "/sys/fs/cgroup/freezer";

    /// Freezes a process; `None` where there is no such freezer.
    fn freeze(pid: u32) -> Option<Self> {
        let folder = Path::new(Self::MOUNTED).join(format!("plimsoll-stuck-{pid}"));
        if !Path::new(Self::MOUNTED).join("cgroup.procs").exists() {
            return None;
        }
        fs::create_dir(&folder).unwrap();
        let freezer = Self { folder };
        fs::write(freezer.folder.join("cgroup.procs"), pid.to_string()).unwrap();
        wait_for("it is frozen", || {
            fs::write(freezer.folder.join("freezer.state"), "FROZEN").unwrap();
            let state = fs::read_to_string(freezer.folder.join("freezer.state")).unwrap();
            state.trim() == "FROZEN"
        });
        Some(freezer)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        drop(fs::write(self.folder.join("freezer.state"), "THAWED"));
        let left = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            drop(fs::write(Path::new(Self::MOUNTED).join("cgroup.procs"), pid));
        }
        drop(fs::remove_dir(&self.folder));
    }
}

/// One more than the reaper has threads on any machine.
const MORE_THAN_THREADS: usize = 5;

/// Gets stuck, and is large enough for a second thread to help with.
const LARGE: &str = "held = fill(130)\nsay('sticks', os.getpid())\nstick()\n";

/// The daemon's threads that are called so.
fn threads(fixture: &Fixture, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", fixture.daemon_pid())).unwrap();
    let named = |path: PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    tasks.flatten().filter(|task| named(task.path())).count()
}

/// What the journal says of a victim's end.
#[track_caller]
fn told(fixture: &Fixture, pid: u32) -> String {
    until("the journal tells of the victim", SOON, || {
        fixture.log().lines().find(|line| line.contains(&format!("process {pid}: "))).map(str::to_owned)
    })
}

/// A victim of Bob's that does not run when it is killed, where it can be kept from that: how long its memory took to be
/// free, and what the journal says.
fn reap_his(fixture: &Fixture, stuck: &Stuck) -> (Duration, String) {
    // Nice, so that the journal has something to tell in any case.
    let script = "os.nice(19)\nheld = fill(100)\nsay('holds', os.getpid()); hear()\n";
    let mut his = stuck.python(fixture, BOB, script);
    let pid: u32 = his.stage("holds").parse().unwrap();
    let _frozen = Freezer::freeze(pid);
    let mut smaller = stuck.python(fixture, BOB, "say('starts')\nmore = fill(60)\nsay('done'); hear()\n");
    smaller.stage("starts");
    his.killed();
    let told = told(fixture, pid);
    let freed = until("what came back of his", SOON, || {
        let mut all = fixture.history();
        all.retain(|one| one["victims"][0]["pid"] == pid && one["freed_bytes"].as_u64() > Some(100 << 20));
        all.first()?["signal_to_freed_ns"].as_u64()
    });
    (Duration::from_nanos(freed), told)
}

#[test]
fn victims_that_are_stuck_keep_nobody_elses_memory_from_being_reaped() {
    let mut fixture = fixture!();
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    fixture.limit(ALICE, "1G", &[]);
    fixture.limit(BOB, "128M", &[]);
    let (alone, _) = reap_his(&fixture, &stuck);
    let before = threads(&fixture, "reaper");
    let hers: Vec<u32> = (0..MORE_THAN_THREADS).map(|_| stuck.stick(&fixture, ALICE, LARGE)).collect();
    fixture.limit(ALICE, "16M", &["--now"]);
    wait_for("all of hers were killed", || {
        hers.iter().all(|pid| exact::status(*pid).unwrap().kill_is_pending())
    });
    let (beside, line) = reap_his(&fixture, &stuck);
    println!("his victim: {alone:?} alone, {beside:?} beside {MORE_THAN_THREADS} of hers: {line}");
    assert!(line.contains("was nice to others") && !line.contains("holds its address space"), "{line}");
    assert!(beside < alone + Duration::from_secs(1) * slowness(), "{alone:?} alone, {beside:?} beside hers");
    // Hers are told of as well, each at its deadline.
    for pid in hers {
        let line = told(&fixture, pid);
        assert!(
            line.contains("its user holds its address space") && line.contains("did not come back"),
            "{line}"
        );
    }
    let during = threads(&fixture, "reaper");
    // Her share of two, and those that were with others of hers at the same time.
    assert!(during > before && during <= 2 * before + 2, "{before} threads before, {during} now");
    let stops = Instant::now();
    fixture.end_daemon(Signal::TERM);
    let stopped = stops.elapsed();
    assert!(stopped < Duration::from_secs(4) * slowness(), "{stopped:?}");
    assert!(!fixture.log().contains("did not end well"), "{}", fixture.log());
}

#[test]
fn a_reaper_thread_that_was_left_to_a_victim_ends_when_that_lets_go() {
    let fixture = fixture!();
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    fixture.limit(ALICE, "1G", &[]);
    let before = threads(&fixture, "reaper");
    let hers = stuck.stick(&fixture, ALICE, LARGE);
    fixture.limit(ALICE, "16M", &["--now"]);
    wait_for("one is left to it", || threads(&fixture, "reaper") > before);
    told(&fixture, hers);
    stuck.server.stop();
    wait_for("it has ended", || threads(&fixture, "reaper") == before);
    let is_gone = || exact::state(hers).is_none_or(|state| state == ProcessState::Zombie);
    wait_for("her victim is gone", is_gone);
    // The next one's memory is freed as ever.
    let mut next =
        stuck.python(&fixture, ALICE, "os.nice(19)\nsay('is', os.getpid()); hear()\nmore = fill(64)\n");
    let pid: u32 = next.stage("is").parse().unwrap();
    next.tell("go on");
    next.killed();
    let line = told(&fixture, pid);
    assert!(line.contains("was nice to others") && !line.contains("holds its address space"), "{line}");
}

/// Each that is stuck is a victim of the next, and none of them gives anything back.
#[test]
fn stuck_victims_make_no_more_room_where_their_user_redraws_the_own_line() {
    let fixture = fixture!("[limits]\nkill_deadline_ms = 60000\n");
    let Some(mut stuck) = Stuck::mount(&fixture) else { return };
    fixture.limit(ALICE, "64M", &[]);
    for n in 0..6 {
        let mut next =
            stuck.python(&fixture, ALICE, "held = fill(56)\nsay('sticks', os.getpid())\nstick()\n");
        let sticks = until("it is stuck, or was killed", SOON, || {
            next.try_line().map(|_| true).or_else(|| (!next.runs()).then_some(false))
        });
        if !sticks {
            break;
        }
        stuck.waiting.push(next);
        assert_eq!(stuck.server.line(), "stuck");
        let line = if n % 2 == 0 { "63M" } else { "64M" };
        let more: &[&str] = if n % 3 == 1 { &["--now"] } else { &[] };
        let told = fixture.run_as(ALICE, &[&["limit", "set", "60170", line][..], more].concat());
        println!("{n}: {} of {told:?}", fixture.usage_pages(ALICE));
    }
    let peak = fixture.facts(ALICE).peak;
    let most = exact::pages_of_kib(132 << 10);
    assert!(peak.0 <= most, "{peak:?} pages were held at once, of two lines");
}
