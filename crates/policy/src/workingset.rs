//! Working-set protection: which parts of which files are kept in memory, and when too little of the page cache is
//! left.
//!
//! Facts are counts of pages used per file and piece of a file ([`Use`]); [`Heat`] remembers them for some minutes,
//! [`plan()`] ranks what was used again and again and says what to hold. Beside it stands the floor ([`floor`]): the
//! least clean file memory that is left when the kernel takes pages back. The four tunables are le9uo's, by name.

pub mod anon;
mod barred;
mod bars;
mod blocks;
mod decay;
mod files;
pub mod floor;
mod heat;
mod plan;
mod rank;
pub mod share;
mod tunables;

pub use barred::Barred;
pub use blocks::{BLOCK_PAGES, Blocks, CHUNK_PAGES};
pub use files::{ChunkId, FileId, Use, chunk_count, chunk_pages};
pub use heat::{CHUNKS_MAX, HALF_LIFE, Heat};
pub use plan::{Budget, Extent, FILES_MAX, FilePlan, Holding, Plan, Tier, Why, plan};
pub use tunables::{Ratio, Setting, SettingError, Tunable, TunableChange, Tunables};

#[cfg(test)]
mod tests;
