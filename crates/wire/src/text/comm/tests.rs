use super::*;

#[test]
fn a_name_ends_at_its_first_nul_as_the_kernel_keeps_it() {
    let kept = *b"python3\0\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(Comm::from_bytes(&kept).as_bytes(), b"python3");
    assert_eq!(Comm::from_bytes(&kept).to_string(), "python3");
}

#[test]
fn names_of_the_hostile_captures_are_kept_byte_by_byte_and_shown_on_one_line() {
    let shown = |text| parse_comm(text).unwrap().to_string();
    assert_eq!(shown(capture!("comm/hostile-paren")), "foo) Z ");
    assert_eq!(shown(capture!("comm/hostile-lines")), r"a\x0aUid:\x090\x090\x0a");
    assert_eq!(shown(capture!("comm/hostile-bytes")), r"\xff\xfe\x1b[2J\x07");
    assert_eq!(parse_comm(capture!("comm/hostile-lines")).unwrap().as_bytes(), b"a\nUid:\t0\t0\n");
}

#[test]
fn a_long_kernel_name_is_whole_and_a_longer_one_is_cut() {
    assert_eq!(parse_comm(capture!("comm/long-kernel-name")).unwrap().to_string(), "pool_workqueue_release");
    assert_eq!(Comm::from_bytes(&[b'k'; 200]).as_bytes(), [b'k'; COMM_BYTES_MAX]);
}

#[test]
fn an_empty_name_is_a_name_and_a_text_without_line_end_is_not() {
    assert_eq!(parse_comm(b"\n").unwrap().as_bytes(), b"");
    assert_eq!(parse_comm(b"cut"), Err(WireError::missing("/proc/PID/comm", "line end")));
}
