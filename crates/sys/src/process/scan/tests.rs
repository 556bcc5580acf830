use super::*;
use crate::process::testing::{Guest, TEST_UID, proc_root, wait_for_exit};
use plimsoll_policy::victim::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, id},
};

fn found(root: &mut ProcRoot, pid: Pid) -> (Option<Process>, ScanCounts) {
    let mut found = None;
    let counts = root.processes(|process| {
        if process.pid == pid {
            assert_eq!(found.replace(*process), None, "process {pid} was shown twice");
        }
    });
    (found, counts.unwrap())
}

#[test]
fn a_process_is_found_with_its_owner_memory_and_start() {
    let guest = Guest::holding(16);
    let (process, counts) = found(&mut proc_root(), guest.pid());
    let process = process.unwrap();
    assert_eq!((process.uid, process.parent), (Uid(TEST_UID), Pid(id())));
    assert_eq!((process.kernel_thread, process.dying, process.threads), (false, false, 1));
    assert_eq!(process.comm.as_bytes(), b"dd");
    let memory = process.memory.known().unwrap();
    let touched = page_size().to_pages(Bytes(16 << 20));
    assert!(memory.anonymous >= touched && memory.usage() >= memory.anonymous, "{memory:?}");
    assert!(counts.visited > counts.kernel_threads);
}

#[test]
fn start_times_are_on_the_clock_of_the_boot() {
    let before_ns = crate::process::clock_boottime_ns();
    let guest = Guest::asleep();
    let start_ns = guest.start_ns();
    assert!(start_ns + tick_ns() > before_ns, "{start_ns} ns is before the start at {before_ns} ns");
    assert!(start_ns <= crate::process::clock_boottime_ns());
}

#[test]
fn kernel_threads_are_marked_and_have_no_memory_to_give() {
    let (thread, counts) = found(&mut proc_root(), Pid(2));
    let thread = thread.unwrap();
    assert!(thread.kernel_thread && !thread.dying);
    assert_eq!((thread.uid, thread.memory), (Uid(0), Reading::Absent));
    assert!(counts.kernel_threads > 0);
}

#[test]
fn a_second_scan_starts_at_the_beginning() {
    let mut root = proc_root();
    assert!(found(&mut root, Pid(1)).0.is_some());
    assert!(found(&mut root, Pid(1)).0.is_some());
}

#[test]
fn a_zombie_is_counted_and_not_shown() {
    let guest = Guest::asleep();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    let mut root = proc_root();
    let (shown, counts) = found(&mut root, guest.pid());
    assert_eq!(shown, None);
    assert!(counts.zombies >= 1);
    let zombie = root.process(guest.pid()).unwrap();
    assert!(zombie.is_zombie());
    assert_eq!(zombie.memory, Reading::Absent);
}

/// Lets its first thread exit; the second holds 24 MiB and goes on. The number of the call is given as an argument.
const LEADERLESS: &str = "
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
def hold():
    held = bytearray(b'x') * (24 << 20)
    time.sleep(60)
threading.Thread(target=hold).start()
time.sleep(0.2)
libc.syscall(int(sys.argv[1]), 0)
";

#[test]
fn a_program_cannot_hide_its_memory_by_letting_its_first_thread_exit() {
    let exit = libc::SYS_exit.to_string();
    let guest = Guest::start(Command::new("python3").args(["-c", LEADERLESS, &exit]));
    guest.wait_until("its first thread has exited", |root, pid| {
        root.process(pid).unwrap().state == ProcessState::Zombie
    });
    let process = found(&mut proc_root(), guest.pid()).0.expect("a living process was taken for a zombie");
    assert!(!process.dying && process.threads == 2, "{process:?}");
    assert!(process.usage().known().unwrap() >= page_size().to_pages(Bytes(24 << 20)), "{process:?}");
}

#[test]
fn a_name_made_to_look_like_the_rest_of_the_line_changes_nothing() {
    let guest = Guest::shell("printf 'foo) Z 0 (' >/proc/$$/comm; read line");
    guest.wait_until("it has its name", |root, pid| {
        root.process(pid).unwrap().comm.as_bytes() == b"foo) Z 0 ("
    });
    let process = found(&mut proc_root(), guest.pid()).0.unwrap();
    assert_eq!((process.pid, process.parent), (guest.pid(), Pid(id())));
    assert!(process.memory.known().is_some());
}

const STAT: &str = "(x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0";

/// A folder laid out like `/proc`, with one process.
fn fixture(pid: u32, stat: &str, status: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), pid, stat, status);
    folder
}

