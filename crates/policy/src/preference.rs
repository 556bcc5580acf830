//! What the administrator's rules, a cgroup's own mark and `oom_score_adj` say of a process: how much its memory counts when
//! the largest is looked for, whether it is never selected, and how much goes with it.
//!
//! One of them decides, in that order: the first rule that matches, else the mark, else `oom_score_adj`. Whatever a user
//! controls can make their own process count less only within bounds, and never protects it: protection goes by an
//! executable that only root can write, or by a unit or cgroup that root made.

use crate::{
    selection::{Protection, Standing, Weight, WeightRange},
    units::Uid,
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

mod adj;
mod cgroup;
mod pattern;
mod session;
pub use adj::{ADJ_HEAVIEST, ADJ_NEVER, adj_weight};
pub use pattern::{Pattern, PatternError};
pub use session::{PROGRAMS, Programs, SHELLS};

/// What a preferred process counts where the rule gives no weight: four times.
pub const PREFERRED: Weight = permille(4000);

/// What an avoided one counts: a quarter.
pub const AVOIDED: Weight = permille(250);

/// What a process counts that its own user marked as one to avoid: half, so that a hog of twice their size goes first
/// whatever they marked.
pub const MARKED_BY_USER: Weight = permille(500);

const fn permille(permille: u16) -> Weight {
    match Weight::from_permille(permille) {
        Some(weight) => weight,
        None => Weight::NEUTRAL,
    }
}

/// How much goes when a process is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The process, and whoever shares its memory.
    #[default]
    Process,
    /// It and its descendants; where a rule matched one of its ancestors, that one and all of its descendants.
    Tree,
    /// All of its cgroup.
    Cgroup,
}

/// What a rule does with those that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Their memory counts so much.
    Weight(Weight),
    /// They are never selected.
    Never,
}

/// One rule: whom it is for, and what it says. A list that is empty asks for nothing; of the others each must match, by any
/// of its patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The executable's path.
    pub exe: Vec<Pattern>,
    /// A systemd unit that the process is in, at any depth: `user@1000.service`, `app.slice`.
    pub unit: Vec<Pattern>,
    /// The path of its cgroup, or of one above.
    pub cgroup: Vec<Pattern>,
    /// Its command line, arguments separated by spaces.
    pub cmdline: Vec<Pattern>,
    /// Its name, which it chose.
    pub comm: Vec<Pattern>,
    /// Its real uid.
    pub uid: Vec<Uid>,
    /// What is done with it.
    pub effect: Effect,
    /// How much goes with it; `None`: as it would be without this rule.
    pub scope: Option<Scope>,
}

/// Why a rule is refused. Displays as one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It would match every process.
    #[error("it names nobody: give exe, unit, cgroup, cmdline, comm or uid")]
    NamesNobody,
    /// Protection by what any process can choose.
    #[error(
        "'never' needs exe, unit or cgroup: any process can take the name, the command line or be one of the user it protects"
    )]
    ProtectsByName,
    /// Protection that depends on what may not be known in time.
    #[error(
        "'never' cannot ask for a cmdline: it is not always read before somebody has to be selected; use avoid, or leave it out"
    )]
    ProtectsByCommandLine,
}

impl Rule {
    /// A rule that matches nobody yet.
    #[must_use]
    pub const fn new(effect: Effect) -> Self {
        Self {
            exe: Vec::new(),
            unit: Vec::new(),
            cgroup: Vec::new(),
            cmdline: Vec::new(),
            comm: Vec::new(),
            uid: Vec::new(),
            effect,
            scope: None,
        }
    }

    /// Whether it says whom it is for, and does not protect by what anybody can choose.
    ///
    /// # Errors
    /// [`RuleError`].
    pub const fn validate(&self) -> Result<(), RuleError> {
        let by_place = !self.exe.is_empty() || !self.unit.is_empty() || !self.cgroup.is_empty();
        let by_choice = !self.cmdline.is_empty() || !self.comm.is_empty() || !self.uid.is_empty();
        match (by_place, by_choice, self.effect) {
            (false, false, _) => Err(RuleError::NamesNobody),
            (false, true, Effect::Never) => Err(RuleError::ProtectsByName),
            (true, _, Effect::Never) if !self.cmdline.is_empty() => Err(RuleError::ProtectsByCommandLine),
            _ => Ok(()),
        }
    }

