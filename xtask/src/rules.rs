//! The rules, one module each; [`all`] runs every one.

mod changelog;
mod circles;
mod directions;
mod generated;
mod licences;
mod links;
mod names;
mod sizes;
mod words;

use crate::{Finding, tree::Tree};

/// Every breach of every rule, in the order of the rules.
#[must_use]
pub fn all(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 9] = [
        sizes::check,
        words::check,
        names::check,
        licences::check,
        links::check,
        changelog::check,
        directions::check,
        circles::check,
        generated::check,
    ];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}

#[cfg(test)]
mod tests;
