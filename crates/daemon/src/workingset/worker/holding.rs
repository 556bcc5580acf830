//! What the worker holds: what the plan says, as far as it can be opened and no cgroup loses more than its share by it.

use super::{LASTING, Worker};
use crate::workingset::{locked_files::Refused, locking::Locking, view, view::Held};
use plimsoll_policy::{
    units::{Bytes, Nanos},
    workingset::{Barred, Budget, plan},
};
use plimsoll_sys::workingset::Refusal;
use std::sync::Arc;

/// How long a chunk is not locked again that was more than the share of its cgroup.
const OVER_SHARE: Nanos = Nanos(60_000_000_000);

/// How long a file may take to be opened until that is said.
const OPENING_MAX: Nanos = Nanos(10_000_000_000);

/// How long a refusal is believed that passes.
const PASSING: Nanos = Nanos(15_000_000_000);

impl Worker {
    pub(super) fn follow_plan(&mut self, moment: Nanos) {
        let memory = self.readings.memory(&mut self.proc);
        let budget = self.budget(memory, moment);
        let plan = plan(&self.heat, &self.stock.holdings(), budget, moment);
        self.stock.let_go(&plan);
        let locking = Locking::begin(Arc::clone(&self.shared), moment);
        let ways = (&mut self.mounts, &mut self.opener);
        for refused in self.stock.hold(&plan, ways, moment, &locking) {
            self.take_refusal(refused, moment);
        }
        self.keep_to_shares(moment);
        let stock = &self.stock;
        self.shared.set_held(Held {
            memory,
            budget,
            files: view::files(
                &plan,
                &self.heat,
                |file, tier| stock.pages_of(file, tier),
                |file| stock.path(file),
            ),
            barred: self.heat.barred_counts(moment),
            ranked: view::ranked(&self.heat),
            cgroup_shares: self.charges.are_told(),
            opening: self.opener.waiting(),
        });
        (self.plan, self.budget) = (plan, budget);
    }

    /// Takes in what was opened, as the last plan has it.
    pub(super) fn take_opened(&mut self, moment: Nanos) {
        let taken = self.opener.take();
        if !taken.is_empty() || self.opener.waiting() == 0 {
            self.waits_since = None;
        }
        if self.opener.waiting() > 0 {
            let since = *self.waits_since.get_or_insert(moment);
            if moment.0.saturating_sub(since.0) >= OPENING_MAX.0 {
                self.notices.once(
                    "working set",
                    &"a file takes long to be opened, and others wait behind it: a disk does not answer, or a scanner",
                );
            }
        }
        let locking = Locking::begin(Arc::clone(&self.shared), moment);
        for (file, opened) in taken {
            // One that was barred meanwhile is not held after all.
            if self.heat.barred(file, moment).is_some() {
                continue;
            }
            let locked = opened.and_then(|opened| self.stock.take(opened, &self.plan, moment, &locking));
            if let Err(why) = locked {
                self.take_refusal(Refused { file, why }, moment);
            }
        }
    }

    /// Lets go of what is more than a cgroup's share, or keeps too many removed ones.
    fn keep_to_shares(&mut self, moment: Nanos) {
        let (tunables, protected) = (self.shared.tunables(), self.readings.cgroup_inode());
        match self.charges.look(&self.stock, &tunables, protected, moment) {
            Ok(going) => {
                for (chunk, why) in going {
                    self.stock.drop_chunk(chunk);
                    let patience = if why == Barred::CgroupGone { LASTING } else { OVER_SHARE };
                    self.heat.withhold(chunk, why, moment.saturating_add(patience));
                }
            }
            Err(why) => self.notices.once("working set", &format_args!("whose memory is locked: {why}")),
        }
    }

    /// What may be locked now: nothing of the soft tier for a while after it was let go.
    fn budget(&self, memory: Option<Bytes>, moment: Nanos) -> Budget {
        // A cgroup that is gone has no memory to protect.
        let memory = self.readings.page_size().to_pages(memory.unwrap_or_default());
        let budget = self.shared.tunables().budget(memory);
        if self.shared.soft_rests(moment) {
            Budget { hard: budget.hard, ..Budget::default() }
        } else {
            budget
        }
    }

    fn take_refusal(&mut self, refused: Refused, moment: Nanos) {
        let Refused { file, why } = refused;
        if let Some(bar) = why.barred() {
            let patience = if lasts(bar) { LASTING } else { PASSING };
            self.heat.bar(file, bar, moment.saturating_add(patience));
            self.stock.drop_file(file);
        }
        // A right that is missing, or a fault of ours: once is enough.
        if matches!(why, Refusal::Denied(_) | Refusal::Failed(..) | Refusal::Full) {
            self.notices.once("working set", &format_args!("{file}: {why}"));
        }
    }
}

/// Whether it says something about the file itself, so that asking again soon is of no use.
const fn lasts(bar: Barred) -> bool {
    matches!(
        bar,
        Barred::FileSystem
            | Barred::Removable
            | Barred::Unlinked
            | Barred::NotRegular
            | Barred::SwapFile
            | Barred::Replaced
    )
}
