//! `UID_MIN` and `UID_MAX` of `/etc/login.defs`: which uids belong to people.

use plimsoll_policy::{lines::UidRange, units::Uid};

/// Reads both keys as shadow's `getdef` does: blanks around key and value, `#` starts a comment line, numbers may be
/// octal (`0...`) or hexadecimal (`0x...`), the last setting wins. What is missing or malformed keeps its default, and
/// so do both when the minimum lies above the maximum.
#[must_use]
pub fn parse(text: &[u8]) -> UidRange {
    let mut range = UidRange::default();
    for line in text.split(|byte| *byte == b'\n') {
        let mut words =
            line.split(|byte| matches!(byte, b' ' | b'\t' | b'"' | b'\r')).filter(|w| !w.is_empty());
        let (Some(key), Some(value)) = (words.next(), words.next().and_then(number)) else { continue };
        match key {
            b"UID_MIN" => range.min = Uid(value),
            b"UID_MAX" => range.max = Uid(value),
            _ => {}
        }
    }
    if range.min <= range.max { range } else { UidRange::default() }
}

/// A uid; 4294967295 is the kernel's 'none' and is not one.
fn number(word: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(word).ok()?;
    let (digits, radix) = if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        (digits, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (text, 8)
    } else {
        (text, 10)
    };
    // from_str_radix takes a sign, which is not a digit.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u32::from_str_radix(digits, radix).ok().filter(|uid| plain && *uid != u32::MAX)
}
