//! Names of files and folders that say nothing about what is inside.

use crate::{Finding, tree::Tree};

/// What stands in for a header of libbpf has its name.
const NAMED_ELSEWHERE: &str = "testkit/native/include/";

const BANNED: [&str; 8] = ["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.paths
        .iter()
        .filter(|path| !path.starts_with(NAMED_ELSEWHERE))
        .filter_map(|path| {
            let name = path.rsplit('/').next()?;
            let word = name
                .split(['.', '_', '-'])
                .find(|word| BANNED.contains(&word.to_ascii_lowercase().as_str()))?;
            Some(Finding::new(
                path,
                0,
                format!("'{word}' in a name says nothing: name what it holds or does"),
            ))
        })
        .collect()
}
