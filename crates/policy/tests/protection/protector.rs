//! The part that the daemon has in protection: remembers, plans once a second, captures at each drain.

use crate::{
    cache::Cache,
    trace::{File, page_size},
};
use plimsoll_policy::{
    units::{Nanos, Pages},
    workingset::{Budget, FileId, Heat, Holding, Plan, Tier, Use, plan},
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Protector {
    pub(crate) heat: Heat,
    pub(crate) budget: Budget,
    pub(crate) plan: Plan,
    since: BTreeMap<(FileId, u32), Nanos>,
    due_ms: u64,
    /// Chunks that were locked anew after they had been let go.
    pub(crate) churn: u64,
    let_go: BTreeSet<(FileId, u32)>,
}

impl Protector {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            heat: Heat::new(page_size()),
            budget,
            plan: Plan::default(),
            since: BTreeMap::new(),
            due_ms: 0,
            churn: 0,
            let_go: BTreeSet::new(),
        }
    }

    /// One drain. Whether there is a new plan.
    pub(crate) fn turn(
        &mut self,
        (uses, executables): (&[Use], &[FileId]),
        files: &[File],
        cache: &mut Cache,
        now_ms: u64,
    ) -> bool {
        let now = Nanos(now_ms * 1_000_000);
        self.heat.observe(uses, executables, now);
        if now_ms < self.due_ms {
            cache.capture();
            return false;
        }
        self.due_ms = now_ms + 300;
        let index: BTreeMap<FileId, usize> =
            files.iter().enumerate().map(|(at, file)| (file.id, at)).collect();
        let held: Vec<Holding> = self
            .plan
            .extents
            .iter()
            .map(|extent| {
                let chunks = extent.first..extent.first + extent.chunks;
                let pages = chunks.map(|chunk| cache.locked_in(index[&extent.file], chunk)).sum();
                Holding {
                    extent: *extent,
                    pages: Pages(pages),
                    since: self.since[&(extent.file, extent.first)],
                }
            })
            .collect();
        self.plan = plan(&self.heat, &held, self.budget, now);
        let mut since = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for extent in &self.plan.extents {
            for chunk in extent.first..extent.first + extent.chunks {
                let key = (extent.file, chunk);
                if !self.since.contains_key(&key) && self.let_go.remove(&key) {
                    self.churn += 1;
                }
                since.insert(key, self.since.get(&key).copied().unwrap_or(now));
                wanted.insert((index[&extent.file], chunk));
            }
        }
        self.let_go.extend(self.since.keys().filter(|key| !since.contains_key(key)));
        self.since = since;
        cache.hold(wanted, self.budget.total().0);
        true
    }

    /// Pages of a file in the plan.
    pub(crate) fn planned(&self, file: &File) -> u64 {
        let plan = self.plan.files.iter().find(|plan| plan.file == file.id);
        plan.map_or(0, |plan| plan.hard.0 + plan.soft.0)
    }

    /// Chunks of a file in the plan.
    pub(crate) fn chunks(&self, file: &File) -> Vec<u32> {
        let extents = self.plan.extents.iter().filter(|extent| extent.file == file.id);
        extents.flat_map(|extent| extent.first..extent.first + extent.chunks).collect()
    }

    /// Chunks in a tier.
    pub(crate) fn tier(&self, tier: Tier) -> u32 {
        self.plan.extents.iter().filter(|extent| extent.tier == tier).map(|extent| extent.chunks).sum()
    }
}
