//! What the daemon remembers of one account between two decisions.

use super::{LimitConfig, Snapshot};
use crate::{
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Standing},
    units::{Nanos, Pages},
    victim::{Signal, SignalOutcome, Stage, VictimId},
};
use alloc::vec::Vec;

/// A victim that was signalled and is not known to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Who.
    pub victim: VictimId,
    /// How far it has come.
    pub stage: Stage,
    /// When that stage began.
    pub since: Nanos,
    /// Found dying, not signalled by the daemon: forgotten as soon as it is no longer listed so.
    pub adopted: bool,
}

/// A process that a signal could not be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Refusal {
    victim: VictimId,
    since: Nanos,
}

/// How many victims of one account may be on their way out at once; then the next waits for a place.
pub const IN_FLIGHT_MAX: usize = 32;

/// How many failed signals are remembered; the oldest gives way.
const REFUSALS_MAX: usize = 16;

/// What is remembered of one account. Starts empty, also after a restart: dying processes are adopted as found.
/// Allocates when it is made (about 2 KiB) and never again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LimitState {
    in_flight: Vec<InFlight>,
    refusals: Vec<Refusal>,
    /// Usage was at or above soft at the last decision.
    pub(super) near: bool,
    /// What was told of this crossing, so that it is told once; forgotten under the soft limit.
    pub(super) told: Option<Reason>,
    /// That usage could not be read was told.
    pub(super) unread: bool,
}

impl Default for LimitState {
    fn default() -> Self {
        Self {
            in_flight: Vec::with_capacity(IN_FLIGHT_MAX),
            refusals: Vec::with_capacity(REFUSALS_MAX),
            near: false,
            told: None,
            unread: false,
        }
    }
}

impl LimitState {
    /// The victims on their way out.
    #[must_use]
    pub fn in_flight(&self) -> &[InFlight] {
        &self.in_flight
    }

    /// Takes in what became of a signal (also of one that the kernel program sent), or of a victim.
    pub fn outcome(&mut self, victim: VictimId, outcome: SignalOutcome, now: Nanos) {
        match outcome {
            SignalOutcome::Sent(signal) => self.sent(victim, signal, now),
            SignalOutcome::Failed(_) => {
                self.forget(victim);
                if self.refusals.len() >= REFUSALS_MAX {
                    self.refusals.remove(0);
                }
                self.refusals.push(Refusal { victim, since: now });
            }
            SignalOutcome::Vanished | SignalOutcome::Freed => self.forget(victim),
        }
    }

    /// When to decide again at the latest, if nothing happens before: the next deadline.
    #[must_use]
    pub fn next_deadline(&self, config: &LimitConfig) -> Option<Nanos> {
        let flights = self.in_flight.iter().filter_map(|flight| match flight.stage {
            Stage::Term => Some(flight.since.saturating_add(config.term_grace)),
            Stage::Kill => Some(flight.since.saturating_add(config.kill_deadline)),
            Stage::Overdue => None,
        });
        let refusals = self.refusals.iter().map(|refusal| refusal.since.saturating_add(config.kill_deadline));
        flights.chain(refusals).min()
    }

    /// Remembers one that was sent SIGTERM at `since` and has not ended, unless it is remembered, or a signal to it just
    /// failed. Where it found no place it gets the next one: nothing else would end it when its time is over.
    pub fn still_asked(&mut self, victim: VictimId, since: Nanos) {
        if self.stage(victim).is_none() && !self.failed(victim) {
            self.board(InFlight { victim, stage: Stage::Term, since, adopted: false });
        }
    }

    fn sent(&mut self, victim: VictimId, signal: Signal, now: Nanos) {
        let stage = match signal {
            Signal::Term => Stage::Term,
            Signal::Kill => Stage::Kill,
        };
        match self.in_flight.iter_mut().find(|flight| flight.victim == victim) {
            // It was found dying before it was told that it was only asked.
            Some(flight) if flight.adopted && signal == Signal::Term => {
                *flight = InFlight { stage, adopted: false, ..*flight };
            }
            // A second SIGTERM gives no new grace, and nothing takes a SIGKILL back.
            Some(flight) if signal == Signal::Term || flight.stage != Stage::Term => flight.adopted = false,
            Some(flight) => *flight = InFlight { victim, stage, since: now, adopted: false },
            None => self.board(InFlight { victim, stage, since: now, adopted: false }),
        }
    }

    /// Remembers a victim. Where no place is left, one that is overdue gives way, or else one that was only found dying, of
    /// which a storm has any number; failing that, the new one is not remembered, and only the accounting knows it as dying.
    fn board(&mut self, flight: InFlight) {
        let overdue = || self.in_flight.iter().position(|one| one.stage == Stage::Overdue);
        let adopted = || self.in_flight.iter().position(|one| one.adopted);
        if self.is_full()
            && let Some(place) = overdue().or_else(adopted)
        {
            self.in_flight.remove(place);
        }
        if !self.is_full() {
            self.in_flight.push(flight);
        }
    }

    /// Whether one more victim could not be remembered: every place is taken, and by one that may still die.
    pub(super) fn has_no_place(&self) -> bool {
        self.is_full() && self.in_flight.iter().all(|flight| flight.stage != Stage::Overdue)
    }

    const fn is_full(&self) -> bool {
        self.in_flight.len() >= IN_FLIGHT_MAX
    }

    fn forget(&mut self, victim: VictimId) {
        self.in_flight.retain(|flight| flight.victim != victim);
        self.refusals.retain(|refusal| refusal.victim != victim);
    }

