//! Which of the marked were killed, and by whose arrangement: pure, so that every order of events can be tried.
//!
//! The kernel marks whom it kills, and whom it finds on its way out already, to let it finish
//! (`task_will_free_mem`, mm/oom_kill.c). It counts only kills (`oom_kill` of `/proc/vmstat`), each before it marks, and
//! names only the killed in its log, each just after.

use crate::guard::ArrangedKill;
use plimsoll_policy::{reason::Reason, units::Uid, victim::VictimId};
use plimsoll_wire::marked::Marked;

/// Who of the marked may have been killed, with whether the log names them: one that was on its way out already was only let
/// finish, and uses up nothing of what was counted. It was killed all the same where the log says so: it may have begun to
/// exit between the choice and the mark.
pub(super) fn candidates<'a>(marks: impl Iterator<Item = (&'a Marked, bool)>) -> Vec<(&'a Marked, bool)> {
    marks.filter(|(marked, named)| !marked.exiting || *named).collect()
}

/// How many kills the kernel counted that were not accounted for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Credit {
    /// The count when last looked at; `None`: the kernel does not count, or did not before now.
    seen: Option<u64>,
    spare: u64,
}

impl Credit {
    /// From a count; all before it are nobody's.
    pub(super) const fn from(seen: Option<u64>) -> Self {
        Self { seen, spare: 0 }
    }

    /// Which of the marked were killed, by whether the log names them. `now` is the count after the last was marked, `None`
    /// where it is not known: then every mark counts.
    pub(super) fn killed(&mut self, named: &[bool], now: Option<u64>) -> Vec<bool> {
        let counted = match (self.seen, now) {
            (Some(seen), Some(now)) => now.saturating_sub(seen).saturating_add(self.spare),
            _ => u64::MAX,
        };
        self.seen = now;
        let certain = u64::try_from(named.iter().filter(|named| **named).count()).unwrap_or(u64::MAX);
        let mut spare = counted.saturating_sub(certain);
        let killed = named
            .iter()
            .map(|named| {
                let counted = *named || spare > 0;
                if !named {
                    spare = spare.saturating_sub(1);
                }
                counted
            })
            .collect();
        // One may be counted and not marked yet: it is in the next batch. What the next one has no use for is no mark's.
        self.spare = if counted == u64::MAX { 0 } else { spare };
        killed
    }
}

/// Takes out of `deeds` the one that this kill is, if any: by its victim where that is known, else by its user.
pub(super) fn arranged(
    deeds: &mut Vec<ArrangedKill>,
    victim: Option<VictimId>,
    uid: Option<Uid>,
    same: impl Fn(VictimId, VictimId) -> bool,
) -> Option<ArrangedKill> {
    let of_victim =
        |deed: &ArrangedKill| deed.victim.zip(victim).is_some_and(|((theirs, _), ours)| same(theirs, ours));
    // Of a slice the count is certain, and who it was only likely.
    let of_user = |deed: &ArrangedKill| {
        Some(deed.uid) == uid && (deed.victim.is_none() || deed.reason == Reason::LastDefenceMemoryMax)
    };
    let at = deeds.iter().position(of_victim).or_else(|| deeds.iter().position(of_user))?;
    Some(deeds.swap_remove(at))
}

#[cfg(test)]
mod tests;
