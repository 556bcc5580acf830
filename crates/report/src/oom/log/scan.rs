//! Small pieces of a line: where something stands, and the numbers in it. All of them look at each byte a bounded number
//! of times.

use plimsoll_policy::units::Bytes;
pub(super) use plimsoll_wire::text::decimal;

/// Where `needle` begins in `hay`.
pub(super) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut from = 0_usize;
    loop {
        let left = hay.get(from..)?;
        let at = from.checked_add(left.iter().position(|byte| byte == first)?)?;
        let next = at.checked_add(1)?;
        if hay.get(next..)?.starts_with(rest) {
            return Some(at);
        }
        from = next;
    }
}

/// Where `needle` begins for the last time.
pub(super) fn find_last(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let last = hay.len().checked_sub(needle.len())?;
    (0..=last).rev().find(|at| hay.get(*at..).is_some_and(|from| from.starts_with(needle)))
}

pub(super) fn contains(hay: &[u8], needle: &[u8]) -> bool {
    find(hay, needle).is_some()
}

/// What follows `needle`.
pub(super) fn after<'a>(hay: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    hay.get(find(hay, needle)?.checked_add(needle.len())?..)
}

/// What follows the last `needle`.
pub(super) fn after_last<'a>(hay: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    hay.get(find_last(hay, needle)?.checked_add(needle.len())?..)
}

/// What stands before `needle`; all of it where there is none.
pub(super) fn before<'a>(hay: &'a [u8], needle: &[u8]) -> &'a [u8] {
    find(hay, needle).and_then(|at| hay.get(..at)).unwrap_or(hay)
}

/// The digits at the beginning as a number, and what follows them.
pub(super) fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    Some((decimal(number)?, rest))
}

/// A number with or without a minus, up to the first other byte.
pub(super) fn leading_signed(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let value = i32::try_from(leading_number(digits)?.0).ok()?;
    if negative { value.checked_neg() } else { Some(value) }
}

/// The number after `key`, as in `pid=2269` or `total-vm:12kB`; blanks in between are allowed.
pub(super) fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    leading_number(after(text, key)?.trim_ascii_start()).map(|(number, _)| number)
}

pub(super) fn number_u32_after(text: &[u8], key: &[u8]) -> Option<u32> {
    number_after(text, key).and_then(|number| u32::try_from(number).ok())
}

pub(super) fn signed_after(text: &[u8], key: &[u8]) -> Option<i32> {
    leading_signed(after(text, key)?.trim_ascii_start())
}

/// A number of kB after `key`. The kernel's kB are 1024 bytes, and some of its lines say KB.
pub(super) fn kilobytes_after(text: &[u8], key: &[u8]) -> Option<Bytes> {
    let (number, unit) = leading_number(after(text, key)?.trim_ascii_start())?;
    (unit.starts_with(b"kB") || unit.starts_with(b"KB")).then(|| number.checked_mul(1024).map(Bytes))?
}

/// A list of nodes, `0-1,3`; at most [`NODES_MAX`] of them. `(null)` and anything else is `None`.
pub(super) fn nodes(text: &[u8]) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    let text = text.trim_ascii();
    for part in text.split(|byte| *byte == b',') {
        let (first, rest) = leading_number(part)?;
        let last = match rest.split_first() {
            None => first,
            Some((b'-', rest)) => decimal(rest)?,
            Some(_) => return None,
        };
        for node in first..=last.min(NODES_MAX) {
            if nodes.len() < 1024 {
                nodes.push(u32::try_from(node).ok()?);
            }
        }
    }
    (!nodes.is_empty()).then_some(nodes)
}

/// `CONFIG_NODES_SHIFT` is 10 at most.
const NODES_MAX: u64 = 1023;

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The first word and what follows it, without the blanks between.
pub(super) fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let at = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(at).unwrap_or((text, &[]));
    (word, rest.trim_ascii_start())
}
