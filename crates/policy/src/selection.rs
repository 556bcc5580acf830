//! Who is killed first: an order over all candidates, and the one [`Decision`] that every teller of it renders.
//!
//! In two passes where counts are rough: [`unresolved`] says of whom more must be found out, [`select`] decides. Reading the
//! exact sum of a process costs one access per CPU and counter; with the first pass it is read for a few of thousands.
//!
//! Nothing here allocates: selection runs when memory is short.

use crate::{
    reading::{self, Reading},
    reason::Reason,
    reservation::Tier,
    units::{Nanos, Pages, Pid, Uid, part},
    victim::VictimId,
};
use alloc::collections::BTreeSet;
use core::cmp::Ordering;
use serde::{Deserialize, Serialize};

mod contenders;
mod shortlist;
mod weight;
pub use contenders::{floor_of_interest, unresolved};
pub use shortlist::Shortlist;
pub use weight::{Doubt, Weight, WeightRange};

/// A process counts so many times what its end gives back at most: see [`Candidate::gives_back`].
const COUNTS_TIMES_BACK: u64 = 8;

/// How many of the largest others a decision keeps for the telling.
pub const PEERS_MAX: usize = 5;

/// How many victims a decision holds: one, and as many to fall back on as signals may reasonably fail.
pub const VICTIMS_MAX: usize = 8;

/// How many [`decisive`] names: all that are selected, compared or not to be selected again, and one that shields each.
pub const DECISIVE_MAX: usize = 34;

/// How many [`unresolved`] names at a time: a batch that is worth one call into the kernel.
pub const RESOLVE_MAX: usize = 16;

/// Why a process is never selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Process 1.
    Init,
    /// The guard itself.
    Daemon,
    /// A kernel thread.
    KernelThread,
    /// On the login path.
    LoginPath,
    /// Protected by its root-owned executable.
    Executable,
    /// Protected by its unit.
    Unit,
    /// Protected by its cgroup.
    Cgroup,
    /// Root runs it, with the `oom_score_adj` of -1000 that its service manager gave it.
    OomScoreAdj,
}

/// Whether a process may be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It may.
    #[default]
    Free,
    /// Never.
    Protected(Protection),
    /// Not again: SIGKILL is pending, or it is exiting.
    Dying,
}

/// One process that selection looks at. Process 1 is never selected, whatever its standing says.
///
/// As it serialises it has what is not as it is with most processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Candidate {
    /// Its number.
    pub pid: Pid,
    /// Start time since boot in nanoseconds.
    pub start_ns: u64,
    /// Its real uid.
    pub uid: Uid,
    /// An opaque key of its address space, equal for processes that share one; 0 where not known.
    #[serde(skip_serializing_if = "is_default")]
    pub mm: u64,
    /// What it is charged (a whole address space: equal for all that share it). `Absent`: it has no address space.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub usage: Reading<Pages>,
    /// Of that, what its end gives back: less where it shares pages since a fork. Who shares most of its own gives little back,
    /// and the next would have to go at once: it counts eight times this at most. `Pages(u64::MAX)`: all, as far as is known.
    #[serde(skip_serializing_if = "gives_all_back")]
    pub gives_back: Pages,
    /// What each of its pages counts.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Weight,
    /// All of the upper tier come before all of the lower one.
    #[serde(skip_serializing_if = "is_default")]
    pub tier: Tier,
    /// What is not certain of all this.
    #[serde(skip_serializing_if = "is_default")]
    pub doubt: Doubt,
    /// Whether it may be selected.
    #[serde(skip_serializing_if = "is_default")]
    pub standing: Standing,
}

