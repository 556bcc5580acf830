//! Parts a Rust or C source into its code and its comments, so that a rule about one is not misled by the other.
//!
//! Both halves keep every line break, so line numbers stay true. The text of string and character literals is in
//! neither. It reads tokens, not grammar: enough to tell these apart, no more.

use crate::tree::Language;

/// A source in two halves with the same lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Code without comments and without the text of literals.
    pub code: String,
    /// Comments, with their `//` or `/*`.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits `text`; only [`Language::Rust`] differs from C (nested comments, raw strings, lifetimes).
#[must_use]
pub fn split(text: &str, language: Language) -> Split {
    let characters: Vec<char> = text.chars().collect();
    let mut halves = Split { code: String::new(), comments: String::new() };
    let mut rest = characters.as_slice();
    while !rest.is_empty() {
        let (kind, length) = token(rest, language == Language::Rust);
        let (token, after) = rest.split_at(length.clamp(1, rest.len()));
        for &character in token {
            let blank = if character == '\n' { '\n' } else { ' ' };
            halves.code.push(if kind == Kind::Code { character } else { blank });
            halves.comments.push(if kind == Kind::Comment { character } else { blank });
        }
        rest = after;
    }
    halves
}

/// The kind and length of the token that `rest` starts with.
fn token(rest: &[char], rust: bool) -> (Kind, usize) {
    match rest {
        ['/', '/', ..] => (Kind::Comment, rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => (Kind::Comment, block_comment(rest, rust)),
        ['"', ..] => (Kind::Literal, quoted(rest, '"')),
        ['\'', ..] if !rust => (Kind::Literal, quoted(rest, '\'')),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (Kind::Literal, quoted(rest, '\'')),
        [first, ..] if is_word(*first) => {
            let length = rest.iter().position(|&c| !is_word(c)).unwrap_or(rest.len());
            match rest.split_at(length) {
                (['r'] | ['b' | 'c', 'r'], after) if rust => raw_string(after)
                    .map_or((Kind::Code, length), |literal| (Kind::Literal, length.saturating_add(literal))),
                _ => (Kind::Code, length),
            }
        }
        _ => (Kind::Code, 1),
    }
}

/// Whether a character can be part of a name.
#[must_use]
pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn block_comment(rest: &[char], nested: bool) -> usize {
    let mut depth = 0_usize;
    let mut at = 0_usize;
    loop {
        match rest.get(at..).unwrap_or_default() {
            [] => return at,
            ['/', '*', ..] if nested || depth == 0 => {
                depth = depth.saturating_add(1);
                at = at.saturating_add(2);
            }
            ['*', '/', ..] => {
                depth = depth.saturating_sub(1);
                at = at.saturating_add(2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at = at.saturating_add(1),
        }
    }
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut escaped = false;
    for (at, &character) in rest.iter().enumerate().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at.saturating_add(1),
            _ => {}
        }
    }
    rest.len()
}

/// The length of `#"..."#` with any number of hashes; `None` when this is no raw string (`r#match`, a plain `r`).
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&c| c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = rest.get(hashes.saturating_add(1)..)?;
    let end = body.windows(closing.len()).position(|window| window == closing)?;
    Some(hashes.saturating_add(1).saturating_add(end).saturating_add(closing.len()))
}

#[cfg(test)]
mod tests;
