//! Shares of a size.

use crate::units::{self, Bytes};
use serde::{Deserialize, Serialize};

/// Parts in a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Permille(pub u16);

/// So many permille of a size, rounded down; the whole above 1000.
pub(super) fn part(whole: Bytes, Permille(permille): Permille) -> Bytes {
    Bytes(units::part(whole.0, permille.into(), 1000).unwrap_or(whole.0)).min(whole)
}
