//! `/proc/meminfo`: the machine's memory.

use super::{WireError, field::take_kilobytes};
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
    /// `SwapCached`: what is in swap space and in memory as well.
    pub swap_cached: Option<Bytes>,
    /// `Mapped`: file pages and shared memory that programs have mapped.
    pub mapped: Option<Bytes>,
}

/// Reads `/proc/meminfo`. Lines it does not know are skipped, lines that are not there stay `None`.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number of kB; [`WireError::Missing`] when there is no
/// `MemTotal`, which every kernel has.
pub fn parse_meminfo(text: &[u8]) -> Result<Meminfo, WireError> {
    let mut meminfo = Meminfo::default();
    let wanted = &mut [
        ("MemTotal", &mut meminfo.mem_total),
        ("MemFree", &mut meminfo.mem_free),
        ("MemAvailable", &mut meminfo.mem_available),
        ("AnonPages", &mut meminfo.anonymous),
        ("Shmem", &mut meminfo.shared),
        ("Active(file)", &mut meminfo.active_file),
        ("Inactive(file)", &mut meminfo.inactive_file),
        ("Dirty", &mut meminfo.dirty),
        ("SwapTotal", &mut meminfo.swap_total),
        ("SwapFree", &mut meminfo.swap_free),
        ("SwapCached", &mut meminfo.swap_cached),
        ("Mapped", &mut meminfo.mapped),
    ];
    take_kilobytes(FILE, text, wanted)?;
    meminfo.mem_total.map(|_| meminfo).ok_or(WireError::missing(FILE, "MemTotal"))
}

#[cfg(test)]
mod tests;
