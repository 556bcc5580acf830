//! All processes of the machine as one look shows them, roughly, and what more was found out of those few that may be
//! selected.

use super::{
    eligibility::{Eligibility, Subject},
    population::{Population, Seen, Source},
};
use crate::facts::cmdlines::{Line, Program, Wanted};
use plimsoll_policy::{
    preference::{Judgement, Rules, adj_weight},
    reading::Reading,
    selection::{
        Candidate, Doubt, Protection, Standing, WeightRange, order, own_share, rank_without, unresolved,
    },
    units::{Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{Portrait, ProcessError};
use std::{cmp::Ordering, collections::BTreeMap};

mod company;
mod warm;
pub(crate) use company::{Belonging, Company, TREE_MAX, Tree};

/// Room for this many processes before the list has to grow: allocated before memory is short.
const ROOM: usize = 16_384;

/// More than this many are not looked at closely for one decision, or for several in a row from one list: each look costs some
/// ten microseconds, and while that goes on memory runs out.
pub(crate) const LOOKS_MAX: usize = 512;

/// The same where nobody was found by then: all that were looked at are protected.
const PROTECTED_LOOKS_MAX: usize = 2_048;

/// What selection does not need of a process, and judging does.
#[derive(Debug, Clone, Copy)]
struct Detail {
    parent: Pid,
    oom_score_adj: Option<i16>,
    shared: Pages,
    cgroup_id: Option<u64>,
}

impl Detail {
    const fn of(seen: &Seen) -> Self {
        let Seen { parent, oom_score_adj, shared, cgroup_id, .. } = *seen;
        Self { parent, oom_score_adj, shared, cgroup_id }
    }
}

/// All that a look shows of what a process was judged by: as long as that is the same, it is judged the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Basis {
    program: Program,
    uid: Uid,
    parent: Pid,
    oom_score_adj: Option<i16>,
    cgroup_id: Option<u64>,
}

impl Basis {
    const fn of(seen: &Seen) -> Self {
        let Seen { uid, parent, oom_score_adj, cgroup_id, .. } = *seen;
        Self { program: seen.program(), uid, parent, oom_score_adj, cgroup_id }
    }
}

/// What the rules said of a process.
#[derive(Debug)]
struct Verdict {
    id: VictimId,
    judgement: Judgement,
    program: Program,
    /// By what, where a look shows all of that; otherwise it has to be found out again.
    basis: Option<Basis>,
    /// Its cgroup.
    cgroup: Option<Box<[u8]>>,
}

/// What it took to be sure of the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effort {
    /// Processes in the list.
    pub(crate) processes: usize,
    /// Of those, looked at closely.
    pub(crate) looks: usize,
}

/// The list. Selection reads [`Census::candidates`].
#[derive(Debug)]
pub(crate) struct Census {
    candidates: Vec<Candidate>,
    details: Vec<Detail>,
    /// Places in the list by parent, while a tree is followed.
    kin: Vec<(Pid, usize)>,
    judged: Vec<Verdict>,
    /// Those who could not be looked at: they are not selected from this list.
    unlooked: Vec<VictimId>,
    /// Command lines as far as they were read, of those that were looked at closely, and of which program they are.
    cmdlines: BTreeMap<VictimId, (Program, String)>,
    /// Shared memory of the machine, and that of all processes together as each has it mapped.
    shared: (Reading<Pages>, Pages),
    /// What no count of a process has, by its memory and its number.
    hidden: BTreeMap<(u64, Pid), Pages>,
    taken: Option<Nanos>,
    source: Option<Source>,
    /// Who grows is noted since the list was made.
    watched: bool,
    /// Who grows is noted, whether or not it is of use.
    attached: bool,
    portrait: Portrait,
}

impl Census {
    pub(crate) fn new() -> Self {
        Self {
            candidates: Vec::with_capacity(ROOM),
            details: Vec::with_capacity(ROOM),
            kin: Vec::with_capacity(ROOM),
            judged: Vec::with_capacity(LOOKS_MAX),
            unlooked: Vec::new(),
            cmdlines: BTreeMap::new(),
            shared: (Reading::Absent, Pages(0)),
            hidden: BTreeMap::new(),
            taken: None,
            source: None,
            watched: false,
            attached: false,
            portrait: Portrait::default(),
        }
    }

