//! What is waited for before somebody is selected: those who could not be looked at, and the memory of those who are on their
//! way out. Neither for long: memory runs out meanwhile.

use crate::guard::{context::Context, kernel::Kernel, selection::census::Census};
use plimsoll_policy::{
    selection::Candidate,
    units::{Bytes, Nanos, Pages},
    victim::{KILL_DEADLINE, VictimId},
    workingset::floor::FLOOR_DEADLINE,
};

/// Where some could not be looked at they are waited for: for so long where nobody is found without them, and for so long where
/// somebody is, whom one of them would come before.
const UNSURE_MAX: Nanos = Nanos(1_000_000_000);
const UNSURE_OF_RANK_MAX: Nanos = Nanos(200_000_000);

/// Whoever is on the way out is waited for so long; and for one after the other so long in all.
const DYING_MAX: Nanos = FLOOR_DEADLINE;
const ALL_DYING_MAX: Nanos = KILL_DEADLINE;

/// Where SIGKILL is due: so long without so much more to be had.
const IN_VAIN: Nanos = Nanos(500_000_000);
const RISE: Bytes = Bytes(4 << 20);

/// A reason that nobody had for so long is another.
const SAME_REASON: Nanos = Nanos(1_000_000_000);

/// So many are remembered who are waited for, or were.
const DYING_COUNT_MAX: usize = 64;

/// Since when there is a reason to wait, and when there was last; `None`: there is none.
#[derive(Debug, Default)]
struct Wait(Option<(Nanos, Nanos)>);

impl Wait {
    /// Whether it is still waited, at most for `max` in all.
    fn goes_on(&mut self, max: Nanos, now: Nanos) -> bool {
        let same = self.0.filter(|(_, last)| now <= last.saturating_add(SAME_REASON));
        let since = same.map_or(now, |(since, _)| since);
        self.0 = Some((since, now));
        now < since.saturating_add(max)
    }
}

/// How long has been waited, and for what.
#[derive(Debug, Default)]
pub(in crate::guard) struct Patience {
    unlooked: Wait,
    dying: Wait,
    /// The most that was to be had while somebody was waited for, and since when.
    most: Option<(Nanos, Bytes)>,
    /// Who is waited for, or was, and since when.
    each: Vec<(VictimId, Nanos)>,
}

impl Patience {
    /// Whether to look again, as one that could not be looked at may come before this one (`None`: may be all there is).
    pub(in crate::guard) fn waits_for_looks(
        &mut self,
        census: &Census,
        first: Option<&Candidate>,
        skip: impl Fn(VictimId) -> bool,
        now: Nanos,
    ) -> bool {
        if !census.some_unlooked_before(first, skip) {
            self.unlooked = Wait::default();
            return false;
        }
        self.unlooked.goes_on(if first.is_none() { UNSURE_MAX } else { UNSURE_OF_RANK_MAX }, now)
    }

    /// Whether another guard, or somebody else, has ended one that gives back half as much as this one would, or more.
    pub(in crate::guard) fn waits_for_dying<K: Kernel>(
        &mut self,
        first: &Candidate,
        census: &Census,
        context: &mut Context<K>,
        skip: impl Fn(VictimId) -> bool,
    ) -> bool {
        let now = context.now();
        let half = Pages((first.usage.latest().unwrap_or_default().0 >> 1).max(1));
        let killed = context.pending.killed_with(half, Nanos(now.0.saturating_sub(DYING_MAX.0)));
        let mut dying: Vec<VictimId> = killed.chain(census.dying_with(half, &mut context.kernel)).collect();
        dying.retain(|id| !skip(*id) && self.is_in_time(*id, now));
        if dying.is_empty() {
            (self.dying, self.most) = (Wait::default(), None);
            return false;
        }
        self.dying.goes_on(ALL_DYING_MAX, now)
    }

    /// Whether waiting gives nothing back: whoever holds processes on their way out, as a debugger can, is not to have the
    /// machine's memory used up meanwhile.
    pub(in crate::guard) fn is_in_vain(&mut self, available: Bytes, now: Nanos) -> bool {
        let known = self.most.filter(|(since, _)| now <= since.saturating_add(SAME_REASON));
        match known {
            Some((since, most)) if available <= most.saturating_add(RISE) => {
                now >= since.saturating_add(IN_VAIN)
            }
            Some(_) | None => {
                self.most = Some((now, available));
                false
            }
        }
    }

    /// Whether one that is on the way out may still be: who did not end in time is not waited for again.
    fn is_in_time(&mut self, id: VictimId, now: Nanos) -> bool {
        let known = self.each.iter().find(|(one, _)| *one == id).map(|(_, since)| *since);
        let since = known.unwrap_or_else(|| {
            let oldest = self.each.len().saturating_sub(DYING_COUNT_MAX.saturating_sub(1));
            self.each.drain(..oldest);
            self.each.push((id, now));
            now
        });
        now < since.saturating_add(DYING_MAX)
    }
}
