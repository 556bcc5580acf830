//! How much a process's memory counts when the largest is looked for.

use super::{COUNTS_TIMES_BACK, Candidate};
use crate::{reservation::Tier, units::Pages};
use serde::{Deserialize, Serialize};

/// What a page of a process counts in selection, in permille: 1000 is neutral, 2000 makes each page count twice.
///
/// Always a factor, never an amount that is added: the kernel adds `oom_score_adj` permille of all memory, so that there a
/// small process with a high value goes before a large one without (mm/oom_kill.c, `oom_badness`, 6.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Weight(u16);

impl Weight {
    /// The least there is: 100 pages count as one.
    pub const MIN: Self = Self(10);
    /// As it is.
    pub const NEUTRAL: Self = Self(1000);
    /// The most there is: a page counts as 100.
    pub const MAX: Self = Self(u16::MAX);

    /// So many permille; `None` outside of [`Weight::MIN`] to [`Weight::MAX`].
    #[must_use]
    pub const fn from_permille(permille: u16) -> Option<Self> {
        if permille < Self::MIN.0 { None } else { Some(Self(permille)) }
    }

    /// In permille.
    #[must_use]
    pub const fn permille(self) -> u16 {
        self.0
    }

    /// So many pages, weighed.
    fn of(self, pages: Pages) -> u128 {
        u128::from(pages.0).saturating_mul(u128::from(self.0))
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::NEUTRAL
    }
}

/// What candidates are compared by: their tier, then weighed pages, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    tier: Tier,
    weighed: u128,
}

impl Score {
    /// How many pages of this weight come to half of it; at least 1.
    pub(super) fn halved_at(self, weight: Weight) -> Pages {
        let double = u128::from(weight.0).saturating_mul(2);
        let pages = self.weighed.checked_div(double).and_then(|pages| u64::try_from(pages).ok());
        Pages(pages.unwrap_or(u64::MAX).max(1))
    }
}

/// The weights that a process nobody has judged yet may turn out to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightRange {
    /// The least.
    pub lightest: Weight,
    /// The most.
    pub heaviest: Weight,
}

impl WeightRange {
    /// Nothing but neutral.
    pub const NEUTRAL: Self = Self { lightest: Weight::NEUTRAL, heaviest: Weight::NEUTRAL };

    /// The range with this weight in it.
    #[must_use]
    pub fn with(self, weight: Weight) -> Self {
        Self { lightest: self.lightest.min(weight), heaviest: self.heaviest.max(weight) }
    }
}

/// What is not certain of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// How far its usage may be from the truth, either way.
    pub error: Pages,
    /// What its usage cannot exceed: its address space. `Pages(u64::MAX)` where that is not known.
    pub ceiling: Pages,
    /// The rules were not asked: it may turn out to be protected, or to have another weight. Until then it is not selected.
    pub unjudged: bool,
}

impl Doubt {
    /// All is certain.
    pub const NONE: Self = Self { error: Pages(0), ceiling: Pages(u64::MAX), unjudged: false };
}

impl Default for Doubt {
    fn default() -> Self {
        Self::NONE
    }
}

impl Candidate {
    /// What it weighs; `None` where nothing is known of its usage.
    pub(super) fn score(&self) -> Option<Score> {
        // As bpf/limits/rank.h has it.
        let most = Pages(self.gives_back.0.saturating_mul(COUNTS_TIMES_BACK));
        self.usage.latest().map(|usage| self.scored(self.weight, usage.min(most)))
    }

    /// The least that it may turn out to weigh, where it is to give that back: 0 where its usage is not known.
    pub(super) fn least(&self, range: WeightRange) -> Score {
        let usage =
            self.usage.latest().unwrap_or_default().saturating_sub(self.doubt.error).min(self.gives_back);
        self.scored(self.weights(range).lightest, usage)
    }

    /// The most that it may turn out to weigh.
    pub(super) fn most(&self, range: WeightRange) -> Score {
        let usage = self.usage.latest().unwrap_or_default();
        let farthest = usage.saturating_add(self.doubt.error).min(self.doubt.ceiling).max(usage);
        self.scored(self.weights(range).heaviest, farthest)
    }

    /// Whether something about it is left to find out.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.doubt.unjudged || self.doubt.error.0 > 0
    }

    fn scored(&self, weight: Weight, pages: Pages) -> Score {
        Score { tier: self.tier, weighed: weight.of(pages) }
    }

    fn weights(&self, range: WeightRange) -> WeightRange {
        let own = WeightRange { lightest: self.weight, heaviest: self.weight };
        if self.doubt.unjudged { own.with(range.lightest).with(range.heaviest) } else { own }
    }
}
