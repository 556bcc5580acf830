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
    /// `Buffers`: pages of block devices.
    pub buffers: Option<Bytes>,
    /// `Cached`: pages of files, and shared memory.
    pub cached: Option<Bytes>,
    /// `Slab`: the kernel's own small objects.
    pub slab: Option<Bytes>,
    /// `KernelStack`.
    pub kernel_stack: Option<Bytes>,
    /// `PageTables`.
    pub page_tables: Option<Bytes>,
    /// `Percpu`: the kernel's, for each CPU.
    pub per_cpu: Option<Bytes>,
    /// `Hugetlb`: huge pages that were set aside.
    pub hugetlb: Option<Bytes>,
    /// `Zswap`: swapped pages, compressed in memory.
    pub zswap: Option<Bytes>,
}

impl Meminfo {
    /// What is in use and in no other line: pages that lie in pipes and sockets, buffers of drivers, lists of single CPUs.
    #[must_use]
    pub fn unseen(&self) -> Option<Bytes> {
        let seen = [
            self.mem_free,
            self.buffers,
            self.cached,
            self.swap_cached,
            self.anonymous,
            self.slab,
            self.kernel_stack,
            self.page_tables,
        ];
        let seen = seen.into_iter().sum::<Option<Bytes>>()?;
        // Lines that a kernel may be without.
        let others: Bytes = [self.per_cpu, self.hugetlb, self.zswap].into_iter().flatten().sum();
        Some(self.mem_total?.saturating_sub(seen).saturating_sub(others))
    }
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
        ("Buffers", &mut meminfo.buffers),
        ("Cached", &mut meminfo.cached),
        ("Slab", &mut meminfo.slab),
        ("KernelStack", &mut meminfo.kernel_stack),
        ("PageTables", &mut meminfo.page_tables),
        ("Percpu", &mut meminfo.per_cpu),
        ("Hugetlb", &mut meminfo.hugetlb),
        ("Zswap", &mut meminfo.zswap),
    ];
    take_kilobytes(FILE, text, wanted)?;
    meminfo.mem_total.map(|_| meminfo).ok_or(WireError::missing(FILE, "MemTotal"))
}

#[cfg(test)]
mod tests;
