//! A generated page says on one of its first lines what it is made from, and that source exists.
//!
//! Whether the page is current is tested beside its generator, where both the page and the code are at hand.

use crate::{
    Finding,
    tree::{Language, Tree},
};

const MARK: &str = "<!-- Generated ";
/// The mark stands under the title.
const HEAD_LINES: usize = 5;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.in_language(Language::Markdown)
        .filter_map(|source| {
            let (line, mark) = source
                .lines()
                .take(HEAD_LINES)
                .find_map(|(line, text)| text.split_once(MARK).map(|(_, mark)| (line, mark)))?;
            let from = mark.strip_prefix("from ").and_then(|rest| rest.split(' ').next());
            let message = match from.map(|path| path.trim_end_matches(['.', ',', ':'])) {
                Some(path) if tree.paths.contains(path) => return None,
                Some(path) => format!("generated from {path}, which is not in the tree"),
                None => format!("say what it is made from: '{MARK}from PATH. To renew it: COMMAND -->'"),
            };
            Some(Finding::new(&source.path, line, message))
        })
        .collect()
}
