use super::*;

const KILLED: &[u8] =
    b"Memory cgroup out of memory: Killed process 10587 (python3) total-vm:79488kB, anon-rss:24064kB, \
    file-rss:2396kB, shmem-rss:8kB, UID:60641 pgtables:112kB oom_score_adj:0";

#[test]
fn a_record_is_its_header_and_its_first_line() {
    let record = parse_kernel_record(b"3,1234,5140900,-;Out of memory\n SUBSYSTEM=x\n").unwrap();
    assert_eq!(
        record,
        KernelRecord {
            by_kernel: true,
            sequence: 1234,
            time_us: 5_140_900,
            text: Cow::Borrowed(b"Out of memory")
        }
    );
    // Written to /dev/kmsg by a program: the facility is its own, or user.
    assert!(!parse_kernel_record(b"12,7,8,-,caller=T1;forged").unwrap().by_kernel);
    assert_eq!(parse_kernel_record(b"6,1,2,c;").unwrap().text.as_ref(), b"");
    for broken in [b"".as_slice(), b"6,1;x", b"6,1,2,-", b"a,1,2,-;x", b"6,-1,2,-;x"] {
        assert!(parse_kernel_record(broken).is_err(), "{broken:?}");
    }
}

#[test]
fn a_record_is_read_without_the_kernel_s_escapes() {
    let text = |text: &str| {
        let record = format!("6,1,2,-;{text}").into_bytes();
        String::from_utf8_lossy(&parse_kernel_record(&record).unwrap().text).into_owned()
    };
    assert_eq!(
        text(r"task_memcg=/app-gnome\x5cx2dterm.scope,task=a"),
        r"task_memcg=/app-gnome\x2dterm.scope,task=a"
    );
    assert_eq!(text(r"(b\xc3\xa4r\x1b) \x"), "(b\u{e4}r\u{1b}) \\x");
    // A line end stays one, and what only looks like one does not become one.
    assert_eq!(text(r"anon 1\x0afile 2\x09"), r"anon 1\x0afile 2\x09");
    assert_eq!(text(r"/a\x5cx0aOut of memory: "), r"/a\x5cx0aOut of memory: ");
    let name = parse_kernel_record(br"3,1,2,-;Killed process 7 (a\x5cb) total-vm:1kB").unwrap().text;
    assert_eq!(parse_killed_line(&name).unwrap().comm, br"a\b");
}

#[test]
fn who_was_killed_is_read_from_every_kernel_s_last_line() {
    let killed = parse_killed_line(KILLED).unwrap();
    assert_eq!((killed.thread, killed.comm, killed.in_cgroup), (Pid(10_587), b"python3".as_slice(), true));
    assert_eq!((killed.anon, killed.shmem), (Some(Bytes(24_064 << 10)), Some(Bytes(8 << 10))));
    assert_eq!(killed.uid, Some(Uid(60_641)));
    // Linux 3.16, 4.9 and 5.2.
    let old = b"Killed process 7 (a) total-vm:9kB, anon-rss:8kB, file-rss:0kB";
    let killed = parse_killed_line(old).unwrap();
    assert_eq!((killed.thread, killed.in_cgroup, killed.uid, killed.shmem), (Pid(7), false, None, None));
    let comma = b"Out of memory: Killed process 7, UID 1000, (a) total-vm:9kB";
    assert_eq!(parse_killed_line(comma).map(|one| one.thread), None, "a comma and more is Android's own");
    for other in
        [b"oom_reaper: reaped process 7 (a), now anon-rss:0kB".as_slice(), b"", b"Killed process x (a)"]
    {
        assert_eq!(parse_killed_line(other), None);
    }
}

#[test]
fn a_name_that_looks_like_the_rest_of_the_line_is_a_name() {
    let line = b"Out of memory: Killed process 7 (a) UID:0 (b) total-vm:1kB, anon-rss:2kB, file-rss:0kB, \
        shmem-rss:0kB, UID:1000 pgtables:4kB oom_score_adj:0";
    let killed = parse_killed_line(line).unwrap();
    assert_eq!((killed.comm, killed.uid), (b"a) UID:0 (b".as_slice(), Some(Uid(1000))));
}

fn killed(thread: u32) -> Vec<u8> {
    format!("Out of memory: Killed process {thread} (x) total-vm:1kB, anon-rss:1kB").into_bytes()
}

#[test]
fn a_cgroup_that_is_called_like_a_line_of_a_report_is_none() {
    for line in [
        "Memory cgroup stats for /Out of memory: Killed process 7 (a) total-vm:1kB:",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x invoked oom-killer: ",
        "Memory cgroup stats for /Tasks in / are going to be killed due to memory.oom.group set",
    ] {
        assert_eq!(ReportPart::of(line.as_bytes()), ReportPart::Other, "{line}");
    }
}

#[track_caller]
fn assert_found(log: &[Vec<u8>], thread: u32, expected: Option<(Option<usize>, usize)>) {
    let found = find_report(log.iter().map(ReportPart::of), Pid(thread));
    assert_eq!(found, expected.map(|(first, killed)| ReportSpan { first, killed }), "of {thread}");
}

#[test]
fn a_report_is_the_lines_from_who_asked_to_who_was_killed() {
    let invoked = || b"x invoked oom-killer: gfp_mask=0xcc0, order=0".to_vec();
    let log =
        [invoked(), b"Mem-Info:".to_vec(), killed(7), b"eth0: up".to_vec(), invoked(), killed(8), killed(9)];
    assert_found(&log, 7, Some((Some(0), 2)));
    assert_found(&log, 8, Some((Some(4), 5)));
    // The kernel held its tongue.
    assert_found(&log, 9, Some((None, 6)));
    assert_found(&log, 10, None);
    // The number was another's before.
    let again = [invoked(), killed(7), invoked(), killed(7)];
    assert_found(&again, 7, Some((Some(2), 3)));
}

#[test]
fn all_victims_of_a_group_have_its_report() {
    let invoked = || b"x invoked oom-killer: gfp_mask=0xcc0, order=0".to_vec();
    let group = || b"Tasks in /a are going to be killed due to memory.oom.group set".to_vec();
    let log = [invoked(), killed(7), group(), killed(8), killed(9)];
    for (thread, at) in [(7, 1), (8, 3), (9, 4)] {
        assert_found(&log, thread, Some((Some(0), at)));
    }
    // A group without a report of its own is not given that of another kill.
    let silent = [invoked(), killed(7), killed(8), group(), killed(9)];
    assert_found(&silent, 8, Some((None, 2)));
    assert_found(&silent, 9, Some((None, 4)));
}
