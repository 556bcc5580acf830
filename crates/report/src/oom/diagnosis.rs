//! Why memory could not be had: the cause, from the report's own numbers.

use super::{Gfp, Kind, Report, Request, Zone, ZoneKind, advice, holders, stack, words};
use core::fmt;
use plimsoll_policy::units::Bytes;

/// The largest order for which the kernel goes on trying and kills (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: i32 = 3;
/// Free or cached memory elsewhere is worth naming from this share of it on.
const ELSEWHERE_PARTS: (u64, u64) = (1, 8);

/// Why the request could not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was left, and no single part of the machine is to blame but what ran on it.
    Exhausted,
    /// There was memory, but not in a piece as large as asked for.
    Fragmented,
    /// A memory cgroup was at its limit; the machine may have had plenty.
    MemcgLimit,
    /// The zones that this request may use were empty, others were not; or only CMA areas were left.
    LowZone,
    /// The kernel itself held it: slab, page tables, stacks, drivers.
    KernelMemory,
    /// Memory that must not be reclaimed: locked pages, huge pages set aside.
    Unreclaimable,
    /// The report does not say, or its numbers show no shortage.
    Unknown,
}

impl Cause {
    /// The word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Fragmented => "fragmented",
            Self::MemcgLimit => "memcg-limit",
            Self::LowZone => "low-zone",
            Self::KernelMemory => "kernel-memory",
            Self::Unreclaimable => "unreclaimable",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a report comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Why.
    pub cause: Cause,
    /// Free memory of the whole machine, as the report counts it.
    pub free: Option<Bytes>,
    /// Which code asked: `binder_alloc_mmap_handler, called by binder_mmap, through kcalloc or kzalloc`.
    pub call_site: Option<String>,
    /// The story, a sentence or two each: who asked, what was free, why that did not serve, who was killed, who held the
    /// memory, what swap did.
    pub story: Vec<String>,
    /// The story in one piece.
    pub summary: String,
    /// What to do, the likeliest first; three at most.
    pub advice: Vec<String>,
}

/// Judges a report.
#[must_use]
pub fn diagnose(report: &Report) -> Diagnosis {
    let view = View::of(report);
    let cause = cause(&view);
    let story = words::story(&view, cause);
    Diagnosis {
        cause,
        free: report.free(),
        call_site: stack::call_site(report),
        summary: story.join(" "),
        story,
        advice: advice::advice(&view, cause),
    }
}

/// A report and what all of the judging asks of it.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    pub(super) request: Request,
    /// Zones that may serve the request, on nodes it may use.
    pub(super) eligible: Vec<&'a Zone>,
    /// All others, devices' left out.
    pub(super) others: Vec<&'a Zone>,
}

impl<'a> View<'a> {
    fn of(report: &'a Report) -> Self {
        let gfp = report.gfp.clone().unwrap_or_else(user_page);
        let page = report.page_bytes();
        let order = u32::try_from(report.order.unwrap_or(0)).unwrap_or(0).min(20);
        let widest = gfp.widest_zone();
        let top = report.zones.iter().map(|zone| zone.kind).filter(|kind| *kind <= widest).max();
        let request = Request {
            widest,
            top: top.unwrap_or(widest),
            movable: gfp.is_movable(),
            size: Bytes(page.0.checked_shl(order).unwrap_or(u64::MAX)),
            page,
            has_highmem: report.zones.iter().any(|zone| zone.kind == ZoneKind::HighMem),
            by_old_rule: is_before_4_4(report.kernel.as_deref()),
        };
        let nodes = nodes(report);
        let may = |zone: &&Zone| {
            zone.kind <= request.widest && nodes.is_none_or(|nodes| nodes.contains(&zone.node))
        };
        let usual = || report.zones.iter().filter(|zone| zone.kind != ZoneKind::Device);
        let (eligible, others) = usual().partition(|zone| may(zone));
        Self { report, request, eligible, others }
    }

    /// The order, 0 where the report does not say.
    pub(super) fn order(&self) -> i32 {
        self.report.order.unwrap_or(0)
    }

    /// Whether a single page could have been had.
    fn serves_a_page(&self) -> bool {
        self.eligible.iter().any(|zone| zone.serves_a_page(&self.request) == Some(true))
    }

    /// Whether an eligible zone that serves pages has a block large enough, too; `None` where no blocks are listed.
    fn has_block(&self) -> Option<bool> {
        let mut known = None;
        for zone in &self.eligible {
            if let Some(has) = zone.has_block(&self.request) {
                let serves = zone.serves_a_page(&self.request) == Some(true);
                known = Some(known.unwrap_or(false) || has && serves);
            }
        }
        known
    }

    /// Whether no block was large enough but perhaps in the lowest zone, which is kept for others.
    fn only_the_lowest_has_blocks(&self) -> bool {
        let lowest = self.eligible.iter().map(|zone| zone.kind).min();
        let mut rest = self.eligible.iter().filter(|zone| Some(zone.kind) > lowest).peekable();
        rest.peek().is_some() && rest.all(|zone| zone.has_block(&self.request) == Some(false))
    }

    /// What could have been taken back from the page cache in eligible zones.
    fn cached(&self) -> Bytes {
        let zones: u64 =
            self.eligible.iter().fold(0, |sum, zone| sum.saturating_add(zone.file.map_or(0, |file| file.0)));
        Bytes(zones)
    }

    fn managed(zones: &[&Zone]) -> u64 {
        zones
            .iter()
            .fold(0, |sum, zone| sum.saturating_add(zone.managed.or(zone.present).map_or(0, |bytes| bytes.0)))
    }

