//! `/sys/devices/system/cpu/possible`: how many CPUs there may ever be.

use super::{
    WireError,
    field::{decimal_u32, split_once},
};

const FILE: &str = "/sys/devices/system/cpu/possible";

/// More CPUs than any kernel is built for (`CONFIG_NR_CPUS` ends at 8192): per-CPU memory is sized by the answer,
/// so a nonsensical one must not be believed.
pub const CPUS_MAX: u32 = 65_536;

/// The number of CPU slots: the highest possible CPU and one, at least 1 and at most [`CPUS_MAX`]. `0-3,8` has 9:
/// per-CPU arrays are indexed by CPU number, holes included.
///
/// # Errors
/// [`WireError::Malformed`] for anything but a list of numbers and rising ranges below [`CPUS_MAX`].
pub fn parse_cpu_possible(text: &[u8]) -> Result<u32, WireError> {
    let list = text.trim_ascii();
    let malformed = || WireError::malformed(FILE, "list", "CPU numbers and ranges such as 0-3,8", list);
    let mut count = 0;
    for item in list.split(|byte| *byte == b',') {
        let (first, last) = split_once(item, b'-').unwrap_or((item, item));
        let first = decimal_u32(first).ok_or_else(malformed)?;
        let last = decimal_u32(last).filter(|last| (first..CPUS_MAX).contains(last)).ok_or_else(malformed)?;
        count = count.max(last.saturating_add(1));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
