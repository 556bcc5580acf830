//! `memory.*` of a cgroup v2 (Documentation/admin-guide/cgroup-v2.rst): its limit, what it holds, what happened to it.

use super::{
    WireError,
    field::{decimal, lines, split_once},
};
use plimsoll_policy::{
    last_defence::slice::Max,
    units::{Bytes, Pages},
};

const STAT: &str = "memory.stat";
const EVENTS: &str = "memory.events";

/// Reads `memory.max`: a number of bytes, or `max`.
///
/// # Errors
/// [`WireError::Malformed`] for anything else.
pub fn parse_memory_max(text: &[u8]) -> Result<Max, WireError> {
    match text.trim_ascii_end() {
        b"max" => Ok(Max::Unlimited),
        digits => decimal(digits)
            .map(|bytes| Max::At(Bytes(bytes)))
            .ok_or_else(|| WireError::malformed("memory.max", "limit", "a number of bytes or 'max'", digits)),
    }
}

/// Reads off `memory.stat` how much reclaim cannot free: anonymous and shared memory (swap may be full by then), kernel
/// memory but for the slabs that it can free, and buffers of the network.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number; [`WireError::Missing`] when one of them is not there.
pub fn parse_memory_held(text: &[u8]) -> Result<Bytes, WireError> {
    let line = |field: &'static str| {
        let line = keyed(text).find(|(key, _)| *key == field.as_bytes());
        number(STAT, field, line.ok_or(WireError::missing(STAT, field))?.1)
    };
    let kernel = line("kernel")?.saturating_sub(line("slab_reclaimable")?);
    let rest = [line("anon")?, line("shmem")?, line("sock")?];
    Ok(Bytes(rest.into_iter().fold(kernel, u64::saturating_add)))
}

/// What of `memory.stat` of either version tells of files and of programs' own memory. Bytes; `None` where this kernel has
/// no such line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileStat {
    /// File pages that were used more than once; those of cgroups below are among them, as in all that follows.
    pub active_file: Option<Bytes>,
    /// The other file pages that reclaim may take.
    pub inactive_file: Option<Bytes>,
    /// File pages that are to be written first.
    pub dirty: Option<Bytes>,
    /// Anonymous memory.
    pub anon: Option<Bytes>,
    /// All file pages and all shared memory.
    pub file: Option<Bytes>,
    /// File pages and shared memory that programs have mapped.
    pub mapped: Option<Bytes>,
    /// Memory of the kernel's own, version 2 only.
    pub kernel: Option<Bytes>,
    /// Buffers of the network.
    pub sock: Option<Bytes>,
    /// Swapped memory, version 1 only, which has no file for it.
    pub swap: Option<Bytes>,
    /// Swapped memory that is in memory as well.
    pub swap_cached: Option<Bytes>,
}

/// Reads them: the version 1 hierarchy tells sums over all cgroups below under names that begin with `total_`, version 2
/// under plain ones. Lines it does not know are skipped.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number; [`WireError::Missing`] when there is no
/// `inactive_file`, which every kernel has.
pub fn parse_file_stat(text: &[u8]) -> Result<FileStat, WireError> {
    let totals = keyed(text).any(|(key, _)| key == b"total_inactive_file");
    let mut stat = FileStat::default();
    for (key, value) in keyed(text) {
        let name = match (totals, key.strip_prefix(b"total_")) {
            (true, Some(name)) => name,
            (false, None) => key,
            (true, None) | (false, Some(_)) => continue,
        };
        let (field, slot) = match name {
            b"active_file" => ("active_file", &mut stat.active_file),
            b"inactive_file" => ("inactive_file", &mut stat.inactive_file),
            b"file_dirty" | b"dirty" => ("dirty", &mut stat.dirty),
            // Version 1 has its name from a time when it was thought of as the pages mapped.
            b"anon" | b"rss" => ("anon", &mut stat.anon),
            b"file" | b"cache" => ("file", &mut stat.file),
            b"kernel" => ("kernel", &mut stat.kernel),
            b"sock" => ("sock", &mut stat.sock),
            b"file_mapped" | b"mapped_file" => ("mapped", &mut stat.mapped),
            b"swap" => ("swap", &mut stat.swap),
            b"swapcached" => ("swapcached", &mut stat.swap_cached),
            _ => continue,
        };
        slot.get_or_insert(Bytes(number(STAT, field, value)?));
    }
    stat.inactive_file.map(|_| stat).ok_or(WireError::missing(STAT, "inactive_file"))
}

/// What of `memory.events` or `memory.events.local` tells about the kernel's OOM killer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEvents {
    /// Times that usage was at the limit and an allocation was about to fail.
    pub oom: u64,
    /// Processes killed by any kind of OOM killer.
    pub oom_kill: u64,
}

/// Reads `memory.events` or `memory.events.local`. Lines it does not know are skipped.
///
/// # Errors
/// [`WireError::Malformed`] when a line that it knows holds no number; [`WireError::Missing`] when one of both is not
/// there.
pub fn parse_memory_events(text: &[u8]) -> Result<MemoryEvents, WireError> {
    let (mut oom, mut oom_kill) = (None, None);
    for (key, value) in keyed(text) {
        match key {
            b"oom" => _ = oom.get_or_insert(number(EVENTS, "oom", value)?),
            b"oom_kill" => _ = oom_kill.get_or_insert(number(EVENTS, "oom_kill", value)?),
            _ => {}
        }
    }
    Ok(MemoryEvents {
        oom: oom.ok_or(WireError::missing(EVENTS, "oom"))?,
        oom_kill: oom_kill.ok_or(WireError::missing(EVENTS, "oom_kill"))?,
    })
}

/// Reads how many processes the kernel's OOM killer has ended since boot, from `/proc/vmstat`.
///
/// # Errors
/// [`WireError::Malformed`] when the line holds no number; [`WireError::Missing`] when it is not there.
pub fn parse_oom_kills(text: &[u8]) -> Result<u64, WireError> {
    const FILE: &str = "/proc/vmstat";
    let line = keyed(text).find(|(key, _)| *key == b"oom_kill");
    number(FILE, "oom_kill", line.ok_or(WireError::missing(FILE, "oom_kill"))?.1)
}

/// Reads how many pages were read again soon after they were evicted since boot, of files and anonymous ones, from
/// `/proc/vmstat` (`workingset_refault_*`, Linux 5.9).
///
/// # Errors
/// [`WireError::Malformed`] when a line holds no number; [`WireError::Missing`] when one is not there.
pub fn parse_refaults(text: &[u8]) -> Result<Pages, WireError> {
    const FILE: &str = "/proc/vmstat";
    let refaults = |field: &'static str| {
        let line = keyed(text).find(|(key, _)| *key == field.as_bytes());
        number(FILE, field, line.ok_or(WireError::missing(FILE, field))?.1)
    };
    let anonymous = refaults("workingset_refault_anon")?;
    Ok(Pages(anonymous.saturating_add(refaults("workingset_refault_file")?)))
}

fn keyed(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(text).filter_map(|line| split_once(line, b' '))
}

fn number(file: &'static str, field: &'static str, value: &[u8]) -> Result<u64, WireError> {
    decimal(value).ok_or_else(|| WireError::malformed(file, field, "a number that fits in 64 bits", value))
}

#[cfg(test)]
mod tests;
