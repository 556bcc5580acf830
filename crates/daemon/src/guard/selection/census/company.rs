//! Who goes with the one that was selected: nobody, its tree, or its cgroup.

use super::Census;
use crate::{
    facts::cgroups::Group,
    guard::selection::{eligibility::Eligibility, population::Population},
};
use plimsoll_policy::{
    preference::Scope,
    selection::{Candidate, Standing},
    units::Pid,
    victim::VictimId,
};

/// Steps up from a process to its ancestors: deeper trees than this are made by nobody who wants to be understood.
const ANCESTORS_MAX: usize = 32;

/// Processes of a tree at most: each costs some ten microseconds and a descriptor. A job of more is told, and those that are
/// left are selected like anybody.
pub(crate) const TREE_MAX: usize = 4096;

/// Who goes with a victim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody but those who share its memory.
    Nobody,
    /// All of its tree.
    Tree(Tree),
    /// Everybody in this cgroup.
    Cgroup(Group),
}

/// A process and its descendants as a list showed them, ancestors first. Whether each of them may be ended is asked when it
/// comes to that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree {
    /// Who.
    pub(crate) members: Vec<VictimId>,
    /// How many more there were.
    pub(crate) left: usize,
}

/// What is known of where a victim belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Belonging {
    /// Its cgroup.
    pub(crate) cgroup: Option<Vec<u8>>,
    /// Its parent is process 1, which therefore hears of its end.
    pub(crate) child_of_init: bool,
    /// Who goes with it.
    pub(crate) company: Company,
}

impl Census {
    /// Where a victim of this list belongs, and who goes with it.
    pub(crate) fn belonging<P: Population>(
        &mut self,
        victim: VictimId,
        population: &mut P,
        eligibility: &Eligibility,
    ) -> Belonging {
        let known = self.numbered(victim.pid).filter(|(one, _)| one.id() == victim);
        let (parent, cgroup_id) = known.map_or((None, None), |(_, one)| (Some(one.parent), one.cgroup_id));
        let judged =
            self.verdict(victim).map(|one| (one.judgement.scope, one.cgroup.as_deref().map(<[u8]>::to_vec)));
        let (scope, cgroup) = judged.unwrap_or_else(|| {
            // It was asked to end, and is in no list any more.
            let portrayed = population.portray(victim, cgroup_id, &mut self.portrait).is_ok();
            let cgroup = self.portrait.cgroup().filter(|_| portrayed);
            (Scope::default(), cgroup.map(<[u8]>::to_vec))
        });
        // Where that is not known it goes alone, or with its tree: whoever is killed for nothing does not come back.
        let group = cgroup.as_ref().and_then(|own| population.group_of(own, cgroup_id, scope).ok()?);
        let company = match group {
            Some(group) => Company::Cgroup(group),
            None => self.tree(victim, scope, population, eligibility).map_or(Company::Nobody, Company::Tree),
        };
        Belonging { cgroup, child_of_init: parent == Some(Pid(1)), company }
    }

    /// The victim's tree, where a rule says that it goes as one.
    fn tree<P: Population>(
        &mut self,
        victim: VictimId,
        scope: Scope,
        population: &mut P,
        eligibility: &Eligibility,
    ) -> Option<Tree> {
        if !eligibility.rules.name_trees() {
            return None;
        }
        let mut root = (scope == Scope::Tree).then_some(victim);
        let mut at = victim.pid;
        for _ in 0..ANCESTORS_MAX {
            let parent = self.numbered(at).map(|(_, one)| one.parent);
            let Some(parent) = parent.filter(|parent| parent.0 > 1) else {
                break;
            };
            if let Some(id) = self.numbered(parent).map(|(one, _)| one.id()) {
                self.look_closely(id, population, eligibility);
                if self.judgement(id).is_some_and(|judgement| judgement.scope == Scope::Tree) {
                    root = Some(id);
                }
            }
            at = parent;
        }
        let mut tree = Tree { members: vec![root?], left: 0 };
        self.follow(&mut tree);
        Some(tree)
    }

    /// Adds those of this list that descend from a tree of an earlier one.
    pub(crate) fn follow(&mut self, tree: &mut Tree) {
        let mut known = tree.members.clone();
        known.sort_unstable();
        self.kin.clear();
        self.kin.extend(self.details.iter().enumerate().map(|(place, one)| (one.parent, place)));
        self.kin.sort_unstable();
        // The number of one that is not here any more may be another's.
        let mut parents: Vec<Pid> = Vec::with_capacity(known.len());
        parents.extend(
            self.candidates.iter().filter(|one| known.binary_search(&one.id()).is_ok()).map(|one| one.pid),
        );
        let mut next = 0;
        while let Some(parent) = parents.get(next).copied() {
            next = next.saturating_add(1);
            let from = self.kin.partition_point(|(of, _)| *of < parent);
            let children = self.kin.get(from..).unwrap_or_default();
            for (_, place) in children.iter().take_while(|(of, _)| *of == parent) {
                let Some(child) = self.candidates.get(*place).map(Candidate::id) else {
                    continue;
                };
                // Everybody has one parent, so that whoever is found is found once.
                if known.binary_search(&child).is_ok() {
                    continue;
                }
                parents.push(child.pid);
                if tree.members.len() < TREE_MAX {
                    tree.members.push(child);
                } else {
                    tree.left = tree.left.saturating_add(1);
                }
            }
        }
    }

    /// One of a tree, looked at now, if it may be ended.
    pub(crate) fn endable<P: Population>(
        &mut self,
        id: VictimId,
        population: &mut P,
        eligibility: &Eligibility,
    ) -> Option<Candidate> {
        self.look_closely(id, population, eligibility);
        let found = self.candidate(id)?;
        (found.standing == Standing::Free && !found.doubt.unjudged && id.pid.0 > 1).then_some(*found)
    }
}
