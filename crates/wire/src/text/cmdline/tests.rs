use super::*;

#[test]
fn arguments_are_parted_by_spaces_and_empty_ones_at_the_end_are_dropped() {
    assert_eq!(printable_cmdline(capture!("cmdline/sleep")).as_deref(), Some("sleep 60"));
    assert_eq!(
        printable_cmdline(capture!("cmdline/quoted")).as_deref(),
        Some(r#"python3 -c import sys; print("a b")"#)
    );
    assert_eq!(printable_cmdline(capture!("cmdline/retitled")).as_deref(), Some("postgres: writer process"));
}

#[test]
fn an_empty_argument_between_others_leaves_its_space() {
    assert_eq!(printable_cmdline(b"a\0\0b\0").as_deref(), Some("a  b"));
}

#[test]
fn a_hostile_command_line_stays_on_one_line() {
    let shown = printable_cmdline(capture!("cmdline/hostile")).unwrap();
    assert_eq!(shown, r"evil\x0a\x1b]0;title\x07 \xff\xfe");
}

#[test]
fn no_command_line_is_not_an_empty_one() {
    assert_eq!(printable_cmdline(b""), None);
    assert_eq!(printable_cmdline(b"\0\0\0"), None);
}

#[test]
fn a_long_command_line_is_cut_and_says_so() {
    let exact = [b'a'; CMDLINE_BYTES_MAX];
    assert_eq!(printable_cmdline(&exact).unwrap().len(), CMDLINE_BYTES_MAX);
    let longer = [b'a'; CMDLINE_BYTES_MAX + 1];
    let shown = printable_cmdline(&longer).unwrap();
    assert_eq!(shown.len(), CMDLINE_BYTES_MAX + 4);
    assert!(shown.ends_with("a ..."));
}
