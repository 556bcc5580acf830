//! Kills that the programs only counted, because their account has more of them than are told one by one (`is_told()` in
//! bpf/limits/tell.h): their number is written down, and whoever does not end is looked after.

use super::{
    attached::{Attached, claimed_for, is_asked_untold},
    kills::ending_in,
};
use crate::guard::{
    context::Context,
    kernel::{Kernel, Programs as _},
    kill::{
        ledger::Entry,
        pending::{Owner, PendingKill},
    },
};
use plimsoll_policy::{
    account::{Action, Counted},
    incident::Trigger,
    reason::Reason,
    units::Nanos,
    victim::{Signal, SignalOutcome, VictimId},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError};
use std::collections::BTreeMap;

/// From one number that is written down for an account to its next.
const TOLD_APART: Nanos = Nanos(10_000_000_000);

/// So many of one account are taken in at a look.
const TAKEN_IN_MAX: usize = 16;

impl<K: Kernel> Attached<K> {
    /// Writes down how many kills were only counted, and takes in whom they took and who is there still.
    pub(crate) fn take_in_folded(
        &mut self,
        accounts: &[AccountFacts],
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let now = context.now();
        self.folds.told.retain(|_, told| now.0.saturating_sub(told.0) < TOLD_APART.0);
        self.folds.owed.clear();
        let mut any = false;
        for account in accounts.iter().filter(|account| account.folded > 0) {
            any = true;
            if self.folds.told.contains_key(&account.whose) || !self.tell_folded(account, context)? {
                self.folds.owed.insert(account.whose);
            } else {
                self.folds.told.insert(account.whose, now);
            }
        }
        if any { self.wait_for_folded(accounts, now, context) } else { Ok(()) }
    }

    /// Writes down what is left to be, of lines that go.
    pub(crate) fn tell_folded_of(&mut self, goes: impl Fn(Counted) -> bool, context: &mut Context<K>) {
        let told = self.limits.accounts().and_then(|accounts| {
            let folded = |account: &&AccountFacts| account.folded > 0 && goes(account.whose);
            accounts
                .iter()
                .filter(folded)
                .try_for_each(|account| self.tell_folded(account, context).map(drop))
        });
        if let Err(error) = told {
            context.notices.once("limits", &error);
        }
    }

    /// Whether there was room to write it down.
    pub(crate) fn tell_folded(
        &self,
        account: &AccountFacts,
        context: &mut Context<K>,
    ) -> Result<bool, BpfError> {
        let signal = Signal::numbered(account.signal).unwrap_or(Signal::Kill);
        let entry = Entry {
            signal: Some(signal),
            hard: account.effective,
            ..Entry::of_line(account.whose, Trigger::InKernel, Reason::IncidentsFolded)
        };
        let told = context.ledger.record_number(entry, account.folded.into());
        if told {
            self.limits.folded_told(account.index, account.folded)?;
        }
        Ok(told)
    }

    /// From here on they are victims as any other: waited for, reaped, and ended where they were only asked. Of each account
    /// those come first that were there first: in a storm there are always some that end just now.
    fn wait_for_folded(
        &mut self,
        accounts: &[AccountFacts],
        now: Nanos,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let (walk, mut left) = (self.walk_number, BTreeMap::<Counted, Vec<AddressSpace>>::new());
        self.limits.address_spaces(|space| {
            let ending = space.folded && (space.dying || space.condemned) && !space.left;
            if ending && space.walk >= walk && !context.pending.has(space) {
                left.entry(claimed_for(accounts, space)).or_default().push(*space);
            }
        })?;
        for (whose, mut spaces) in left {
            spaces.sort_unstable_by_key(|space| space.tracked_ns);
            for space in spaces.iter().take(TAKEN_IN_MAX) {
                self.wait_for(whose, space, now, context);
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, whose: Counted, space: &AddressSpace, now: Nanos, context: &mut Context<K>) {
        let signal = if is_asked_untold(space) { Signal::Term } else { Signal::Kill };
        // Who runs there now may only share the memory of the one that was signalled, gone or not: it is a holder.
        let other = space.sent.filter(|sent| *sent != space.pid && signal == Signal::Kill);
        let victim = other.map_or(VictimId { pid: space.pid, start_ns: space.start_ns }, |pid| {
            ending_in(space, context).unwrap_or(VictimId { pid, start_ns: 0 })
        });
        context.pending.add(PendingKill {
            mm: space.mm,
            pidfd: context.kernel.hold(victim.pid, victim.start_ns).ok(),
            pages: space.own,
            ..PendingKill::new(victim, Owner::Line(whose), signal, now)
        });
        self.watch(whose, Action::of(Some(signal))).state.outcome(victim, SignalOutcome::Sent(signal), now);
    }
}
