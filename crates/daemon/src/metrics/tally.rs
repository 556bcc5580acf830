//! What incidents add up to, since the daemon started: counted as they come to the history, so that a victim, its container
//! and an incident that was thinned out later stay counted.

use super::account::Of;
use crate::history::Outcome as LaterFacts;
use plimsoll_policy::{
    incident::{Guard, Incident, Outcome, Trigger, origin::Killer},
    reason::Reason,
};
use prometheus_client::metrics::histogram::Histogram;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Accounts that are told apart; more are one.
const ACCOUNTS_MAX: usize = 1024;

/// Upper bounds in seconds: some microseconds in the kernel, some milliseconds by the daemon.
const TO_SIGNAL: [f64; 12] =
    [0.000_001, 0.000_004, 0.000_016, 0.000_064, 0.000_25, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0];

/// Likewise: memory comes back at gigabytes in a second, or waits for a CPU.
const TO_FREED: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Incidents of the kernel's OOM killer are shown before the first: a rate needs the 0.
const ALWAYS_SHOWN: [Reason; 4] =
    [Reason::KernelOutOfMemory, Reason::KernelCgroupLimit, Reason::KernelNodesFull, Reason::KernelOomKill];

/// Of whom a kill is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) guard: &'static str,
    pub(super) trigger: &'static str,
    pub(super) origin: &'static str,
    pub(super) reason: &'static str,
}

/// The counts.
#[derive(Debug)]
pub(super) struct Counts {
    /// Kills.
    pub(super) kills: BTreeMap<Kind, u64>,
    /// Incidents by guard and action.
    pub(super) incidents: BTreeMap<(&'static str, &'static str), u64>,
    /// Kills by account.
    pub(super) accounts: BTreeMap<Of, u64>,
    /// From crossing to signal, by trigger.
    pub(super) to_signal: BTreeMap<&'static str, Histogram>,
    /// From signal to freed.
    pub(super) to_freed: Histogram,
    /// Of victims.
    pub(super) freed_bytes: u64,
}

impl Default for Counts {
    fn default() -> Self {
        let shown = ALWAYS_SHOWN.map(|reason| Kind {
            guard: guard(Guard::Kernel),
            trigger: Trigger::Kernel.text(),
            origin: origin(Guard::Kernel, None),
            reason: reason.text(),
        });
        Self {
            kills: shown.into_iter().map(|kind| (kind, 0)).collect(),
            incidents: GUARDS.into_iter().map(|one| ((guard(one), Outcome::Kill.text()), 0)).collect(),
            accounts: BTreeMap::new(),
            to_signal: [Trigger::InKernel, Trigger::Daemon]
                .map(|trigger| (trigger.text(), Histogram::new(TO_SIGNAL)))
                .into(),
            to_freed: Histogram::new(TO_FREED),
            freed_bytes: 0,
        }
    }
}

impl Counts {
    fn incident(&mut self, incident: &Incident) {
        let number = incident.unrecorded.unwrap_or(1);
        let guard = guard(incident.guard);
        add(self.incidents.entry((guard, incident.action.text())).or_default(), number);
        if incident.action != Outcome::Kill {
            return;
        }
        let kind = Kind {
            guard,
            trigger: incident.trigger.text(),
            origin: origin(incident.guard, incident.origin.as_ref().map(|origin| origin.killer)),
            reason: incident.reason.parse().map_or("other", Reason::text),
        };
        add(self.kills.entry(kind).or_default(), number);
        if let Some(account) = &incident.account {
            // Who becomes another user leaves their jobs' accounts.
            let of = Of::account(account, incident.victims.first().map(|victim| victim.uid));
            let is_full = self.accounts.len() >= ACCOUNTS_MAX && !self.accounts.contains_key(&of);
            add(self.accounts.entry(if is_full { Of::Other } else { of }).or_default(), number);
        }
        if let Some(took) = incident.cross_to_signal_ns {
            let new = || Histogram::new(TO_SIGNAL);
            self.to_signal.entry(kind.trigger).or_insert_with(new).observe(seconds(took));
        }
        // Who records both at once.
        self.freed(incident.signal_to_freed_ns, incident.freed_bytes);
    }

    fn freed(&mut self, took_ns: Option<u64>, bytes: Option<u64>) {
        if let Some(took) = took_ns {
            self.to_freed.observe(seconds(took));
        }
        add(&mut self.freed_bytes, bytes.unwrap_or(0));
    }
}

/// The counts, shared by who counts and who shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// Counts an incident.
    pub(crate) fn incident(&self, incident: &Incident) {
        self.with(|counts| counts.incident(incident));
    }

    /// Counts what became known of one later.
    pub(crate) fn outcome(&self, later: &LaterFacts) {
        self.with(|counts| counts.freed(later.signal_to_freed_ns, later.freed_bytes));
    }

    /// Looks at the counts; whoever counts waits meanwhile.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Counts) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const GUARDS: [Guard; 6] =
    [Guard::Limits, Guard::Pressure, Guard::Workingset, Guard::Tmalloc, Guard::Fragmentation, Guard::Kernel];

/// As in JSON.
const fn guard(guard: Guard) -> &'static str {
    match guard {
        Guard::Limits => "limits",
        Guard::Pressure => "pressure",
        Guard::Workingset => "workingset",
        Guard::Tmalloc => "tmalloc",
        Guard::Fragmentation => "fragmentation",
        Guard::Kernel => "kernel",
    }
}

/// Who killed.
const fn origin(guard: Guard, killer: Option<Killer>) -> &'static str {
    match (killer, guard) {
        (Some(Killer::SystemdOomd), _) => "systemd-oomd",
        (Some(Killer::Earlyoom), _) => "earlyoom",
        (Some(Killer::Kernel), _) | (None, Guard::Kernel) => "kernel",
        (
            None,
            Guard::Limits | Guard::Pressure | Guard::Workingset | Guard::Tmalloc | Guard::Fragmentation,
        ) => "plimsoll",
    }
}

fn add(count: &mut u64, number: u64) {
    *count = count.saturating_add(number);
}

/// A span, to the microsecond or better: what a double holds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}
