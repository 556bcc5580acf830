use super::*;

#[test]
fn a_capture_of_a_real_machine_is_summed_over_its_zones_and_cpus() {
    let zoneinfo = parse_zoneinfo(capture!("zoneinfo/linux-6.18")).unwrap();
    assert_eq!(zoneinfo.waiting(), Some(Pages(11527)));
}

#[test]
fn a_text_without_a_list_says_nothing_rather_than_0() {
    for text in [
        "",
        "Node 0, zone DMA\n  pages free 3840\n",
        "count: 7\n",
        "  pagesets\nNode 1, zone DMA\n count: 7\n",
    ] {
        assert_eq!(parse_zoneinfo(text.as_bytes()).unwrap().waiting(), None, "{text:?}");
    }
}

#[test]
fn empty_lists_are_0() {
    let text = b"Node 0, zone Movable\n  pagesets\n    cpu: 0\n              count: 0\n";
    assert_eq!(parse_zoneinfo(text).unwrap().waiting(), Some(Pages(0)));
}

#[test]
fn a_count_that_is_none_or_a_sum_that_does_not_fit_is_an_error() {
    for text in
        [b"  pagesets\n count: -1\n".as_slice(), b"  pagesets\n count:\n", capture!("zoneinfo/overflowing")]
    {
        assert!(matches!(parse_zoneinfo(text), Err(WireError::Malformed { field: "count", .. })));
    }
}
