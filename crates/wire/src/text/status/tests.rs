use super::*;

#[test]
fn a_capture_of_a_sleeping_process_is_read() {
    let status = parse_status(capture!("status/sleep")).unwrap();
    let expected = Status {
        real_uid: Some(Uid(0)),
        effective_uid: Some(Uid(0)),
        thread_group: Some(Pid(27_041)),
        namespace_pid: Some(Pid(27_041)),
        tracer: None,
        state: Some(ProcessState::Sleeping),
        rss_anonymous: Some(Bytes(92 * 1024)),
        rss_shmem: Some(Bytes(0)),
        rss_file: Some(Bytes(1420 * 1024)),
        swap: Some(Bytes(0)),
        locked: Some(Bytes(0)),
        hugetlb: Some(Bytes(0)),
        core_dumping: Some(false),
        thread_pending: Some(0),
        process_pending: Some(0),
    };
    assert_eq!(status, expected);
    assert!(!status.kill_is_pending());
}

#[test]
fn a_process_without_an_address_space_has_no_memory_rather_than_none_in_use() {
    for text in [capture!("status/zombie"), capture!("status/kthreadd")] {
        let status = parse_status(text).unwrap();
        assert_eq!((status.rss_anonymous, status.rss_shmem, status.swap), (None, None, None));
        assert!(status.real_uid.is_some());
    }
}

#[test]
fn a_pending_kill_is_seen_on_the_thread_and_on_the_process() {
    assert!(parse_status(capture!("status/zombie")).unwrap().kill_is_pending());
    let pending = |lines: &str| {
        parse_status(format!("Uid:\t1\t1\t1\t1\n{lines}\n").as_bytes()).unwrap().kill_is_pending()
    };
    assert!(pending("SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000"));
    assert!(pending("SigPnd:\t0000000000000000\nShdPnd:\tffffffffffffffff"));
    assert!(!pending("SigPnd:\t0000000000000200\nShdPnd:\t0000000000004000"));
}

#[test]
fn real_and_effective_uid_are_told_apart() {
    let status = parse_status(b"Uid:\t60001\t0\t0\t0\n").unwrap();
    assert_eq!((status.real_uid, status.effective_uid), (Some(Uid(60_001)), Some(Uid(0))));
}

#[test]
fn who_traces_it_is_told() {
    let tracer = |text: &str| parse_status(format!("Uid:\t1\t1\t1\t1\n{text}").as_bytes()).unwrap().tracer;
    assert_eq!(
        [tracer("TracerPid:\t0\n"), tracer("TracerPid:\t812\n"), tracer("")],
        [None, Some(Pid(812)), None]
    );
}

#[test]
fn the_number_in_the_innermost_namespace_is_the_last() {
    let status = parse_status(b"Uid:\t1\t1\t1\t1\nNSpid:\t812\t40\t1\n").unwrap();
    assert_eq!(status.namespace_pid, Some(Pid(1)));
}

#[test]
fn a_name_that_looks_like_another_line_forges_nothing() {
    let status = parse_status(capture!("status/hostile-lines")).unwrap();
    assert_eq!(status.thread_group, Some(Pid(27_043)));
    // Were the line end not escaped by the kernel, the true line would come second: the escaped form is what counts.
    let forged = parse_status(b"Name:\tx\\nUid:\\t0\nUid:\t60001\t60001\t60001\t60001\n").unwrap();
    assert_eq!(forged.real_uid, Some(Uid(60_001)));
}

#[test]
fn lines_that_cannot_be_understood_are_errors() {
    for line in [
        "Uid:\t1",
        "Uid:\tx\t1",
        "RssAnon:\t12",
        "VmSwap:\tx kB",
        "Tgid:\t-1",
        "NSpid:",
        "State:",
        "SigPnd:\tg",
    ] {
        let text = format!("Uid:\t1\t1\t1\t1\n{line}\n");
        assert!(parse_status(text.as_bytes()).is_err(), "{line}");
    }
    assert_eq!(parse_status(b"Name:\tx\n"), Err(WireError::missing(FILE, "Uid")));
}

#[test]
fn a_core_that_is_being_written_is_seen() {
    let dumping = |value: &str| parse_status(format!("Uid:\t1\t1\t1\t1\nCoreDumping:\t{value}\n").as_bytes());
    assert_eq!(dumping("1").unwrap().core_dumping, Some(true));
    assert_eq!(dumping("0").unwrap().core_dumping, Some(false));
    assert!(matches!(dumping("2"), Err(WireError::Malformed { field: "CoreDumping", .. })));
}
