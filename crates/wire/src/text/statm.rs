//! `/proc/PID/statm`: memory of a process in pages.

use super::{
    WireError,
    field::{decimal, words},
};
use plimsoll_policy::units::Pages;

const FILE: &str = "/proc/PID/statm";

/// What is used of `/proc/PID/statm`, in pages of the machine's size. All 0 for a process without an address space:
/// the kernel writes zeros there, so tell those processes by their state first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// Address space.
    pub size: Pages,
    /// Resident: anonymous, file and shared memory.
    pub resident: Pages,
    /// Resident file and shared memory.
    pub shared: Pages,
}

impl Statm {
    /// Resident anonymous pages. The two counters are read one after the other while the process runs: where
    /// `shared` has overtaken `resident` there is no anonymous page to speak of.
    #[must_use]
    pub const fn anonymous(&self) -> Pages {
        self.resident.saturating_sub(self.shared)
    }
}

/// Reads `/proc/PID/statm`.
///
/// # Errors
/// [`WireError::Missing`] when fewer than three fields are there, [`WireError::Malformed`] when one is no number.
pub fn parse_statm(text: &[u8]) -> Result<Statm, WireError> {
    let mut words = words(text.trim_ascii_end());
    let mut next = |field| {
        let word = words.next().ok_or(WireError::missing(FILE, field))?;
        decimal(word).map(Pages).ok_or_else(|| WireError::malformed(FILE, field, "a number of pages", word))
    };
    Ok(Statm { size: next("size")?, resident: next("resident")?, shared: next("shared")? })
}

#[cfg(test)]
mod tests;
