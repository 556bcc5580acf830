//! The kernel's text, read: `/proc`, `/sys`, PSI and cgroup files, each as `fn(&[u8]) -> Result`; and the machine's own
//! lists of users and groups.
//!
//! Nothing here opens a file, and nothing trusts one: any process chooses the bytes of its name, its command line
//! and often of its cgroup path. A line that this kernel does not have is `None`, never 0; a line that is there and
//! cannot be understood is an error. Names leave as [`Printable`] text, in which no byte is lost and none can move
//! a terminal's cursor or start a new line in a log.

/// A capture of a real file (or a hostile one made up) from the fuzzers' corpus.
#[cfg(test)]
macro_rules! capture {
    ($path:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/", $path)).as_slice()
    };
}

mod accounts;
mod arcstats;
mod buddyinfo;
mod cgroup;
mod cgroup_files;
mod cmdline;
mod comm;
mod cpus;
mod error;
mod field;
mod kernel_log;
mod kernel_version;
mod killers;
mod locks;
mod maps;
mod memcg;
mod meminfo;
mod mountinfo;
mod pressure;
mod printable;
mod smaps_rollup;
mod stat;
mod statm;
mod status;
mod target;
mod zoneinfo;

pub use accounts::{
    GroupEntry, PasswdEntry, SubordinateEntry, group_entries, passwd_entries, subordinate_entries,
};
pub use arcstats::parse_arcstats;
pub use buddyinfo::{
    Compactions, Pagetypes, ZoneMarks, ZoneName, for_the_kernel, parse_buddyinfo, parse_compactions,
    parse_pagetypeinfo, parse_zone_marks,
};
pub use cgroup::{Membership, parse_cgroup};
pub use cgroup_files::{
    CgroupType, parse_cgroup_process, parse_cgroup_type, parse_oom_group, parse_oomd_count, parse_oomd_mark,
};
pub use cmdline::{CMDLINE_BYTES_MAX, printable_cmdline};
pub use comm::{COMM_BYTES_MAX, Comm, parse_comm};
pub use cpus::{CPUS_MAX, parse_cpu_online, parse_cpu_possible, parse_node_possible};
pub use error::{Excerpt, WireError};
pub use field::{decimal, hexadecimal};
pub use kernel_log::{
    KernelRecord, KilledLine, ReportPart, ReportSpan, escaped_byte, find_report, parse_kernel_record,
    parse_killed_line,
};
pub use kernel_version::{KernelVersion, parse_osrelease};
pub use killers::{EarlyoomLine, OomdLine, parse_earlyoom_line, parse_oomd_line};
pub use locks::{WriteLease, parse_write_lease};
pub use maps::{Mapping, parse_mapping};
pub use memcg::{
    FileStat, MemoryEvents, parse_file_stat, parse_memory_events, parse_memory_held, parse_memory_max,
    parse_oom_kills, parse_refaults,
};
pub use meminfo::{Meminfo, parse_meminfo};
pub use mountinfo::{Mount, parse_mount, unescape};
pub use pressure::{Pressure, PressureLine, parse_pressure};
pub use printable::Printable;
pub use smaps_rollup::{SmapsRollup, parse_smaps_rollup};
pub use stat::{ProcessState, Stat, parse_stat};
pub use statm::{Statm, parse_statm};
pub use status::{Status, parse_status};
pub use target::{FUZZ_TARGETS, FuzzTarget, is_safe_to_show};
pub use zoneinfo::{Zoneinfo, parse_zoneinfo};
