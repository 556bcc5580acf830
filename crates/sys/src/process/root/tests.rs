use super::*;
use crate::process::{
    HeldFolder, Portrait, page_size,
    testing::{Guest, proc_root},
};
use plimsoll_policy::{units::Bytes, victim::VictimId};
use std::{fs, os::unix::fs::MetadataExt};

/// The kernel's first own thread: it has no memory, no command line, no executable.
const KTHREADD: Pid = Pid(2);

#[test]
fn the_executable_of_a_process_is_told_by_device_and_inode() {
    let guest = Guest::asleep();
    guest.wait_until("it runs sleep", |root, pid| root.process(pid).unwrap().comm.as_bytes() == b"sleep");
    let identity = proc_root().exe_identity(guest.pid()).unwrap().unwrap();
    let expected = fs::metadata(fs::read_link(format!("/proc/{}/exe", guest.pid())).unwrap()).unwrap();
    assert_eq!((identity.device, identity.inode), (expected.dev(), expected.ino()));
    assert_eq!((identity.owner, identity.mode), (Uid(expected.uid()), expected.mode()));
}

#[test]
fn a_program_is_roots_only_when_nobody_else_can_write_it() {
    let identity = |owner, mode| ExeIdentity { device: 1, inode: 2, owner: Uid(owner), mode, links: 1 };
    assert!(identity(0, 0o100_755).only_root_writes());
    assert!(identity(0, 0o104_755).only_root_writes());
    assert!(!identity(1000, 0o100_755).only_root_writes());
    assert!(!identity(0, 0o100_775).only_root_writes());
    assert!(!identity(0, 0o100_757).only_root_writes());
}

#[test]
fn a_kernel_thread_has_no_executable_no_command_line_and_no_memory() {
    let mut root = proc_root();
    assert_eq!(root.exe_identity(KTHREADD), Ok(None));
    assert_eq!(root.cmdline(KTHREADD), Ok(None));
    assert_eq!(root.smaps_rollup(KTHREADD), Ok(None));
}

#[test]
fn every_question_about_a_process_that_is_gone_says_so() {
    let mut guest = Guest::asleep();
    guest.bury();
    let (mut root, pid) = (proc_root(), guest.pid());
    let gone = ProcessError::Vanished(pid);
    assert_eq!(root.exe_identity(pid), Err(gone));
    assert_eq!(root.cmdline(pid), Err(gone));
    assert_eq!(root.cgroup(pid), Err(gone));
    assert_eq!(root.smaps_rollup(pid), Err(gone));
    assert_eq!(root.start_ticks(pid), Err(gone));
    assert_eq!(root.process(pid), Err(gone));
}

#[test]
fn exact_memory_of_a_process_is_what_it_touched() {
    let guest = Guest::holding(32);
    let rollup = proc_root().smaps_rollup(guest.pid()).unwrap().unwrap();
    let touched = 32 << 20;
    let anonymous = rollup.anonymous.unwrap();
    // dd's own heap and stack stay far below a mebibyte.
    assert!((Bytes(touched)..Bytes(touched + (1 << 20))).contains(&anonymous), "{anonymous} bytes");
}

#[test]
fn exact_memory_is_read_though_the_first_thread_has_ended() {
    let script = "import ctypes, threading, time
held = b'x' * (32 << 20)
threading.Thread(target=time.sleep, args=[60]).start()
ctypes.PyDLL(None).pthread_exit(None)";
    let guest = Guest::start(std::process::Command::new("python3").args(["-c", script]));
    guest.wait_until("the first thread has ended", |root, pid| root.exe_identity(pid) == Ok(None));
    let mut root = proc_root();
    let anonymous = root.smaps_rollup(guest.pid()).unwrap().unwrap().anonymous.unwrap();
    assert!(anonymous >= Bytes(32 << 20), "{anonymous}");
    assert!(root.cmdline(guest.pid()).unwrap().unwrap().contains("python3 -c import"));
    let id = VictimId { pid: guest.pid(), start_ns: guest.start_ns() };
    let mut portrait = Portrait::default();
    HeldFolder::open(&root, id).unwrap().portray(None, &mut portrait).unwrap();
    let exe = String::from_utf8(portrait.exe().unwrap().to_vec()).unwrap();
    assert!(exe.contains("python3"), "{exe}");
}

