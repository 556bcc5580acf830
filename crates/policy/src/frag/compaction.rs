//! When the kernel is told to compact memory ahead of need, and for how long.
//!
//! An order is in use for some time after somebody found no block of it at once. While one is, a part of memory is kept in
//! blocks of it and larger ones: where a quarter of that is gone and memory is free, kcompactd is set to work, until there is
//! enough, it makes no more, or it has cost its share of a CPU.

use super::{Blocks, COSTLY_ORDER, gone_in};
use crate::units::{Nanos, Pages, part};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Orders that are told apart: 0 to 10 with pages of 4 KiB, to 13 with 64 KiB on arm64 (`MAX_PAGE_ORDER`, 6.18).
pub const ORDERS: usize = 16;

/// An order is in use for so long after somebody found no block of it.
const IN_USE: Nanos = Nanos(600_000_000_000);

/// What is kept in blocks of an order in use: a 16th of memory, and no more than half of what is free. Requests come in bursts
/// that kcompactd cannot keep up with: a thousand pipes were made larger in 80 ms, in which it made 80 blocks (6.1, an
/// emulated guest of 1 GiB). What is kept has to outlast them.
const KEPT_PART: u64 = 16;

/// So much of it may be gone before more are made.
const GONE_PART: u64 = 4;

/// With less free above the marks that reclaim begins at than this part of memory, there is nothing to make blocks of.
const SPARE_PART: u64 = 64;

/// What kcompactd may have cost in the last minute, whoever has it work: 2 %. Unless `vm.compaction_proactiveness` is 0
/// it may go on when there is enough, and does so each half minute by itself.
const MINUTE: Nanos = Nanos(60_000_000_000);
const COST_MAX: Nanos = Nanos(1_200_000_000);
const COST_PERMILLE: u64 = 20;

/// From the beginning of a compaction on, for so long what kcompactd does is taken for its doing: it lasts a minute at most,
/// and may go on after that.
const OURS: Nanos = Nanos(120_000_000_000);

/// From the beginning of a compaction that was of no use to the next; twice as long after each more, up to the longest.
const REST: Nanos = MINUTE;
const REST_MAX: Nanos = Nanos(3_600_000_000_000);

/// From the beginning of one that ended since memory got short.
const REST_SHORT: Nanos = Nanos(10_000_000_000);

/// It was of no use with less than this part of what was missing.
const USEFUL_PART: u64 = 8;

/// Where there are no more blocks than there were so long ago, none are to be made: kcompactd has its turn within that on a
/// busy machine.
const DONE_AFTER: Nanos = Nanos(1_000_000_000);

/// Between two looks: while it works; when somebody misses a block; while an order is in use, or nothing can be done. All
/// blocks of a guest were gone within a second, and the kernel killed for the next (6.1, 6.12).
const AT_WORK: Nanos = Nanos(50_000_000);
const READY: Nanos = Nanos(100_000_000);
const IN_BETWEEN: Nanos = Nanos(1_000_000_000);

/// What is seen at one look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// When, on a clock that only goes forward.
    pub at: Nanos,
    /// How often somebody found no block of each order at once, since whenever.
    pub missed: [u64; ORDERS],
    /// Free blocks of all zones that the kernel's own requests may use.
    pub blocks: Blocks,
    /// All memory.
    pub memory: Pages,
    /// What is free above the marks at which reclaim stops.
    pub spare: Pages,
    /// What kcompactd of all nodes has had of CPUs, since whenever. `None`: nobody looked, as nobody missed a block.
    pub spent: Option<Nanos>,
    /// Since boot, requests had to compact memory. Of which order is not known, nor whether it was long ago.
    pub stalled: bool,
}

texts! {
    /// Why a compaction ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Ended {
        /// There are enough blocks.
        Enough = "enough",
        /// kcompactd made no more.
        NothingLeft = "nothing-left",
        /// It has cost what it may, or gone on for a minute.
        Cost = "cost",
        /// Memory got short: blocks cannot be made of what is not free.
        Short = "short",
    }
    /// The word in JSON.
    fn name, Display
}

/// One compaction, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// For blocks of this order.
    pub order: u32,
    /// How many there were when it began.
    pub before: u64,
    /// How many there were when it ended.
    pub after: u64,
    /// So many are kept.
    pub kept: u64,
    /// What it took.
    pub took: Nanos,
    /// What kcompactd had of CPUs.
    pub cost: Nanos,
    /// Why it ended.
    pub ended: Ended,
    /// It was worth it.
    pub useful: bool,
}

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Nothing.
    Rest,
    /// Have kcompactd work for blocks of this order.
    Begin(u32),
    /// Have it work on: it ends a round early where kswapd runs, and when it is through.
    GoOn,
    /// Have it stop.
    End(Outcome),
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// At this moment.
    At(Nanos),
    /// As soon as one of them happens.
    Until {
        /// Somebody finds no block, at this moment or later.
        missed: Nanos,
        /// A CPU works, at this moment or later.
        works: Option<Nanos>,
    },
}

