//! Who may be selected, and what each process counts.

pub(super) mod census;
pub(super) mod eligibility;
pub(super) mod judge;
pub(super) mod patience;
pub(super) mod population;
pub(super) mod shield;
