//! Reads a report line by line, each by what it begins with.

use super::{
    cgroup,
    draft::{Draft, printable},
    head, kill, memory,
    prefix::Line,
    scan::contains,
    start::Start,
    tasks,
};
use crate::oom::{Counters, Kind, Report};
use plimsoll_policy::units::{Bytes, Nanos, PageSize};

/// Dates and hosts.
const STAMP_BYTES_MAX: usize = 64;

/// A report takes this long at most, even through a serial console at 9600 baud.
const SAME_REPORT_NS: u64 = 300_000_000_000;

impl Draft {
    /// Whether what is there is of an OOM kill, and not only memory shown for another reason.
    fn is_one(&self) -> bool {
        self.has_head
            || self.has_kill
            || self.has_oom_kill
            || self.report.nobody_left
            || self.report.panicked
            || self.is_memcg
    }

    /// Whether a line that begins `start` begins another report.
    pub(super) fn is_over_at(&self, start: Start, text: &[u8]) -> bool {
        start == Start::Invoked && (self.is_one() || !self.is_sysrq)
            || start == Start::OomKill && (self.has_oom_kill || self.has_kill)
            || start == Start::Kill && kill::kill_line(text).is_some_and(|line| !kill::belongs(self, &line))
            || start == Start::MemInfo && (self.has_memory || self.has_kill || self.report.nobody_left)
            || start == Start::MemcgTask && (self.has_kill || self.has_memcg_task)
            || start == Start::MemcgUse && (self.has_kill || self.report.nobody_left)
            || start == Start::MemcgStats && self.has_kill
            || start == Start::Sysrq && self.is_one()
            || start == Start::Elsewhere
    }

    /// Takes a line in.
    pub(super) fn take(&mut self, start: Start, line: &Line<'_>) {
        let text = line.text;
        if self.is_stale(line) {
            *self = Self::default();
        }
        match start {
            Start::Invoked => {
                self.has_head = true;
                self.caller = line.caller.map(<[u8]>::to_vec);
                head::invoked(self, text);
            }
            Start::Who => head::who(self, text),
            Start::Cpuset => head::cpuset(self, text),
            Start::Frame => head::frame(self, text),
            Start::MemcgTask => cgroup::task(self, text),
            Start::MemcgUse => cgroup::used(self, text),
            Start::MemcgStats => cgroup::stats(self, text),
            Start::MemcgStat => cgroup::stat(self, text),
            Start::MemInfo => {
                self.has_memory = true;
                memory::counters(self, text);
            }
            Start::Counters => memory::counters(self, text),
            Start::Node => memory::node(self, text),
            Start::Zone => memory::zone(self, text),
            Start::Reserve => memory::reserve(self, text),
            Start::Blocks => memory::blocks(self, text),
            Start::HugePages => memory::huge_pages(self, text),
            Start::Totals => memory::totals(self, text),
            Start::SlabRow => memory::slab(self, text),
            Start::TableHead => tasks::table_head(self, text),
            Start::TableRow => tasks::table_row(self, text),
            Start::OomKill => kill::oom_kill(self, text),
            Start::Kill => {
                if let Some(line) = kill::kill_line(text) {
                    kill::kill(self, line);
                }
            }
            Start::Group => kill::group(self, text),
            Start::Reaped => self.report.reaped |= self.has_kill,
            Start::Sysrq => self.is_sysrq = true,
            Start::Nobody => {
                self.report.panicked |= text.starts_with(b"Kernel panic");
                self.report.nobody_left |= !contains(text, b"panic_on_oom");
            }
            Start::SlabHead | Start::Elsewhere | Start::Known => {}
        }
        self.stamp(line);
    }

    /// Whether what is there, no kill yet, is of another time: memory shown at boot, say.
    fn is_stale(&self, line: &Line<'_>) -> bool {
        let first = self.report.when.since_boot.map(|first| first.0);
        let apart = first.zip(line.since_boot_ns).map(|(first, now)| now.abs_diff(first));
        !self.is_one() && apart.is_some_and(|apart| apart > SAME_REPORT_NS)
    }

    /// The first stamp of a report is when it happened.
    fn stamp(&mut self, line: &Line<'_>) {
        let when = &mut self.report.when;
        let text = |text: Option<&[u8]>| text.map(|text| printable(text, STAMP_BYTES_MAX));
        if when.clock.is_none() {
            when.clock = text(line.clock);
        }
        if when.since_boot.is_none() {
            when.since_boot = line.since_boot_ns.map(Nanos);
        }
        if when.host.is_none() {
            when.host = text(line.host);
        }
    }