    /// Free or cached memory in zones that the request may not use, where it is much of them.
    pub(super) fn elsewhere(&self) -> Option<Bytes> {
        let zones: Vec<&Zone> =
            self.others.iter().copied().filter(|zone| zone.kind > self.request.widest).collect();
        let held = zones.iter().fold(0_u64, |sum, zone| {
            let part = |bytes: Option<Bytes>| bytes.map_or(0, |bytes| bytes.0);
            sum.saturating_add(part(zone.free)).saturating_add(part(zone.file))
        });
        let enough = held > 0 && holders::is_share(held, Self::managed(&zones), ELSEWHERE_PARTS);
        enough.then_some(Bytes(held))
    }

    /// Free memory in eligible zones that is CMA's, where the request may not have it and would have been served with it.
    pub(super) fn only_cma(&self) -> Option<Bytes> {
        if self.request.movable {
            return None;
        }
        let with_cma = Request { movable: true, ..self.request };
        let helped = self.eligible.iter().filter(|zone| {
            zone.serves_a_page(&with_cma) == Some(true) && zone.serves_a_page(&self.request) == Some(false)
        });
        let cma = helped.fold(0_u64, |sum, zone| sum.saturating_add(zone.free_cma.map_or(0, |cma| cma.0)));
        let free = self
            .eligible
            .iter()
            .fold(0_u64, |sum, zone| sum.saturating_add(zone.free.map_or(0, |free| free.0)));
        // A small area is not what was missing.
        let matters = holders::is_share(cma, free, (1, 2))
            && holders::is_share(cma, Self::managed(&self.eligible), ELSEWHERE_PARTS);
        (cma > 0 && matters).then_some(Bytes(cma))
    }

    /// Whether any watermark is known, without which nothing can be judged.
    fn is_judgeable(&self) -> bool {
        self.eligible.iter().any(|zone| zone.free.is_some() && zone.min.is_some())
    }

    /// Whether more was free than had to be kept, in a zone that is asked first. (In lower zones more is kept from such
    /// requests than this mark says.)
    pub(super) fn is_above_min(&self) -> bool {
        let top = self.eligible.iter().filter(|zone| zone.kind == self.request.top);
        let mut pairs = top.filter_map(|zone| zone.free.zip(zone.min));
        pairs.any(|(free, min)| free > min)
    }

    fn is_ample(&self) -> bool {
        self.eligible.iter().any(|zone| zone.is_ample(&self.request) == Some(true))
    }
}

/// A report without its head is most likely of a page for a process.
fn user_page() -> Gfp {
    Gfp { bits: 0xa, names: None }
}

/// The nodes the request may use; `None`: all.
fn nodes(report: &Report) -> Option<&[u32]> {
    match report.kind {
        Kind::Mempolicy => report.nodes_of_policy.as_deref().or(report.mems_allowed.as_deref()),
        Kind::Cpuset => report.mems_allowed.as_deref(),
        Kind::Global | Kind::Memcg | Kind::Sysrq => None,
    }
}

fn is_before_4_4(kernel: Option<&str>) -> bool {
    let Some(kernel) = kernel else { return false };
    let mut numbers = kernel.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (4, 4),
        _ => false,
    }
}

fn cause(view: &View<'_>) -> Cause {
    let report = view.report;
    if report.kind == Kind::Memcg {
        return Cause::MemcgLimit;
    }
    // A node may have nothing but zones that this request may not use.
    if view.eligible.is_empty() && view.others.iter().any(|zone| zone.free.is_some()) {
        return Cause::LowZone;
    }
    if !view.is_judgeable() {
        return of_counters(view);
    }
    if (1..=COSTLY_ORDER.saturating_add(8)).contains(&view.order())
        && view.has_block() == Some(false)
        && is_scattered(view)
    {
        return Cause::Fragmented;
    }
    if view.only_cma().is_some() {
        return Cause::LowZone;
    }
    // What was freed between the decision and the printing can lift a zone a little above its mark, not far.
    if view.is_ample() && (report.kind == Kind::Sysrq || view.order() >= 0) {
        return Cause::Unknown;
    }
    if view.elsewhere().is_some() {
        let filled = holders::is_mostly_kernels(report, View::managed(&view.eligible));
        return if filled { Cause::KernelMemory } else { Cause::LowZone };
    }
    if holders::is_pinned(report) {
        return Cause::Unreclaimable;
    }
    if holders::is_kernels(report) {
        return Cause::KernelMemory;
    }
    Cause::Exhausted
}

/// Without zones, the counters can still show who held the memory, and the free blocks whether they were too small.
fn of_counters(view: &View<'_>) -> Cause {
    let report = view.report;
    // The kernel lists these caches only when they hold more than all processes and the page cache
    // (`should_dump_unreclaim_slab`).
    if !report.slabs.is_empty() {
        return Cause::KernelMemory;
    }
    let cached = report.pagecache.zip(report.managed());
    let has_cache =
        cached.is_some_and(|(cache, managed)| holders::is_share(cache.0, managed.0, ELSEWHERE_PARTS));
    if view.order() > 0 && has_cache && view.only_the_lowest_has_blocks() {
        return Cause::Fragmented;
    }
    if report.counters.anon.is_none() || report.managed().is_none() || report.kind == Kind::Sysrq {
        return Cause::Unknown;
    }
    if holders::is_pinned(report) {
        Cause::Unreclaimable
    } else if holders::is_kernels(report) {
        Cause::KernelMemory
    } else if view.order() == 0 {
        Cause::Exhausted
    } else {
        Cause::Unknown
    }
}

/// Whether there was memory, in pieces too small: single pages were there, or so much page cache that reclaim could have
/// made room for any number of them.
fn is_scattered(view: &View<'_>) -> bool {
    view.serves_a_page() || holders::is_share(view.cached().0, View::managed(&view.eligible), (1, 20))
}
