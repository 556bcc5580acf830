//! Numbers and foreign text as people (and terminals) should get them: integers only, nothing that could act.

use crate::units::{Bytes, Nanos};
use alloc::{format, string::String};

/// The longest piece of foreign text that is repeated in a message, in characters.
const QUOTED_CHARS_MAX: usize = 64;

/// A size in the unit that suits it: `256.0 MiB`, `4.0 KiB`, `17 bytes`; the tenth is rounded to the nearest.
#[must_use]
pub fn bytes(size: Bytes) -> String {
    const UNITS: [(u32, &str); 5] = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if size.0 >> shift > 0 {
            let half = 1_u128 << shift.saturating_sub(1);
            let tenths = u128::from(size.0).saturating_mul(10).saturating_add(half) >> shift;
            return match (tenths.checked_div(10), tenths.checked_rem(10)) {
                (Some(whole), Some(tenth)) => format!("{whole}.{tenth} {unit}"),
                _ => format!("{} bytes", size.0),
            };
        }
    }
    if size.0 == 1 { String::from("1 byte") } else { format!("{} bytes", size.0) }
}

/// A span in the unit that suits it: `850 ns`, `3.2 us`, `14.0 ms`, `2.5 s`; the tenth is rounded down.
#[must_use]
pub fn span(span: Nanos) -> String {
    let tenths = |unit_ns: u64| {
        let rest = span.0.checked_rem(unit_ns).and_then(|rest| rest.saturating_mul(10).checked_div(unit_ns));
        (span.0.checked_div(unit_ns), rest)
    };
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if let (Some(whole @ 1..), Some(tenth)) = tenths(unit_ns) {
            return format!("{whole}.{tenth} {unit}");
        }
    }
    format!("{} ns", span.0)
}

/// Foreign text in double quotes, cut to 64 characters: control, format and bidirectional characters, quotes and
/// backslashes escaped.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    push_cut(&mut out, text, push_escaped);
    out.push('"');
    out
}

/// As [`quoted`], without the quotes, for messages that bring their own.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    push_cut(&mut out, text, push_escaped);
    out
}

/// As [`quoted`], of foreign text that was made printable where it was read: each backslash in it belongs to an escape
/// already (`plimsoll_wire::text::Printable`) and is not escaped once more.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::from("\"");
    push_cut(&mut out, text, push_shown);
    out.push('"');
    out
}

/// As [`shown`], whole and without the quotes: names of pods and units stand at the end of a cgroup's path.
#[must_use]
pub fn shown_whole(text: &str) -> String {
    let mut out = String::new();
    text.chars().for_each(|character| push_shown(&mut out, character));
    out
}

fn push_shown(out: &mut String, character: char) {
    match character {
        '\'' | '\\' => out.push(character),
        other => out.extend(other.escape_debug()),
    }
}

fn push_escaped(out: &mut String, character: char) {
    match character {
        '\'' => out.push(character),
        other => out.extend(other.escape_debug()),
    }
}

fn push_cut(out: &mut String, text: &str, push: fn(&mut String, char)) {
    text.chars().take(QUOTED_CHARS_MAX).for_each(|character| push(out, character));
    if text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        out.push_str("...");
    }
}

/// Whether a terminal might obey it, or it turns the direction of writing.
#[must_use]
pub fn is_hazardous(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests;
