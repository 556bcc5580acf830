//! Describes the machine that a result belongs to.

use crate::{error::BenchError, proc, report::Machine};
use std::fs;

/// Reads it from /proc and /sys; what is not told there is `None`.
pub(crate) fn describe() -> Result<Machine, BenchError> {
    let meminfo = proc::meminfo()?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
    let first = |name: &str| {
        cpuinfo
            .as_deref()?
            .lines()
            .find(|line| line.starts_with(name))?
            .split_once(':')
            .map(|(_, value)| value.trim())
    };
    let load = fs::read_to_string("/proc/loadavg").ok();
    let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
    Ok(Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        cpu_model: first("model name").map(str::to_owned),
        virtual_machine: first("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        memory_bytes: proc::told("MemTotal", meminfo.mem_total)?,
        swap_bytes: proc::told("SwapTotal", meminfo.swap_total)?,
        page_size_bytes: proc::page_size_bytes(),
        transparent_hugepage: thp.as_deref().and_then(bracketed).map(str::to_owned),
        load_average_at_start: load.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// The mode in force among `always [madvise] never`.
fn bracketed(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(mode, _)| mode)
}
