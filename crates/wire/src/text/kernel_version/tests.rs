use super::*;

fn version(text: &[u8]) -> (u32, u32, u32) {
    let version = parse_osrelease(text).unwrap();
    (version.major, version.minor, version.patch)
}

#[test]
fn releases_of_distributions_are_read() {
    assert_eq!(version(capture!("osrelease/plain")), (6, 18, 44));
    assert_eq!(version(capture!("osrelease/debian")), (6, 1, 0));
    assert_eq!(version(capture!("osrelease/rhel")), (5, 14, 0));
    assert_eq!(version(capture!("osrelease/candidate")), (6, 19, 0));
    assert_eq!(version(b"7.2"), (7, 2, 0));
    assert_eq!(version(b"6.8.-x"), (6, 8, 0));
}

#[test]
fn versions_are_ordered_by_number_and_not_by_letter() {
    assert!(parse_osrelease(b"6.9.1").unwrap() < parse_osrelease(b"6.10.0").unwrap());
    assert_eq!(parse_osrelease(b"6.10.2-x").unwrap().to_string(), "6.10.2");
}

#[test]
fn what_does_not_begin_with_two_numbers_is_an_error() {
    for text in ["", "6", "6.", ".1", "v6.1", "6.x", "4294967296.1", "6.1.4294967296"] {
        assert!(parse_osrelease(text.as_bytes()).is_err(), "{text}");
    }
}
