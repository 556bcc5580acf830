//! Relative links in Markdown that lead nowhere.

use crate::{
    Finding,
    tree::{Language, Source, Tree},
};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.in_language(Language::Markdown).flat_map(|source| check_source(tree, source)).collect()
}

fn check_source(tree: &Tree, source: &Source) -> Vec<Finding> {
    let mut in_fence = false;
    let mut findings = Vec::new();
    for (line, text) in source.lines() {
        if text.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            findings.extend(targets(text).filter(|target| is_dead(tree, &source.path, target)).map(
                |target| Finding::new(&source.path, line, format!("dead link: {target} is not in the tree")),
            ));
        }
    }
    findings
}

/// What `](...)` and a line `[...]: ` point at, leaving out inline code (the odd parts between backticks).
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let named = text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, after)| after);
    let prose = text.split('`').step_by(2);
    let inline = prose.flat_map(|prose| prose.split("](").skip(1));
    inline.chain(named).filter_map(|after| after.split([')', ' ']).next())
}

fn is_dead(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return false;
    }
    match resolve(from, path) {
        Some(resolved) => !resolved.is_empty() && !tree.paths.contains(&resolved),
        None => true,
    }
}

/// `path` as seen from the file `from`, relative to the root; `None` when it leaves the tree.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
