//! Every reader of this module behind one signature, for the fuzzers.

use super::{
    CMDLINE_BYTES_MAX, CPUS_MAX, Comm, Printable, ReportPart, WireError, find_report, group_entries,
    parse_arcstats, parse_buddyinfo, parse_cgroup, parse_cgroup_process, parse_cgroup_type, parse_comm,
    parse_compactions, parse_cpu_online, parse_cpu_possible, parse_earlyoom_line, parse_file_stat,
    parse_kernel_record, parse_killed_line, parse_mapping, parse_meminfo, parse_memory_events,
    parse_memory_held, parse_memory_max, parse_mount, parse_oom_group, parse_oom_kills, parse_oomd_count,
    parse_oomd_line, parse_oomd_mark, parse_osrelease, parse_pagetypeinfo, parse_pressure, parse_refaults,
    parse_smaps_rollup, parse_stat, parse_statm, parse_status, parse_write_lease, parse_zone_marks,
    parse_zoneinfo, passwd_entries, printable_cmdline, unescape,
};

/// One reader and what must hold of it for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Its name; inputs to begin with lie in the folder of this name under `fuzz/corpus`.
    pub name: &'static str,
    /// Feeds it `bytes`. `Err` says which promise was broken; a panic breaks one too.
    pub check: fn(bytes: &[u8]) -> Result<(), &'static str>,
}

/// All readers of [`crate::text`].
///
/// The libFuzzer targets and the test that runs without libFuzzer both go through
/// this table, so that neither can leave one out.
pub const FUZZ_TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "arcstats", check: |bytes| shows_safely(parse_arcstats(bytes)) },
    FuzzTarget { name: "buddyinfo", check: check_buddyinfo },
    FuzzTarget { name: "cgroup", check: check_cgroup },
    FuzzTarget { name: "cgroup_files", check: check_cgroup_files },
    FuzzTarget { name: "cmdline", check: check_cmdline },
    FuzzTarget { name: "comm", check: check_comm },
    FuzzTarget { name: "cpu_possible", check: check_cpu_possible },
    FuzzTarget { name: "group", check: check_group },
    FuzzTarget { name: "kernel_log", check: check_kernel_log },
    FuzzTarget { name: "killers", check: check_killers },
    FuzzTarget { name: "maps", check: check_maps },
    FuzzTarget { name: "memcg", check: check_memcg },
    FuzzTarget { name: "meminfo", check: |bytes| shows_safely(parse_meminfo(bytes)) },
    FuzzTarget { name: "mountinfo", check: check_mountinfo },
    FuzzTarget { name: "osrelease", check: |bytes| shows_safely(parse_osrelease(bytes)) },
    FuzzTarget { name: "passwd", check: check_passwd },
    FuzzTarget { name: "pressure", check: |bytes| shows_safely(parse_pressure(bytes)) },
    FuzzTarget { name: "smaps_rollup", check: |bytes| shows_safely(parse_smaps_rollup(bytes)) },
    FuzzTarget { name: "stat", check: check_stat },
    FuzzTarget { name: "statm", check: |bytes| shows_safely(parse_statm(bytes)) },
    FuzzTarget { name: "status", check: |bytes| shows_safely(parse_status(bytes)) },
    FuzzTarget { name: "zoneinfo", check: |bytes| shows_safely(parse_zoneinfo(bytes)) },
];

/// Whether a terminal shows it as it is: no control character, none that changes the direction of text.
#[must_use]
pub fn is_safe_to_show(text: &str) -> bool {
    text.chars().all(|character| !character.is_control() && !matches!(character, '\u{200b}'..='\u{206f}'))
}

fn shows_safely<T>(result: Result<T, WireError>) -> Result<(), &'static str> {
    match result {
        Err(error) if !is_safe_to_show(&error.to_string()) => Err("an error message holds a raw character"),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// One input for all files of free blocks and of compaction.
fn check_buddyinfo(bytes: &[u8]) -> Result<(), &'static str> {
    shows_safely(parse_compactions(bytes))?;
    shows_safely(parse_zone_marks(bytes))?;
    let zones = parse_buddyinfo(bytes);
    if zones.iter().flatten().any(|(name, _)| !is_safe_to_show(&name.zone)) {
        return Err("a zone is shown raw");
    }
    shows_safely(zones)?;
    let types = parse_pagetypeinfo(bytes);
    if types.iter().flat_map(|types| &types.free).any(|(_, kind, _)| !is_safe_to_show(kind)) {
        return Err("a kind is shown raw");
    }
    shows_safely(types)
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

fn check_mountinfo(bytes: &[u8]) -> Result<(), &'static str> {
    for line in bytes.split(|byte| *byte == b'\n') {
        // `/proc/locks` is read line by line, too, and its numbers are of the same kind.
        if parse_write_lease(line).is_some_and(|lease| lease.device >> 20 >= 1 << 12) {
            return Err("a device has more bits than the kernel's");
        }
        if unescape(line).is_some_and(|path| path.len() > line.len()) {
            return Err("a path grew by being unescaped");
        }
        shows_safely(parse_mount(line))?;
    }
    Ok(())
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

/// One input for all small files of a cgroup and the marks on it.
fn check_cgroup_files(bytes: &[u8]) -> Result<(), &'static str> {
    shows_safely(parse_cgroup_type(bytes))?;
    shows_safely(parse_oom_group(bytes))?;
    shows_safely(parse_oomd_mark(bytes))?;
    shows_safely(parse_oomd_count(bytes))?;
    for line in bytes.split(|byte| *byte == b'\n') {
        match parse_cgroup_process(line) {
            Ok(Some(pid)) if pid.0 == 0 || i32::try_from(pid.0).is_err() => {
                return Err("a process that no signal can be sent to");
            }
            result => shows_safely(result)?,
        }
    }
    Ok(())
}