fn add(folder: &Path, pid: u32, stat: &str, status: &str) {
    fs::create_dir(folder.join(pid.to_string())).unwrap();
    fs::write(folder.join(format!("{pid}/stat")), format!("{pid} {stat}\n")).unwrap();
    fs::write(folder.join(format!("{pid}/status")), status).unwrap();
}

fn memory_lines(kib: u64) -> String {
    format!(
        "RssAnon:\t{kib} kB\nRssShmem:\t16 kB\nVmSwap:\t64 kB\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n"
    )
}

#[test]
fn a_program_cannot_hide_its_memory_behind_a_long_list_of_groups() {
    // 65,536 groups make a line of 700 KiB; the others meet the end of the buffer at every place in a short line.
    let lengths = (0..48).map(|shift| 64 * 1024 - 60 + shift).chain([700 * 1024, 128 * 1024 - 32]);
    for length in lengths {
        let groups = "6".repeat(length);
        let status = format!("Name:\tx\nUid:\t60001\t0\t0\t0\nGroups:\t{groups}\n{}", memory_lines(8192));
        let folder = fixture(7, STAT, &status);
        let process = ProcRoot::open(folder.path()).unwrap().process(Pid(7)).unwrap();
        assert_eq!(process.uid, Uid(60_001), "groups of {length} bytes");
        let expected = Memory {
            anonymous: page_size().to_pages(Bytes(8192 << 10)),
            swapped: page_size().to_pages(Bytes(64 << 10)),
            shared: page_size().to_pages(Bytes(16 << 10)),
        };
        assert_eq!(process.memory, Reading::Known(expected), "groups of {length} bytes");
    }
}

#[test]
fn the_end_of_a_line_that_was_passed_over_is_not_taken_for_a_line() {
    // The first line fills the buffer; what follows in it begins like another.
    let groups = format!("Groups:{}RssAnon:\t0 kB\n", "6".repeat(64 * 1024 - "Groups:".len()));
    let folder = fixture(7, STAT, &format!("{groups}Uid:\t1\t1\t1\t1\n{}", memory_lines(8192)));
    let process = ProcRoot::open(folder.path()).unwrap().process(Pid(7)).unwrap();
    assert_eq!(process.memory.known().unwrap().anonymous, page_size().to_pages(Bytes(8192 << 10)));
}

#[test]
fn one_bad_process_hides_no_other_and_each_is_counted_by_its_kind() {
    let uid = "Uid:\t1\t1\t1\t1\n";
    let folder = fixture(10, STAT, &format!("{uid}{}", memory_lines(8)));
    add(folder.path(), 11, "(x) S nonsense", uid);
    add(folder.path(), 12, STAT, "RssAnon:\t8 kB\n");
    add(folder.path(), 13, STAT, &format!("{uid}RssAnon:\tmany\n"));
    add(folder.path(), 14, "(x) Z 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25", uid);
    add(folder.path(), 15, "(k) S 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 25", "");
    fs::create_dir(folder.path().join("16")).unwrap();
    fs::create_dir(folder.path().join("self")).unwrap();
    fs::create_dir(folder.path().join("17x")).unwrap();
    let mut shown = Vec::new();
    let counts =
        ProcRoot::open(folder.path()).unwrap().processes(|process| shown.push(process.pid.0)).unwrap();
    shown.sort_unstable();
    assert_eq!(shown, [10, 15]);
    let expected =
        ScanCounts { visited: 2, kernel_threads: 1, zombies: 1, vanished: 1, denied: 0, unreadable: 3 };
    assert_eq!(counts, expected);
}

#[test]
fn half_a_reading_is_unreadable_and_never_half_the_memory() {
    let status = "Uid:\t1\t1\t1\t1\nRssAnon:\t8 kB\n";
    let folder = fixture(7, STAT, status);
    let process = ProcRoot::open(folder.path()).unwrap().process(Pid(7)).unwrap();
    assert_eq!(process.usage(), Reading::Unreadable);
}

#[test]
fn a_process_is_dying_once_it_exits_or_a_kill_is_pending() {
    let uid = "Uid:\t1\t1\t1\t1\n";
    let dying = |stat: &str, status: &str| {
        let folder = fixture(7, stat, status);
        ProcRoot::open(folder.path()).unwrap().process(Pid(7)).unwrap().dying
    };
    let exiting = STAT.replace("-1 0", "-1 4");
    assert!(!dying(STAT, &format!("{uid}{}", memory_lines(8))));
    assert!(dying(&exiting, &format!("{uid}{}", memory_lines(8))));
    assert!(dying(STAT, &format!("{uid}ShdPnd:\t0000000000000100\n")));
    assert!(!dying(STAT, &format!("{uid}ShdPnd:\t0000000000004000\n")));
}
