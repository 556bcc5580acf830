use super::*;

#[test]
fn the_highest_number_counts_and_holes_do_not_matter() {
    assert_eq!(parse_cpu_possible(capture!("cpu_possible/two")), Ok(2));
    assert_eq!(parse_cpu_possible(capture!("cpu_possible/one")), Ok(1));
    assert_eq!(parse_cpu_possible(capture!("cpu_possible/hole")), Ok(9));
    assert_eq!(parse_cpu_possible(capture!("cpu_possible/many")), Ok(8192));
    assert_eq!(parse_cpu_possible(b"8,0-3"), Ok(9));
    assert_eq!(parse_node_possible(b"0\n"), Ok(1));
    assert_eq!(parse_node_possible(b"0-1,4\n"), Ok(5));
}

#[test]
fn the_largest_count_is_bounded() {
    assert_eq!(parse_cpu_possible(b"0-65535"), Ok(CPUS_MAX));
    parse_cpu_possible(b"0-65536").unwrap_err();
    parse_cpu_possible(b"0-4294967295").unwrap_err();
}

#[test]
fn anything_but_numbers_and_rising_ranges_is_an_error() {
    for text in ["", "\n", ",", "0,", "3-1", "a", "0-", "-1", "0 -1", "0-1-2"] {
        assert!(parse_cpu_possible(text.as_bytes()).is_err(), "'{text}'");
    }
}

#[test]
fn running_cpus_are_counted_without_the_holes() {
    assert_eq!(parse_cpu_online(capture!("cpu_possible/two")), Ok(2));
    assert_eq!(parse_cpu_online(b"0-3,8\n"), Ok(5));
    assert_eq!(parse_cpu_online(b"5"), Ok(1));
    parse_cpu_online(b"").unwrap_err();
    parse_cpu_online(b"3-1").unwrap_err();
}
