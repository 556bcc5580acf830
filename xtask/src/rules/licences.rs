//! Which licence a file is under, where the file itself must say so.

use crate::{
    Finding,
    tree::{Language, Source, Tree},
};

const BPF: &str = "SPDX-License-Identifier: GPL-2.0 OR MIT";
const REST: &str = "SPDX-License-Identifier: Apache-2.0 OR MIT";
const TEXTS: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "bpf/LICENSE-GPL-2.0", "bpf/LICENSE-MIT"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let texts = TEXTS
        .iter()
        .filter(|path| !tree.paths.contains(**path))
        .map(|path| Finding::new(path, 0, "missing: the text of a licence this tree is under"));
    texts.chain(tree.sources.iter().filter_map(check_source)).collect()
}

fn check_source(source: &Source) -> Option<Finding> {
    let in_bpf = source.path.starts_with("bpf/");
    match source.language {
        Language::C if in_bpf => headed(source, BPF, 1),
        // A script's first line is its interpreter.
        Language::C | Language::Script => headed(source, REST, 2),
        Language::Toml if source.path.ends_with("/Cargo.toml") => {
            let licences = ["license.workspace = true", "license = \"Apache-2.0 OR MIT\""];
            let named = source.text.lines().any(|line| licences.contains(&line.trim()));
            (!named && source.text.contains("[package]"))
                .then(|| Finding::new(&source.path, 0, "no licence: add `license.workspace = true`"))
        }
        Language::Rust | Language::Toml | Language::Markdown => None,
    }
}

fn headed(source: &Source, licence: &str, lines: usize) -> Option<Finding> {
    let found = source.text.lines().take(lines).any(|line| line.contains(licence));
    (!found)
        .then(|| Finding::new(&source.path, 1, format!("no licence line: start with a comment `{licence}`")))
}
