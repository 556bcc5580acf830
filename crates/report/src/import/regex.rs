//! Regular expressions that are lists of names, as patterns of ours.

/// So many names are enough for a rule.
const NAMES_MAX: usize = 64;
const DEPTH_MAX: usize = 8;

/// The patterns that match what an (extended) regular expression matches; `None`: it is more than a list of names.
pub(super) fn patterns(regex: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for part in split(regex)? {
        let start = ["^", "(^|/)"].into_iter().find(|anchor| part.starts_with(anchor));
        let part = start.and_then(|anchor| part.strip_prefix(anchor)).unwrap_or(part);
        let end = part.ends_with('$') && !part.ends_with("\\$");
        let part = if end { part.strip_suffix('$').unwrap_or(part) } else { part };
        for name in expand(part, 0)? {
            let (before, after) = (if start.is_some() { "" } else { "*" }, if end { "" } else { "*" });
            found.push(format!("{before}{name}{after}"));
        }
    }
    (found.len() <= NAMES_MAX).then_some(found)
}

/// What stands between the bars that are in no group; `None`: the parentheses do not match.
fn split(regex: &str) -> Option<Vec<&str>> {
    let (mut parts, mut depth, mut from, mut escaped) = (Vec::new(), 0_usize, 0, false);
    for (at, character) in regex.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => {
                parts.push(regex.get(from..at)?);
                from = at.saturating_add(1);
            }
            _ => {}
        }
    }
    parts.push(regex.get(from..)?);
    (depth == 0 && !escaped).then_some(parts)
}

/// All names that it stands for, with `*` and `?`.
fn expand(regex: &str, depth: usize) -> Option<Vec<String>> {
    let mut names = Vec::from([String::new()]);
    let mut rest = regex;
    while let Some(first) = rest.chars().next() {
        let tail = rest.get(first.len_utf8()..)?;
        let (choices, after): (Vec<String>, &str) = match first {
            '.' => match tail.strip_prefix('*') {
                Some(after) => (Vec::from(["*".to_owned()]), after),
                None => (Vec::from(["?".to_owned()]), tail),
            },
            '\\' => {
                let literal = tail.chars().next().filter(|next| next.is_ascii_punctuation())?;
                (Vec::from([plain(literal)?]), tail.get(1..)?)
            }
            '(' if depth < DEPTH_MAX => {
                let (inner, after) = group(tail)?;
                let mut choices = Vec::new();
                for part in split(inner)? {
                    choices.extend(expand(part, depth.saturating_add(1))?);
                }
                (choices, after)
            }
            literal if literal.is_ascii_alphanumeric() || " _-:/,@#%=~".contains(literal) => {
                (Vec::from([plain(literal)?]), tail)
            }
            _ => return None,
        };
        // What may be repeated or left out is no list.
        if after.starts_with(['*', '+', '?', '{']) || names.len().saturating_mul(choices.len()) > NAMES_MAX {
            return None;
        }
        names = names
            .iter()
            .flat_map(|name| choices.iter().map(move |choice| format!("{name}{choice}")))
            .collect();
        rest = after;
    }
    Some(names)
}

/// As a pattern: `*`, `?` and backslashes mean themselves only behind a backslash.
fn plain(literal: char) -> Option<String> {
    let is_special = matches!(literal, '*' | '?' | '\\');
    literal.is_ascii().then(|| if is_special { format!("\\{literal}") } else { literal.to_string() })
}

/// The inside of a group whose parenthesis was opened, and what comes after it.
fn group(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut escaped) = (1_usize, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some((text.get(..at)?, text.get(at.saturating_add(1)..)?));
        }
    }
    None
}