/// One input for a log: each line a record, and the text of one.
fn check_kernel_log(bytes: &[u8]) -> Result<(), &'static str> {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let mut last = None;
    for line in lines() {
        shows_safely(parse_kernel_record(line))?;
        let killed = parse_killed_line(line);
        if killed.as_ref().is_some_and(|killed| killed.comm.len() > line.len()) {
            return Err("a name longer than its line");
        }
        last = killed.map(|killed| killed.thread).or(last);
    }
    let Some(thread) = last else {
        return Ok(());
    };
    match find_report(lines().map(ReportPart::of), thread) {
        None => Err("a kill that was read and not found"),
        Some(span) if span.first.is_some_and(|first| first >= span.killed) => {
            Err("a report that ends before it begins")
        }
        Some(_) => Ok(()),
    }
}

fn check_killers(bytes: &[u8]) -> Result<(), &'static str> {
    for line in bytes.split(|byte| *byte == b'\n') {
        if parse_oomd_line(line).is_some_and(|read| !read.cgroup.starts_with(b"/")) {
            return Err("a cgroup that is no path");
        }
        if parse_earlyoom_line(line).is_some_and(|read| read.pid.0 == 0 || read.comm.len() > 15) {
            return Err("a process that nobody can have signalled");
        }
    }
    Ok(())
}

fn check_maps(bytes: &[u8]) -> Result<(), &'static str> {
    for line in bytes.split(|byte| *byte == b'\n') {
        match parse_mapping(line) {
            Ok(mapping) if mapping.start > mapping.end => return Err("a mapping ends before it begins"),
            result => shows_safely(result)?,
        }
    }
    Ok(())
}

/// One input for all memory files of a cgroup: each is a text of keys and numbers.
fn check_memcg(bytes: &[u8]) -> Result<(), &'static str> {
    shows_safely(parse_memory_max(bytes))?;
    shows_safely(parse_memory_events(bytes))?;
    shows_safely(parse_oom_kills(bytes))?;
    shows_safely(parse_refaults(bytes))?;
    shows_safely(parse_file_stat(bytes))?;
    shows_safely(parse_memory_held(bytes))
}

fn check_comm(bytes: &[u8]) -> Result<(), &'static str> {
    match parse_comm(bytes) {
        Ok(comm) => check_name(&comm),
        Err(error) => shows_safely::<()>(Err(error)),
    }
}

fn check_cpu_possible(bytes: &[u8]) -> Result<(), &'static str> {
    match (parse_cpu_possible(bytes), parse_cpu_online(bytes)) {
        (Ok(count), _) if count == 0 || count > CPUS_MAX => Err("a count of CPUs is out of its range"),
        (Ok(_), Ok(0)) => Err("a list of no CPUs"),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => Err("the two readers of one list differ"),
        (result, online) => shows_safely(result).and(shows_safely(online)),
    }
}

fn check_group(bytes: &[u8]) -> Result<(), &'static str> {
    let breaks = |name: &[u8]| name.is_empty() || name.contains(&b'\n') || name.contains(&b':');
    for group in group_entries(bytes) {
        if group.gid.0 == u32::MAX
            || breaks(group.name)
            || group.members().any(|name| breaks(name) || name.contains(&b','))
        {
            return Err("a group that no line of the file can name");
        }
    }
    Ok(())
}

fn check_passwd(bytes: &[u8]) -> Result<(), &'static str> {
    let breaks = |name: &[u8]| name.is_empty() || name.contains(&b'\n') || name.contains(&b':');
    match passwd_entries(bytes)
        .find(|user| user.uid.0 == u32::MAX || user.gid.0 == u32::MAX || breaks(user.name))
    {
        Some(_) => Err("a user that no line of the file can name"),
        None => Ok(()),
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
