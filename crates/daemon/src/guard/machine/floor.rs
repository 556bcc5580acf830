//! The floor of working-set protection: whom the programs may take when clean file memory falls below it, by the same
//! selection as the machine guard's own, and what goes with whomever they took.

use super::{CONFIRM_TRIES, MachineGuard};
use crate::guard::{
    context::Context,
    kernel::Kernel,
    kill::{
        Kill,
        company::{announce, end_together},
        ledger::Entry,
        pending::Owner,
    },
    request::BelowFloor,
    selection::census::LOOKS_MAX,
};
use plimsoll_policy::{
    incident::{Guard, Trigger, Victim},
    machine::MachineState,
    reading::Reading,
    reason::Reason,
    selection::{self, Candidate, Standing},
    units::{Nanos, Pid, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::process::ProcessError;
use std::collections::BTreeSet;

/// The programs are given so many: the next one is for when the first has ended by itself meanwhile.
pub(crate) const FOREMOST_MAX: usize = 4;

/// How long after it was asked for the list is kept ready.
const WANTED: Nanos = Nanos(1_000_000_000);

impl BelowFloor {
    fn entry(&self, reason: Reason) -> Entry {
        let trigger = if self.taken.is_some() { Trigger::InKernel } else { Trigger::Daemon };
        Entry {
            crossed: Some(self.noticed),
            usage: self.clean,
            hard: Some(self.line),
            ..Entry::new(Guard::Workingset, trigger, reason.text())
        }
    }

    fn reason(&self) -> Reason {
        if self.clean < self.line { Reason::WorkingsetFloor } else { Reason::WorkingsetNoProgress }
    }
}

impl MachineGuard {
    /// Whom the programs may take, in order, at most [`FOREMOST_MAX`]; for a while nobody where somebody may come before them
    /// who could not be looked at yet, or is on the way out.
    ///
    /// # Errors
    /// [`ProcessError`] when processes cannot be listed.
    pub(crate) fn foremost<K: Kernel>(
        &mut self,
        among: Option<&BTreeSet<Pid>>,
        context: &mut Context<K>,
    ) -> Result<Vec<Candidate>, ProcessError> {
        context.kernel.begin_decision();
        let mut found = self.in_order(among, context)?;
        let first = found.first();
        if self.waits_for_looks(first, among, context.now()) || self.waits_for_dying(first, among, context) {
            found.clear();
        }
        // Whoever is ended in the kernel may be gone before its incident is written.
        context.workers.names.read(found.iter().map(Candidate::id));
        Ok(found)
    }

    /// Whom it would select now, in order. Has the list kept ready for a while.
    fn in_order<K: Kernel>(
        &mut self,
        among: Option<&BTreeSet<Pid>>,
        context: &mut Context<K>,
    ) -> Result<Vec<Candidate>, ProcessError> {
        let moment = context.now();
        self.wanted_until = moment.saturating_add(WANTED);
        self.keep_ready(moment, context);
        self.look(context)?;
        let mut found: Vec<Candidate> = Vec::with_capacity(FOREMOST_MAX);
        while found.len() < FOREMOST_MAX {
            let state = &self.state;
            let skip = |victim: VictimId| {
                let is_found = || found.iter().any(|one| one.id() == victim);
                is_passed_over(victim, state, among) || is_found()
            };
            self.census.resolve(&mut context.kernel, &context.eligibility, LOOKS_MAX, skip);
            let Some(next) = selection::rank_without(self.census.candidates(), skip).first().copied() else {
                break;
            };
            found.push(next);
        }
        Ok(found)
    }

    /// Who comes first, looked at once more.
    fn surely_first<K: Kernel>(
        &mut self,
        among: Option<&BTreeSet<Pid>>,
        context: &mut Context<K>,
    ) -> Result<Option<Candidate>, ProcessError> {
        context.kernel.begin_decision();
        for _ in 0..CONFIRM_TRIES {
            let Some(first) = self.in_order(among, context)?.first().copied() else {
                return Ok(None);
            };
            if self.stands(first.id(), context) {
                return Ok(Some(first));
            }
        }
        Ok(self.in_order(among, context)?.first().copied())
    }

    /// Whether one who could not be looked at may come before this one, and is waited for.
    fn waits_for_looks(
        &mut self,
        first: Option<&Candidate>,
        among: Option<&BTreeSet<Pid>>,
        now: Nanos,
    ) -> bool {
        let state = &self.state;
        let skip = |victim| is_passed_over(victim, state, among);
        self.floor_patience.waits_for_looks(&self.census, first, skip, now)
    }

    /// Whether the memory of one who is on the way out is waited for.
    fn waits_for_dying<K: Kernel>(
        &mut self,
        first: Option<&Candidate>,
        among: Option<&BTreeSet<Pid>>,
        context: &mut Context<K>,
    ) -> bool {
        let state = &self.state;
        let skip = |victim| is_passed_over(victim, state, among);
        first.is_some_and(|first| self.floor_patience.waits_for_dying(first, &self.census, context, skip))
    }

    /// Ends whoever is selected, unless the programs have ended somebody; those that go with the victim; and writes it down.
    /// The programs ask for it once, and count on its being done: while there is anybody, it waits only for who is being ended.
    pub(crate) fn act_below_floor<K: Kernel>(&mut self, below: &BelowFloor, context: &mut Context<K>) {
        let among = below.among.as_ref();
        let first = match below.taken {
            // It was ended, and told, before: the programs may have asked for it first, and not waited for the answer.
            Some((id, _)) if context.pending.was_killed(id) => return,
            Some((id, _)) => {
                context.kernel.begin_decision();
                Some(self.known(id, context))
            }
            None => match self.surely_first(among, context) {
                Ok(first) => first,
                Err(error) => return context.notices.once("working set", &error),
            },
        };
        let Some(first) = first else {
            if self.waits_for_looks(None, among, context.now()) {
                // That only the protected are left is not known yet: the next list will say.
                return;
            }
            let entry = below.entry(Reason::WorkingsetFloorOnlyProtectedLeft);
            let peers = self.peers(|_| true, context);
            context.ledger.record(Entry { peers, ..entry });
            return;
        };
        if below.taken.is_none() && self.waits_for_dying(Some(&first), among, context) {
            return;
        }
        let belonging = self.census.belonging(first.id(), &mut context.kernel, &context.eligibility);
        announce(&belonging, context);
        let mut kill = Kill::new(Owner::WorkingSet, Signal::Kill, below.entry(below.reason()));
        self.end_memory_of(first, below.taken, &mut kill, context);
        if kill.is_empty() {
            // Gone by itself, and its memory with it: the next event finds out whether that is enough.
            return;
        }
        end_together(&mut self.census, |id| self.state.skipped(id), &belonging, &mut kill, context);
        let peers = self.peers(|one| kill.victims().all(|victim| victim.id() != one.id()), context);
        kill.conclude(peers, context);
    }

    /// Signals a victim that was not yet, and in any case those who share its memory.
    fn end_memory_of<K: Kernel>(
        &mut self,
        first: Candidate,
        taken: Option<(VictimId, Nanos)>,
        kill: &mut Kill<K>,
        context: &mut Context<K>,
    ) {
        let together: Vec<Candidate> = self
            .census
            .candidates()
            .iter()
            .filter(|one| one.id() != first.id() && first.shares_memory_with(one))
            .copied()
            .collect();
        for candidate in std::iter::once(first).chain(together) {
            match taken {
                Some((id, moment)) if id == candidate.id() => {
                    kill.add(&candidate, context.kernel.hold(id.pid, id.start_ns).ok(), moment);
                }
                Some(_) | None => {
                    let note = kill.intend(&candidate, context);
                    kill.send(&candidate, note, None, context);
                }
            }
            if kill.is_empty() {
                break;
            }
        }
    }

    /// Whom those who went were compared with.
    fn peers<K: Kernel>(&self, stays: impl Fn(&Candidate) -> bool, context: &Context<K>) -> Vec<Victim> {
        let peers = selection::select(self.census.candidates(), |_| true).peers;
        peers.iter().filter(|one| stays(one)).map(|one| context.ledger.victim(one)).collect()
    }

    /// As the list has it that the programs were given a moment ago.
    fn known<K: Kernel>(&self, id: VictimId, context: &mut Context<K>) -> Candidate {
        let listed = self.census.candidates().iter().find(|one| one.id() == id).copied();
        listed.unwrap_or_else(|| {
            let process =
                context.kernel.process(id.pid).ok().filter(|process| process.start_ns == id.start_ns);
            Candidate {
                usage: process.map_or(Reading::Unreadable, |process| process.usage()),
                standing: Standing::Dying,
                ..Candidate::of(id, process.map_or(Uid(u32::MAX), |process| process.uid))
            }
        })
    }
}

/// Whether it is none of those who may be selected now.
fn is_passed_over(victim: VictimId, state: &MachineState, among: Option<&BTreeSet<Pid>>) -> bool {
    state.skipped(victim) || among.is_some_and(|among| !among.contains(&victim.pid))
}
