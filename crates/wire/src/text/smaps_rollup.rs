//! `/proc/PID/smaps_rollup`: the exact memory of a process, from a walk of its page tables.

use super::{WireError, field::take_kilobytes};
use plimsoll_policy::units::Bytes;

const FILE: &str = "/proc/PID/smaps_rollup";

/// What is used of `/proc/PID/smaps_rollup`; `None` where this kernel has no such line. Bytes, to the
/// kernel's own kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SmapsRollup {
    /// Resident memory.
    pub rss: Option<Bytes>,
    /// Resident anonymous memory, each page whole.
    pub anonymous: Option<Bytes>,
    /// Anonymous memory in swap, each page whole.
    pub swap: Option<Bytes>,
    /// Resident anonymous memory, each page parted among those that map it.
    pub proportional_anonymous: Option<Bytes>,
    /// Swapped memory, each page parted among those that have it.
    pub proportional_swap: Option<Bytes>,
    /// Pages that only this process maps, unchanged since read from their file.
    pub private_clean: Option<Bytes>,
    /// Pages that only this process maps, written to.
    pub private_dirty: Option<Bytes>,
    /// Huge pages of hugetlbfs that only this process maps; in none of the above.
    pub private_hugetlb: Option<Bytes>,
}

/// Reads `/proc/PID/smaps_rollup`. Lines it does not know are skipped, lines that are not there stay `None`.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number of kB; [`WireError::Missing`] when there is no
/// `Rss`, which every kernel has.
pub fn parse_smaps_rollup(text: &[u8]) -> Result<SmapsRollup, WireError> {
    let mut rollup = SmapsRollup::default();
    let wanted = &mut [
        ("Rss", &mut rollup.rss),
        ("Anonymous", &mut rollup.anonymous),
        ("Swap", &mut rollup.swap),
        ("Pss_Anon", &mut rollup.proportional_anonymous),
        ("SwapPss", &mut rollup.proportional_swap),
        ("Private_Clean", &mut rollup.private_clean),
        ("Private_Dirty", &mut rollup.private_dirty),
        ("Private_Hugetlb", &mut rollup.private_hugetlb),
    ];
    take_kilobytes(FILE, text, wanted)?;
    rollup.rss.map(|_| rollup).ok_or(WireError::missing(FILE, "Rss"))
}

#[cfg(test)]
mod tests;
