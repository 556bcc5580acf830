//! The kernel's own exact numbers, from /proc.

use std::fs;

/// The machine's page size.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Pages of a size given in KiB.
pub fn pages_of_kib(kib: u64) -> u64 {
    kib * 1024 / page_bytes()
}

/// The real uid of a process; `None`: it is gone.
pub fn uid_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Anonymous and swapped pages of a process, exactly, or `None` for one that has no memory any more.
pub fn process_pages(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // A process that is ending can still be opened, and then has nothing to tell.
    (!text.is_empty()).then(|| pages_of_kib(kib("Anonymous:") + kib("Swap:")))
}

/// The processes of a user that have memory.
pub fn processes_of(user: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| uid_of(*pid) == Some(user) && process_pages(*pid).is_some()).collect()
}

/// Anonymous and swapped pages of all processes of a user, each process's own count.
pub fn user_pages(user: u32) -> u64 {
    processes_of(user).into_iter().filter_map(process_pages).sum()
}
