//! Who has the kernel compact memory ahead of need: looks at what is free, decides ([`plimsoll_policy::frag::compaction`]), and
//! sets kcompactd to work. In a lane, as files and settings may have to be waited for. The guard thread says when.

use crate::{
    knobs::Knobs,
    offload::{Haste, Lane, Offload},
};
use plimsoll_api::status::OrderView;
use plimsoll_policy::{
    frag::{
        Blocks,
        compaction::{Compaction, Deed, InUse, Look, ORDERS, Outcome, Wait},
    },
    incident::Compacted,
    units::{Bytes, Nanos, PageSize, Pages, Pid},
};
use plimsoll_sys::process::{
    ProcRoot, clock_monotonic_ns, compactions, cpu_time_of, free_blocks, zone_marks,
};
use plimsoll_wire::text::{ZoneMarks, ZoneName, for_the_kernel};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What zones keep is read again after so long: the file has a part for each CPU, and hardly anybody changes it.
const MARKS_EVERY: Nanos = Nanos(60_000_000_000);

/// What the thread of the kernel's that compacts each memory node is called, before the node's number.
const KCOMPACTD: &str = "kcompactd";

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Look, with how often somebody found no block of each order at once.
    Look([u64; ORDERS]),
    /// Compact no more.
    Stop,
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// When to look again.
    pub(crate) wait: Wait,
    /// kcompactd works for us.
    pub(crate) compacting: bool,
    /// The orders in use.
    pub(crate) orders: Vec<OrderView>,
    /// A compaction that ended with it, and whether it was of use.
    pub(crate) ended: Option<(Compacted, bool)>,
}

/// Has it done.
#[derive(Debug)]
pub(crate) struct Compactor {
    orders: Lane<Order>,
}

impl Compactor {
    /// Tells what came of each look with `tell`; an error is one line, and nothing is done from then on until the next look.
    pub(crate) fn new(
        offload: &Offload,
        proc: ProcRoot,
        (memory, page_size): (Bytes, PageSize),
        knobs: Arc<Mutex<Knobs>>,
        tell: impl Fn(Result<Report, String>) + Send + 'static,
    ) -> Self {
        let mut worker = Worker {
            proc,
            memory: page_size.to_pages(memory),
            page_size,
            knobs,
            compaction: Compaction::default(),
            marks: Vec::new(),
            marks_due: Nanos(0),
            stalled: None,
            threads: Vec::new(),
        };
        let orders = offload.lane(Haste::Ordinary, 1, move |order| match order {
            Order::Look(missed) => tell(worker.look(missed)),
            Order::Stop => worker.stop(),
        });
        Self { orders }
    }

    /// One that does nothing, and what it is told.
    #[cfg(test)]
    pub(crate) fn by_another() -> (Self, std::sync::mpsc::Receiver<Order>) {
        let (orders, asked) = Lane::of_another(1);
        (Self { orders }, asked)
    }

    /// False while it is still at something. Never waits.
    pub(crate) fn ask(&self, order: Order) -> bool {
        self.orders.hand(order)
    }
}

#[derive(Debug)]
struct Worker {
    proc: ProcRoot,
    memory: Pages,
    page_size: PageSize,
    knobs: Arc<Mutex<Knobs>>,
    compaction: Compaction,
    marks: Vec<(ZoneName, ZoneMarks)>,
    marks_due: Nanos,
    /// Requests had compacted memory before the first look.
    stalled: Option<bool>,
    /// kcompactd of each node.
    threads: Vec<Pid>,
}

