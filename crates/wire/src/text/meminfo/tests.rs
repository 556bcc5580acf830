use super::*;

const KIB: u64 = 1024;

#[test]
fn a_capture_of_a_real_machine_is_read() {
    let meminfo = parse_meminfo(capture!("meminfo/linux-6.18")).unwrap();
    assert_eq!(meminfo.mem_total, Some(Bytes(24_684_084 * KIB)));
    assert!(meminfo.mem_free < meminfo.mem_available && meminfo.mem_available < meminfo.mem_total);
    assert!(meminfo.anonymous > Some(Bytes(0)));
    assert_eq!((meminfo.swap_total, meminfo.swap_free), (Some(Bytes(0)), Some(Bytes(0))));
}

#[test]
fn a_line_that_this_kernel_does_not_have_is_not_known_rather_than_zero() {
    let meminfo = parse_meminfo(capture!("meminfo/without-memavailable")).unwrap();
    assert_eq!(meminfo.mem_available, None);
    assert!(meminfo.mem_free.is_some());
}

#[test]
fn lines_in_any_order_and_unknown_lines_are_taken() {
    let meminfo = parse_meminfo(b"Novel: many things\nnot a line\n\nSwapFree: 3 kB\nMemTotal:7 kB").unwrap();
    let expected =
        Meminfo { mem_total: Some(Bytes(7 * KIB)), swap_free: Some(Bytes(3 * KIB)), ..Meminfo::default() };
    assert_eq!(meminfo, expected);
}

#[test]
fn a_line_whose_name_only_begins_like_a_known_one_is_another() {
    assert_eq!(parse_meminfo(b"MemTotal: 1 kB\nMemFreeHuge: 9 kB\n").unwrap().mem_free, None);
}

#[test]
fn numbers_that_are_none_or_do_not_fit_are_errors() {
    for value in [
        "",
        "x kB",
        "12",
        "12 MB",
        "-1 kB",
        "+1 kB",
        "1 2 kB",
        "18014398509481984 kB",
        "184467440737095516161 kB",
    ] {
        let text = format!("MemTotal: 5 kB\nMemAvailable: {value}\n");
        let error = parse_meminfo(text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, WireError::Malformed { field: "MemAvailable", .. }),
            "'{value}' was taken: {error}"
        );
    }
    assert_eq!(
        parse_meminfo(b"MemTotal: 18014398509481983 kB").unwrap().mem_total.unwrap().0,
        u64::MAX - 1023
    );
}

#[test]
fn a_text_without_a_total_is_no_meminfo() {
    assert_eq!(parse_meminfo(b""), Err(WireError::missing(FILE, "MemTotal")));
}

#[test]
fn an_error_is_one_line_that_names_file_field_and_what_was_found() {
    let error = parse_meminfo(b"MemTotal: \x1b[2J0123456789012345678901234567890123456789 kB").unwrap_err();
    assert_eq!(
        error.to_string(),
        r"/proc/meminfo has a MemTotal that is not a number of kB that fits in 64 bits: '\x1b[2J0123456789012345678901234567...'"
    );
}