#[test]
fn command_line_and_cgroup_are_text_that_is_safe_to_show() {
    let guest = Guest::shell("read line # \u{1b}[31m\n");
    let mut root = proc_root();
    guest.wait_until("it runs the shell", |root, pid| {
        root.cmdline(pid).unwrap().is_some_and(|line| line.starts_with("sh "))
    });
    assert_eq!(root.cmdline(guest.pid()).unwrap().unwrap(), r"sh -c read line # \x1b[31m\x0a");
    assert!(root.cgroup(guest.pid()).unwrap().unwrap().starts_with('/'));
}

#[test]
fn the_machines_memory_is_read() {
    let meminfo = proc_root().read_meminfo().unwrap();
    assert!(meminfo.mem_available.unwrap() <= meminfo.mem_total.unwrap());
}

#[test]
fn a_file_that_does_not_fit_is_an_error_and_never_a_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("7")).unwrap();
    let line = format!("0::/{}\n", "a".repeat(TEXT_BYTES));
    fs::write(folder.path().join("7/cgroup"), &line[line.len() - TEXT_BYTES..]).unwrap();
    let mut root = ProcRoot::open(folder.path()).unwrap();
    let errno = Errno::FBIG;
    let operation = "read the cgroup";
    assert_eq!(
        root.cgroup(Pid(7)),
        Err(ProcessError::Failed { operation, subject: Subject::Process(Pid(7)), errno })
    );
    fs::write(folder.path().join("7/cgroup"), &line[..TEXT_BYTES - 1]).unwrap();
    assert_eq!(root.cgroup(Pid(7)).unwrap().unwrap().len(), TEXT_BYTES - 1 - "0::".len());
}

#[test]
fn a_folder_that_is_not_there_is_a_feature_that_is_not_there() {
    let opened = ProcRoot::open(Path::new("/proc/nowhere"));
    assert_eq!(opened.err(), Some(ProcessError::Unsupported { operation: "open /proc" }));
}

#[test]
fn errors_are_sorted_by_what_to_do_next() {
    let sorted = |errno| ProcessError::of_process(Pid(9), "read status", errno);
    assert_eq!(sorted(rustix::io::Errno::SRCH), ProcessError::Vanished(Pid(9)));
    assert_eq!(sorted(rustix::io::Errno::NOENT), ProcessError::Vanished(Pid(9)));
    assert!(matches!(sorted(rustix::io::Errno::PERM), ProcessError::Denied { .. }));
    assert!(matches!(sorted(rustix::io::Errno::ACCESS), ProcessError::Denied { .. }));
    assert!(matches!(sorted(rustix::io::Errno::NOSYS), ProcessError::Unsupported { .. }));
    assert_eq!(
        sorted(rustix::io::Errno::MFILE).to_string(),
        "could not read status of process 9: Too many open files (os error 24)"
    );
}

#[test]
fn the_memory_in_the_lists_of_single_cpus_is_read_in_pieces_of_any_size() {
    let waiting = proc_root().read_zoneinfo().unwrap().waiting().unwrap();
    assert!(page_size().to_bytes(waiting) < proc_root().read_meminfo().unwrap().mem_total.unwrap());
    let file = open_file(&proc_root().files.dir, c"zoneinfo").unwrap();
    let mut lines = 0;
    let failed = |errno| ProcessError::of_machine("read", errno);
    for_each_line(&file, &mut [0; 4096 + 256], failed, |_| {
        lines += 1;
        Ok(())
    })
    .unwrap();
    assert!(lines > 50, "{lines}");
    // A buffer that no line fits in is found out.
    let file = open_file(&proc_root().files.dir, c"meminfo").unwrap();
    assert!(for_each_line(&file, &mut [0; 16], failed, |_| Ok(())).is_err());
}

#[test]
fn a_line_without_its_end_is_not_taken_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cgroup.procs"), "17\n1234").unwrap();
    let file = std::fs::File::open(folder.path().join("cgroup.procs")).unwrap().into();
    let mut lines = Vec::new();
    let ended = for_each_line(&file, &mut [0; 64], std::convert::identity, |line| {
        lines.push(line.to_vec());
        Ok(())
    });
    assert_eq!((ended, lines), (Err(rustix::io::Errno::BADMSG), vec![b"17".to_vec()]));
}

#[test]
fn how_many_run_is_told_where_it_stands() {
    assert_eq!(super::running(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
    for other in [&b""[..], b"0.20 0.18 0.12", b"0.20 0.18 0.12 3 11206", b"0.2 0.1 0.1 x/80 1", b"\xff"] {
        assert_eq!(super::running(other), None);
    }
}
