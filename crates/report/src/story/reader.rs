//! For whom a story is told, and how much of it.

/// How many other processes are named, in the story and in the line.
pub(super) const OTHERS_NAMED_MAX: usize = 3;

/// For whom a story is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Plain words.
    User,
    /// The same and the numbers behind it (`why -v`).
    Administrator,
}
