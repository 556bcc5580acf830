//! `/proc/PID/smaps_rollup`: the exact memory of a process, from a walk of its page tables.

use super::{
    WireError,
    field::{key_value, lines, set_kilobytes},
};
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
    for (key, value) in lines(text).filter_map(key_value) {
        if let Some((field, slot)) = rollup.slot(key) {
            set_kilobytes(slot, FILE, field, value)?;
        }
    }
    rollup.rss.map(|_| rollup).ok_or(WireError::missing(FILE, "Rss"))
}

impl SmapsRollup {
    fn slot(&mut self, key: &[u8]) -> Option<(&'static str, &mut Option<Bytes>)> {
        match key {
            b"Rss" => Some(("Rss", &mut self.rss)),
            b"Anonymous" => Some(("Anonymous", &mut self.anonymous)),
            b"Swap" => Some(("Swap", &mut self.swap)),
            b"Pss_Anon" => Some(("Pss_Anon", &mut self.proportional_anonymous)),
            b"SwapPss" => Some(("SwapPss", &mut self.proportional_swap)),
            b"Private_Clean" => Some(("Private_Clean", &mut self.private_clean)),
            b"Private_Dirty" => Some(("Private_Dirty", &mut self.private_dirty)),
            b"Private_Hugetlb" => Some(("Private_Hugetlb", &mut self.private_hugetlb)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
