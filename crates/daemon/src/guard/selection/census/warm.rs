//! Keeping the list right between two looks at all: who has grown since is noted in the kernel, by the allocations
//! themselves, while memory is about to run short.

use super::{Census, Detail};
use crate::guard::selection::{
    eligibility::Eligibility,
    population::{Growth, Population},
};
use plimsoll_policy::{
    reading::Reading,
    selection::{Candidate, Doubt, floor_of_interest},
    units::{Nanos, Pages, Pid, Uid},
    victim::VictimId,
};

/// A list this old is not selected from, whatever was noted since: who has become smaller is not.
pub(crate) const STALE_AFTER: Nanos = Nanos(2_000_000_000);

/// Where nothing is known yet of who comes first: 64 MiB of 4 KiB pages.
const FLOOR_AT_FIRST: Pages = Pages(16_384);

impl Census {
    /// Has everybody noted who grows from now on to where they could come first. To be called right after a close look at
    /// those who do now; the list is selected from without another look at all as long as [`Census::catch_up`] can say who
    /// has grown.
    pub(crate) fn keep_warm<P: Population>(
        &mut self,
        population: &mut P,
        eligibility: &Eligibility,
        skip: impl Fn(VictimId) -> bool,
    ) {
        let range = self.range(&eligibility.rules);
        let floor = floor_of_interest(&self.candidates, range, skip).unwrap_or(FLOOR_AT_FIRST);
        self.watched = population.watch(floor);
        self.attached |= self.watched;
    }

    /// Has growth noted before the list is made, so that nobody grows unseen meanwhile.
    pub(crate) fn begin_warm<P: Population>(&mut self, population: &mut P) {
        if !self.attached {
            self.attached = population.watch(FLOOR_AT_FIRST);
        }
    }

    /// When the list was made that the next decision can be made from, as things stand.
    pub(crate) fn ready_since(&self, now: Nanos) -> Option<Nanos> {
        let fresh = |taken: &Nanos| now.0.saturating_sub(taken.0) <= STALE_AFTER.0;
        self.taken.filter(fresh).filter(|_| self.watched)
    }

    /// Takes in who has grown since the list was made. `false`: it cannot be said, or the list is too old; a look at all is
    /// needed.
    pub(crate) fn catch_up<P: Population>(&mut self, population: &mut P) -> bool {
        if self.ready_since(population.now()).is_none() {
            return false;
        }
        // Another decision: they may be looked at by now.
        self.unlooked.clear();
        let (candidates, details) = (&mut self.candidates, &mut self.details);
        let complete = population.grown(|growth| {
            let known = candidates.iter_mut().find(|one| one.id() == growth.id);
            match known {
                // How much it has now is found out if it matters; what the rules said of it still holds.
                Some(known) => {
                    known.mm = growth.mm;
                    known.doubt = Doubt { error: Pages(u64::MAX), ..known.doubt };
                }
                None => {
                    candidates.push(newcomer(growth));
                    details.push(nothing_known());
                }
            }
        });
        complete == Some(true)
    }

    /// Nobody is noted any more.
    pub(crate) fn cool<P: Population>(&mut self, population: &mut P) {
        self.watched = false;
        if std::mem::take(&mut self.attached) {
            population.unwatch();
        }
    }
}

/// Of whom nothing is known but that it is there: the close look tells the rest.
fn nothing_known() -> Detail {
    Detail { parent: Pid(0), oom_score_adj: None, shared: Pages(0), cgroup_id: None }
}

fn newcomer(growth: Growth) -> Candidate {
    Candidate {
        mm: growth.mm,
        usage: Reading::Known(Pages(0)),
        doubt: Doubt { error: Pages(u64::MAX), ceiling: Pages(u64::MAX), unjudged: true },
        ..Candidate::of(growth.id, Uid(u32::MAX))
    }
}
