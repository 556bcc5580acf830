//! The kernel's own exact numbers, from /proc.

use plimsoll_wire::text::{
    ProcessState, SmapsRollup, Stat, Status, WireError, parse_smaps_rollup, parse_stat, parse_status,
};
use std::{fs, path::Path};

/// The machine's page size.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Pages of a size given in KiB.
pub fn pages_of_kib(kib: u64) -> u64 {
    kib * 1024 / page_bytes()
}

/// The number behind a name in a file that has a line for each, such as `/proc/meminfo`.
#[track_caller]
pub fn number(file: impl AsRef<Path>, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([':', ' '])).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// What a file of a process tells; `None`: it is gone.
fn told<T>(pid: u32, file: &str, parse: fn(&[u8]) -> Result<T, WireError>) -> Option<T> {
    parse(&fs::read(format!("/proc/{pid}/{file}")).ok()?).ok()
}

pub fn status(pid: u32) -> Option<Status> {
    told(pid, "status", parse_status)
}

pub fn stat(pid: u32) -> Option<Stat> {
    told(pid, "stat", parse_stat)
}

/// `None`, too, for a process that has no memory any more.
pub fn rollup(pid: u32) -> Option<SmapsRollup> {
    told(pid, "smaps_rollup", parse_smaps_rollup)
}

pub fn state(pid: u32) -> Option<ProcessState> {
    Some(stat(pid)?.state)
}

pub fn oom_score_adj(pid: u32) -> Option<i32> {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

/// The real uid of a process; `None`: it is gone.
pub fn uid_of(pid: u32) -> Option<u32> {
    Some(status(pid)?.real_uid?.0)
}

/// Anonymous and swapped pages of a process, exactly, or `None` for one that has no memory any more.
pub fn process_pages(pid: u32) -> Option<u64> {
    let rollup = rollup(pid)?;
    Some((rollup.anonymous?.0 + rollup.swap.map_or(0, |swap| swap.0)) / page_bytes())
}

/// The processes there are.
pub fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The processes of a user that have memory.
pub fn processes_of(user: u32) -> Vec<u32> {
    processes().filter(|pid| uid_of(*pid) == Some(user) && process_pages(*pid).is_some()).collect()
}

/// Anonymous and swapped pages of all processes of a user, each process's own count.
pub fn user_pages(user: u32) -> u64 {
    processes_of(user).into_iter().filter_map(process_pages).sum()
}