    fn matches(&self, facts: &Facts<'_>) -> bool {
        let protects = self.effect == Effect::Never;
        let exe = facts.exe.filter(|exe| exe.only_root_writes || !protects).map(|exe| exe.path);
        let units = |pattern: &Pattern| {
            facts.cgroup.is_some_and(|path| cgroup::units(path, protects).any(|unit| pattern.matches(unit)))
        };
        let cgroups = |pattern: &Pattern| {
            facts
                .cgroup
                .is_some_and(|path| cgroup::ancestry(path, protects).any(|path| pattern.matches(path)))
        };
        asks(&self.exe, |pattern| exe.is_some_and(|path| pattern.matches(path)))
            && asks(&self.unit, units)
            && asks(&self.cgroup, cgroups)
            && asks(&self.cmdline, |pattern| facts.cmdline.is_some_and(|line| pattern.matches(line)))
            && asks(&self.comm, |pattern| pattern.matches(facts.comm))
            && asks(&self.uid, |uid| *uid == facts.uid)
    }

    /// What protects those whom it never lets be selected.
    const fn protection(&self) -> Protection {
        if !self.exe.is_empty() {
            Protection::Executable
        } else if !self.unit.is_empty() {
            Protection::Unit
        } else {
            Protection::Cgroup
        }
    }
}

fn asks<T>(patterns: &[T], matches: impl Fn(&T) -> bool) -> bool {
    patterns.is_empty() || patterns.iter().any(matches)
}

/// The executable of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exe<'a> {
    /// Its path, as the kernel tells it.
    pub path: &'a [u8],
    /// It is root's, only root can write it, and what lies under that path for the daemon is the same file: no
    /// namespace and no file system of a user's own shows it there.
    pub only_root_writes: bool,
}

/// What a cgroup's folder says of the processes in it: `user.oomd_avoid` and `user.oomd_omit`, as systemd-oomd reads them and
/// `ManagedOOMPreference=` writes them. (oomd's `user.oomd_prefer` is not followed: any process might then count more than its
/// size says, and many had to be looked at closely before anybody is selected.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// What is asked for.
    pub wish: Wish,
    /// Whose folder it is.
    pub owner: Uid,
}

/// What a mark asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Rather another.
    Avoid,
    /// Never.
    Omit,
}

/// What is known of a process. What was not read is `None`, and matches no pattern.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Real uid.
    pub uid: Uid,
    /// Its name.
    pub comm: &'a [u8],
    /// Its executable.
    pub exe: Option<Exe<'a>>,
    /// The path of its cgroup from the root of the hierarchy, beginning with a slash.
    pub cgroup: Option<&'a [u8]>,
    /// Its command line. Reading it can wait for the process, so it is not read when memory is short.
    pub cmdline: Option<&'a [u8]>,
    /// `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i16,
    /// Its parent is process 1: it is what a service manager started, not what inherited from that.
    pub child_of_init: bool,
    /// The mark on its cgroup.
    pub mark: Option<Mark>,
    /// It leads a session (setsid(2)) that has a terminal.
    pub leads_terminal: bool,
}

/// Who decided what a process counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JudgedBy {
    /// The rule of this place in the list, from 0.
    Rule(usize),
    /// The mark of its cgroup.
    Mark,
    /// `oom_score_adj`; nobody where that is 0.
    OomScoreAdj,
}

/// What all that comes to for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// What its memory counts.
    pub weight: Weight,
    /// It is never selected.
    pub protection: Option<Protection>,
    /// How much goes with it.
    pub scope: Scope,
    /// Who decided.
    pub by: JudgedBy,
    /// Its user's session ends with it.
    pub session: bool,
}

impl Judgement {
    /// The standing of a process that is neither dying nor protected otherwise.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        match self.protection {
            Some(protection) => Standing::Protected(protection),
            None => Standing::Free,
        }
    }

    /// What its memory counts when the largest of the machine is looked for, where no user has a line to bound it by:
    /// what a session stands on is avoided, unless a rule says otherwise.
    #[must_use]
    pub fn weight_of_machine(&self) -> Weight {
        let by_rule = matches!(self.by, JudgedBy::Rule(_));
        if self.session && !by_rule { self.weight.min(AVOIDED) } else { self.weight }
    }
}

