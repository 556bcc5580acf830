//! The command line of a process, which it can rewrite at will.

use super::Printable;

/// Bytes of a command line that are shown. What follows is seldom what tells two processes apart, and incidents
/// are kept for long.
pub const CMDLINE_BYTES_MAX: usize = 1024;

/// `/proc/PID/cmdline` as text: arguments parted by a space, other bytes as [`Printable`] shows them, ` ...` at
/// the end where more than [`CMDLINE_BYTES_MAX`] bytes were there. `None` when it is empty: kernel threads, zombies
/// and processes that wiped it have no command line, which is not the same as an empty one.
#[must_use]
pub fn printable_cmdline(text: &[u8]) -> Option<String> {
    let end = text.iter().rposition(|byte| *byte != 0)?.saturating_add(1);
    let used = text.get(..end)?;
    let (shown, cut) = used.split_at_checked(CMDLINE_BYTES_MAX).unwrap_or((used, &[]));
    let mut line = String::with_capacity(shown.len());
    for (number, argument) in shown.split(|byte| *byte == 0).enumerate() {
        if number > 0 {
            line.push(' ');
        }
        line.push_str(&Printable(argument).to_string());
    }
    if !cut.is_empty() {
        line.push_str(" ...");
    }
    Some(line)
}

#[cfg(test)]
mod tests;
