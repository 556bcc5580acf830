use super::*;

#[test]
fn the_cgroup_that_systemd_oomd_took_is_read_from_each_version_s_line() {
    for line in [
        "Killed /user.slice/a b.scope due to memory pressure for /user.slice being 56.02% > 50.00% for > 20s with reclaim activity",
        "Marked /user.slice/a b.scope for killing due to memory used (9) / total (10) and swap used (9) / total (10) being more than 90.00%",
    ] {
        assert_eq!(parse_oomd_line(line.as_bytes()).unwrap().cgroup, b"/user.slice/a b.scope", "{line}");
    }
    for other in
        ["Killed by a signal due to memory ", "Considered 3 cgroups for killing, top candidates were:", ""]
    {
        assert_eq!(parse_oomd_line(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn whom_earlyoom_signalled_is_read_from_each_version_s_line() {
    let line = br#"sending SIGTERM to process 7378 uid 1000 "tail": oom_score 156, oom_score_adj 0, VmRSS 4962 MiB, cmdline "tail /dev/zero""#;
    let read = parse_earlyoom_line(line).unwrap();
    assert_eq!((read.signal, read.pid, read.uid), (Signal::Term, Pid(7378), Some(Uid(1000))));
    assert_eq!((read.comm, read.resident), (b"tail".as_slice(), Some(Bytes(4962 << 20))));
    let old = parse_earlyoom_line(br#"sending SIGKILL to process 7 "x": badness 1, VmRSS 3 MiB"#).unwrap();
    assert_eq!((old.signal, old.uid, old.comm), (Signal::Kill, None, b"x".as_slice()));
    for other in [
        "mem avail: 1 of 2 MiB",
        "sending SIGHUP to process 7 \"x\": y",
        "sending SIGTERM to process 0 \"x\": y",
    ] {
        assert_eq!(parse_earlyoom_line(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_name_or_command_line_that_looks_like_the_line_changes_no_number() {
    let line = br#"sending SIGTERM to process 7 uid 1000 "a": badness 1": badness 5, VmRSS 3 MiB, cmdline "x, VmRSS 9 MiB""#;
    let read = parse_earlyoom_line(line).unwrap();
    assert_eq!((read.pid, read.uid, read.comm), (Pid(7), Some(Uid(1000)), br#"a": badness 1"#.as_slice()));
    assert_eq!(read.resident, Some(Bytes(3 << 20)));
}
