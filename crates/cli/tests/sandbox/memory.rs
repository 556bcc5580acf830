//! What `/proc/meminfo` and `/proc/zoneinfo` are made to tell.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

/// Of a machine with 1 GiB in programs: plenty, at the SIGTERM threshold (10 %), at the SIGKILL threshold (5 %).
pub const PLENTY: Memory = Memory { available_mib: 6000, swap_free_mib: 0, swap_total_mib: 0, unseen_mib: 0 };
pub const SHORT: Memory = Memory { available_mib: 90, ..PLENTY };
pub const DIRE: Memory = Memory { available_mib: 30, ..PLENTY };

/// What `/proc/meminfo` is made to tell.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub available_mib: u64,
    pub swap_free_mib: u64,
    pub swap_total_mib: u64,
    /// What is in use and in no line.
    pub unseen_mib: u64,
}

impl Memory {
    /// Always as many bytes, so that it can be written over in one go.
    pub fn text(self) -> String {
        let line = |name: &str, mib: u64| format!("{name}{:>12} kB\n", mib * 1024);
        line("MemTotal:    ", 8192)
            + &line("MemFree:     ", self.available_mib)
            + &line("MemAvailable:", self.available_mib)
            + &line("AnonPages:   ", 1024)
            + &line("SwapTotal:   ", self.swap_total_mib)
            + &line("SwapFree:    ", self.swap_free_mib)
            // All else is in use.
            + &line("Cached:      ", 7168_u64.saturating_sub(self.available_mib + self.unseen_mib))
            + &["Buffers:     ", "Slab:        ", "KernelStack: ", "PageTables:  ", "SwapCached:  "].map(|name| line(name, 0)).concat()
    }
}

/// What `/proc/zoneinfo` is made to tell: so many pages wait in the lists of single CPUs.
pub fn waiting(pages: u64) -> String {
    format!("Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count: {pages:>9}\n")
}
