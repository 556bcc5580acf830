//! How long a file and a line may be. Functions are clippy's to measure (`too_many_lines`).

use crate::{
    Finding,
    tree::{Language, Tree},
};

/// From here on a file holds more than one idea. Think about it at 400.
const LINES_MAX: usize = 800;
/// Formatters break code well before this; comments are held to it here. Messages are not: whoever reads one in a
/// journal looks for it in the source as it stands there, in one piece.
const COLUMNS_MAX: usize = 128;
/// What a tab counts for, as in `.clang-format`.
const TAB_COLUMNS: usize = 8;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            let message = format!("{lines} lines, at most {LINES_MAX}: split it by concern");
            findings.push(Finding::new(&source.path, 0, message));
        }
        if matches!(source.language, Language::Rust | Language::C) {
            findings.extend(source.lines().filter_map(|(line, text)| {
                let columns = columns(text);
                (columns > COLUMNS_MAX && !is_message(text)).then(|| {
                    Finding::new(&source.path, line, format!("{columns} columns, at most {COLUMNS_MAX}"))
                })
            }));
        }
    }
    findings
}

/// Most of the line is a string.
fn is_message(line: &str) -> bool {
    let (Some(start), Some(end)) = (line.find('"'), line.rfind('"')) else {
        return false;
    };
    end.saturating_sub(start).saturating_mul(2) > line.len()
}

fn columns(line: &str) -> usize {
    line.chars().fold(0_usize, |at, character| match character {
        '\t' => at.saturating_div(TAB_COLUMNS).saturating_add(1).saturating_mul(TAB_COLUMNS),
        _ => at.saturating_add(1),
    })
}
