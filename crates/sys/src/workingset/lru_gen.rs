//! The multi-generational LRU (6.1): whether it is in use, and how long it keeps what was used last.

use super::knobs::{self, KnobError, Undo};
use std::path::{Path, PathBuf};

/// Where it is set.
const FOLDER: &str = "/sys/kernel/mm/lru_gen";

/// The bit of `enabled` that stands for the whole (Documentation/admin-guide/mm/multigen_lru.rst).
const ENABLED_BIT: u32 = 1;

/// The settings of the multi-generational LRU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LruGen {
    folder: PathBuf,
}

impl LruGen {
    /// `None` where this kernel was built without it.
    #[must_use]
    pub fn find() -> Option<Self> {
        Self::at(Path::new(FOLDER))
    }

    /// At another place, for tests.
    #[must_use]
    pub fn at(folder: &Path) -> Option<Self> {
        folder.join("min_ttl_ms").exists().then(|| Self { folder: folder.into() })
    }

    /// Whether it is what reclaims; the classic LRU does otherwise, and `min_ttl_ms` means nothing.
    ///
    /// # Errors
    /// [`KnobError`]; with `InvalidData` for what is no number.
    pub fn is_enabled(&self) -> Result<bool, KnobError> {
        let path = self.folder.join("enabled");
        let text = knobs::read(&path)?;
        let bits = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
        bits.map(|bits| bits & ENABLED_BIT != 0).ok_or_else(|| invalid(path))
    }

    /// For how long what was used is kept at any price, in milliseconds: where that cannot be done the kernel calls
    /// its OOM killer. 0: not at all.
    ///
    /// # Errors
    /// As [`LruGen::is_enabled`].
    pub fn min_ttl_ms(&self) -> Result<u64, KnobError> {
        let path = self.folder.join("min_ttl_ms");
        knobs::read(&path)?.parse().map_err(|_garbled| invalid(path))
    }

    /// The record of a change of [`LruGen::min_ttl_ms`]; `None` where it has the value already, or the
    /// administrator has set one: theirs holds.
    ///
    /// # Errors
    /// As [`LruGen::is_enabled`].
    pub fn plan_min_ttl_ms(&self, milliseconds: u64) -> Result<Option<Undo>, KnobError> {
        if self.min_ttl_ms()? != 0 {
            return Ok(None);
        }
        knobs::plan(&self.folder.join("min_ttl_ms"), &milliseconds.to_string())
    }
}

fn invalid(path: PathBuf) -> KnobError {
    KnobError { operation: "understand", path, source: std::io::Error::from(std::io::ErrorKind::InvalidData) }
}

#[cfg(test)]
mod tests;