    /// Brings the memory up to the present: deadlines, processes found dying, refusals that may be tried again.
    pub(super) fn observe(&mut self, candidates: &[Candidate], config: &LimitConfig, now: Nanos) {
        for one in candidates.iter().filter(|one| one.standing == Standing::Dying) {
            let full = self.is_full();
            match self.in_flight.iter_mut().find(|flight| flight.victim == one.id()) {
                // Already ending: SIGKILL would add nothing, and the shorter deadline applies.
                Some(flight) if flight.stage == Stage::Term => {
                    *flight = InFlight { stage: Stage::Kill, since: now, ..*flight };
                }
                Some(_) => {}
                None if full => {}
                None => {
                    let victim = one.id();
                    self.in_flight.push(InFlight { victim, stage: Stage::Kill, since: now, adopted: true });
                }
            }
        }
        for flight in &mut self.in_flight {
            if flight.stage == Stage::Kill && now >= flight.since.saturating_add(config.kill_deadline) {
                *flight = InFlight { stage: Stage::Overdue, since: now, ..*flight };
            }
        }
        let listed = |victim| candidates.iter().any(|one| one.id() == victim);
        // By exec a process leaves the memory that was found dying, and lives.
        let dies =
            |victim| candidates.iter().any(|one| one.id() == victim && one.standing == Standing::Dying);
        self.in_flight.retain(|flight| match (flight.adopted, flight.stage) {
            (true, _) => dies(flight.victim),
            (false, Stage::Overdue) => listed(flight.victim),
            (false, Stage::Term | Stage::Kill) => true,
        });
        self.refusals.retain(|refusal| now < refusal.since.saturating_add(config.kill_deadline));
    }

    /// The first victim whose grace period is over.
    pub(super) fn term_overdue(&self, config: &LimitConfig, now: Nanos) -> Option<InFlight> {
        let overdue = |flight: &&InFlight| {
            flight.stage == Stage::Term && now >= flight.since.saturating_add(config.term_grace)
        };
        self.in_flight.iter().find(overdue).copied()
    }

    /// Who of those that were asked to end has to end now: the largest, where they hold more than is left out of the usage; the
    /// first, where the next needs its place.
    pub(super) fn grace_ends(&self, snapshot: &Snapshot<'_>) -> Option<InFlight> {
        let held = |flight: &InFlight| {
            let its = snapshot.candidates.iter().find(|one| one.id() == flight.victim);
            its.and_then(|one| one.usage.latest()).unwrap_or_default()
        };
        let asked = || self.in_flight.iter().filter(|flight| flight.stage == Stage::Term);
        if asked().map(held).sum::<Pages>() > snapshot.dying_most {
            return asked().max_by_key(|flight| held(flight)).copied();
        }
        asked().min_by_key(|flight| flight.since).filter(|_| self.has_no_place()).copied()
    }

    /// How much of the usage is on its way out; `None` where a victim's share cannot be read.
    ///
    /// The accounting's own number counts too, less what is overdue: a victim that does not die is not waited for. An
    /// address space counts only when all who share it are on their way out, and once.
    pub(super) fn dying(&self, snapshot: &Snapshot<'_>) -> Option<Pages> {
        let (leaving, overdue) = self.leaving_and_overdue(snapshot)?;
        Some(snapshot.dying.saturating_sub(overdue).max(leaving).min(snapshot.dying_most))
    }

    /// What victims hold that may still die before their deadline, and what those hold that did not; `None` where one's share
    /// cannot be read.
    pub(super) fn leaving_and_overdue(&self, snapshot: &Snapshot<'_>) -> Option<(Pages, Pages)> {
        let (mut leaving, mut overdue) = (Pages(0), Pages(0));
        for (index, flight) in self.in_flight.iter().enumerate() {
            let Some(one) = snapshot.candidates.iter().find(|one| one.id() == flight.victim) else {
                continue;
            };
            let pages = match one.usage {
                Reading::Known(pages) | Reading::Stale { value: pages, .. } => pages,
                Reading::Absent => Pages(0),
                Reading::Unreadable if flight.stage == Stage::Overdue => Pages(0),
                Reading::Unreadable => return None,
            };
            let mut sharers = snapshot.candidates.iter().filter(|other| one.shares_memory_with(other));
            let earlier = self.in_flight.get(..index).unwrap_or_default();
            if sharers.clone().any(|other| earlier.iter().any(|flight| flight.victim == other.id())) {
                continue;
            }
            if flight.stage == Stage::Overdue {
                overdue = overdue.saturating_add(pages);
            } else if sharers.all(|other| self.leaving(other.id())) {
                leaving = leaving.saturating_add(pages);
            }
        }
        Some((leaving, overdue))
    }

    /// Whether a victim may still die before its deadline.
    pub(super) fn waiting(&self) -> bool {
        self.in_flight.iter().any(|flight| flight.stage != Stage::Overdue)
    }

    /// Whether usage was at or above the soft limit at the last decision.
    #[must_use]
    pub const fn is_near(&self) -> bool {
        self.near
    }

    /// Whether it must not be selected now: it was signalled, or a signal to it just failed.
    #[must_use]
    pub fn skipped(&self, victim: VictimId) -> bool {
        self.stage(victim).is_some() || self.failed(victim)
    }

    /// Whether a signal to it just failed.
    pub(super) fn failed(&self, victim: VictimId) -> bool {
        self.refusals.iter().any(|refusal| refusal.victim == victim)
    }

    fn stage(&self, victim: VictimId) -> Option<Stage> {
        self.in_flight.iter().find(|flight| flight.victim == victim).map(|flight| flight.stage)
    }

    fn leaving(&self, victim: VictimId) -> bool {
        self.stage(victim).is_some_and(|stage| stage != Stage::Overdue)
    }
}
