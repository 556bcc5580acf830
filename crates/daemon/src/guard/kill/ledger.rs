//! Numbers incidents and hands them to the history, which writes them in its own time.

use crate::{
    facts::jobs::JobFinder,
    history::{Counts, Draft, Inheritance, Outcome as LaterFacts, Writer},
    pressure_socket::Topic,
    tmalloc::{By, Refused},
};
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Compacted, Course, Guard, Incident, Outcome, Trigger, Victim, origin::Origin},
    lines::LineBook,
    reason::Reason,
    recorder::{Trail, Trails},
    reservation::Tier,
    selection::{Candidate, Decision, Weight},
    units::{Nanos, PageSize, Pages},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::{Membership, Note};
use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

/// An incident as the guard tells it.
#[derive(Debug)]
pub(crate) struct Entry {
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
    /// Why, in words.
    pub(crate) reason: Cow<'static, str>,
    pub(crate) usage: Pages,
    pub(crate) hard: Option<Pages>,
    pub(crate) victims: Vec<Victim>,
    pub(crate) peers: Vec<Victim>,
    /// How many kills it stands for, where they are not told one by one.
    pub(crate) unrecorded: Option<u64>,
    /// Of a kill that was not ours.
    pub(crate) origin: Option<Origin>,
    /// What the decision can be replayed from.
    pub(crate) trace: Option<String>,
}

impl Entry {
    /// Of the machine, with nobody in it and no moment known.
    pub(crate) fn new(guard: Guard, trigger: Trigger, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            account: None,
            guard,
            trigger,
            signal: None,
            crossed: None,
            signalled: None,
            reason: reason.into(),
            usage: Pages(0),
            hard: None,
            victims: Vec::new(),
            peers: Vec::new(),
            unrecorded: None,
            origin: None,
            trace: None,
        }
    }

    /// Likewise, of the line of an account.
    pub(crate) fn of_line(account: impl Into<Account>, trigger: Trigger, reason: Reason) -> Self {
        Self { account: Some(account.into()), ..Self::new(Guard::Limits, trigger, reason.text()) }
    }

    /// Of what was decided about the line of an account.
    pub(crate) fn of_decision(account: impl Into<Account>, decision: &Decision) -> Self {
        Self {
            crossed: decision.asked_at,
            usage: decision.usage,
            hard: Some(decision.hard),
            ..Self::of_line(account, Trigger::Daemon, decision.reason)
        }
    }
}

