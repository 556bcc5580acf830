//! `/proc/zoneinfo`: the memory that waits in the lists of single CPUs.

use super::{
    WireError,
    field::{decimal, key_value, lines},
};
use plimsoll_policy::units::Pages;

const FILE: &str = "/proc/zoneinfo";

/// What is used of `/proc/zoneinfo`, taken in line by line: the file grows with CPUs times zones (200 bytes each), so
/// that no buffer holds it everywhere.
///
/// Freed pages wait in lists of the CPU that freed them (`struct per_cpu_pages`), where they are neither in `MemFree`
/// nor in `MemAvailable`. From Linux 6.7 on the lists tune themselves, and hold as much as a victim of hundreds of MiB
/// leaves behind (seen: 170 to 430 MB on a machine of 24 GiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zoneinfo {
    waiting: Option<u64>,
    in_lists: bool,
}

impl Zoneinfo {
    /// Takes in one line, without its end.
    ///
    /// # Errors
    /// [`WireError::Malformed`] when a list's `count` is no number, or the sum does not fit in 64 bits.
    pub fn take_line(&mut self, line: &[u8]) -> Result<(), WireError> {
        if line.starts_with(b"Node ") {
            self.in_lists = false;
        } else if line.trim_ascii() == b"pagesets" {
            self.in_lists = true;
        } else if self.in_lists
            && let Some((key, value)) = key_value(line)
            && key.trim_ascii() == b"count"
        {
            let sum = decimal(value).and_then(|count| count.checked_add(self.waiting.unwrap_or(0)));
            let malformed = || WireError::malformed(FILE, "count", "a number of pages", value);
            self.waiting = Some(sum.ok_or_else(malformed)?);
        }
        Ok(())
    }

    /// The pages that wait in all lists of all CPUs, of all zones; `None`: the file showed no list.
    #[must_use]
    pub fn waiting(&self) -> Option<Pages> {
        self.waiting.map(Pages)
    }
}

/// Reads a whole `/proc/zoneinfo`. Lines it does not know are skipped.
///
/// # Errors
/// As [`Zoneinfo::take_line`].
pub fn parse_zoneinfo(text: &[u8]) -> Result<Zoneinfo, WireError> {
    let mut zoneinfo = Zoneinfo::default();
    lines(text).try_for_each(|line| zoneinfo.take_line(line))?;
    Ok(zoneinfo)
}

#[cfg(test)]
mod tests;
