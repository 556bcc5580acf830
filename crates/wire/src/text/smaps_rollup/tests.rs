use super::*;

#[test]
fn a_capture_is_read() {
    let kib = |count: u64| Some(Bytes(count * 1024));
    let expected = SmapsRollup {
        rss: kib(1512),
        anonymous: kib(92),
        swap: kib(0),
        proportional_anonymous: kib(92),
        proportional_swap: kib(0),
        private_clean: kib(36),
        private_dirty: kib(92),
        private_hugetlb: kib(0),
    };
    assert_eq!(parse_smaps_rollup(capture!("smaps_rollup/sleep")), Ok(expected));
}

#[test]
fn what_an_older_kernel_does_not_write_is_not_known() {
    let rollup = parse_smaps_rollup(b"Rss: 4 kB\nAnonymous: 4 kB\nSwap: 0 kB\n").unwrap();
    assert_eq!((rollup.proportional_anonymous, rollup.swap), (None, Some(Bytes(0))));
}

#[test]
fn a_text_without_resident_memory_is_no_rollup() {
    assert_eq!(parse_smaps_rollup(b""), Err(WireError::missing(FILE, "Rss")));
    assert!(matches!(parse_smaps_rollup(b"Rss: 4\n"), Err(WireError::Malformed { field: "Rss", .. })));
}