/// The rules, in order, and what sessions stand on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    session: Programs,
}

impl Rules {
    /// These rules.
    ///
    /// # Errors
    /// The place of the first that is refused, from 0, and why.
    pub fn new(rules: Vec<Rule>) -> Result<Self, (usize, RuleError)> {
        for (index, rule) in rules.iter().enumerate() {
            rule.validate().map_err(|error| (index, error))?;
        }
        Ok(Self { rules, session: Programs::default() })
    }

    /// With these programs as what sessions stand on.
    #[must_use]
    pub fn with_session(self, session: Programs) -> Self {
        Self { session, ..self }
    }

    /// What they say of a process, or else its mark, or else its `oom_score_adj`.
    #[must_use]
    pub fn judge(&self, facts: &Facts<'_>) -> Judgement {
        let mut matching = self.rules.iter().enumerate().filter(|(_, rule)| rule.matches(facts));
        // A rule that never lets somebody be selected cannot be undone by one before it.
        let never = matching.clone().find(|(_, rule)| rule.effect == Effect::Never);
        let scope = matching.clone().find_map(|(_, rule)| rule.scope).unwrap_or_default();
        let session = self.session.carry(facts);
        match never.or_else(|| matching.next()) {
            Some((index, rule)) => {
                let (weight, protection) = match rule.effect {
                    Effect::Weight(weight) => (weight, None),
                    Effect::Never => (Weight::NEUTRAL, Some(rule.protection())),
                };
                Judgement { weight, protection, scope, by: JudgedBy::Rule(index), session }
            }
            None => Judgement { session, ..unruled(facts, scope) },
        }
    }

    /// The weights that a process may have, whatever it is.
    #[must_use]
    pub fn range(&self) -> WeightRange {
        let given = self.rules.iter().filter_map(|rule| match rule.effect {
            Effect::Weight(weight) => Some(weight),
            Effect::Never => None,
        });
        // A mark may make any process count less.
        given.fold(WeightRange::NEUTRAL.with(AVOIDED), WeightRange::with)
    }

    /// Whether a rule protects what runs a program of this path, or a session may stand on it, if it is what it says.
    #[must_use]
    pub fn trust(&self, exe: &[u8]) -> bool {
        let mut protecting = self.rules.iter().filter(|rule| rule.effect == Effect::Never);
        protecting.any(|rule| rule.exe.iter().any(|pattern| pattern.matches(exe))) || self.session.name(exe)
    }

    /// Whether a rule takes trees of processes as one.
    #[must_use]
    pub fn name_trees(&self) -> bool {
        self.rules.iter().any(|rule| rule.scope == Some(Scope::Tree))
    }

    /// Whether a rule asks for command lines.
    #[must_use]
    pub fn ask_for_command_lines(&self) -> bool {
        self.rules.iter().any(|rule| !rule.cmdline.is_empty())
    }
}

fn unruled(facts: &Facts<'_>, scope: Scope) -> Judgement {
    let marked = facts.mark.and_then(|mark| match (mark.owner, mark.wish) {
        (Uid(0), Wish::Omit) => Some((Weight::NEUTRAL, Some(Protection::Cgroup))),
        (Uid(0), Wish::Avoid) => Some((AVOIDED, None)),
        // Only for themselves: a folder that one user owns may hold another's process.
        (owner, Wish::Avoid | Wish::Omit) => (owner == facts.uid).then_some((MARKED_BY_USER, None)),
    });
    let (weight, protection, by) = match marked {
        Some((weight, protection)) => (weight, protection, JudgedBy::Mark),
        None if facts.oom_score_adj <= ADJ_NEVER && facts.uid == Uid(0) && facts.child_of_init => {
            (Weight::NEUTRAL, Some(Protection::OomScoreAdj), JudgedBy::OomScoreAdj)
        }
        None => (adj_weight(facts.oom_score_adj, facts.uid), None, JudgedBy::OomScoreAdj),
    };
    Judgement { weight, protection, scope, by, session: false }
}

#[cfg(test)]
mod tests;
