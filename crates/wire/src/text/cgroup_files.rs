//! The small files of one cgroup v2 (Documentation/admin-guide/cgroup-v2.rst), and the marks that its owner can put
//! on it.

use super::{
    WireError,
    field::{decimal, decimal_u32},
};
use plimsoll_policy::units::Pid;

/// What a cgroup may hold, by `cgroup.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupType {
    /// Whole processes: the usual one.
    Domain,
    /// Whole processes, and it is the root of a threaded subtree: its `cgroup.procs` lists those of the whole
    /// subtree.
    ThreadedDomain,
    /// Nothing, until it is made threaded.
    Invalid,
    /// Single threads of processes that belong to the domain above: cannot be listed by process, nor killed.
    Threaded,
}

/// Reads `cgroup.type`. Every cgroup but the root has it.
///
/// # Errors
/// [`WireError::Malformed`] for anything but the four words.
pub fn parse_cgroup_type(text: &[u8]) -> Result<CgroupType, WireError> {
    match text.trim_ascii_end() {
        b"domain" => Ok(CgroupType::Domain),
        b"domain threaded" => Ok(CgroupType::ThreadedDomain),
        b"domain invalid" => Ok(CgroupType::Invalid),
        b"threaded" => Ok(CgroupType::Threaded),
        other => Err(WireError::malformed("cgroup.type", "type", "one of the four the kernel has", other)),
    }
}

/// Reads one line of `cgroup.procs`; `None` for a process that has no number here, since it belongs to a PID
/// namespace outside of this one (the kernel writes 0).
///
/// # Errors
/// [`WireError::Malformed`] for anything but a number.
pub fn parse_cgroup_process(line: &[u8]) -> Result<Option<Pid>, WireError> {
    let number = decimal_u32(line)
        .filter(|number| i32::try_from(*number).is_ok())
        .ok_or_else(|| WireError::malformed("cgroup.procs", "process", "a number of a process", line))?;
    Ok((number != 0).then_some(Pid(number)))
}

/// Reads `memory.oom.group`.
///
/// # Errors
/// [`WireError::Malformed`] for anything but 0 and 1.
pub fn parse_oom_group(text: &[u8]) -> Result<bool, WireError> {
    match text.trim_ascii_end() {
        b"0" => Ok(false),
        b"1" => Ok(true),
        other => Err(WireError::malformed("memory.oom.group", "value", "0 or 1", other)),
    }
}

/// Reads the value of a mark (`user.oomd_avoid` and its kin) as systemd does: its words for true and false.
///
/// # Errors
/// [`WireError::Malformed`] for any other word, which marks nothing for systemd, either.
pub fn parse_oomd_mark(value: &[u8]) -> Result<bool, WireError> {
    let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    if is(&["1", "yes", "y", "true", "t", "on"]) {
        Ok(true)
    } else if is(&["0", "no", "n", "false", "f", "off"]) {
        Ok(false)
    } else {
        Err(WireError::malformed("an xattr of a cgroup", "mark", "a word for true or false", value))
    }
}

/// Reads the value of a count (`user.oomd_ooms`, `user.oomd_kill`); an empty one is 0, as for systemd.
///
/// # Errors
/// [`WireError::Malformed`] for anything but a number.
pub fn parse_oomd_count(value: &[u8]) -> Result<u64, WireError> {
    if value.is_empty() {
        return Ok(0);
    }
    let expected = "a number that fits in 64 bits";
    decimal(value).ok_or_else(|| WireError::malformed("an xattr of a cgroup", "count", expected, value))
}

#[cfg(test)]
mod tests;
