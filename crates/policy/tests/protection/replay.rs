//! Runs a trace through the ranking and a model of the page cache, and tells how much of each file's use found it
//! there.
//!
//! The trace says who used what and when, as it was; what would have been quicker is not made quicker. So it tells
//! less good of protection than there is, never more. Only of what is mapped a fault that was told twice finds its page the
//! second time, with protection and without.

use crate::{
    cache::{Cache, PART_PAGES, PARTS},
    protector::Protector,
    trace::{File, Trace},
};
use plimsoll_policy::workingset::{BLOCK_PAGES, Blocks, Budget};
use std::collections::BTreeMap;

/// Where in each chunk the next reading begins, in parts.
type Places = BTreeMap<(usize, u32), u32>;

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) protector: Protector,
    /// For each file: pages used, and of those, found in the cache; from the given time on.
    pub(crate) hits: Vec<(u64, u64)>,
    /// For each file: when the plan had all of it first, in ms.
    pub(crate) whole_at_ms: Vec<Option<u64>>,
    /// For each file: the most pages of it in any plan.
    pub(crate) most: Vec<u64>,
}

impl Outcome {
    /// Per cent of a file's use that found it in the cache.
    pub(crate) fn share(&self, file: usize) -> u64 {
        let (used, hit) = self.hits[file];
        (hit * 100).checked_div(used).unwrap_or(0)
    }
}

/// `counted_ms`: hits are counted from then on.
pub(crate) fn replay(trace: &Trace, budget: Budget, counted_ms: u64) -> Outcome {
    let mut cache = Cache::default();
    let mut places = Places::new();
    let count = trace.files.len();
    let mut outcome = Outcome {
        protector: Protector::new(budget),
        hits: vec![(0, 0); count],
        whole_at_ms: vec![None; count],
        most: vec![0; count],
    };
    for drain in &trace.drains {
        cache.resize(drain.cache.max(cache.locked()));
        for run in &drain.runs {
            for chunk in run.first..=run.last {
                let file = (run.file, &trace.files[run.file]);
                let (used, hit) = if run.mapped {
                    map(&mut cache, file, (chunk, run.blocks))
                } else {
                    read(&mut places, &mut cache, file, (chunk, run.accessed))
                };
                if drain.at_ms >= counted_ms {
                    outcome.hits[run.file].0 += used;
                    outcome.hits[run.file].1 += hit;
                }
            }
        }
        let (uses, executables) = (trace.uses(drain), trace.executables(drain));
        let facts = (uses.as_slice(), executables.as_slice());
        if outcome.protector.turn(facts, &trace.files, &mut cache, drain.at_ms) {
            note(&mut outcome, &trace.files, drain.at_ms);
        }
        assert!(cache.locked() <= budget.total().0);
    }
    outcome
}

pub(crate) fn note(outcome: &mut Outcome, files: &[File], now_ms: u64) {
    for (index, file) in files.iter().enumerate() {
        let planned = outcome.protector.planned(file);
        outcome.most[index] = outcome.most[index].max(planned);
        if planned == file.pages() {
            outcome.whole_at_ms[index].get_or_insert(now_ms);
        }
    }
}

/// Uses the parts of a chunk that these blocks are in: pages used and found.
fn map(cache: &mut Cache, (index, file): (usize, &File), (chunk, blocks): (u32, Blocks)) -> (u64, u64) {
    let (mut used, mut hit) = (0, 0);
    for place in 0..PARTS {
        let part = chunk * PARTS + place;
        let pages = file.part_pages(part);
        let first = u64::from(place) * PART_PAGES;
        let is_used = (0..PART_PAGES / BLOCK_PAGES).any(|block| blocks.contains(first + block * BLOCK_PAGES));
        if pages == 0 || !is_used {
            continue;
        }
        used += pages;
        hit += if cache.touch((index, part), pages) { pages } else { 0 };
    }
    (used, hit)
}

/// Reads so many pages of a chunk, from where the last reading of it ended: pages used and found.
fn read(
    at: &mut Places,
    cache: &mut Cache,
    (index, file): (usize, &File),
    (chunk, accessed): (u32, u64),
) -> (u64, u64) {
    let place = at.entry((index, chunk)).or_default();
    let (mut used, mut hit) = (0, 0);
    for _ in 0..PARTS {
        let part = chunk * PARTS + *place;
        let pages = file.part_pages(part);
        // Half a part and more is one: drains end anywhere.
        if pages == 0 || used + pages / 2 >= accessed {
            *place = if pages == 0 { 0 } else { *place };
            break;
        }
        *place = (*place + 1) % PARTS;
        used += pages;
        hit += if cache.touch((index, part), pages) { pages } else { 0 };
    }
    (used, hit)
}
