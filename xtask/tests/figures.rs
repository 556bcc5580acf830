//! The figures of the pages are those of bench/results.
#![cfg(test)]

use std::{fs, path::Path};
use xtask::{
    figures,
    tree::{Language, Tree},
};

#[test]
fn the_pages_figures_are_those_of_the_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::read(&root).unwrap();
    let read = |file: &str| {
        fs::read_to_string(root.join("bench/results").join(file)).map_err(|error| error.to_string())
    };
    let found = tree.in_language(Language::Markdown).flat_map(|page| figures::check(page, &read));
    let found: Vec<String> = found.map(|one| one.to_string()).collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}
