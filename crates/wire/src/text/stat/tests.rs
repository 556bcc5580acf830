use super::*;

#[test]
fn a_capture_of_a_sleeping_process_is_read() {
    let stat = parse_stat(capture!("stat/sleep")).unwrap();
    let expected = Stat {
        pid: Pid(27_041),
        comm: Comm::from_bytes(b"sleep"),
        state: ProcessState::Sleeping,
        parent: Pid(27_000),
        leads_terminal: false,
        flags: 4_194_304,
        cpu_ticks: 0,
        threads: 1,
        start_ticks: 234_730,
    };
    assert_eq!(stat, expected);
    assert!(!stat.is_kernel_thread() && !stat.is_exiting() && !stat.leader_left_threads());
}

#[test]
fn names_full_of_brackets_letters_and_line_ends_move_no_field() {
    for (text, name, start_ticks) in [
        (capture!("stat/hostile-paren"), b"foo) Z ".as_slice(), 234_750),
        (capture!("stat/hostile-lines"), b"a\nUid:\t0\t0\n", 234_755),
        (capture!("stat/hostile-bytes"), b"\xff\xfe\x1b[2J\x07", 234_761),
        (capture!("stat/hostile-stat"), b") (R 1 1", 234_766),
    ] {
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.comm.as_bytes(), name);
        assert_eq!(
            (stat.state, stat.parent, stat.threads, stat.start_ticks),
            (ProcessState::Sleeping, Pid(27_000), 1, start_ticks)
        );
    }
}

#[test]
fn a_kernel_thread_is_told_by_its_flag_and_not_by_its_name() {
    assert!(parse_stat(capture!("stat/kthreadd")).unwrap().is_kernel_thread());
    let long = parse_stat(capture!("stat/long-kernel-name")).unwrap();
    assert!(long.is_kernel_thread());
    assert_eq!(long.comm.to_string(), "pool_workqueue_release");
    let renamed = b"9 (kthreadd) S 2 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0";
    assert!(!parse_stat(renamed).unwrap().is_kernel_thread());
}

#[test]
fn a_zombie_with_threads_left_is_told_from_one_without() {
    let zombie = parse_stat(capture!("stat/zombie")).unwrap();
    assert_eq!((zombie.state, zombie.threads), (ProcessState::Zombie, 1));
    assert!(zombie.is_exiting() && !zombie.leader_left_threads());
    let leaderless = b"9 (x) Z 1 0 0 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 3 0 25 0 0";
    assert!(parse_stat(leaderless).unwrap().leader_left_threads());
}

#[test]
fn every_state_letter_is_known_and_a_new_one_is_kept() {
    for (letter, state) in [
        ("R", ProcessState::Running),
        ("S", ProcessState::Sleeping),
        ("D", ProcessState::Uninterruptible),
        ("I", ProcessState::Idle),
        ("T", ProcessState::Stopped),
        ("t", ProcessState::Traced),
        ("P", ProcessState::Parked),
        ("Z", ProcessState::Zombie),
        ("X", ProcessState::Dead),
        ("x", ProcessState::Dead),
        ("Q", ProcessState::Other(b'Q')),
    ] {
        let line = format!("9 (x) {letter} 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25 0 0");
        assert_eq!(parse_stat(line.as_bytes()).unwrap().state, state);
    }
}

#[test]
fn a_line_cut_anywhere_before_the_start_time_is_an_error() {
    let line = b"9 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25";
    assert_eq!(parse_stat(line).unwrap().start_ticks, 25);
    // Up to the blank before the last number; a cut inside it cannot be seen.
    for end in 0..line.len() - 2 {
        assert!(parse_stat(&line[..end]).is_err(), "{}", String::from_utf8_lossy(&line[..end]));
    }
}

#[test]
fn fields_out_of_their_range_are_errors() {
    for line in [
        "4294967296 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25",
        "9 (x) SS 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25",
        "9 (x) S -1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25",
        "9 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 x 0 25",
        "9 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 18446744073709551616",
        "9 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99999999999999999999",
        "9 )x( S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 25",
    ] {
        assert!(parse_stat(line.as_bytes()).is_err(), "{line}");
    }
}
