//! A report while it is being read.

use super::{
    memory::PageCounts,
    tasks::{Column, Row},
};
use crate::oom::{Counters, Kind, Report};
use plimsoll_policy::units::Pid;
use plimsoll_wire::text::Printable;

/// Names of processes; the kernel's own workers have up to 64.
const NAME_BYTES_MAX: usize = 64;

/// At most `bytes_max` of `text`, made printable.
pub(super) fn printable(text: &[u8], bytes_max: usize) -> String {
    Printable(text.get(..bytes_max).unwrap_or(text)).to_string()
}

/// A process's name; `None` where there is none.
pub(super) fn name(text: &[u8]) -> Option<String> {
    (!text.is_empty()).then(|| printable(text, NAME_BYTES_MAX))
}

/// What has been read so far, and where in the report the reader is.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that was or was not seen")]
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) report: Report,
    pub(super) counts: PageCounts,
    /// Sums over nodes, and over zones: kernels have one or the other.
    pub(super) sums: Counters,
    pub(super) zone_sums: Counters,
    pub(super) rows: Vec<Row>,
    pub(super) columns: Vec<Column>,
    pub(super) node: u32,
    pub(super) zone: Option<usize>,
    pub(super) ram_pages: Option<u64>,
    pub(super) reserved_pages: Option<u64>,
    pub(super) pagecache_pages: Option<u64>,
    pub(super) constraint: Option<Kind>,
    /// Who was said to be killed, and who was.
    pub(super) announced: Option<Pid>,
    pub(super) killed: Option<Pid>,
    /// Frames that the kernel was not sure of.
    pub(super) uncertain: Vec<String>,
    pub(super) caller: Option<Vec<u8>>,
    pub(super) stats_begun: u32,
    pub(super) has_head: bool,
    pub(super) has_who: bool,
    pub(super) has_memory: bool,
    pub(super) has_nodes: bool,
    pub(super) has_oom_kill: bool,
    pub(super) has_kill: bool,
    pub(super) has_memcg_task: bool,
    pub(super) is_memcg: bool,
    pub(super) is_sysrq: bool,
}
