//! Numbers incidents and hands them to the history, which writes them in its own time.

use crate::history::{Outcome as LaterFacts, Writer};
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Incident, Outcome, Trigger, Victim},
    reason::Reason,
    selection::{Candidate, Decision},
    units::{Nanos, PageSize, Pages, Uid},
    victim::Signal,
};

/// Facts of one incident that its decision does not hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occasion {
    /// Whose line; `None` for the machine's.
    pub(crate) account: Option<Account>,
    /// Which guard.
    pub(crate) guard: Guard,
    /// What set it off.
    pub(crate) trigger: Trigger,
    /// What was sent; `None`: nothing.
    pub(crate) signal: Option<Signal>,
    /// When the line was crossed, on `CLOCK_MONOTONIC`.
    pub(crate) crossed: Option<Nanos>,
    /// When the signal had been sent.
    pub(crate) signalled: Option<Nanos>,
}

/// The incident to write down.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) occasion: Occasion,
    pub(crate) reason: Reason,
    pub(crate) usage: Pages,
    pub(crate) hard: Option<Pages>,
    pub(crate) victims: Vec<Victim>,
    pub(crate) peers: Vec<Victim>,
}

/// Counts incidents and knows where they go.
#[derive(Debug)]
pub(crate) struct Ledger {
    writer: Writer,
    next_id: u64,
    page_size: PageSize,
    /// Of the limits guard, of the others: how many, and the last.
    limits: Tally,
    others: Tally,
}

/// Incidents of this run of the daemon.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    recorded: u64,
    last: Option<u64>,
}

impl Ledger {
    pub(crate) fn new(writer: Writer, next_id: u64, page_size: PageSize) -> Self {
        Self { writer, next_id, page_size, limits: Tally::default(), others: Tally::default() }
    }

    /// Incidents of a guard since the daemon started.
    pub(crate) fn recorded(&self, guard: Guard) -> u64 {
        self.tally(guard).recorded
    }

    /// The last of them.
    pub(crate) fn last_id(&self, guard: Guard) -> Option<u64> {
        self.tally(guard).last
    }

    fn tally(&self, guard: Guard) -> Tally {
        if guard == Guard::Limits { self.limits } else { self.others }
    }

    /// Incidents that could not be recorded.
    pub(crate) fn lost(&self) -> u64 {
        let counts = self.writer.counts();
        counts.dropped.saturating_add(counts.unwritten)
    }

    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// A process as far as selection knows it; the history's thread adds its name and where it runs.
    pub(crate) fn victim(&self, candidate: &Candidate) -> Victim {
        Victim {
            pid: candidate.pid,
            start_ns: candidate.start_ns,
            uid: candidate.uid,
            comm: String::new(),
            cmdline: None,
            cgroup: None,
            usage_bytes: self.page_size.to_bytes(candidate.usage.latest().unwrap_or_default()).0,
        }
    }

    /// Everyone a decision compared, without those that paid.
    pub(crate) fn peers(&self, decision: &Decision) -> Vec<Victim> {
        decision.peers.iter().map(|peer| self.victim(peer)).collect()
    }

    /// Writes an incident down; its number.
    pub(crate) fn record(&mut self, entry: Entry) -> u64 {
        let Entry { occasion, reason, usage, hard, victims, peers } = entry;
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let tally = if occasion.guard == Guard::Limits { &mut self.limits } else { &mut self.others };
        *tally = Tally { recorded: tally.recorded.saturating_add(1), last: Some(id) };
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        self.writer.record(Incident {
            id,
            time: time_of(occasion.crossed),
            account: occasion.account,
            guard: occasion.guard,
            trigger: occasion.trigger,
            action: match occasion.signal {
                Some(Signal::Kill) => Outcome::Kill,
                Some(Signal::Term) => Outcome::Term,
                None => Outcome::Notify,
            },
            victims,
            usage_bytes: bytes(usage),
            hard_bytes: hard.map(bytes),
            overshoot_bytes: hard.map_or(0, |hard| bytes(usage.saturating_sub(hard))),
            requested_bytes: None,
            cross_to_signal_ns: occasion
                .crossed
                .zip(occasion.signalled)
                .map(|(crossed, signalled)| signalled.0.saturating_sub(crossed.0)),
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: reason.to_string(),
            peers,
        });
        id
    }

    /// Adds what became known of an incident later.
    pub(crate) fn outcome(&self, id: u64, signal_to_freed: Option<Nanos>, freed: Option<Pages>) {
        self.writer.outcome(LaterFacts {
            id,
            signal_to_freed_ns: signal_to_freed.map(|span| span.0),
            freed_bytes: freed.map(|pages| self.page_size.to_bytes(pages).0),
        });
    }
}

/// The account of one user.
pub(crate) const fn user(uid: Uid) -> Account {
    Account::User(uid)
}

/// The wall-clock time of a moment on the monotonic clock; now, where there is none.
fn time_of(moment: Option<Nanos>) -> Timestamp {
    let now = Timestamp::now();
    let Some(moment) = moment else {
        return now;
    };
    let ago = plimsoll_sys::process::clock_monotonic_ns().saturating_sub(moment.0);
    now.checked_sub(std::time::Duration::from_nanos(ago)).unwrap_or(now)
}