    /// Looks at all processes. `shared` is what the machine has of shared memory (`Shmem` of `/proc/meminfo`).
    pub(crate) fn take<P: Population>(
        &mut self,
        population: &mut P,
        shared: Reading<Pages>,
    ) -> Result<(), ProcessError> {
        self.candidates.clear();
        self.details.clear();
        self.judged.clear();
        self.unlooked.clear();
        self.taken = None;
        self.watched = false;
        let mut mapped = Pages(0);
        let own = population.own_pid();
        let began = population.now();
        let (candidates, details) = (&mut self.candidates, &mut self.details);
        let source = population.census(|seen| {
            mapped = Pages(mapped.0.saturating_add(seen.shared.0));
            candidates.push(rough(seen, own));
            details.push(Detail::of(seen));
        })?;
        self.shared = (shared, mapped);
        for (candidate, detail) in self.candidates.iter_mut().zip(&self.details) {
            let own = own_share(detail.shared, shared.latest(), mapped);
            let hidden = hidden_by(&self.hidden, candidate);
            candidate.doubt.ceiling = candidate.doubt.ceiling.saturating_add(hidden);
            candidate.usage =
                candidate.usage.map(|private| private.saturating_add(own).saturating_add(hidden));
        }
        self.taken = Some(began);
        self.source = Some(source);
        Ok(())
    }

    /// Looks at all processes once more.
    pub(crate) fn take_again<P: Population>(&mut self, population: &mut P) -> Result<(), ProcessError> {
        let (shared, _) = self.shared;
        self.take(population, shared)
    }

    /// From the next look on each counts for what it hides, too. Whether that is another than before.
    pub(crate) fn hide(&mut self, hidden: BTreeMap<(u64, Pid), Pages>) -> bool {
        let differs = self.hidden != hidden;
        if differs {
            self.hidden = hidden;
            self.spoil();
        }
        differs
    }

    /// When the look at all was begun; `None` where there is none.
    pub(crate) const fn taken(&self) -> Option<Nanos> {
        self.taken
    }

    /// What the last look at all came from; `None` where there was none.
    pub(crate) const fn source(&self) -> Option<Source> {
        self.source
    }

    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn candidate(&self, id: VictimId) -> Option<&Candidate> {
        self.candidates.iter().find(|one| one.id() == id)
    }

    fn candidate_mut(&mut self, id: VictimId) -> Option<&mut Candidate> {
        self.candidates.iter_mut().find(|one| one.id() == id)
    }

    /// The process of this number, and what else is known of it.
    fn numbered(&self, pid: Pid) -> Option<(&Candidate, &Detail)> {
        self.candidates.iter().zip(&self.details).find(|(one, _)| one.pid == pid)
    }

    /// What the rules said of one that was looked at closely.
    pub(crate) fn judgement(&self, victim: VictimId) -> Option<Judgement> {
        self.verdict(victim).map(|verdict| verdict.judgement)
    }

    fn verdict(&self, victim: VictimId) -> Option<&Verdict> {
        self.judged.iter().find(|verdict| verdict.id == victim)
    }

    /// Finds out about those who may be selected, until it is sure who comes first, or with so many looks: then who is left is
    /// not selected, unless nobody was found yet.
    pub(crate) fn resolve<P: Population>(
        &mut self,
        population: &mut P,
        eligibility: &Eligibility,
        looks_max: usize,
        skip: impl Fn(VictimId) -> bool,
    ) -> Effort {
        let range = self.range(&eligibility.rules);
        let mut effort = Effort { processes: self.candidates.len(), looks: 0 };
        while effort.looks < looks_max
            || effort.looks < PROTECTED_LOOKS_MAX && rank_without(&self.candidates, &skip).is_empty()
        {
            let unlooked = &self.unlooked;
            let batch =
                unresolved(&self.candidates, range, |victim| skip(victim) || unlooked.contains(&victim));
            if batch.is_empty() {
                break;
            }
            for one in &batch {
                effort.looks = effort.looks.saturating_add(1);
                self.look_closely(one.id(), population, eligibility);
            }
        }
        effort
    }

    /// Those who were looked at closely: by exec, or because a program writes over its own, a line may be another than the
    /// one that was read.
    pub(crate) fn wanted_command_lines(&self) -> Vec<Wanted> {
        self.judged.iter().map(|Verdict { id, program, .. }| Wanted { id: *id, program: *program }).collect()
    }

