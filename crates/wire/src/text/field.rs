//! Lines, keys and numbers as the kernel writes them.

use super::WireError;
use plimsoll_policy::units::Bytes;

/// The lines of `text`, without their ends; an unfinished last line counts.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// The words of a line: runs of anything but spaces and tabs.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ' || *byte == b'\t').filter(|word| !word.is_empty())
}

/// `Key:   value` as its two halves, the value without blanks around it.
pub(super) fn key_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = split_once(line, b':')?;
    Some((key, rest.trim_ascii()))
}

/// `line` before and after the first `separator`.
pub(super) fn split_once(line: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == separator)?;
    let (before, from) = line.split_at_checked(at)?;
    let (_, after) = from.split_first()?;
    Some((before, after))
}

/// A decimal number and nothing else: no sign, no blank, no overflow.
#[must_use]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// As [`decimal`], for numbers of 32 bits (pids, uids).
pub(super) fn decimal_u32(digits: &[u8]) -> Option<u32> {
    decimal(digits).and_then(|value| u32::try_from(value).ok())
}

/// A hexadecimal number of 1 to 16 digits and nothing else.
#[must_use]
pub fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// `N kB`, the only unit the kernel's memory files have; its kB are 1024 bytes.
pub(super) fn kilobytes(value: &[u8]) -> Option<Bytes> {
    let digits = value.strip_suffix(b" kB")?;
    decimal(digits.trim_ascii_end())?.checked_mul(1024).map(Bytes)
}

/// Puts each line of `text` whose key is wanted into its place.
pub(super) fn take_kilobytes(
    file: &'static str,
    text: &[u8],
    wanted: &mut [(&'static str, &mut Option<Bytes>)],
) -> Result<(), WireError> {
    for (key, value) in lines(text).filter_map(key_value) {
        if let Some((field, slot)) = wanted.iter_mut().find(|(field, _)| field.as_bytes() == key) {
            set_kilobytes(slot, file, field, value)?;
        }
    }
    Ok(())
}

/// Puts `N kB` into `slot`. The first line of a name counts: the kernel writes each once.
pub(super) fn set_kilobytes(
    slot: &mut Option<Bytes>,
    file: &'static str,
    field: &'static str,
    value: &[u8],
) -> Result<(), WireError> {
    let bytes = kilobytes(value)
        .ok_or_else(|| WireError::malformed(file, field, "a number of kB that fits in 64 bits", value))?;
    slot.get_or_insert(bytes);
    Ok(())
}
