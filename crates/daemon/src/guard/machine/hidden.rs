//! Memory that no process shows. Where it runs short and more is in use than what is shown explains, what lies in pipes is
//! looked for, and who hides it there counts for it.

use super::MachineGuard;
use crate::{
    facts::shared::Walked,
    guard::{context::Context, kernel::Kernel},
};
use plimsoll_policy::{
    human,
    machine::{MachineReading, is_near},
    units::{Bytes, Nanos, Pages},
};
use plimsoll_wire::text::Meminfo;
use std::collections::BTreeMap;

/// Less than this part of the machine's memory is not looked for: one in so many.
const PART: u64 = 20;

/// Pipes are told of where they explain a part of it: one in so many.
const TOLD_PART: u64 = 8;

/// A walk is asked for so often, or after so many times what the last one took.
const EVERY: Nanos = Nanos(1_000_000_000);
const REST: u64 = 16;

/// What a walk found is believed for so long.
const AGE_MAX: Nanos = Nanos(5_000_000_000);

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    /// What nothing explains, where that is much.
    unexplained: Option<Bytes>,
    /// None sooner.
    due: Nanos,
    /// When what is known was asked for.
    asked: Option<Nanos>,
    /// It was said, in this shortage.
    told: bool,
}

impl Hidden {
    pub(super) fn measure(&mut self, meminfo: &Meminfo) {
        let least = meminfo.mem_total.map(|total| Bytes(total.0 / PART));
        self.unexplained = meminfo.unseen().filter(|unseen| least.is_some_and(|least| *unseen > least));
    }
}

impl MachineGuard {
    /// Asks for a walk where memory runs short and is not explained.
    pub(super) fn seek_hidden<K: Kernel>(
        &mut self,
        reading: &MachineReading,
        moment: Nanos,
        context: &Context<K>,
    ) {
        let is_near = is_near(reading, &self.config);
        let hidden = &mut self.hidden;
        hidden.told &= is_near;
        let is_old = |asked: Nanos| !is_near || moment.saturating_sub(asked) > AGE_MAX;
        if hidden.asked.take_if(|asked| is_old(*asked)).is_some() {
            let _differs: bool = self.census.hide(BTreeMap::new());
        }
        let is_wanted = is_near && hidden.unexplained.is_some() && moment >= hidden.due;
        if is_wanted && context.workers.shared.ask(moment) {
            hidden.due = moment.saturating_add(EVERY);
        }
    }

    /// Takes in what a walk found, whoever asked for it.
    pub(crate) fn take_hidden<K: Kernel>(&mut self, walked: &Walked, context: &mut Context<K>) {
        let now = context.now();
        let rest = Nanos(walked.took.0.saturating_mul(REST));
        self.hidden.due = self.hidden.due.max(now.saturating_add(rest));
        let (true, Ok(Some(found))) = (self.is_pressed(), &walked.found) else { return };
        self.hidden.asked = Some(walked.asked);
        let page_size = context.ledger.page_size();
        let size = |pages| human::bytes(page_size.to_bytes(pages));
        let pages: Pages = found.owned.hidden.values().copied().sum();
        let is_much = |unexplained: &Bytes| page_size.to_bytes(pages).0 >= unexplained.0 / TOLD_PART;
        if let Some(unexplained) = self.hidden.unexplained.filter(is_much).filter(|_| !self.hidden.told) {
            let most = found.owned.hidden.iter().max_by_key(|(_, pages)| **pages);
            let most = most.map(|((_, pid), pages)| format!(", most by process {pid} ({})", size(*pages)));
            context.notices.say(format_args!(
                "machine guard: {} of memory is shown by no process; found in pipes: {}{}",
                human::bytes(unexplained),
                size(pages),
                most.unwrap_or_default(),
            ));
            self.hidden.told = true;
        }
        if self.census.hide(found.owned.hidden.clone()) {
            // The list is made anew, with it.
            self.refresh = Nanos(0);
        }
    }
}

#[cfg(test)]
mod tests;