impl Worker {
    fn look(&mut self, missed: [u64; ORDERS]) -> Result<Report, String> {
        let seen = self.see(missed);
        let seen = seen.inspect_err(|_| self.stop())?;
        let free = seen.blocks.free();
        let (deed, wait) = self.compaction.look(seen);
        match deed {
            Deed::Begin(_) => {
                let begun = self.knobs().compact();
                begun.inspect_err(|_| self.stop())?;
            }
            Deed::GoOn => self.knobs().go_on_compacting(),
            Deed::End(_) => self.knobs().stop_compacting(),
            Deed::Rest => {}
        }
        let ended = match deed {
            Deed::End(outcome) => Some((self.told(&outcome, free), outcome.useful)),
            Deed::Rest | Deed::Begin(_) | Deed::GoOn => None,
        };
        let orders = self.compaction.in_use().map(|order| order_view(&order, self.page_size)).collect();
        Ok(Report { wait, compacting: self.compaction.is_on(), orders, ended })
    }

    fn told(&self, outcome: &Outcome, free: Pages) -> Compacted {
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        Compacted {
            order: outcome.order,
            block_bytes: bytes(Pages(1_u64.checked_shl(outcome.order).unwrap_or(u64::MAX))),
            before: outcome.before,
            after: outcome.after,
            kept: outcome.kept,
            free_bytes: bytes(free),
            took_ns: outcome.took.0,
            cost_ns: outcome.cost.0,
            ended: outcome.ended,
        }
    }

    fn stop(&mut self) {
        self.compaction.give_up();
        self.knobs().stop_compacting();
    }

    fn knobs(&self) -> std::sync::MutexGuard<'_, Knobs> {
        self.knobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&mut self, missed: [u64; ORDERS]) -> Result<Look, String> {
        let at = Nanos(clock_monotonic_ns());
        if at >= self.marks_due {
            self.marks = zone_marks().map_err(|error| error.to_string())?;
            self.marks_due = at.saturating_add(MARKS_EVERY);
        }
        let zones = free_blocks().map_err(|error| error.to_string())?;
        let (mut blocks, mut spare) = (Blocks::default(), Pages(0));
        for (found, marks) in for_the_kernel(&zones, &self.marks) {
            blocks.add(found);
            let kept = marks.high.saturating_add(marks.reserve);
            spare = spare.saturating_add(found.free().saturating_sub(kept));
        }
        let stalled = match self.stalled {
            Some(stalled) => stalled,
            None => compactions().map_err(|error| error.to_string())?.stalls.is_some_and(|stalls| stalls > 0),
        };
        self.stalled = Some(stalled);
        // Where nobody ever has missed one, nothing is begun: all processes need not be looked through for kcompactd.
        let has_news = stalled || missed.iter().any(|count| *count > 0);
        let spent = has_news.then(|| self.spent()).transpose()?;
        Ok(Look { at, missed, blocks, memory: self.memory, spare, spent, stalled })
    }

    /// What kcompactd of all nodes has had of CPUs.
    fn spent(&mut self) -> Result<Nanos, String> {
        // One that goes takes its own with it. One that comes is found with the next that goes.
        if self.threads.is_empty() || self.threads.iter().any(|thread| cpu_time_of(*thread).is_none()) {
            let mut threads = Vec::new();
            let visit = |process: &plimsoll_sys::process::Process| {
                if process.kernel_thread && process.comm.to_string().starts_with(KCOMPACTD) {
                    threads.push(process.pid);
                }
            };
            self.proc.processes(visit).map_err(|error| error.to_string())?;
            self.threads = threads;
        }
        if self.threads.is_empty() {
            return Err("no kcompactd is to be seen, whose cost could be kept low".to_owned());
        }
        let times = self.threads.iter().filter_map(|thread| cpu_time_of(*thread));
        let sum = times.fold(Duration::ZERO, Duration::saturating_add);
        Ok(Nanos(u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn order_view(order: &InUse, page_size: PageSize) -> OrderView {
    OrderView {
        order: order.order,
        blocks: order.blocks,
        kept: order.kept,
        of_no_use_bytes: page_size.to_bytes(order.of_no_use).0,
        gone_in_ns: order.gone_in.map(|time| time.0),
        missed: order.missed,
    }
}
