//! Arbitrary bytes as text that is safe to show and can be turned back.

use core::fmt::{self, Write};

/// Shows bytes so that no two different byte strings look alike and none can do anything but be read.
///
/// Printable ASCII and letters and digits of any script stand for themselves; a backslash is doubled; every other
/// byte is `\xNN`. So no control character, line end, escape sequence or change of writing direction gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printable<'a>(
    /// The bytes to show.
    pub &'a [u8],
);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    shown if is_harmless(shown) => f.write_char(shown)?,
                    hidden => write_escaped(f, hidden.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            write_escaped(f, chunk.invalid())?;
        }
        Ok(())
    }
}

/// Letters and digits of any script, and ASCII from space to `~`. Not all that Unicode calls printable: marks that
/// turn the writing direction or have no width are not control characters to [`char::is_control`].
fn is_harmless(character: char) -> bool {
    character == ' ' || character.is_ascii_graphic() || (!character.is_ascii() && character.is_alphanumeric())
}

fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

#[cfg(test)]
mod tests;