/// Counts incidents and knows where they go.
#[derive(Debug)]
pub(crate) struct Ledger {
    writer: Writer,
    next_id: u64,
    page_size: PageSize,
    /// Of the limits guard, of refusals, of the floor, of large blocks, of our others, of those that are not ours: how many,
    /// and the last.
    limits: Tally,
    refusals: Tally,
    floor: Tally,
    blocks: Tally,
    others: Tally,
    foreign: Tally,
    inheritance: Inheritance,
    trails: Trails,
    /// For the jobs that victims were in.
    book: Arc<LineBook>,
    jobs: Option<JobFinder>,
    /// Those that something was done in since this was taken.
    done_in: BTreeSet<Topic>,
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
            blocks: Tally::default(),
            others: Tally::default(),
            foreign: Tally::default(),
            inheritance: Inheritance::default(),
            trails: Trails::default(),
            book: Arc::default(),
            jobs: None,
            done_in: BTreeSet::new(),
        }
    }

    /// The number of the next incident.
    pub(crate) const fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Tells the jobs of processes from here on.
    pub(crate) fn tell_jobs(self, jobs: JobFinder) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    /// These are the lines, and the jobs, now.
    pub(crate) fn take_book(&mut self, book: &Arc<LineBook>) {
        self.book = Arc::clone(book);
    }

    /// The jobs that something was done in since the last call.
    pub(crate) fn take_done_in(&mut self) -> impl Iterator<Item = Topic> {
        core::mem::take(&mut self.done_in).into_iter()
    }

    /// Which job processes are in, while there are any, for who holds them.
    pub(crate) fn membership(&self) -> Option<Membership> {
        self.finder()?.membership()
    }

    /// Finds which job a process is in, which may be on its way out.
    pub(crate) fn find_job(&self, process: &mut Victim) {
        let id = VictimId { pid: process.pid, start_ns: process.start_ns };
        if process.jobs.is_empty() {
            process.jobs.extend(self.finder().and_then(|finder| finder.job_of(id)));
        }
    }

    fn finder(&self) -> Option<&JobFinder> {
        self.jobs.as_ref().filter(|_| !self.book.jobs().is_empty())
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
        self.inheritance.incident(victim, action(Some(signal)))
    }

    /// Notes what is about to be done to a process, so that it is known should the daemon die before it is recorded.
    /// Allocates nothing and waits for nothing; to be kept until then.
    pub(crate) fn intend(&self, entry: &Entry, victim: &Victim) -> Option<Note> {
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        self.writer.notes()?.intend(&Draft {
            id: self.next_id,
            time: time_of(entry.crossed),
            account: entry.account.as_ref(),
            guard: entry.guard,
            trigger: entry.trigger,
            action: action(entry.signal),
            victims: core::slice::from_ref(victim),
            usage_bytes: bytes(entry.usage),
            hard_bytes: entry.hard.map(bytes),
            overshoot_bytes: entry.hard.map_or(0, |hard| bytes(entry.usage.saturating_sub(hard))),
            requested_bytes: None,
            unrecorded: None,
            cross_to_signal_ns: None,
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: &entry.reason,
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
            Guard::Fragmentation => self.blocks,
            Guard::Pressure => self.others,
        }
    }

    /// How writing goes: what did not go well, and from an incident to its commit, the last one's and the longest, in
    /// nanoseconds.
    pub(crate) fn written(&self) -> (Counts, Option<(u64, u64)>) {
        (self.writer.counts(), self.writer.commit_ns())
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
            jobs: Vec::new(),
        }
    }

    /// Everyone a decision compared, without those that paid.
    pub(crate) fn peers(&self, decision: &Decision) -> Vec<Victim> {
        decision.peers.iter().map(|peer| self.victim(peer)).collect()
    }

    /// Writes an incident down; its number.
    pub(crate) fn record(&mut self, entry: Entry) -> u64 {
        self.record_followed(entry, true)
    }

    /// Likewise. Unless its account is `followed`, the machine's course alone goes on: anybody can have the kernel kill again
    /// and again, and looking at all accounts each second must not come of that.
    pub(crate) fn record_followed(&mut self, entry: Entry, followed: bool) -> u64 {
        let account = entry.account.clone().filter(|_| followed);
        let (decided, is_one) = (entry.crossed.or(entry.signalled), entry.unrecorded.is_none());
        let incident = self.incident(entry);
        let id = incident.id;
        self.writer.record(incident);
        if is_one {
            self.trails.begin(id, account, decided);
        }
        id
    }

    /// Writes an incident down that stands for many; whether there was room.
    pub(crate) fn record_number(&mut self, entry: Entry, count: u64) -> bool {
        let dropped = self.writer.dropped();
        self.record(Entry { unrecorded: Some(count), ..entry });
        self.writer.dropped() == dropped
    }

    fn incident(&mut self, mut entry: Entry) -> Incident {
        for jobs in entry.victims.iter_mut().map(|victim| &mut victim.jobs) {
            let around = jobs.first().map(|innermost| self.book.jobs().around(*innermost));
            jobs.extend(around.into_iter().flatten());
        }
        let own = entry.account.as_ref().and_then(|account| match account {
            Account::Job(id) => Some(*id),
            Account::User(_) | Account::Group(_) | Account::Cgroup(_) | Account::System => None,
        });
        let jobs = entry.victims.iter().flat_map(|victim| &victim.jobs).copied().chain(own);
        let book = &self.book;
        let topic = |id| Some(Topic { owner: book.jobs().get(id)?.user, job: Some(id) });
        self.done_in.extend(jobs.filter_map(topic));
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        let took = |(crossed, signalled): (Nanos, Nanos)| signalled.0.saturating_sub(crossed.0);
        let (usage_bytes, hard_bytes) = (bytes(entry.usage), entry.hard.map(bytes));
        Incident {
            id: self.number(entry.guard),
            time: time_of(entry.crossed),
            account: entry.account,
            guard: entry.guard,
            trigger: entry.trigger,
            action: action(entry.signal),
            victims: entry.victims,
            usage_bytes,
            hard_bytes,
            overshoot_bytes: hard_bytes.map_or(0, |hard| usage_bytes.saturating_sub(hard)),
            requested_bytes: None,
            unrecorded: entry.unrecorded,
            cross_to_signal_ns: entry.crossed.zip(entry.signalled).map(took),
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: entry.reason.into_owned(),
            peers: entry.peers,
            origin: entry.origin,
            compaction: None,
            course: entry.trace.map(|trace| Course { trace: Some(trace), ..Course::default() }),
        }
    }

    /// Writes a refusal down. Its course does not go on: whoever is refused without end must not keep the sampler busy.
    pub(crate) fn record_refusal(&mut self, refused: &Refused, victim: Victim) {
        let (guard, trigger, action) = match refused.by {
            By::Grants => (Guard::Tmalloc, Trigger::Daemon, Outcome::Refuse),
            By::Strict | By::StrictFork => (Guard::Limits, Trigger::InKernel, Outcome::Deny),
        };
        let entry = Entry {
            account: Some(refused.whose.into()),
            usage: refused.usage,
            hard: Some(refused.hard),
            victims: Vec::from([victim]),
            ..Entry::new(guard, trigger, refused.numbers(self.page_size))
        };
        let incident = self.incident(entry);
        let requested_bytes = Some(self.page_size.to_bytes(refused.requested).0);
        self.writer.record(Incident { action, overshoot_bytes: 0, requested_bytes, ..incident });
    }

    /// Writes down what compaction did. Nobody was signalled, and no course goes on.
    pub(crate) fn record_compaction(&mut self, compacted: Compacted, reason: Reason) {
        let entry = Entry::new(Guard::Fragmentation, Trigger::Daemon, reason.text());
        let incident = self.incident(entry);
        self.writer.record(Incident { compaction: Some(compacted), ..incident });
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
            Guard::Fragmentation => &mut self.blocks,
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

const fn action(signal: Option<Signal>) -> Outcome {
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

/// The wall-clock time of a moment on the monotonic clock; now, where there is none.
fn time_of(moment: Option<Nanos>) -> Timestamp {
    let now = Timestamp::now();
    let Some(moment) = moment else {
        return now;
    };
    let ago = plimsoll_sys::process::clock_monotonic_ns().saturating_sub(moment.0);
    now.checked_sub(std::time::Duration::from_nanos(ago)).unwrap_or(now)
}
