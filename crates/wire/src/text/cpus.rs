//! `/sys/devices/system/cpu/possible` and `online`: how many CPUs there may ever be, and how many run.

use super::{
    WireError,
    field::{decimal_u32, split_once},
};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node/possible";

/// More CPUs than any kernel is built for (`CONFIG_NR_CPUS` ends at 8192): per-CPU memory is sized by the answer,
/// so a nonsensical one must not be believed.
pub const CPUS_MAX: u32 = 65_536;

/// The number of CPU slots: the highest possible CPU and one, at least 1 and at most [`CPUS_MAX`]. `0-3,8` has 9:
/// per-CPU arrays are indexed by CPU number, holes included.
///
/// # Errors
/// [`WireError::Malformed`] for anything but a list of numbers and rising ranges below [`CPUS_MAX`].
pub fn parse_cpu_possible(text: &[u8]) -> Result<u32, WireError> {
    let mut count = 0;
    ranges(POSSIBLE, text, |_first, last| count = count.max(last.saturating_add(1)))?;
    Ok(count)
}

/// The number of CPUs in the list, holes left out: `0-3,8` has 5. At least 1, and at most [`CPUS_MAX`] of a list that
/// names none twice.
///
/// # Errors
/// As [`parse_cpu_possible`].
pub fn parse_cpu_online(text: &[u8]) -> Result<u32, WireError> {
    let mut count: u32 = 0;
    ranges(ONLINE, text, |first, last| {
        count = count.saturating_add(last.saturating_sub(first).saturating_add(1));
    })?;
    Ok(count)
}

/// The number of memory nodes' slots, by `/sys/devices/system/node/possible`, which is written in the same way: arrays are
/// indexed by node, holes included.
///
/// # Errors
/// As [`parse_cpu_possible`].
pub fn parse_node_possible(text: &[u8]) -> Result<u32, WireError> {
    let mut count = 0;
    ranges(NODES, text, |_first, last| count = count.max(last.saturating_add(1)))?;
    Ok(count)
}

/// Shows each range of a list: its first CPU and its last.
fn ranges(file: &'static str, text: &[u8], mut show: impl FnMut(u32, u32)) -> Result<(), WireError> {
    let list = text.trim_ascii();
    let malformed = || WireError::malformed(file, "list", "numbers and ranges such as 0-3,8", list);
    for item in list.split(|byte| *byte == b',') {
        let (first, last) = split_once(item, b'-').unwrap_or((item, item));
        let first = decimal_u32(first).ok_or_else(malformed)?;
        let last = decimal_u32(last).filter(|last| (first..CPUS_MAX).contains(last)).ok_or_else(malformed)?;
        show(first, last);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