    /// Takes command lines in: whoever has another than before is judged anew when it matters.
    pub(crate) fn learn(&mut self, found: Vec<Line>) {
        // Of those that are not in the list any more there is no end.
        let judged = &self.judged;
        self.cmdlines.retain(|id, _| judged.iter().any(|verdict| verdict.id == *id));
        for Line { id, program, text } in found {
            if matches!(program, Program::Tracked { .. }) {
                // Asked for on behalf of a user's line.
                continue;
            }
            let read = (program, text);
            if self.cmdlines.get(&id) == Some(&read) {
                continue;
            }
            self.doubt(id);
            self.cmdlines.insert(id, read);
        }
    }

    /// Has one judged anew when it matters.
    fn doubt(&mut self, id: VictimId) {
        if let Some(candidate) = self.candidate_mut(id)
            && candidate.standing != Standing::Dying
        {
            candidate.standing = Standing::Free;
            candidate.doubt.unjudged = true;
        }
    }

    /// Looks once more at one, and at all who share its memory: by exec it may be another program than it was, by a
    /// move in another cgroup. Only then is it judged anew. Whether it may still be selected.
    pub(crate) fn confirm<P: Population>(
        &mut self,
        victim: VictimId,
        population: &mut P,
        eligibility: &Eligibility,
    ) -> bool {
        let Some(mm) = self.candidate(victim).map(|one| one.mm) else {
            return false;
        };
        let together = |one: &&Candidate| one.id() == victim || (mm != 0 && one.mm == mm);
        let ids: Vec<VictimId> = self.candidates.iter().filter(together).map(Candidate::id).collect();
        for id in ids {
            if self.verdict(id).is_none_or(|verdict| verdict.basis.is_none()) {
                self.doubt(id);
            }
            self.look_closely(id, population, eligibility);
        }
        self.candidate(victim).is_some_and(|one| one.standing == Standing::Free && !one.doubt.unjudged)
    }

    /// Whether one who is selected still is, looked at once more.
    pub(crate) fn stands<P: Population>(
        &mut self,
        first: VictimId,
        population: &mut P,
        eligibility: &Eligibility,
    ) -> bool {
        let before = self.judgement(first);
        self.confirm(first, population, eligibility) && self.judgement(first) == before
    }

    /// How many could not be looked at.
    pub(crate) const fn unlooked(&self) -> usize {
        self.unlooked.len()
    }

    /// Whether there are some who could not be looked at, and of whom, as far as is known, one would come before this one.
    /// `None`: any.
    pub(crate) fn some_unlooked_before(
        &self,
        victim: Option<&Candidate>,
        skip: impl Fn(VictimId) -> bool,
    ) -> bool {
        let Some(victim) = victim else {
            return self.unlooked.iter().any(|id| !skip(*id));
        };
        let comes_before = |one: &Candidate| {
            let open = one.standing == Standing::Free && one.doubt.unjudged && !skip(one.id());
            open && order(one, victim) == Ordering::Less
        };
        self.unlooked.iter().any(|id| self.candidate(*id).is_some_and(comes_before))
    }

    /// Those on their way out who hold so much of their own, whoever ended them: it comes back by itself.
    pub(crate) fn dying_with<P: Population>(&self, least: Pages, population: &mut P) -> Vec<VictimId> {
        let listed = |one: &&Candidate| {
            one.standing == Standing::Dying && one.usage.known().is_some_and(|usage| usage >= least)
        };
        // One that was struck off may have gone.
        let holds = |id: &VictimId| {
            let seen = population.look_closely(*id);
            seen.and_then(|seen| seen.private.known()).is_some_and(|private| private >= least)
        };
        self.candidates.iter().filter(listed).map(Candidate::id).filter(holds).collect()
    }

    /// One was killed, or has gone: it is not selected from this list again.
    pub(crate) fn strike(&mut self, victim: VictimId) {
        if let Some(one) = self.candidate_mut(victim) {
            one.standing = Standing::Dying;
        }
    }

    /// Whether one is on its way out, or has gone.
    pub(crate) fn is_struck(&self, victim: VictimId) -> bool {
        self.candidate(victim).is_none_or(|one| one.standing == Standing::Dying)
    }

    /// The list is of no use any more.
    pub(crate) const fn spoil(&mut self) {
        self.taken = None;
    }

    /// The weights that somebody not judged may have; where `oom_score_adj` was not read, any that it can give.
    fn range(&self, rules: &Rules) -> WeightRange {
        let unread = self.details.iter().any(|one| one.oom_score_adj.is_none());
        let range = rules.range();
        if !unread {
            return range;
        }
        [-1000, 1000].into_iter().map(|adj| adj_weight(adj, Uid(0))).fold(range, WeightRange::with)
    }

