//! The guard of large blocks, as far as it is the guard thread's: when to look, and what was told. It asks for a look when
//! somebody found no block of several pages at once; who looks says when to look next.

use super::{Context, Ledger, kernel::Kernel};
use crate::compactor::{Order, Report};
use plimsoll_api::status::FragmentationView;
use plimsoll_policy::{
    frag::compaction::{Ended, Wait},
    incident::{Compacted, Guard},
    reason::Reason,
    units::Nanos,
};
use plimsoll_sys::bpf::Awaited;
use std::{collections::BTreeMap, mem};

#[cfg(test)]
mod tests;

/// Between two incidents of compactions for the same order that go alike.
const TOLD_EVERY: Nanos = Nanos(600_000_000_000);

/// Where who looks is busy.
const BUSY: Nanos = Nanos(50_000_000);

/// After a look that failed.
const FAILED: Nanos = Nanos(60_000_000_000);

/// What is known of it.
#[derive(Debug)]
pub(super) struct Fragmentation {
    on: bool,
    /// It is looked now.
    asked: bool,
    wait: Wait,
    /// What programs were asked to tell last.
    planned: Option<Wait>,
    view: FragmentationView,
    /// When an incident was written down, by order and whether it was of use.
    told: BTreeMap<(u32, bool), Nanos>,
}

impl Fragmentation {
    /// `on`: to be guarded.
    pub(super) fn new(on: bool) -> Self {
        // Those who found none before the first look are only counted.
        let wait = Wait::At(Nanos(0));
        Self {
            on,
            asked: false,
            wait,
            planned: None,
            view: FragmentationView::default(),
            told: BTreeMap::new(),
        }
    }

    /// Whether it is to be guarded from here on.
    pub(super) fn switch<K: Kernel>(&mut self, on: bool, context: &Context<K>) {
        if self.on == on {
            return;
        }
        let (view, told) = (mem::take(&mut self.view), mem::take(&mut self.told));
        let view = FragmentationView { compacting: false, orders: Vec::new(), ..view };
        *self = Self { asked: self.asked, told, view, ..Self::new(on) };
        self.stop_if_off(context);
    }

    /// What goes on is not gone on with. Who is looking is told when that has come to its end: the lane has room for one order.
    fn stop_if_off<K: Kernel>(&self, context: &Context<K>) {
        if !self.on && !self.asked {
            let _has_room = context.workers.compactor.ask(Order::Stop);
        }
    }

    /// When to look though nobody is told anything.
    pub(super) fn due(&self) -> Option<Nanos> {
        match self.wait {
            Wait::At(moment) if self.on && !self.asked && self.planned.is_some() => Some(moment),
            Wait::At(_) | Wait::Until { .. } => None,
        }
    }

    /// Has programs tell when to look.
    pub(super) fn plan<K: Kernel>(&mut self, context: &mut Context<K>) {
        if !self.on || self.asked || self.planned == Some(self.wait) {
            return;
        }
        let asks = match self.wait {
            Wait::At(_) => context.kernel.missed_blocks().is_some(),
            Wait::Until { missed, works } => {
                let missed = context.kernel.ask_look(Awaited::Missed, missed);
                missed && works.is_none_or(|works| context.kernel.ask_look(Awaited::Blocks, works))
            }
        };
        self.planned = asks.then_some(self.wait);
    }

    /// Asks for a look where it is time to.
    pub(super) fn tend<K: Kernel>(&mut self, missed: bool, context: &mut Context<K>) {
        if !self.on || self.asked {
            return;
        }
        let now = context.now();
        let due = match self.wait {
            Wait::At(moment) => now >= moment,
            Wait::Until { works, .. } => missed || works.is_some_and(|works| now >= works),
        };
        if !due {
            return;
        }
        let Some(counts) = context.kernel.missed_blocks() else {
            // Nobody looks without programs, nor sees to the end of what goes on where they are lost.
            if self.planned.take().is_some() {
                let _has_room = context.workers.compactor.ask(Order::Stop);
            }
            return;
        };
        self.asked = context.workers.compactor.ask(Order::Look(counts));
        if !self.asked {
            // It was switched off and on: who looks is still about to stop.
            self.wait = Wait::At(now.saturating_add(BUSY));
        }
    }

    /// Takes in what came of a look.
    pub(super) fn take<K: Kernel>(&mut self, told: Result<Report, String>, context: &mut Context<K>) {
        self.asked = false;
        if !self.on {
            return self.stop_if_off(context);
        }
        match told {
            Ok(report) => {
                self.wait = report.wait;
                self.view.state = "on".to_owned();
                self.view.compacting = report.compacting;
                self.view.orders = report.orders;
                if let Some((compacted, useful)) = report.ended {
                    self.view.compactions = self.view.compactions.saturating_add(1);
                    self.view.cost_ns = self.view.cost_ns.saturating_add(compacted.cost_ns);
                    self.view.last = Some(compacted);
                    self.record(compacted, useful, context);
                }
            }
            Err(why) => {
                context.notices.once("large blocks", &why);
                self.wait = Wait::Until { missed: context.now().saturating_add(FAILED), works: None };
                self.view =
                    FragmentationView { state: format!("off: {why}"), ..FragmentationView::default() };
            }
        }
    }

    /// Of those that go alike one for a time is enough: a machine may compact every minute. One that ended as memory got short
    /// before there was anything is none: it says nothing of the blocks.
    fn record<K: Kernel>(&mut self, compacted: Compacted, useful: bool, context: &mut Context<K>) {
        let now = context.now();
        let told = self.told.get(&(compacted.order, useful));
        let is_news = told.is_none_or(|at| now >= at.saturating_add(TOLD_EVERY));
        if is_news && (useful || compacted.ended != Ended::Short) {
            self.told.insert((compacted.order, useful), now);
            let reason = if useful { Reason::MemoryCompacted } else { Reason::CompactionInVain };
            context.ledger.record_compaction(compacted, reason);
        }
    }

    pub(super) fn view(&self, ledger: &Ledger) -> FragmentationView {
        let mut view = self.view.clone();
        view.incidents = ledger.recorded(Guard::Fragmentation);
        view.last_incident = ledger.last_id(Guard::Fragmentation);
        if !self.on {
            view = FragmentationView { state: "off".to_owned(), ..view };
        } else if self.planned.is_none() {
            view.state = "off: no programs tell who finds no block".to_owned();
        } else if view.state.is_empty() {
            // Nobody has looked yet.
            view.state = "on".to_owned();
        }
        view
    }
}