    /// The report; `None` where it is none of a kill.
    pub(super) fn finish(mut self) -> Option<Report> {
        // Kernels without frame pointers (Debian's 3.16) are sure of none.
        if self.report.stack.is_empty() {
            self.report.stack = core::mem::take(&mut self.uncertain);
        }
        if !self.is_one() || self.report.stack.iter().any(|function| head::is_of_a_failure(function)) {
            return None;
        }
        self.report.kind = self.kind();
        if self.report.kind != Kind::Memcg {
            self.report.memcg = None;
        }
        let size = self.report.zones.iter().find_map(|zone| zone.blocks.first().map(|block| block.size.0));
        self.report.page_size = size.and_then(PageSize::from_bytes);
        let page = self.report.page_bytes().0;
        let pages = |pages: Option<u64>| pages.map(|pages| Bytes(pages.saturating_mul(page)));
        self.report.ram = pages(self.ram_pages);
        self.report.ram_reserved = pages(self.reserved_pages);
        self.report.pagecache = pages(self.pagecache_pages);
        self.report.counters = self.counters(page);
        self.report.tasks = self.rows.drain(..).map(|row| tasks::finished(row, page)).collect();
        self.report.truncated = self.is_truncated();
        Some(self.report)
    }

    fn kind(&self) -> Kind {
        if head::is_sysrqs(self) {
            return Kind::Sysrq;
        }
        let report = &self.report;
        // Linux-next of mid-2018 named no constraint for a cgroup's limit.
        let limited = report.memcg.as_ref().is_some_and(|memcg| memcg.path.is_some());
        if let Some(kind) = self.constraint.filter(|kind| *kind != Kind::Global || !limited) {
            return kind;
        }
        if self.is_memcg || report.stack.iter().any(|function| head::is_memcgs(function)) {
            return Kind::Memcg;
        }
        // Before 4.19 nothing names the constraint. 4.9 and later show the policy's nodes, and `(null)` for none.
        if report.nodes_of_policy.is_some() && report.mems_allowed != report.nodes_of_policy {
            return Kind::Mempolicy;
        }
        let allowed = report.mems_allowed.as_deref();
        let beyond = |nodes: &[u32]| report.zones.iter().any(|zone| !nodes.contains(&zone.node));
        if report.cpuset.as_deref().is_some_and(|cpuset| cpuset != "/") && allowed.is_some_and(beyond) {
            return Kind::Cpuset;
        }
        Kind::Global
    }

    fn counters(&self, page: u64) -> Counters {
        let counts = &self.counts;
        let bytes = |pages: Option<u64>| pages.map(|pages| Bytes(pages.saturating_mul(page)));
        let both = |one: Option<u64>, other: Option<u64>| {
            bytes(one.zip(other).map(|(one, other)| one.saturating_add(other)))
        };
        let (nodes, zones) = (&self.sums, &self.zone_sums);
        Counters {
            anon: both(counts.active_anon, counts.inactive_anon).or(nodes.anon).or(zones.anon),
            file: both(counts.active_file, counts.inactive_file).or(nodes.file).or(zones.file),
            unevictable: bytes(counts.unevictable).or(nodes.unevictable).or(zones.unevictable),
            dirty: bytes(counts.dirty),
            writeback: bytes(counts.writeback),
            shmem: bytes(counts.shmem).or(nodes.shmem),
            slab_reclaimable: bytes(counts.slab_reclaimable),
            slab_unreclaimable: bytes(counts.slab_unreclaimable).or(zones.slab_unreclaimable),
            pagetables: bytes(counts.pagetables).or(nodes.pagetables).or(zones.pagetables),
            kernel_stack: nodes.kernel_stack,
            free: bytes(counts.free),
            free_cma: bytes(counts.free_cma),
            hugetlb: self.report.counters.hugetlb,
        }
    }

    /// Whether a part that every kernel prints is missing. (The table of processes can be switched off.)
    fn is_truncated(&self) -> bool {
        let report = &self.report;
        let ended = report.nobody_left
            || report.panicked
            || report.victim.as_ref().is_some_and(|victim| victim.anon.is_some());
        if !self.has_head || !ended {
            return true;
        }
        match report.kind {
            Kind::Memcg => report.memcg.as_ref().is_none_or(|memcg| memcg.usage.is_none()),
            Kind::Global | Kind::Cpuset | Kind::Mempolicy | Kind::Sysrq => {
                report.counters.free.is_none()
                    || report.zones.iter().all(|zone| zone.min.is_none() || zone.blocks.is_empty())
            }
        }
    }
}
