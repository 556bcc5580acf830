//! What goes to the terminal: text that cannot act on it.

use serde::Serialize;
use std::io::{self, Write};

/// `text` without control and direction characters, on one line: a message may repeat what somebody else chose.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\n' | '\r' | '\t') {
            safe.push(' ');
        } else if matches!(character, '"' | '\'' | '\\') {
            safe.push(character);
        } else {
            safe.extend(character.escape_debug());
        }
    }
    safe
}

/// Says what is wrong on standard error, where somebody reads it.
pub(crate) fn complain(what: impl std::fmt::Display) {
    writeln!(io::stderr(), "plimsoll: {}", printable(&what.to_string())).ok();
}

/// One value as JSON on lines of its own.
pub(crate) fn json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), serde_json::Error> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out).map_err(serde_json::Error::io)
}

/// A number of things, in words that agree.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// What jobs do, in words that agree.
pub(crate) fn run_and_wait(running: u64, waiting: u64) -> String {
    let verb = |count: u64, verb: &str| format!("{count} {verb}{}", if count == 1 { "s" } else { "" });
    match (running, waiting) {
        (_, 0) => verb(running, "run"),
        (_, _) => format!("{}, {}", verb(running, "run"), verb(waiting, "wait")),
    }
}

/// Writes `text`, which was made for the terminal and may have several lines.
pub(crate) fn lines(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", text.trim_end())
}

/// How many of so many `parts` of `whole` are in `part`; `None` where there is no whole.
pub(crate) fn share(part: u64, whole: u64, parts: u64) -> Option<u64> {
    let share = (u128::from(part) * u128::from(parts)).checked_div(u128::from(whole))?;
    u64::try_from(share).ok()
}

/// Words on lines of at most so many characters; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests;
