use super::*;

/// Turns shown text back into the bytes it was made from.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(escape) = rest.strip_prefix("\\x") {
            bytes.push(u8::from_str_radix(escape.get(..2)?, 16).ok()?);
            rest = escape.get(2..)?;
        } else if let Some(after) = rest.strip_prefix("\\\\") {
            bytes.push(b'\\');
            rest = after;
        } else {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = rest.get(character.len_utf8()..)?;
        }
    }
    Some(bytes)
}

#[test]
fn every_two_bytes_come_back_and_are_shown_without_a_control_character() {
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            let shown = Printable(&[first, second]).to_string();
            assert_eq!(unescape(&shown), Some(vec![first, second]), "{shown}");
            assert!(shown.chars().all(|character| !character.is_control()), "{shown:?}");
        }
    }
}

#[test]
fn every_character_of_unicode_comes_back() {
    for character in '\0'..=char::MAX {
        let shown = Printable(character.to_string().as_bytes()).to_string();
        assert_eq!(unescape(&shown), Some(character.to_string().into_bytes()));
    }
}

#[test]
fn letters_of_any_script_are_shown_as_they_are() {
    assert_eq!(Printable("naïve-файл 試験1".as_bytes()).to_string(), "naïve-файл 試験1");
}

#[test]
fn a_name_that_looks_like_an_escape_is_told_from_the_byte_it_names() {
    assert_eq!(Printable(br"\x1b").to_string(), r"\\x1b");
    assert_eq!(Printable(b"\x1b").to_string(), r"\x1b");
}

#[test]
fn marks_that_turn_the_writing_direction_or_have_no_width_are_escaped() {
    for mark in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{85}', '\u{2028}'] {
        let shown = Printable(mark.to_string().as_bytes()).to_string();
        assert!(shown.is_ascii() && shown.starts_with("\\x"), "{shown:?}");
    }
}
