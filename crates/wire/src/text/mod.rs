//! The kernel's text, read: `/proc`, `/sys`, PSI and cgroup files, each as `fn(&[u8]) -> Result`.
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

mod cgroup;
mod cmdline;
mod comm;
mod cpus;
mod error;
mod field;
mod kernel_version;
mod meminfo;
mod mountinfo;
mod pressure;
mod printable;
mod smaps_rollup;
mod stat;
mod statm;
mod status;
mod target;

pub use cgroup::{Membership, parse_cgroup};
pub use cmdline::{CMDLINE_BYTES_MAX, printable_cmdline};
pub use comm::{COMM_BYTES_MAX, Comm, parse_comm};
pub use cpus::{CPUS_MAX, parse_cpu_possible};
pub use error::{Excerpt, WireError};
pub use kernel_version::{KernelVersion, parse_osrelease};
pub use meminfo::{Meminfo, parse_meminfo};
pub use mountinfo::{Mount, has_bpffs_at, parse_mount, topmost_mount_at};
pub use pressure::{Pressure, PressureLine, parse_pressure};
pub use printable::Printable;
pub use smaps_rollup::{SmapsRollup, parse_smaps_rollup};
pub use stat::{ProcessState, Stat, parse_stat};
pub use statm::{Statm, parse_statm};
pub use status::{Status, parse_status};
pub use target::{FUZZ_TARGETS, FuzzTarget};
