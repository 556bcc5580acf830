//! Numbers incidents and hands them to the history, which writes them in its own time.

use crate::{
    coordinator::Refused,
    history::{Draft, Inheritance, Outcome as LaterFacts, Writer},
};
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Incident, Outcome, Trigger, Victim, origin::Origin},
    reason::Reason,
    recorder::{Trail, Trails},
    reservation::Tier,
    selection::{Candidate, Decision, Weight},
    units::{Nanos, PageSize, Pages, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::{AccountFacts, Note};

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

/// What few incidents have.
#[derive(Debug, Default)]
struct Details {
    unrecorded: Option<u64>,
    origin: Option<Origin>,
    /// Its account's course does not go on.
    unfollowed: bool,
}

/// What is about to be done to one process, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intent<'a> {
    pub(crate) occasion: Occasion,
    pub(crate) reason: Reason,
    pub(crate) usage: Pages,
    pub(crate) hard: Option<Pages>,
    pub(crate) victim: &'a Victim,
}

/// Counts incidents and knows where they go.
#[derive(Debug)]
pub(crate) struct Ledger {
    writer: Writer,
    next_id: u64,
    page_size: PageSize,
    /// Of the limits guard, of refusals, of the floor, of our others, of those that are not ours: how many, and the last.
    limits: Tally,
    refusals: Tally,
    floor: Tally,
    others: Tally,
    foreign: Tally,
    inheritance: Inheritance,
    trails: Trails,
}

/// Incidents of this run of the daemon.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    recorded: u64,
    last: Option<u64>,
}

impl Ledger {
    pub(crate) fn new(writer: Writer, next_id: u64, page_size: PageSize) -> Self {
        Self {
            writer,
            next_id,
            page_size,
            limits: Tally::default(),
            refusals: Tally::default(),
            floor: Tally::default(),
            others: Tally::default(),
            foreign: Tally::default(),
            inheritance: Inheritance::default(),
            trails: Trails::default(),
        }
    }

    /// Incidents of the last seconds, whose course goes on.
    pub(crate) const fn trails(&self) -> &Trails {
        &self.trails
    }

    /// Those that were written down since the last call, and do not say when they were decided, were so now.
    pub(crate) fn date_trails(&mut self, now: Nanos) {
        self.trails.date(now);
    }

    /// The next whose course has gone on for long enough.
    pub(crate) fn next_over(&mut self, now: Nanos) -> Option<Trail> {
        self.trails.next_over(now)
    }

    /// Records what an earlier daemon did and did not come to write.
    pub(crate) fn inherit(&mut self, mut inheritance: Inheritance) {
        for (incident, note) in inheritance.untold.drain(..) {
            self.next_id = self.next_id.max(incident.id.saturating_add(1));
            self.writer.inherit(incident, note);
        }
        self.inheritance = inheritance;
    }

    /// The incident in which an earlier daemon recorded that it, or the kernel side, had sent this signal.
    pub(crate) fn inherited(&self, victim: VictimId, signal: Signal) -> Option<u64> {
        self.inheritance.incident(victim, outcome_of(Some(signal)))
    }

