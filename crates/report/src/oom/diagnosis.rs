//! Why memory could not be had: the cause, from the report's own numbers.

use super::{Gfp, Kind, Report, Request, Zone, ZoneKind, advice, holders, words, zone};
use plimsoll_policy::{texts, units::Bytes};

/// Free or cached memory elsewhere is worth naming from this share of it on.
const ELSEWHERE_PARTS: (u64, u64) = (1, 8);

texts! {
    /// Why the request could not be served.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Cause {
        /// Nothing was left, and no single part of the machine is to blame but what ran on it.
        Exhausted = "exhausted",
        /// There was memory, but not in a piece as large as asked for.
        Fragmented = "fragmented",
        /// A memory cgroup was at its limit; the machine may have had plenty.
        MemcgLimit = "memcg-limit",
        /// The zones that this request may use were empty, others were not; or only CMA areas were left.
        LowZone = "low-zone",
        /// The kernel itself held it: slab, page tables, stacks, drivers.
        KernelMemory = "kernel-memory",
        /// Memory that must not be reclaimed: locked pages, huge pages set aside.
        Unreclaimable = "unreclaimable",
        /// The report does not say, or its numbers show no shortage.
        Unknown = "unknown",
    }
    /// The word in JSON.
    fn name, Display
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
        call_site: report.call_site(),
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
            by_old_rule: report.kernel.as_deref().is_some_and(is_before_4_4),
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
        let serves = |zone: &&Zone| zone.serves_a_page(&self.request) == Some(true);
        let known =
            self.eligible.iter().filter_map(|zone| Some(zone.has_block(&self.request)? && serves(zone)));
        known.reduce(|one, other| one || other)
    }

    /// Whether no block was large enough but perhaps in the lowest zone, which is kept for others.
    fn only_the_lowest_has_blocks(&self) -> bool {
        let lowest = self.eligible.iter().map(|zone| zone.kind).min();
        let mut rest = self.eligible.iter().filter(|zone| Some(zone.kind) > lowest).peekable();
        rest.peek().is_some() && rest.all(|zone| zone.has_block(&self.request) == Some(false))
    }

    /// What eligible zones have together of something.
    fn sum(&self, part: impl Fn(&Zone) -> Option<Bytes>) -> Bytes {
        self.eligible.iter().filter_map(|zone| part(zone)).sum()
    }

    /// Whether it is at least that share of what eligible zones have.
    fn is_share(&self, part: Bytes, share: (u64, u64)) -> bool {
        holders::is_share(part, zone::managed(self.eligible.iter().copied()), share)
    }

    /// Free or cached memory in zones that the request may not use, where it is much of them.
    pub(super) fn elsewhere(&self) -> Option<Bytes> {
        let zones: Vec<&Zone> =
            self.others.iter().copied().filter(|zone| zone.kind > self.request.widest).collect();
        let held: Bytes = zones.iter().flat_map(|zone| [zone.free, zone.file]).flatten().sum();
        let enough = holders::is_share(held, zone::managed(zones), ELSEWHERE_PARTS);
        (held.0 > 0 && enough).then_some(held)
    }

    /// Free memory in eligible zones that is CMA's, where the request may not have it and would have been served with it.
    pub(super) fn only_cma(&self) -> Option<Bytes> {
        if self.request.movable {
            return None;
        }
        let with_cma = Request { movable: true, ..self.request };
        let helps = |zone: &Zone| {
            zone.serves_a_page(&with_cma) == Some(true) && zone.serves_a_page(&self.request) == Some(false)
        };
        let cma = self.sum(|zone| zone.free_cma.filter(|_| helps(zone)));
        // A small area is not what was missing.
        let matters = holders::is_share(cma, self.sum(|zone| zone.free), (1, 2));
        (cma.0 > 0 && matters && self.is_share(cma, ELSEWHERE_PARTS)).then_some(cma)
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

fn is_before_4_4(kernel: &str) -> bool {
    let mut numbers = kernel.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version < (4, 4))
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
    if view.order() > 0 && view.has_block() == Some(false) && is_scattered(view) {
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
        let filled = holders::is_mostly_kernels(report, zone::managed(view.eligible.iter().copied()));
        return if filled { Cause::KernelMemory } else { Cause::LowZone };
    }
    of_holders(report).unwrap_or(Cause::Exhausted)
}

/// The cause that lies with who held the memory, and not with the processes.
fn of_holders(report: &Report) -> Option<Cause> {
    let pinned = holders::is_pinned(report).then_some(Cause::Unreclaimable);
    pinned.or_else(|| holders::is_kernels(report).then_some(Cause::KernelMemory))
}

/// Without zones, the counters can still show who held the memory, and the free blocks whether they were too small.
fn of_counters(view: &View<'_>) -> Cause {
    let report = view.report;
    // The kernel lists these caches only when they hold more than all processes and the page cache
    // (`should_dump_unreclaim_slab`).
    if !report.slabs.is_empty() {
        return Cause::KernelMemory;
    }
    let has_cache = holders::is_part(report, report.pagecache, ELSEWHERE_PARTS);
    if view.order() > 0 && has_cache && view.only_the_lowest_has_blocks() {
        return Cause::Fragmented;
    }
    if report.counters.anon.is_none() || report.managed().is_none() || report.kind == Kind::Sysrq {
        return Cause::Unknown;
    }
    of_holders(report).unwrap_or(if view.order() == 0 { Cause::Exhausted } else { Cause::Unknown })
}

/// Whether there was memory, in pieces too small: single pages were there, or so much page cache that reclaim could have
/// made room for any number of them.
fn is_scattered(view: &View<'_>) -> bool {
    view.serves_a_page() || view.is_share(view.sum(|zone| zone.file), (1, 20))
}
