//! The scenarios.

use super::{
    crowd::{Crowd, Hog},
    stage::{Frozen, HOG_UID, OTHER_UID, Stage, SwapKind, user_script},
};
use crate::{child::Workload, error::BenchError, proc};
use std::{fmt::Display, fs, process::Command};

/// What is to become of the hogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// Each ends, or gets what it wants where others do: memory runs out before.
    Ends,
    /// They go on taking: some end.
    Lasts,
    /// Nobody ends.
    Calm,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) swap: SwapKind,
    pub(super) course: Course,
    /// In the quick form, too.
    pub(super) quick: bool,
    /// It needs one of the files.
    pub(super) files: bool,
    pub(super) start: fn(&Stage<'_>) -> Result<Crowd, BenchError>,
    /// Called again and again, twenty times a second.
    pub(super) pace: fn(&Stage<'_>, &mut Crowd),
}

const HOG: Scenario = Scenario {
    name: "",
    swap: SwapKind::None,
    course: Course::Ends,
    quick: false,
    files: false,
    start: hog,
    pace: no_pace,
};

pub(super) const ALL: [Scenario; 14] = [
    Scenario { name: "hog, no swap", quick: true, ..HOG },
    Scenario { name: "hog, zram", swap: SwapKind::Compressed, ..HOG },
    Scenario { name: "hog, swap on disk", swap: SwapKind::Disk, ..HOG },
    Scenario { name: "leak", start: idle, pace: leak, ..HOG },
    Scenario { name: "thrash, swap free", quick: true, swap: SwapKind::Disk, start: thrash, ..HOG },
    Scenario { name: "hog beside a larger one that is avoided", start: avoided, ..HOG },
    Scenario { name: "SIGTERM is ignored", start: stubborn, ..HOG },
    Scenario { name: "the largest is stuck", files: true, start: stuck, ..HOG },
    Scenario { name: "many small processes", quick: true, start: small, ..HOG },
    Scenario { name: "many small cgroups", start: small_cgroups, ..HOG },
    Scenario { name: "fork bomb", course: Course::Lasts, start: bomb, ..HOG },
    Scenario { name: "dd | tr | tail", start: pipeline, ..HOG },
    Scenario { name: "big page cache", course: Course::Calm, files: true, start: stream, ..HOG },
    // Not in the quick form: where a machine is emulated and others work, it may last longer than what is let pass.
    Scenario { name: "spike", course: Course::Calm, start: idle, pace: spike, ..HOG },
];

/// How many programs the memory is spread over, each of which takes a twenty-fourth part of it.
const SMALL: usize = 36;

/// Doubles: each holds 24 MiB that nobody takes from it as long as it has descendants; up to 150 processes at once.
const BOMB: &str = "ulimit -u 150; f() { dd if=/dev/zero bs=24M count=1 2>/dev/null | { f & f; }; }; \
                    while :; do (f); done";

/// Maps a page of a file that cannot be written to any more, and has something else mapped over it while another thread waits
/// to write: neither comes back before the file system does, and the address space is locked meanwhile.
const STICK: &str = r"
import ctypes, mmap, os, sys, threading, time
path, mebibytes = sys.argv[1], int(sys.argv[2]) >> 20
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
held = b'x' * (mebibytes << 20)
at = libc.mmap(None, 4096, 3, 1, os.open(path, os.O_RDWR), 0)
print('ready', flush=True)
sys.stdin.readline()
threading.Thread(target=libc.memset, args=(at, 1, 1), daemon=True).start()
time.sleep(1)
print('sticks', flush=True)
libc.mmap(at, 4096, 3, 0x32, -1, 0)
";

fn no_pace(_stage: &Stage<'_>, _crowd: &mut Crowd) {}

/// Has it take so many sixteenths of memory, one after the other. One that was ended meanwhile takes no word any more.
fn take(stage: &Stage<'_>, hog: &mut Workload, sixteenths: usize) {
    for _ in 0..sixteenths {
        drop(hog.tell(&format!("take {}", stage.part(16))));
    }
}

fn hog(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let mut hog = stage.hold(HOG_UID, 0)?;
    take(stage, &mut hog, 40);
    Ok(Crowd::of(hog))
}

fn idle(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    stage.hold(HOG_UID, 0).map(Crowd::of)
}

/// A two-hundredth part of memory each tick.
fn leak(stage: &Stage<'_>, crowd: &mut Crowd) {
    crowd.tell(&format!("take {}", stage.part(200)));
}

/// Takes as `leak` does until a twelfth is left, and gives it all back, again and again.
fn spike(stage: &Stage<'_>, crowd: &mut Crowd) {
    if proc::available_bytes().is_ok_and(|bytes| bytes > stage.part(12)) {
        leak(stage, crowd);
    } else {
        crowd.tell("free");
    }
}

fn thrash(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let mut hog = stage.hold(HOG_UID, 0)?;
    take(stage, &mut hog, 17);
    drop(hog.tell("use"));
    Ok(Crowd::of(hog))
}

fn avoided(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let large = stage.hold(OTHER_UID, stage.part(10) * 4)?;
    let file = format!("/proc/{}/oom_score_adj", large.pid());
    fs::write(&file, "-900").map_err(BenchError::io(format!("write {file}")))?;
    Ok(Crowd { others: vec![large], ..hog(stage)? })
}

fn stubborn(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    // In the shell its own name is another program's.
    let workload = fs::canonicalize(&stage.options.workload).map_err(BenchError::io("find the workload"))?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' TERM; exec \"$0\" \"$@\""]).arg(workload);
    let mut hog = Workload::start_prepared(command, &[&"hold", &HOG_UID, &0])?;
    take(stage, &mut hog, 40);
    Ok(Crowd::of(hog))
}

fn stuck(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let page = stage.page()?;
    let mut command = user_script(HOG_UID, "exec /usr/bin/python3 -c \"$0\" \"$@\"");
    command.arg(STICK).arg(page).arg(stage.part(2).to_string());
    let mut largest = Workload::spawn(command, "stick")?;
    largest.expect("ready")?;
    let frozen = Frozen::file_system_of(page)?;
    largest.tell("stick")?;
    largest.expect("sticks")?;
    let mut crowd = hog(stage)?;
    crowd.stuck.push(largest);
    crowd.frozen = Some(frozen);
    Ok(crowd)
}

fn small(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let mut crowd = Crowd::default();
    for _ in 0..SMALL {
        crowd.hogs.push(Hog::that_wants(stage.hold(HOG_UID, 0)?, stage.part(24)));
    }
    crowd.tell(&format!("take {}", stage.part(24)));
    Ok(crowd)
}

fn small_cgroups(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let mut crowd = Crowd::default();
    for number in 0..SMALL {
        let hog = stage.hold(HOG_UID, 0)?;
        crowd.groups.push(stage.group_with(&number.to_string(), hog.pid())?);
        crowd.hogs.push(Hog::that_wants(hog, stage.part(24)));
    }
    crowd.tell(&format!("take {}", stage.part(24)));
    Ok(crowd)
}

/// A shell's script, of the hogs' user, in a cgroup of its own.
fn script(stage: &Stage<'_>, text: &str) -> Result<Crowd, BenchError> {
    // It waits for a line until it is where it belongs.
    let script = user_script(HOG_UID, &format!("read line; {text}"));
    let mut shell = Workload::spawn(script, text)?;
    let group = stage.group_with("script", shell.pid())?;
    shell.tell("go")?;
    Ok(Crowd { groups: vec![group], ..Crowd::of(shell) })
}

fn bomb(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    script(stage, BOMB)
}

fn pipeline(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let bytes = stage.part(1) * 2;
    script(stage, &format!("dd if=/dev/zero bs=1M | tr '\\0' x | tail -c {bytes} >/dev/null"))
}

fn stream(stage: &Stage<'_>) -> Result<Crowd, BenchError> {
    let words: [&dyn Display; 3] = [&"stream", &OTHER_UID, &stage.large()?.display()];
    let mut stream = Workload::start(&stage.options.workload, &words)?;
    stream.tell("go")?;
    Ok(Crowd { others: vec![stream], ..Crowd::default() })
}