/// One order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    missed: u64,
    missed_at: Option<Nanos>,
    /// Not before.
    due: Nanos,
    /// How long it rests once the next is of no use.
    rest: Nanos,
    /// When memory was compacted for it the last time.
    began: Option<Nanos>,
}

impl Default for Order {
    fn default() -> Self {
        Self { missed: 0, missed_at: None, due: Nanos(0), rest: REST, began: None }
    }
}

impl Order {
    fn is_in_use(&self, now: Nanos) -> bool {
        self.missed_at.is_some_and(|at| now.saturating_sub(at) < IN_USE)
    }
}

/// A compaction that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    order: u32,
    began: Nanos,
    spent_before: Nanos,
    blocks_before: u64,
    /// At the last look.
    blocks: u64,
    /// By how much they became more from look to look, all together: others take them meanwhile.
    made: u64,
    /// When they did last.
    made_at: Nanos,
}

/// An order in use, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The order.
    pub order: u32,
    /// Free blocks of it, larger ones taken apart.
    pub blocks: u64,
    /// So many are kept.
    pub kept: u64,
    /// Free memory in smaller blocks, which is of no use to requests of this order.
    pub of_no_use: Pages,
    /// When none will be left, if it goes on as between the last two looks. `None`: they do not get fewer.
    pub gone_in: Option<Nanos>,
    /// How often somebody found none at once.
    pub missed: u64,
}

/// What is remembered from look to look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compaction {
    orders: [Order; ORDERS],
    run: Option<Run>,
    /// What kcompactd has cost: until when it counts, and how much.
    spent: Vec<(Nanos, Nanos)>,
    last: Option<Look>,
    before_last: Option<(Nanos, Blocks)>,
}

impl Compaction {
    /// Takes a look in.
    pub fn look(&mut self, look: Look) -> (Deed, Wait) {
        self.notice(&look);
        self.pay(&look);
        let step = match self.run {
            Some(run) => self.go_on(run, &look),
            None => self.begin(&look),
        };
        if let Some(last) = self.last.replace(look) {
            self.before_last = Some((last.at, last.blocks));
        }
        step
    }

    /// What goes on is not seen to its end: whoever looks again begins anew.
    pub const fn give_up(&mut self) {
        self.run = None;
    }

