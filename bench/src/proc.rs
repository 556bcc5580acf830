//! Reads of /proc, and the pure parsing of their texts.

use crate::error::BenchError;
use nix::{time::clock_getcpuclockid, unistd::Pid};
use std::{fs, path::Path, time::Duration};

/// The machine's page size in bytes.
///
/// # Errors
/// `sysconf` does not know it.
pub(crate) fn page_size_bytes() -> Result<u64, BenchError> {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .map_err(BenchError::io("sysconf PAGE_SIZE"))?;
    size.and_then(|size| u64::try_from(size).ok())
        .filter(|size| size.is_power_of_two())
        .ok_or_else(|| BenchError::malformed("the page size", &format!("{size:?}")))
}

/// The value in KiB of the line that begins with `name` (with its colon), as in meminfo, status and smaps.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

/// The value in KiB of that line of `/proc/meminfo`.
///
/// # Errors
/// It cannot be read, or has no such line.
pub(crate) fn read_meminfo_kib(name: &str) -> Result<u64, BenchError> {
    let text = fs::read_to_string("/proc/meminfo").map_err(BenchError::io("read /proc/meminfo"))?;
    meminfo_kib(&text, name)
}

/// The same of a text of it.
///
/// # Errors
/// It has no such line.
pub(crate) fn meminfo_kib(text: &str, name: &str) -> Result<u64, BenchError> {
    kib_field(text, name).ok_or_else(|| BenchError::malformed(format!("{name} of /proc/meminfo"), text))
}

/// The first number of the line that begins with `name`: `Uid:` gives the real uid.
pub(crate) fn number_field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Anonymous plus swapped bytes of a smaps_rollup text: the kernel's page-table walk, exact.
pub(crate) fn charged_bytes(smaps_rollup: &str) -> Option<u64> {
    let anonymous_kib = kib_field(smaps_rollup, "Anonymous:")?;
    let swap_kib = kib_field(smaps_rollup, "Swap:")?;
    Some((anonymous_kib + swap_kib) * 1024)
}

/// Resident minus shared pages of a statm text: the approximation of the anonymous pages that a timer reads.
pub(crate) fn statm_anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1);
    let resident: u64 = fields.next()?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

/// Reads one file of /proc/PID; `Ok(None)` where the process is gone.
///
/// # Errors
/// Any other reason.
pub(crate) fn read_of(pid: u32, file: &str) -> Result<Option<String>, BenchError> {
    let path = format!("/proc/{pid}/{file}");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(BenchError::io(format!("read {path}"))(error)),
    }
}

/// Whether the error says that the process has ended: no such file, or ESRCH for one that was open already.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
        || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// Exact anonymous plus swapped bytes of one process; `Ok(None)` where it is gone (or has no memory any more).
///
/// # Errors
/// Not readable, or not understood.
pub(crate) fn read_charged_bytes(pid: u32) -> Result<Option<u64>, BenchError> {
    match read_of(pid, "smaps_rollup")? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => charged_bytes(&text)
            .map(Some)
            .ok_or_else(|| BenchError::malformed(format!("/proc/{pid}/smaps_rollup"), &text)),
    }
}

/// All processes, by number.
///
/// # Errors
/// /proc cannot be listed.
pub(crate) fn read_pids() -> Result<Vec<u32>, BenchError> {
    let entries = fs::read_dir("/proc").map_err(BenchError::io("list /proc"))?;
    // An entry that cannot be read is a process that ended while the list was read.
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// How many processes have memory of their own: kernel threads and those that are exiting have none.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn count_with_memory() -> Result<usize, BenchError> {
    let mut count = 0;
    for pid in read_pids()? {
        let statm = read_of(pid, "statm")?;
        let size =
            statm.as_deref().and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
        count += usize::from(size.is_some_and(|pages| pages > 0));
    }
    Ok(count)
}

/// The processes whose real uid is `uid`, read from their status: exact, also for processes that are not dumpable.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn read_pids_of_user(uid: u32) -> Result<Vec<u32>, BenchError> {
    let mut found = Vec::new();
    for pid in read_pids()? {
        let status = read_of(pid, "status")?;
        if status.as_deref().and_then(|text| number_field(text, "Uid:")) == Some(u64::from(uid)) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Sum of voluntary context switches over all threads of a process: how often it went to sleep and was woken.
///
/// # Errors
/// The process is gone, or not readable.
pub(crate) fn read_voluntary_switches(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&path).map_err(BenchError::io(format!("list {path}")))?;
    let mut sum = 0;
    for thread in threads.flatten() {
        sum += switches_of(&thread.path())?;
    }
    Ok(sum)
}

/// Processor time of all threads of a process, dead ones included, by its own clock.
///
/// # Errors
/// The process is gone.
pub(crate) fn read_processor_time(pid: u32) -> Result<Duration, BenchError> {
    let pid =
        i32::try_from(pid).map_err(|_large| BenchError::malformed("a process number", &pid.to_string()))?;
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).map_err(BenchError::io("clock_getcpuclockid"))?;
    Ok(clock.now().map_err(BenchError::io("clock_gettime"))?.into())
}

fn switches_of(thread: &Path) -> Result<u64, BenchError> {
    let path = thread.join("status");
    match fs::read_to_string(&path) {
        Ok(text) => number_field(&text, "voluntary_ctxt_switches:")
            .ok_or_else(|| BenchError::malformed(path.display().to_string(), &text)),
        Err(error) if is_gone(&error) => Ok(0),
        Err(error) => Err(BenchError::io(format!("read {}", path.display()))(error)),
    }
}

/// Memory of the BPF maps that a process holds open, from the `memlock` of its fdinfo.
///
/// # Errors
/// The process is gone, or not readable.
pub(crate) fn read_bpf_map_bytes(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&path).map_err(BenchError::io(format!("list {path}")))?;
    // A descriptor that is closed while the list is read holds no map any more.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let mut maps: Vec<(u64, u64)> = texts
        .filter_map(|text| Some((number_field(&text, "map_id:")?, number_field(&text, "memlock:")?)))
        .collect();
    maps.sort_unstable();
    maps.dedup_by_key(|(id, _)| *id);
    Ok(maps.iter().map(|(_, bytes)| bytes).sum())
}

#[cfg(test)]
mod tests;