    /// Notes what is about to be done, so that it is known should the daemon die before it is recorded. Allocates nothing
    /// and waits for nothing; to be kept until then.
    pub(crate) fn intend(&self, intent: &Intent<'_>) -> Option<Note> {
        let Intent { occasion, reason, usage, hard, victim } = *intent;
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        self.writer.journal()?.intend(&Draft {
            id: self.next_id,
            time: time_of(occasion.crossed),
            account: occasion.account,
            guard: occasion.guard,
            trigger: occasion.trigger,
            action: outcome_of(occasion.signal),
            victims: core::slice::from_ref(victim),
            usage_bytes: bytes(usage),
            hard_bytes: hard.map(bytes),
            overshoot_bytes: hard.map_or(0, |hard| bytes(usage.saturating_sub(hard))),
            requested_bytes: None,
            unrecorded: None,
            cross_to_signal_ns: None,
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: reason.text(),
            peers: [],
            origin: None,
        })
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
        match guard {
            Guard::Limits => self.limits,
            Guard::Kernel => self.foreign,
            Guard::Tmalloc => self.refusals,
            Guard::Workingset => self.floor,
            Guard::Pressure => self.others,
        }
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
            weight_permille: told(candidate.weight),
            session: candidate.tier == Tier::Session,
        }
    }

    /// Everyone a decision compared, without those that paid.
    pub(crate) fn peers(&self, decision: &Decision) -> Vec<Victim> {
        decision.peers.iter().map(|peer| self.victim(peer)).collect()
    }

    /// Writes an incident down; its number.
    pub(crate) fn record(&mut self, entry: Entry) -> u64 {
        self.write(entry, Details::default())
    }

    /// Likewise, of a kill that was not ours. Unless its account is `followed`, the machine's course alone goes on: anybody
    /// can have the kernel kill again and again, and looking at all accounts each second must not come of that.
    pub(crate) fn record_foreign(&mut self, entry: Entry, origin: Origin, followed: bool) -> u64 {
        self.write(entry, Details { unrecorded: None, origin: Some(origin), unfollowed: !followed })
    }

    /// Writes down that the kernel's own OOM killer has acted so often without its records finding room.
    pub(crate) fn unrecorded_of_kernel(&mut self, count: u64) {
        let occasion = Occasion {
            account: None,
            guard: Guard::Kernel,
            trigger: Trigger::Kernel,
            signal: Some(Signal::Kill),
            crossed: None,
            signalled: None,
        };
        let reason = Reason::KernelKillsNotRecorded;
        let entry =
            Entry { occasion, reason, usage: Pages(0), hard: None, victims: Vec::new(), peers: Vec::new() };
        self.write(entry, Details { unrecorded: Some(count), ..Details::default() });
    }

    /// Writes down that the kernel side has acted so often without being able to tell; whether there was room.
    pub(crate) fn unrecorded(&mut self, count: u64) -> bool {
        let dropped = self.writer.dropped();
        let occasion = Occasion {
            account: None,
            guard: Guard::Limits,
            trigger: Trigger::InKernel,
            signal: None,
            crossed: None,
            signalled: None,
        };
        let reason = Reason::ActionsNotRecorded;
        let (victims, peers) = (Vec::new(), Vec::new());
        self.write(
            Entry { occasion, reason, usage: Pages(0), hard: None, victims, peers },
            Details { unrecorded: Some(count), ..Details::default() },
        );
        self.writer.dropped() == dropped
    }

    /// Writes down that so many processes of an account were signalled in the kernel and are told of by their number alone;
    /// whether there was room.
    pub(crate) fn folded(&mut self, account: &AccountFacts) -> bool {
        let dropped = self.writer.dropped();
        let occasion = Occasion {
            account: Some(user(account.uid)),
            guard: Guard::Limits,
            trigger: Trigger::InKernel,
            signal: Some(if account.signal == 15 { Signal::Term } else { Signal::Kill }),
            crossed: None,
            signalled: None,
        };
        let (reason, hard) = (Reason::IncidentsFolded, account.effective);
        let (victims, peers) = (Vec::new(), Vec::new());
        self.write(
            Entry { occasion, reason, usage: Pages(0), hard, victims, peers },
            Details { unrecorded: Some(account.folded.into()), ..Details::default() },
        );
        self.writer.dropped() == dropped
    }

    fn write(&mut self, entry: Entry, details: Details) -> u64 {
        let Entry { occasion, reason, usage, hard, victims, peers } = entry;
        let id = self.number(occasion.guard);
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        self.writer.record(Incident {
            id,
            time: time_of(occasion.crossed),
            account: occasion.account,
            guard: occasion.guard,
            trigger: occasion.trigger,
            action: outcome_of(occasion.signal),
            victims,
            usage_bytes: bytes(usage),
            hard_bytes: hard.map(bytes),
            overshoot_bytes: hard.map_or(0, |hard| bytes(usage.saturating_sub(hard))),
            requested_bytes: None,
            unrecorded: details.unrecorded,
            cross_to_signal_ns: occasion
                .crossed
                .zip(occasion.signalled)
                .map(|(crossed, signalled)| signalled.0.saturating_sub(crossed.0)),
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: reason.to_string(),
            peers,
            origin: details.origin,
            course: None,
        });
        if details.unrecorded.is_none() {
            let account = occasion.account.filter(|_| !details.unfollowed);
            self.trails.begin(id, account, occasion.crossed.or(occasion.signalled));
        }
        id
    }

    /// Writes a refusal down. Its course does not go on: whoever is refused without end must not keep the sampler busy.
    pub(crate) fn record_refusal(&mut self, refused: &Refused, victim: Victim) {
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        let reason = refused.numbers(self.page_size);
        let (usage_bytes, hard_bytes) = (bytes(refused.usage), bytes(refused.hard));
        let requested_bytes = Some(bytes(refused.requested));
        let id = self.number(Guard::Tmalloc);
        self.writer.record(Incident {
            id,
            time: Timestamp::now(),
            account: Some(user(refused.user)),
            guard: Guard::Tmalloc,
            trigger: Trigger::Daemon,
            action: Outcome::Refuse,
            victims: Vec::from([victim]),
            usage_bytes,
            hard_bytes: Some(hard_bytes),
            overshoot_bytes: 0,
            requested_bytes,
            unrecorded: None,
            cross_to_signal_ns: None,
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason,
            peers: Vec::new(),
            origin: None,
            course: None,
        });
    }

    /// The number of the next incident, which is counted for this guard.
    fn number(&mut self, guard: Guard) -> u64 {
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let tally = match guard {
            Guard::Limits => &mut self.limits,
            Guard::Kernel => &mut self.foreign,
            Guard::Tmalloc => &mut self.refusals,
            Guard::Workingset => &mut self.floor,
            Guard::Pressure => &mut self.others,
        };
        *tally = Tally { recorded: tally.recorded.saturating_add(1), last: Some(id) };
        id
    }

    /// Adds what became known of an incident later.
    pub(crate) fn outcome(&self, id: u64, signal_to_freed: Option<Nanos>, freed: Option<Pages>) {
        self.writer.outcome(LaterFacts {
            id,
            signal_to_freed_ns: signal_to_freed.map(|span| span.0),
            freed_bytes: freed.map(|pages| self.page_size.to_bytes(pages).0),
            course: None,
        });
    }
}

const fn outcome_of(signal: Option<Signal>) -> Outcome {
    match signal {
        Some(Signal::Kill) => Outcome::Kill,
        Some(Signal::Term) => Outcome::Term,
        None => Outcome::Notify,
    }
}

/// What a process counted, where that is not its size.
pub(crate) fn told(weight: Weight) -> Option<u16> {
    (weight != Weight::NEUTRAL).then_some(weight.permille())
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