    /// Whether kcompactd is at work for us.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.run.is_some()
    }

    /// The orders that somebody lately found no block of, as the last look found them, the smallest first.
    pub fn in_use(&self) -> impl Iterator<Item = InUse> + '_ {
        self.last.iter().flat_map(move |look| {
            let kept = kept(look);
            self.used(look.at).filter(|(_, known)| known.missed > 0).map(move |(order, known)| {
                let blocks = look.blocks.suitable(order);
                let before = self.before_last.as_ref();
                InUse {
                    order,
                    blocks,
                    kept: kept.0 >> order,
                    of_no_use: look.blocks.free().saturating_sub(look.blocks.in_blocks_of(order)),
                    gone_in: before.and_then(|(at, before)| {
                        gone_in(before.suitable(order), blocks, look.at.saturating_sub(*at))
                    }),
                    missed: known.missed,
                }
            })
        })
    }

    fn used(&self, now: Nanos) -> impl Iterator<Item = (u32, &Order)> + '_ {
        (0_u32..).zip(&self.orders).filter(move |(_, order)| order.is_in_use(now))
    }

    /// Who found no block since the last look. What was counted before the first is not news; nor is that there is none where
    /// memory is short. Where requests had to compact memory before the first, and there are few blocks of the largest order
    /// that the kernel kills for, that one is in use until it is known better: an earlier daemon may have ended in the middle
    /// of it. One request for a huge page, at any time since boot, is no reason.
    fn notice(&mut self, look: &Look) {
        if self.last.is_none()
            && look.stalled
            && look.blocks.in_blocks_of(COSTLY_ORDER) < enough(look)
            && let Some(order) = self.orders.get_mut(COSTLY_ORDER as usize)
        {
            order.missed_at = Some(look.at);
        }
        let is_news = self.last.is_some() && has_spare(look);
        for (order, missed) in self.orders.iter_mut().zip(look.missed) {
            if missed > order.missed && is_news {
                order.missed_at = Some(look.at);
            }
            order.missed = missed;
        }
    }

    /// What kcompactd has cost since the last look counts for a minute; where it cost more than its share of one, for as long
    /// as it takes to be that. What it did before it was set to work is nobody's: where memory fills up, the kernel itself has
    /// it work as requests begin to miss blocks.
    fn pay(&mut self, look: &Look) {
        self.spent.retain(|(until, _)| *until > look.at);
        let is_ours = |order: &Order| order.began.is_some_and(|began| look.at.saturating_sub(began) < OURS);
        if !self.orders.iter().any(is_ours) {
            return;
        }
        let before = self.last.as_ref().and_then(|last| last.spent);
        let cost = before.zip(look.spent).map(|(before, spent)| spent.saturating_sub(before));
        if let Some(cost) = cost.filter(|cost| *cost > Nanos(0)) {
            let counts = Nanos(part(cost.0, 1000, COST_PERMILLE).unwrap_or(u64::MAX)).max(MINUTE);
            self.spent.push((look.at.saturating_add(counts), cost));
        }
    }

    fn begin(&mut self, look: &Look) -> (Deed, Wait) {
        let Some((_, _, order)) = self.shortest(look).filter(|(due, ..)| *due <= look.at && has_spare(look))
        else {
            return (Deed::Rest, self.at_rest(look));
        };
        let blocks = look.blocks.suitable(order);
        self.run = Some(Run {
            order,
            began: look.at,
            spent_before: look.spent.unwrap_or_default(),
            blocks_before: blocks,
            blocks,
            made: 0,
            made_at: look.at,
        });
        if let Some(known) = self.orders.get_mut(order as usize) {
            known.began = Some(look.at);
        }
        (Deed::Begin(order), at_work(look))
    }

    /// Of the orders in use with too few blocks the first that may be made, and from when on. Of several, whose turn was
    /// longest ago.
    fn shortest(&self, look: &Look) -> Option<(Nanos, Option<Nanos>, u32)> {
        let short = self.used(look.at).filter(|(order, _)| look.blocks.in_blocks_of(*order) < enough(look));
        let paid_for = self.paid_for();
        short.map(|(order, known)| (known.due.max(paid_for), known.began, order)).min()
    }

    /// From when on no more than half of what it may cost counts: what is begun with less left is over at once.
    fn paid_for(&self) -> Nanos {
        let mut pieces = self.spent.clone();
        pieces.sort_unstable();
        let mut left = self.cost();
        let over = pieces.iter().take_while(|(_, cost)| {
            let is_over = left > Nanos(COST_MAX.0 / 2);
            left = left.saturating_sub(*cost);
            is_over
        });
        over.last().map_or(Nanos(0), |(until, _)| *until)
    }

    /// All that counts.
    fn cost(&self) -> Nanos {
        self.spent.iter().fold(Nanos(0), |sum, (_, cost)| sum.saturating_add(*cost))
    }

    fn go_on(&mut self, mut run: Run, look: &Look) -> (Deed, Wait) {
        let blocks = look.blocks.suitable(run.order);
        if blocks > run.blocks {
            run.made = run.made.saturating_add(blocks.saturating_sub(run.blocks));
            run.made_at = look.at;
        }
        run.blocks = blocks;
        let ended = if look.blocks.in_blocks_of(run.order) >= kept(look) {
            Ended::Enough
        } else if !has_spare(look) {
            Ended::Short
        } else if self.cost() >= COST_MAX || look.at.saturating_sub(run.began) >= MINUTE {
            Ended::Cost
        } else if look.at.saturating_sub(run.made_at) >= DONE_AFTER {
            Ended::NothingLeft
        } else {
            self.run = Some(run);
            return (Deed::GoOn, at_work(look));
        };
        self.run = None;
        let outcome = self.end(&run, look, ended);
        (Deed::End(outcome), self.at_rest(look))
    }

    fn end(&mut self, run: &Run, look: &Look, ended: Ended) -> Outcome {
        let kept = kept(look).0 >> run.order;
        let missing = kept.saturating_sub(run.blocks_before);
        let useful = run.made.saturating_mul(USEFUL_PART) >= missing;
        if let Some(order) = self.orders.get_mut(run.order as usize) {
            match (useful, ended) {
                (true, _) => order.rest = REST,
                // That says nothing of the next.
                (false, Ended::Short) => order.due = run.began.saturating_add(REST_SHORT),
                (false, Ended::Enough | Ended::NothingLeft | Ended::Cost) => {
                    order.due = run.began.saturating_add(order.rest);
                    order.rest = Nanos(order.rest.0.saturating_mul(2)).min(REST_MAX);
                }
            }
        }
        Outcome {
            order: run.order,
            before: run.blocks_before,
            after: run.blocks,
            kept,
            took: look.at.saturating_sub(run.began),
            cost: look.spent.unwrap_or_default().saturating_sub(run.spent_before),
            ended,
            useful,
        }
    }

    /// While an order is in use, its blocks may go without anybody missing one. While nothing is paid for, whoever misses one
    /// wakes nobody; nor within a tenth of a second of a look, and within a second where nothing can be done, however many do.
    fn at_rest(&self, look: &Look) -> Wait {
        let paid_for = self.paid_for();
        let after = |pause| look.at.saturating_add(pause).max(paid_for);
        let is_ready = has_spare(look) && self.shortest(look).is_none();
        let missed = after(if is_ready { READY } else { IN_BETWEEN });
        let works = self.used(look.at).next().map(|_| after(IN_BETWEEN));
        Wait::Until { missed, works }
    }
}

const fn at_work(look: &Look) -> Wait {
    Wait::At(look.at.saturating_add(AT_WORK))
}

/// What is kept in blocks of each order in use.
fn kept(look: &Look) -> Pages {
    Pages((look.memory.0 / KEPT_PART).min(look.blocks.free().0 / 2))
}

/// With fewer more are made.
fn enough(look: &Look) -> Pages {
    let kept = kept(look).0;
    Pages(kept.saturating_sub(kept / GONE_PART))
}

fn has_spare(look: &Look) -> bool {
    look.spare.0 >= look.memory.0 / SPARE_PART
}
