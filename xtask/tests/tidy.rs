//! The tree keeps its own rules.
#![cfg(test)]

use std::path::Path;
use xtask::{rules, tree::Tree};

#[test]
fn the_tree_keeps_its_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::read(&root).expect("the checkout is readable");
    let findings: Vec<String> = rules::all(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn the_walk_sees_the_tree_and_not_what_is_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::read(&root).expect("the checkout is readable");
    for path in ["Cargo.toml", "Makefile", ".ci/run", "xtask/src/lexer/tests.rs", "crates/policy/src/lib.rs"]
    {
        assert!(tree.source(path).is_some(), "{path} was not read");
    }
    assert!(!tree.paths.iter().any(|path| path.starts_with("target") || path.starts_with(".git/")));
}