    fn look_closely<P: Population>(&mut self, id: VictimId, population: &mut P, eligibility: &Eligibility) {
        let Some(place) = self.candidates.iter().position(|one| one.id() == id) else {
            return;
        };
        let (Some(candidate), Some(detail)) = (self.candidates.get_mut(place), self.details.get_mut(place))
        else {
            return;
        };
        let (machine, mapped) = self.shared;
        let Some(seen) = population.look_closely(id).filter(|seen| seen.standing != Standing::Dying) else {
            candidate.doubt = Doubt::NONE;
            candidate.standing = Standing::Dying;
            return;
        };
        // All of it is new of one that came after the look at all; another may have its memory's key by now.
        candidate.uid = seen.uid;
        candidate.mm = seen.mm;
        *detail = Detail::of(&seen);
        let own = own_share(seen.shared, machine.latest(), mapped);
        let hidden = hidden_by(&self.hidden, candidate);
        candidate.usage = seen.private.map(|private| private.saturating_add(own).saturating_add(hidden));
        let unjudged = std::mem::replace(&mut candidate.doubt, Doubt::NONE).unjudged;
        let verdict = self.judged.iter().find(|verdict| verdict.id == id);
        let outdated = verdict.and_then(|one| one.basis).is_some_and(|basis| basis != Basis::of(&seen));
        if outdated && candidate.standing != Standing::Dying {
            candidate.standing = Standing::Free;
        }
        if candidate.standing == Standing::Free && (unjudged || outdated) {
            self.judge(place, &seen, population, eligibility);
        }
    }

    /// Whether the one at this place is protected cannot be said now: somebody else, and another look the next time.
    fn put_off(&mut self, place: usize) {
        if let Some(candidate) = self.candidates.get_mut(place) {
            candidate.doubt.unjudged = true;
            self.unlooked.push(candidate.id());
        }
    }

    /// What the rules say of the candidate at this place.
    fn judge<P: Population>(
        &mut self,
        place: usize,
        seen: &Seen,
        population: &mut P,
        eligibility: &Eligibility,
    ) {
        let Some(candidate) = self.candidates.get_mut(place) else {
            return;
        };
        let id = candidate.id();
        let follows = match population.portray(id, seen.cgroup_id, &mut self.portrait) {
            Ok(follows) => follows,
            Err(ProcessError::Vanished(_)) => {
                candidate.standing = Standing::Dying;
                return;
            }
            Err(_) => return self.put_off(place),
        };
        let mark = self.portrait.cgroup().map(|cgroup| population.mark_of(cgroup, seen.cgroup_id));
        let Ok(mark) = mark.unwrap_or(Ok(None)) else {
            return self.put_off(place);
        };
        let program = seen.program();
        let line = self.cmdlines.get(&id).filter(|(of, _)| *of == program);
        let subject = Subject {
            id,
            uid: seen.uid,
            comm: &seen.comm,
            parent: seen.parent,
            oom_score_adj: seen.oom_score_adj,
            cmdline: line.map(|(_, text)| text.as_str()),
            mark,
        };
        let judgement = eligibility.judge(&subject, &self.portrait);
        let Some(candidate) = self.candidates.get_mut(place) else {
            return;
        };
        candidate.weight = judgement.weight_of_machine();
        candidate.standing = judgement.standing();
        self.judged.retain(|verdict| verdict.id != id);
        let cgroup = self.portrait.cgroup().map(Box::from);
        let basis = (follows && seen.execs.is_some()).then(|| Basis::of(seen));
        self.judged.push(Verdict { id, judgement, program, basis, cgroup });
    }
}

/// Where its memory's key is not known, none is.
fn hidden_by(hidden: &BTreeMap<(u64, Pid), Pages>, one: &Candidate) -> Pages {
    hidden.get(&(one.mm, one.pid)).copied().unwrap_or_default()
}

fn rough(seen: &Seen, own: Pid) -> Candidate {
    let standing = if seen.id.pid == own { Standing::Protected(Protection::Daemon) } else { seen.standing };
    Candidate {
        mm: seen.mm,
        usage: seen.private,
        weight: seen.oom_score_adj.map(|adj| adj_weight(adj, seen.uid)).unwrap_or_default(),
        doubt: Doubt { error: seen.error, ceiling: seen.ceiling, unjudged: standing == Standing::Free },
        standing,
        ..Candidate::of(seen.id, seen.uid)
    }
}

#[cfg(test)]
mod tests;
