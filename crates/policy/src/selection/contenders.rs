//! The first of the two passes: of all candidates, known roughly, those few of whom more must be found out.

use super::{Candidate, RESOLVE_MAX, Shortlist, Standing, VictimId, WeightRange, weight::Score};
use crate::{
    preference::ADJ_HEAVIEST,
    units::{Pages, Pid},
};

/// Those about whom more must be found out before anybody is selected: their exact usage, and what the rules say of them. At
/// most [`RESOLVE_MAX`], those first that may be the heaviest; empty when [`super::select`] would name the same victim as
/// if all were known.
///
/// Whoever cannot weigh as much as another does at least is left alone, however rough their count: as a rule, more than
/// one in a hundred is only named where that many have room in their address space for more than the victim's size. The
/// caller finds out about those returned, puts that into the list ([`super::Doubt::NONE`], or as protected, dying or
/// gone), and asks again: what was found may leave fewer to ask about, and now and then others.
///
/// `range`: the weights that rules can give. `skip`: as in [`super::select`].
#[must_use]
pub fn unresolved(
    candidates: &[Candidate],
    range: WeightRange,
    skip: impl Fn(VictimId) -> bool,
) -> Shortlist<RESOLVE_MAX> {
    let eligible = |one: &Candidate| one.may_be_victim() && !skip(one.id());
    let mut found = Shortlist::EMPTY;
    let Some(surest) = surest(candidates, range, eligible) else {
        return found;
    };
    let bar = surest.least(range);
    // By what they may turn out to weigh: one of whom nothing is known but that it has grown must not wait behind hundreds of
    // whom all but the rules is known.
    let mut heaviest = [(bar, None); RESOLVE_MAX];
    for one in candidates.iter().filter(|one| one.is_doubtful()) {
        let most = one.most(range);
        if !(eligible(one) && most >= bar || one.may_shield(surest)) {
            continue;
        }
        let place = heaviest.iter().position(|(weight, taken)| taken.is_none() || *weight < most);
        if let Some(tail) = place.and_then(|place| heaviest.get_mut(place..)) {
            tail.rotate_right(1);
            if let Some(slot) = tail.first_mut() {
                *slot = (most, Some(*one));
            }
        }
    }
    for one in heaviest.into_iter().filter_map(|(_, one)| one) {
        found.append(one);
    }
    found
}

/// From how many pages on a process that grows could come first before the next look at all: whoever stays below that cannot
/// weigh half as much as the one who comes first now. `None`: nobody does.
///
/// For those who have been looked at closely, as [`unresolved`] asks; `range` and `skip` as there.
#[must_use]
pub fn floor_of_interest(
    candidates: &[Candidate],
    range: WeightRange,
    skip: impl Fn(VictimId) -> bool,
) -> Option<Pages> {
    let first = surest(candidates, range, |one| one.may_be_victim() && !skip(one.id()))?;
    Some(first.least(range).halved_at(range.heaviest.max(ADJ_HEAVIEST)))
}

/// Who weighs the most at least, of those that protection does not reach through their memory.
fn surest(
    candidates: &[Candidate],
    range: WeightRange,
    eligible: impl Fn(&Candidate) -> bool,
) -> Option<&Candidate> {
    // The number makes keys differ, so that passing one over passes nobody else over.
    let key = |one: &Candidate| -> (Score, u64, Pid) { (one.least(range), one.start_ns, one.pid) };
    let mut passed_over = None;
    loop {
        let best = candidates
            .iter()
            .filter(|one| eligible(one))
            .filter(|one| passed_over.is_none_or(|last| key(one) < last))
            .max_by_key(|one| key(one))?;
        if !best.is_shielded(candidates) {
            return Some(best);
        }
        passed_over = Some(key(best));
    }
}

impl Candidate {
    /// Whether it may be selected once all is known of it.
    pub(super) fn may_be_victim(&self) -> bool {
        self.standing == Standing::Free && !self.protected() && self.frees()
    }

    /// Whether it may turn out to be protected, and to run in the same address space: it would die with the other.
    fn may_shield(&self, other: &Self) -> bool {
        self.doubt.unjudged && self.standing == Standing::Free && self.shares_memory_with(other)
    }

    /// Whether somebody protected runs in its address space.
    pub(super) fn is_shielded(&self, candidates: &[Self]) -> bool {
        self.mm != 0 && candidates.iter().any(|other| other.mm == self.mm && other.protected())
    }
}

#[cfg(test)]
mod tests;
