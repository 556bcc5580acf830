use super::*;

#[test]
fn a_capture_is_read_and_anonymous_is_what_is_not_shared() {
    let statm = parse_statm(capture!("statm/sleep")).unwrap();
    assert_eq!(statm, Statm { size: Pages(625), resident: Pages(378), shared: Pages(355) });
    assert_eq!(statm.anonymous(), Pages(23));
}

#[test]
fn a_shared_count_that_overtook_leaves_no_anonymous_page() {
    assert_eq!(parse_statm(b"9 3 4 0 0 0 0\n").unwrap().anonymous(), Pages(0));
}

#[test]
fn a_short_or_strange_line_is_an_error() {
    assert_eq!(parse_statm(b"1 2\n"), Err(WireError::missing(FILE, "shared")));
    assert!(matches!(parse_statm(b"1 -2 3\n"), Err(WireError::Malformed { field: "resident", .. })));
}
