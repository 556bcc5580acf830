//! Victims whose memory cannot all be freed from outside: what can is, and the rest is said.

use super::{PATIENCE, reap_one};
use crate::process::{
    PidFd, Reap, page_size,
    testing::{Freezer, Guest, TEST_UID, proc_root},
};
use plimsoll_policy::{
    reap::Hindrance,
    units::{Bytes, Pid},
    victim::Signal,
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::Command,
    time::Instant,
};

const MIB: u64 = 1 << 20;

/// Begins every script: 16 MiB of its own, and a watchdog.
const OWN: &str = "import ctypes, mmap, os, signal, sys, threading, time\n\
    signal.alarm(60)\n\
    own = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    def touch(memory):\n\
    \x20   for page in range(0, len(memory), 4096): memory[page] = 1\n\
    touch(own)\n";

const WAIT: &str = "print('ready', threading.get_native_id(), flush=True)\nsys.stdin.read()\n";

/// Runs a script, and gives what it says in its first line after `ready`.
fn script(user: u32, lines: &str) -> Option<(Guest, Pid)> {
    let text = format!("{OWN}{lines}");
    let mut guest = Guest::start(Command::new("python3").args(["-c", &text]).uid(user).gid(user));
    let mut said = String::new();
    BufReader::new(guest.stdout().by_ref()).read_line(&mut said).unwrap();
    match said.strip_prefix("ready ") {
        Some(thread) => Some((guest, Pid(thread.trim().parse().unwrap()))),
        None => {
            crate::process::testing::skip(format_args!(
                "python3 with these libraries is not there: {said:?}"
            ));
            None
        }
    }
}

#[test]
fn locked_memory_comes_back_and_is_said() {
    let lock = "start = ctypes.addressof(ctypes.c_char.from_buffer(own))\n\
        assert ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(16 << 20)) == 0\n";
    let Some((guest, _)) = script(0, &format!("{lock}{WAIT}")) else { return };
    // So that what is reported does not depend on how fast it lets go of its memory.
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid()]);
    let (report, _) = reap_one(&guest);
    assert!(report.exited && report.found.contains(Hindrance::Locked), "{report:?}");
    assert!(report.held.unwrap().locked >= Some(Bytes(16 * MIB)), "{report:?}");
    assert_eq!(report.left, Some(Bytes(0)));
}

#[test]
fn shared_memory_stays_while_others_have_it_and_is_said() {
    let share = "file = os.memfd_create('shared')\n\
        os.ftruncate(file, 24 << 20)\n\
        shared = mmap.mmap(file, 24 << 20)\n\
        touch(shared)\n";
    let Some((guest, _)) = script(TEST_UID, &format!("{share}{WAIT}")) else { return };
    let Some(freezer) = Freezer::make() else { return };
    let folder = format!("/proc/{}/fd", guest.pid());
    let is_shared =
        |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:shared"));
    let descriptors = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let other = fs::File::open(descriptors.into_iter().find(|path| is_shared(path)).unwrap()).unwrap();
    freezer.freeze(&[guest.pid()]);
    let (report, _) = reap_one(&guest);
    assert!(report.exited && report.found.contains(Hindrance::SharedMemory), "{report:?}");
    // Before Linux 6.2 a thread keeps up to 64 pages to itself before they are counted.
    assert!(report.held.unwrap().shared >= Some(Bytes(23 * MIB)), "{report:?}");
    // What comes back is the rest, and what others have is as it was.
    assert!(report.held.unwrap().anonymous >= Bytes(16 * MIB) && report.left == Some(Bytes(0)), "{report:?}");
    let mut first = [0];
    (&other).read_exact(&mut first).unwrap();
    assert_eq!(first, [1]);
}

