use super::{bytes, escaped, quoted, shown, shown_whole, span};
use crate::units::{Bytes, Nanos};
use proptest::proptest;
use std::format;

#[test]
fn sizes_come_in_the_unit_that_suits_them() {
    let cases = [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (4096, "4.0 KiB"),
        (268_435_456, "256.0 MiB"),
        ((256 << 20) + (512 << 10), "256.5 MiB"),
        ((1 << 30) - 1, "1024.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (u64::MAX, "16384.0 PiB"),
    ];
    for (size, text) in cases {
        assert_eq!(bytes(Bytes(size)), text);
    }
}

#[test]
fn what_was_made_printable_is_escaped_no_second_time() {
    assert_eq!(quoted(r"a\x1b"), r#""a\\x1b""#);
    assert_eq!(shown(r#"a\x1b'"\\"#), r#""a\x1b'\"\\""#);
    assert_eq!(shown(&"x".repeat(70)), format!("\"{}...\"", "x".repeat(64)));
    assert_eq!(shown_whole("/a\u{1b}\u{202e}\\x2d"), r"/a\u{1b}\u{202e}\x2d");
}

#[test]
fn spans_come_in_the_unit_that_suits_them() {
    let cases = [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.0 us"),
        (3_210, "3.2 us"),
        (14_000_000, "14.0 ms"),
        (2_599_999_999, "2.5 s"),
        (u64::MAX, "18446744073.7 s"),
    ];
    for (ns, text) in cases {
        assert_eq!(span(Nanos(ns)), text);
    }
}

#[test]
fn foreign_text_cannot_act_on_a_terminal_or_end_its_quotes() {
    assert_eq!(quoted("foo) Z "), "\"foo) Z \"");
    assert_eq!(quoted("a\"b\\c\n\u{1b}[31m"), r#""a\"b\\c\n\u{1b}[31m""#);
    assert_eq!(quoted("x\u{202e}gpj.exe"), r#""x\u{202e}gpj.exe""#);
    assert_eq!(quoted("b\u{fc}ro's"), "\"b\u{fc}ro's\"");
}

#[test]
fn long_foreign_text_is_cut() {
    let long = "a".repeat(65);
    assert_eq!(escaped(&long), std::format!("{}...", "a".repeat(64)));
    assert_eq!(escaped(&"a".repeat(64)), "a".repeat(64));
}

proptest! {
    #[test]
    fn nothing_quoted_holds_a_control_character(text: std::string::String) {
        assert!(!quoted(&text).chars().any(char::is_control));
    }

    #[test]
    fn every_number_has_a_form(number: u64) {
        assert!(bytes(Bytes(number)).len() <= 12);
        assert!(span(Nanos(number)).len() <= 16);
    }
}
