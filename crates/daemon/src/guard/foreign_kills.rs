//! Kills that were not ours, written down: the guard numbers incidents, and adds what it alone knows of an account.

use super::{
    Guard,
    kernel::{Kernel, Programs as _},
    kill::ledger::Entry,
    last_defence::ArrangedKill,
};
use crate::foreign_kills::{ForeignKill, KillFacts};
use plimsoll_policy::{
    account::Account,
    incident::{Guard as Side, Outcome, Trigger, Victim},
    reason::Reason,
    units::{Bytes, Pages},
    victim::Signal,
};
use std::sync::atomic::{AtomicBool, Ordering};

impl<K: Kernel> Guard<K> {
    /// Unless it was written down before.
    pub(super) fn record_once(&mut self, kill: ForeignKill, written: &AtomicBool) {
        // Only this thread sets it.
        if !written.swap(true, Ordering::Relaxed) {
            self.record_deceased(kill);
        }
    }

    pub(super) fn record_deceased(&mut self, kill: ForeignKill) {
        match kill {
            ForeignKill::Known(facts) => self.record_death(*facts),
            ForeignKill::Arranged(deed) => self.record_last_defence(&deed),
            ForeignKill::Unrecorded(count) => {
                let reason = Reason::KernelKillsNotRecorded.text();
                let entry =
                    Entry { signal: Some(Signal::Kill), ..Entry::new(Side::Kernel, Trigger::Kernel, reason) };
                self.context.ledger.record_number(entry, count);
            }
        }
    }

    fn record_death(&mut self, facts: KillFacts) {
        let signal = match facts.action {
            Outcome::Term => Signal::Term,
            Outcome::Kill | Outcome::Deny | Outcome::Notify | Outcome::Refuse => Signal::Kill,
        };
        // An earlier daemon wrote it down, and died before it gave the kernel's record back.
        if facts.id().is_some_and(|id| self.context.ledger.inherited(id, signal).is_some()) {
            return;
        }
        let KillFacts { time, account, reason, mut victims, origin, arranged, .. } = facts;
        victims.iter_mut().for_each(|victim| self.context.ledger.find_job(victim));
        let held: u64 = victims.iter().map(|victim| victim.usage_bytes).fold(0, u64::saturating_add);
        let held = self.context.ledger.page_size().to_pages(Bytes(held));
        let account = arranged.map_or(account, |deed| Some(Account::User(deed.uid)));
        let line = account.as_ref().and_then(Account::user).and_then(|uid| {
            self.attached.as_mut().and_then(|attached| attached.limits.account(uid.into()).ok().flatten())
        });
        let followed = line.is_some();
        let line = line.filter(|_| arranged.is_some());
        let (guard, trigger) = if arranged.is_some() {
            (Side::Limits, Trigger::LastDefence)
        } else {
            (Side::Kernel, Trigger::Kernel)
        };
        let entry = Entry {
            account,
            signal: Some(signal),
            crossed: Some(time),
            // The account's may be back by now: then what its victim held says more.
            usage: line.map_or(Pages(0), |line| line.usage).max(held),
            hard: line.map(|line| line.effective.unwrap_or(line.hard)),
            victims,
            origin: Some(origin),
            ..Entry::new(guard, trigger, reason.text())
        };
        self.context.ledger.record_followed(entry, followed);
    }

    /// Writes down whom the kernel's own OOM killer took of an account that has a line.
    pub(super) fn record_last_defence(&mut self, deed: &ArrangedKill) {
        let account = self
            .attached
            .as_mut()
            .and_then(|attached| attached.limits.account(deed.uid.into()).ok().flatten());
        let victims = deed.victim.iter().map(|(id, usage)| Victim {
            pid: id.pid,
            start_ns: id.start_ns,
            uid: deed.uid,
            comm: String::new(),
            cmdline: None,
            cgroup: None,
            usage_bytes: self.context.ledger.page_size().to_bytes(*usage).0,
            weight_permille: None,
            session: false,
            jobs: Vec::new(),
        });
        let entry = Entry {
            signal: Some(Signal::Kill),
            // Its memory may be back by now: then what it was charged says more.
            usage: account
                .map(|account| account.usage)
                .max(deed.victim.map(|(_, usage)| usage))
                .unwrap_or_default(),
            hard: account.map(|account| account.effective.unwrap_or(account.hard)),
            victims: victims.collect(),
            ..Entry::of_line(deed.uid, Trigger::LastDefence, deed.reason)
        };
        self.context.ledger.record(entry);
    }
}