/// In the lab, where the pool of huge pages is nobody else's.
#[test]
fn huge_pages_go_back_to_their_pool_and_are_said() {
    if !Path::new("/run/lab/tree").exists() {
        return crate::process::testing::skip(
            "not a guest of the lab, whose pool of huge pages may be changed",
        );
    }
    fs::write("/proc/sys/vm/nr_hugepages", "8").unwrap();
    let huge = "huge = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\n\
        touch(huge)\n";
    let Some((guest, _)) = script(0, &format!("{huge}{WAIT}")) else { return };
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze(&[guest.pid()]);
    let (report, _) = reap_one(&guest);
    assert!(report.exited && report.found.contains(Hindrance::Hugetlb), "{report:?}");
    assert_eq!(report.held.unwrap().hugetlb, Some(Bytes(8 * MIB)));
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let free = meminfo.lines().find(|line| line.starts_with("HugePages_Free:")).unwrap().to_owned();
    fs::write("/proc/sys/vm/nr_hugepages", "0").unwrap();
    assert!(free.ends_with(" 8"), "{free}");
}

#[test]
fn a_victim_that_is_writing_its_core_is_not_freed_before_and_that_is_said() {
    // The second thread is frozen, and the dump waits for it.
    let abort = "def second():\n\
        \x20   print('ready', threading.get_native_id(), flush=True)\n\
        \x20   time.sleep(60)\n\
        threading.Thread(target=second, daemon=True).start()\n\
        sys.stdin.readline()\n\
        os.abort()\n";
    let Some((mut guest, second)) = script(TEST_UID, abort) else { return };
    let Some(freezer) = Freezer::make() else { return };
    freezer.freeze_thread(second);
    guest.stdin().write_all(b"go\n").unwrap();
    let dumping = || {
        let status = fs::read_to_string(format!("/proc/{}/status", guest.pid())).unwrap();
        status.lines().any(|line| line == "CoreDumping:\t1")
    };
    let start = Instant::now();
    while !dumping() {
        assert!(start.elapsed() < PATIENCE, "it does not begin to write");
    }
    let (report, rates) = reap_one(&guest);
    assert!(report.found.contains(Hindrance::CoreDump), "{report:?}");
    assert!(!report.found.contains(Hindrance::SharedSpace), "{report:?}");
    assert!(report.held.unwrap().anonymous >= Bytes(16 * MIB), "{report:?}");
    // Nobody shares it: nothing may be said to stay behind once it is gone.
    assert!(!report.exited || report.left.is_none_or(|left| left == Bytes(0)), "{report:?}");
    assert_eq!(rates.count(), 0);
}

/// The parent's sleep cannot be frozen, and SIGKILL ends it: which of both comes first is open.
#[test]
fn a_parent_that_waits_in_vfork_ends_and_its_child_keeps_the_memory() {
    let clone = if cfg!(target_arch = "x86_64") { "56" } else { "220" };
    // CLONE_VM | CLONE_VFORK | SIGCHLD: the parent sleeps until the child, which sleeps too, lets go of the memory.
    let text = format!("$x = 'x' x 16777216; syscall({clone}, 0x4100 | 17, 0, 0, 0, 0); sleep 60");
    let guest = Guest::start(Command::new("perl").args(["-e", &text]));
    let children = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", guest.pid())).unwrap();
    let start = Instant::now();
    while children().trim().is_empty() {
        assert!(start.elapsed() < PATIENCE, "it has no child");
    }
    let child = PidFd::open(Pid(children().trim().parse().unwrap())).unwrap();
    let (report, _) = reap_one(&guest);
    let keeps = proc_root().process(child.pid()).unwrap().usage().known();
    child.send_signal(Signal::Kill).unwrap();
    assert!(keeps.is_some_and(|usage| page_size().to_bytes(usage) > Bytes(16 * MIB)), "{keeps:?}");
    assert!(report.exited && report.measured().is_none(), "{report:?}");
    if report.result == Reap::NotDying {
        assert!(report.found.contains(Hindrance::SharedSpace), "{report:?}");
    } else {
        assert!(report.result == Reap::AlreadyGone && report.left.is_none(), "{report:?}");
    }
}
