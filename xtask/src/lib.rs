//! Tidy: rules of this tree that no compiler checks, as a test (`cargo test -p xtask`).
//!
//! [`tree`] reads the checkout once, [`lexer`] parts code from comments, each module of [`rules`] is a pure function
//! from the tree to its [`Finding`]s. A rule never mends anything, and nothing here knows about git: a file that is
//! not committed yet is held to the same rules.
#![forbid(unsafe_code)]

pub mod figures;
pub mod kernel_policy;
pub mod lexer;
pub mod rules;
pub mod tree;

use std::fmt;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root of the tree.
    pub path: String,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding about one line of a file.
    #[must_use]
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}