impl Default for Candidate {
    /// A process that nothing is known of.
    fn default() -> Self {
        Self::of(VictimId { pid: Pid(0), start_ns: 0 }, Uid::ROOT)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn gives_all_back(gives_back: &Pages) -> bool {
    gives_back.0 == u64::MAX
}

impl Candidate {
    /// One of whom nothing else is known: in no address space, whole, and free to be selected.
    #[must_use]
    pub const fn of(id: VictimId, uid: Uid) -> Self {
        Self {
            pid: id.pid,
            start_ns: id.start_ns,
            uid,
            mm: 0,
            usage: Reading::Absent,
            gives_back: Pages(u64::MAX),
            weight: Weight::NEUTRAL,
            tier: Tier::Upper,
            doubt: Doubt::NONE,
            standing: Standing::Free,
        }
    }

    /// Its identity.
    #[must_use]
    pub const fn id(&self) -> VictimId {
        VictimId { pid: self.pid, start_ns: self.start_ns }
    }

    /// Whether both run in the same address space: memory returns only when both are gone.
    #[must_use]
    pub const fn shares_memory_with(&self, other: &Self) -> bool {
        self.mm != 0 && self.mm == other.mm
    }

    /// Whether its end may free memory, as far as is known.
    fn frees(&self) -> bool {
        let rough = self.doubt.error > Pages(0);
        self.usage != Reading::Absent && (rough || self.usage.latest() != Some(Pages(0)))
    }

    const fn protected(&self) -> bool {
        self.pid.0 <= 1 || matches!(self.standing, Standing::Protected(_))
    }
}

/// The one value that a log line, `why`, `top`, the metrics and the tests render; nothing computes it a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// Who is to be signalled, best first: the next is tried where a signal fails. Those that share the first one's
    /// address space ([`Decision::together`]) are signalled with it.
    pub victims: Shortlist<VICTIMS_MAX>,
    /// The largest others that were compared, protected and dying ones included: at most [`PEERS_MAX`].
    pub peers: Shortlist<PEERS_MAX>,
    /// Usage of the account (for the machine: anonymous memory in use) when the decision was made.
    pub usage: Pages,
    /// The line in force then.
    pub hard: Pages,
    /// How much of the usage was already on its way out.
    pub dying: Pages,
    /// When the kernel asked for this decision, on the kernel's clock; `None` where nobody asked.
    pub asked_at: Option<Nanos>,
    /// Nothing is sent: the decision is only told.
    pub dry_run: bool,
}

impl Decision {
    /// The first victim and every other that shares its address space, in order.
    pub fn together(&self) -> impl Iterator<Item = &Candidate> {
        let first = self.victims.first();
        self.victims.iter().filter(move |victim| {
            first.is_some_and(|first| first.id() == victim.id() || first.shares_memory_with(victim))
        })
    }

    /// Whether nothing is known of the usage of the one selected: worth saying, since a guess was made.
    #[must_use]
    pub fn selected_unread(&self) -> bool {
        self.victims.first().is_some_and(|victim| victim.usage.latest().is_none())
    }
}

/// What selection found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// As [`Decision::victims`].
    pub victims: Shortlist<VICTIMS_MAX>,
    /// As [`Decision::peers`].
    pub peers: Shortlist<PEERS_MAX>,
    /// Somebody was passed over only because of protection.
    pub protected: bool,
}

/// Those to be killed, best first, at most [`VICTIMS_MAX`]: the upper tier, in it the largest usage as weighed, then the
/// youngest start, then the higher number, so that any two candidates have an order and the same facts always name the same
/// victim.
///
/// Stale usage counts as it was. Unreadable usage ranks last, after all that is known. Left out are: process 1, the
/// protected and whoever shares an address space with them (killing would free nothing), the dying, those whose
/// end frees nothing (a known usage of 0, or no address space), and the unjudged.
#[must_use]
pub fn rank(candidates: &[Candidate]) -> Shortlist<VICTIMS_MAX> {
    rank_without(candidates, |_| false)
}

/// [`rank`], and the largest of the others for the telling. Those that `skip` holds for are not selected now, because a
/// signal to them just failed or was sent.
#[must_use]
pub fn select(candidates: &[Candidate], skip: impl Fn(VictimId) -> bool) -> Selection {
    select_for(candidates, Pages(0), skip)
}

/// As [`select`], where `needed` pages have to come back: only those whose end gives back so many, if there are any. What
/// a session stands on comes after all others, enough or not: its end takes them with it.
#[must_use]
pub fn select_for(candidates: &[Candidate], needed: Pages, skip: impl Fn(VictimId) -> bool) -> Selection {
    let ranked = |session: bool, needed| {
        let left = |one: &Candidate| (one.tier == Tier::Session) == session && one.gives_back >= needed;
        rank_of(candidates, |one| !left(one) || skip(one.id()))
    };
    let orders = [(false, needed), (false, Pages(0)), (true, needed), (true, Pages(0))];
    let mut found = orders.into_iter().map(|(session, needed)| ranked(session, needed));
    let victims = found.find(|victims| !victims.is_empty()).unwrap_or_default();
    let first = victims.first();
    let mut peers = Shortlist::EMPTY;
    let others = candidates
        .iter()
        .filter(|one| one.usage.latest().is_some_and(|usage| usage > Pages(0)))
        .filter(|one| first.is_none_or(|first| first.id() != one.id() && !first.shares_memory_with(one)));
    others.clone().for_each(|one| peers.offer(*one));
    // It comes after all others however large it is: worth telling.
    let carriers = others.filter(|one| one.tier == Tier::Session);
    if let Some(largest) = carriers.max_by_key(|one| one.usage.latest()) {
        peers.keep(*largest);
    }
    let protected = candidates.iter().any(|one| one.protected() && one.usage != Reading::Absent);
    Selection { victims, peers, protected }
}

