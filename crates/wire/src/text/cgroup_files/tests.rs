use super::{
    CgroupType, parse_cgroup_process, parse_cgroup_type, parse_oom_group, parse_oomd_count, parse_oomd_mark,
};
use plimsoll_policy::units::Pid;

#[test]
fn the_files_of_a_cgroup_are_read_as_the_kernel_writes_them() {
    assert_eq!(parse_cgroup_type(capture!("cgroup_files/cgroup.type")).unwrap(), CgroupType::Domain);
    assert!(!parse_oom_group(capture!("cgroup_files/memory.oom.group")).unwrap());
    let processes = capture!("cgroup_files/cgroup.procs").split(|byte| *byte == b'\n');
    let processes: Vec<_> = processes.filter(|line| !line.is_empty()).map(parse_cgroup_process).collect();
    assert_eq!(processes, [Ok(Some(Pid(174))), Ok(Some(Pid(182)))]);
}

#[test]
fn each_type_of_cgroup_is_told_from_the_others() {
    assert_eq!(parse_cgroup_type(b"domain threaded\n").unwrap(), CgroupType::ThreadedDomain);
    assert_eq!(parse_cgroup_type(b"domain invalid\n").unwrap(), CgroupType::Invalid);
    assert_eq!(parse_cgroup_type(b"threaded\n").unwrap(), CgroupType::Threaded);
    parse_cgroup_type(b"domain \tthreaded\n").unwrap_err();
    parse_cgroup_type(b"").unwrap_err();
}

#[test]
fn a_process_of_an_outer_pid_namespace_is_none_and_never_number_0() {
    assert_eq!(parse_cgroup_process(b"0").unwrap(), None);
    for line in [b"".as_slice(), b"-3", b"12 13", b"4294967295", b"99999999999"] {
        assert!(parse_cgroup_process(line).is_err(), "{line:?}");
    }
}

#[test]
fn a_mark_is_what_systemd_takes_for_true() {
    for value in [b"1".as_slice(), b"yes", b"TRUE", b"on"] {
        assert!(parse_oomd_mark(value).unwrap());
    }
    for value in [b"0".as_slice(), b"no", b"off"] {
        assert!(!parse_oomd_mark(value).unwrap());
    }
    for value in [b"".as_slice(), b"2", b"1\n", b"yes please"] {
        assert!(parse_oomd_mark(value).is_err(), "{value:?}");
    }
}

#[test]
fn a_count_is_a_number_and_nothing_is_0() {
    assert_eq!(parse_oomd_count(b"").unwrap(), 0);
    assert_eq!(parse_oomd_count(b"18446744073709551615").unwrap(), u64::MAX);
    parse_oomd_count(b"18446744073709551616").unwrap_err();
    parse_oomd_count(b"-1").unwrap_err();
}
