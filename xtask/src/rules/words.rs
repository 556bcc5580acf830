//! Words that must not reach the tree: unfinished work, tests that never run, `unsafe` where it has no place.

use crate::{
    Finding, lexer,
    tree::{Language, Source, Tree},
};

/// The only folders whose Rust may be unsafe.
const UNSAFE_FOLDERS: [&str; 3] = ["crates/sys/", "crates/tmalloc/", "testkit/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let rules: fn(&Source, &str, &str) -> Option<String> = match source.language {
        Language::Rust => |source, code, comment| code_word(source, code).or_else(|| unfinished(comment)),
        Language::C => |_, _, comment| unfinished(comment),
        Language::Script | Language::Toml => |_, code, _| unfinished(code),
        // Prose may speak of the words; CONTRIBUTING.md does.
        Language::Markdown => return Vec::new(),
    };
    let halves = match source.language {
        Language::Rust | Language::C => lexer::split(&source.text, source.language),
        Language::Markdown | Language::Toml | Language::Script => {
            lexer::Split { code: source.text.clone(), comments: source.text.clone() }
        }
    };
    (1..)
        .zip(halves.code.lines().zip(halves.comments.lines()))
        .filter_map(|(line, (code, comment))| {
            rules(source, code, comment).map(|message| Finding::new(&source.path, line, message))
        })
        .collect()
}

fn code_word(source: &Source, code: &str) -> Option<String> {
    if let Some(name) = ["todo", "unimplemented"].iter().find(|name| has_word(code, name, "!")) {
        return Some(format!("`{name}!`: finish it or leave it out"));
    }
    if has_word(code, "ignore", "") && code.contains("#[") {
        return Some(
            "an ignored test: make it run, or print `SKIPPED: name: why` where it cannot".to_owned(),
        );
    }
    let may_be_unsafe = UNSAFE_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    if !may_be_unsafe && has_word(code, "unsafe", "") {
        return Some("`unsafe` outside crates/sys, crates/tmalloc and testkit: wrap it there".to_owned());
    }
    None
}

fn unfinished(text: &str) -> Option<String> {
    if let Some(word) = ["FIXME", "XXX"].iter().find(|word| has_word(text, word, "")) {
        return Some(format!("{word}: mend it, or open an issue and write TODO(#number)"));
    }
    words(text)
        .find(|&(word, after)| word == "TODO" && !names_an_issue(after))
        .map(|_| "TODO without an issue: write TODO(#number)".to_owned())
}

fn names_an_issue(after: &str) -> bool {
    after
        .strip_prefix("(#")
        .and_then(|rest| rest.split_once(')'))
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn has_word(text: &str, wanted: &str, followed_by: &str) -> bool {
    words(text).any(|(word, after)| word == wanted && after.starts_with(followed_by))
}

/// Each whole word of a line with what follows it.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(|character| !lexer::is_word(character)).filter(|word| !word.is_empty()).filter_map(
        move |word| {
            // Both are slices of the same line, so the distance of their starts is an offset into it.
            let end = word.as_ptr().addr().checked_sub(text.as_ptr().addr())?.checked_add(word.len())?;
            Some((word, text.get(end..)?))
        },
    )
}
