//! What both guards work with: the same kernel, victims, ledger and journal.

use super::{
    census::Court,
    examiner::{Docket, Examiner},
    flights::Flights,
    groups::Groups,
    kernel::Kernel,
    last_defence::{LastDefence, Originals},
    ledger::Ledger,
    reclaimer::Reclaimer,
    report::Notices,
    shield::Shield,
};
use crate::{biography::Biographer, cmdlines::CommandLines, coordinator::Teller, survey::Surveyor};
use plimsoll_policy::{
    limits::LimitConfig,
    preference::Rules,
    units::{Nanos, Uid},
};
use std::sync::Arc;

/// What the guard works with besides its own state.
#[derive(Debug)]
pub(crate) struct Hands<'a, K: Kernel> {
    pub(crate) kernel: &'a mut K,
    pub(crate) flights: &'a mut Flights<K>,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) notices: &'a mut Notices,
    pub(crate) biographer: &'a Biographer,
    pub(crate) surveyor: &'a Surveyor,
    pub(crate) shield: &'a Arc<Shield>,
    pub(crate) rules: &'a Arc<Rules>,
    pub(crate) reclaimer: &'a Reclaimer,
    pub(crate) groups: &'a Groups,
    pub(crate) cmdlines: &'a CommandLines,
    pub(crate) last_defence: &'a mut LastDefence,
    pub(crate) originals: &'a Originals,
    pub(crate) examiner: &'a Examiner,
    pub(crate) coordinator: &'a Teller,
    pub(crate) config: LimitConfig,
}

impl<'a, K: Kernel> Hands<'a, K> {
    /// Who judges those that may be selected.
    pub(super) fn court(&self) -> Court<'a> {
        Court { shield: self.shield, rules: self.rules, originals: self.originals }
    }

    /// Has it found out whether what is protected was replaced, with nobody to judge.
    pub(super) fn renew_shield(&self) {
        let (shield, rules) = (Arc::clone(self.shield), Arc::clone(self.rules));
        if !self.examiner.ask(Docket { user: Uid(0), cases: Vec::new(), shield, rules }) {
            // Whoever it is busy with is judged by what is there now, which is told as well.
        }
    }

    /// The guard's clock, which is the kernel records'.
    pub(super) fn now(&self) -> Nanos {
        self.kernel.now()
    }
}
