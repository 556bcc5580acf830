//! Every reader of this module behind one signature, for the fuzzers.

use super::{
    CMDLINE_BYTES_MAX, CPUS_MAX, Comm, Printable, WireError, has_bpffs_at, parse_cgroup, parse_comm,
    parse_cpu_possible, parse_meminfo, parse_osrelease, parse_pressure, parse_smaps_rollup, parse_stat,
    parse_statm, parse_status, printable_cmdline,
};

/// One reader and what must hold of it for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Its name; inputs to begin with lie in the folder of this name under `fuzz/corpus`.
    pub name: &'static str,
    /// Feeds it `bytes`. `Err` says which promise was broken; a panic breaks one too.
    pub check: fn(bytes: &[u8]) -> Result<(), &'static str>,
}

/// All readers of [`crate::text`]. The libFuzzer targets and the test that runs without libFuzzer both go through
/// this table, so that neither can leave one out.
pub const FUZZ_TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "cgroup", check: check_cgroup },
    FuzzTarget { name: "cmdline", check: check_cmdline },
    FuzzTarget { name: "comm", check: check_comm },
    FuzzTarget { name: "cpu_possible", check: check_cpu_possible },
    FuzzTarget { name: "meminfo", check: |bytes| shows_safely(parse_meminfo(bytes)) },
    FuzzTarget { name: "mountinfo", check: |bytes| shows_safely(has_bpffs_at(bytes, b"/sys/fs/bpf")) },
    FuzzTarget { name: "osrelease", check: |bytes| shows_safely(parse_osrelease(bytes)) },
    FuzzTarget { name: "pressure", check: |bytes| shows_safely(parse_pressure(bytes)) },
    FuzzTarget { name: "smaps_rollup", check: |bytes| shows_safely(parse_smaps_rollup(bytes)) },
    FuzzTarget { name: "stat", check: check_stat },
    FuzzTarget { name: "statm", check: |bytes| shows_safely(parse_statm(bytes)) },
    FuzzTarget { name: "status", check: |bytes| shows_safely(parse_status(bytes)) },
];

fn is_safe_to_show(text: &str) -> bool {
    text.chars().all(|character| !character.is_control() && !matches!(character, '\u{200b}'..='\u{206f}'))
}

fn shows_safely<T>(result: Result<T, WireError>) -> Result<(), &'static str> {
    match result {
        Err(error) if !is_safe_to_show(&error.to_string()) => Err("an error message holds a raw character"),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn check_cgroup(bytes: &[u8]) -> Result<(), &'static str> {
    match parse_cgroup(bytes) {
        Ok(membership) => match membership.path() {
            Some(path) if path.contains(&b'\n') => Err("a path spans two lines"),
            Some(path) if !is_safe_to_show(&Printable(path).to_string()) => Err("a path is shown raw"),
            Some(_) | None => Ok(()),
        },
        Err(error) => shows_safely::<()>(Err(error)),
    }
}

fn check_cmdline(bytes: &[u8]) -> Result<(), &'static str> {
    // Each byte is shown as four characters at most; ` ...` may follow.
    let longest = CMDLINE_BYTES_MAX.saturating_mul(4).saturating_add(4);
    match printable_cmdline(bytes) {
        Some(line) if line.len() > longest => Err("a command line is longer than promised"),
        Some(line) if !is_safe_to_show(&line) => Err("a command line is shown raw"),
        Some(_) | None => Ok(()),
    }
}

fn check_comm(bytes: &[u8]) -> Result<(), &'static str> {
    match parse_comm(bytes) {
        Ok(comm) => check_name(&comm),
        Err(error) => shows_safely::<()>(Err(error)),
    }
}

fn check_cpu_possible(bytes: &[u8]) -> Result<(), &'static str> {
    match parse_cpu_possible(bytes) {
        Ok(count) if count == 0 || count > CPUS_MAX => Err("a count of CPUs is out of its range"),
        result => shows_safely(result),
    }
}

fn check_stat(bytes: &[u8]) -> Result<(), &'static str> {
    match parse_stat(bytes) {
        Ok(stat) => check_name(&stat.comm),
        Err(error) => shows_safely::<()>(Err(error)),
    }
}

fn check_name(comm: &Comm) -> Result<(), &'static str> {
    if comm.as_bytes().contains(&0) {
        return Err("a name holds a NUL");
    }
    if is_safe_to_show(&comm.to_string()) { Ok(()) } else { Err("a name is shown raw") }
}
