//! Ways in which others write a line down that is not plain text: escapes of the kernel's ring buffer and of syslog,
//! quoted-printable mail, JSON around a message.

use super::{
    prefix,
    scan::{after, contains},
};
use plimsoll_wire::text::escaped_byte;
use std::borrow::Cow;

/// Fields in which collectors keep the message: journal, Google Cloud, Docker, and others.
const JSON_FIELDS: [&[u8]; 5] = [b"\"MESSAGE\"", b"\"textPayload\"", b"\"message\"", b"\"log\"", b"\"msg\""];

/// What is before the `=` at the end of a line of quoted-printable mail, which the next line goes on. Such lines are
/// about as long as they may be (76), and no kernel's line ends so.
pub(super) fn soft_break(raw: &[u8]) -> Option<&[u8]> {
    let part = raw.strip_suffix(b"=")?;
    (part.len() > 60 && part.len() <= 80).then_some(part)
}

/// The line without its escapes; where one stands for a line end, there is one.
pub(super) fn plain(raw: &[u8]) -> Cow<'_, [u8]> {
    if let Some(message) = json_message(raw) {
        return Cow::Owned(message);
    }
    if prefix::is_kmsg(raw) {
        // Every backslash in it is an escape of the kernel's, and nothing else is any.
        return if raw.contains(&b'\\') { unescaped(raw, escaped_byte) } else { Cow::Borrowed(raw) };
    }
    let quoted_printable = contains(raw, b"=3D");
    if !quoted_printable && !raw.contains(&b'\\') && !contains(raw, b"#01") {
        return Cow::Borrowed(raw);
    }
    unescaped(raw, |rest| match rest.first()? {
        b'\\' => backslash(rest),
        b'#' => octal(rest),
        b'=' if quoted_printable => hexadecimal(rest.get(1..)?),
        _ => None,
    })
}

/// The text with the byte that `escape` takes off its beginning in the place of each escape.
fn unescaped(raw: &[u8], escape: impl Fn(&[u8]) -> Option<(u8, &[u8])>) -> Cow<'_, [u8]> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        let (byte, next) = escape(rest).unwrap_or((*first, after));
        out.push(byte);
        rest = next;
    }
    Cow::Owned(out)
}

/// `\x0a`, left where others took a record of `/dev/kmsg` over. Other bytes stay as they are written: they belong to names.
fn backslash(text: &[u8]) -> Option<(u8, &[u8])> {
    let rest = text.strip_prefix(b"\\x")?;
    let (digits, rest) = rest.split_at_checked(2)?;
    match digits {
        b"0a" | b"0A" => Some((b'\n', rest)),
        b"09" => Some((b'\t', rest)),
        _ => None,
    }
}

/// `#012`, as rsyslog writes it.
fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    if let Some(rest) = text.strip_prefix(b"#012") {
        return Some((b'\n', rest));
    }
    text.strip_prefix(b"#011").map(|rest| (b'\t', rest))
}

fn hexadecimal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(2)?;
    let mut value = 0_u32;
    for digit in digits {
        value = value << 4 | char::from(*digit).to_digit(16).filter(|_| !digit.is_ascii_lowercase())?;
    }
    u8::try_from(value).ok().map(|byte| (byte, rest))
}

/// The message in a line of JSON, unescaped.
fn json_message(raw: &[u8]) -> Option<Vec<u8>> {
    if !matches!(raw.trim_ascii_start().first()?, b'{' | b'"') {
        return None;
    }
    let value = JSON_FIELDS.iter().find_map(|field| after(raw, field))?;
    let mut rest = value.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let mut out = Vec::with_capacity(rest.len());
    while let Some((first, after)) = rest.split_first().filter(|(first, _)| **first != b'"') {
        rest = after;
        let Some((escaped, after)) = after.split_first().filter(|_| *first == b'\\') else {
            out.push(*first);
            continue;
        };
        // Collectors escape twice at times: `\\r\\n`.
        let twice =
            after.split_first().filter(|(letter, _)| *escaped == b'\\' && matches!(letter, b'n' | b'r'));
        let (letter, after) = twice.unwrap_or((escaped, after));
        rest = after;
        match letter {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => {}
            other => out.push(*other),
        }
    }
    Some(out)
}