/// Those who go with `first` where nothing comes back before all `holders` have gone: whoever could have been selected as
/// it was. What a session stands on goes only with what another stands on.
pub fn company<'a>(
    candidates: &'a [Candidate],
    first: &'a Candidate,
    holders: impl Fn(&Candidate) -> bool,
) -> impl Iterator<Item = &'a Candidate> {
    let protected = candidates.iter().filter(|one| one.mm != 0 && one.protected());
    let shielded: BTreeSet<u64> = protected.map(|one| one.mm).collect();
    candidates
        .iter()
        .filter(move |one| holders(one) && one.id() != first.id() && !one.shares_memory_with(first))
        .filter(move |one| one.may_be_victim() && !one.doubt.unjudged && !shielded.contains(&one.mm))
        .filter(|one| first.tier == Tier::Session || one.tier != Tier::Session)
}

/// Those of the candidates by whom [`select`], which came to `found`, comes to the same: whom it selected and compared, whom
/// `skip` holds for, and who shields one of them. Their address spaces are numbered anew.
#[must_use]
pub fn decisive(
    candidates: &[Candidate],
    found: impl Iterator<Item = Candidate>,
    skip: impl Fn(VictimId) -> bool,
) -> Shortlist<DECISIVE_MAX> {
    let mut decisive = Shortlist::<DECISIVE_MAX>::EMPTY;
    let mut add =
        |one: Candidate| decisive.iter().any(|other| other.id() == one.id()) || decisive.append(one);
    let skipped = candidates.iter().filter(|one| skip(one.id())).copied();
    for one in found.chain(skipped) {
        let shields = |other: &&Candidate| other.shares_memory_with(&one) && other.protected();
        let shield = candidates.iter().find(|other| one.mm != 0 && shields(other));
        if !add(one) || shield.is_some_and(|shield| !add(*shield)) {
            break;
        }
    }
    decisive.number_spaces();
    decisive
}

/// What of the shared memory that a process has mapped counts as its own: its part of what the machine has, by what all
/// processes together have mapped.
///
/// A hundred workers that map the same 8 GiB are each charged with all of it, and ending one frees nothing of it. Whose
/// pages they are only a walk of all page tables could tell; this errs for those who share more or less than others. Where it
/// is not known what the machine has, all that a process has mapped counts.
#[must_use]
pub fn own_share(mapped: Pages, machine: Option<Pages>, mapped_by_all: Pages) -> Pages {
    let Some(machine) = machine.filter(|machine| *machine < mapped_by_all) else {
        return mapped;
    };
    Pages(part(mapped.0, machine.0, mapped_by_all.0).unwrap_or(mapped.0))
}

/// [`rank`] without those that `skip` holds for.
#[must_use]
pub fn rank_without(candidates: &[Candidate], skip: impl Fn(VictimId) -> bool) -> Shortlist<VICTIMS_MAX> {
    rank_of(candidates, |one| skip(one.id()))
}

fn rank_of(candidates: &[Candidate], skip: impl Fn(&Candidate) -> bool) -> Shortlist<VICTIMS_MAX> {
    let mut victims = Shortlist::EMPTY;
    // One pass finds the best; only where some of them turn out to be shielded, another asks for the next best.
    let mut after: Option<Candidate> = None;
    loop {
        let mut best = Shortlist::<VICTIMS_MAX>::EMPTY;
        candidates
            .iter()
            .filter(|one| one.may_be_victim() && !one.doubt.unjudged && !skip(one))
            .filter(|one| after.is_none_or(|last| order(&last, one) == Ordering::Less))
            .for_each(|one| best.offer(*one));
        let room = best.iter().filter(|one| !one.is_shielded(candidates)).all(|one| victims.append(*one));
        if !room || victims.is_full() || !best.is_full() {
            return victims;
        }
        after = best.last().copied();
    }
}

/// The order of [`rank`]: whoever is to be killed first comes first.
#[must_use]
pub fn order(a: &Candidate, b: &Candidate) -> Ordering {
    // `None` sorts below every `Some`, so in descending order what is not known comes last.
    b.score().cmp(&a.score()).then_with(|| b.start_ns.cmp(&a.start_ns)).then_with(|| b.pid.cmp(&a.pid))
}

#[cfg(test)]
pub(crate) mod tests;
