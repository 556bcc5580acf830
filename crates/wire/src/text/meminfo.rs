//! `/proc/meminfo`: the machine's memory.

use super::{
    WireError,
    field::{key_value, lines, set_kilobytes},
};
use plimsoll_policy::units::Bytes;

const FILE: &str = "/proc/meminfo";

/// What is used of `/proc/meminfo`; `None` where this kernel has no such line. Bytes, to the kernel's own kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meminfo {
    /// All memory the kernel manages.
    pub mem_total: Option<Bytes>,
    /// Memory nobody uses.
    pub mem_free: Option<Bytes>,
    /// The kernel's estimate of what new programs can have without swapping.
    pub mem_available: Option<Bytes>,
    /// `AnonPages`: mapped anonymous memory.
    pub anonymous: Option<Bytes>,
    /// `Shmem`: shared memory, tmpfs included.
    pub shared: Option<Bytes>,
    /// `Active(file)`: file pages that were used more than once.
    pub active_file: Option<Bytes>,
    /// `Inactive(file)`: the other file pages that can be reclaimed; locked ones are in neither.
    pub inactive_file: Option<Bytes>,
    /// `Dirty`: file pages that are to be written first.
    pub dirty: Option<Bytes>,
    /// All swap space.
    pub swap_total: Option<Bytes>,
    /// Unused swap space.
    pub swap_free: Option<Bytes>,
}

/// Reads `/proc/meminfo`. Lines it does not know are skipped, lines that are not there stay `None`.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number of kB; [`WireError::Missing`] when there is no
/// `MemTotal`, which every kernel has.
pub fn parse_meminfo(text: &[u8]) -> Result<Meminfo, WireError> {
    let mut meminfo = Meminfo::default();
    for (key, value) in lines(text).filter_map(key_value) {
        if let Some((field, slot)) = meminfo.slot(key) {
            set_kilobytes(slot, FILE, field, value)?;
        }
    }
    meminfo.mem_total.map(|_| meminfo).ok_or(WireError::missing(FILE, "MemTotal"))
}

impl Meminfo {
    fn slot(&mut self, key: &[u8]) -> Option<(&'static str, &mut Option<Bytes>)> {
        match key {
            b"MemTotal" => Some(("MemTotal", &mut self.mem_total)),
            b"MemFree" => Some(("MemFree", &mut self.mem_free)),
            b"MemAvailable" => Some(("MemAvailable", &mut self.mem_available)),
            b"AnonPages" => Some(("AnonPages", &mut self.anonymous)),
            b"Shmem" => Some(("Shmem", &mut self.shared)),
            b"Active(file)" => Some(("Active(file)", &mut self.active_file)),
            b"Inactive(file)" => Some(("Inactive(file)", &mut self.inactive_file)),
            b"Dirty" => Some(("Dirty", &mut self.dirty)),
            b"SwapTotal" => Some(("SwapTotal", &mut self.swap_total)),
            b"SwapFree" => Some(("SwapFree", &mut self.swap_free)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
