//! Lines of cgroups and of the machine: usage is what the kernel itself has counted, which raises no event, so that it is
//! looked at again and again while CPUs work; what follows from it is decided as for a user's line.
//!
//! All processes are listed when a line is crossed, as for the machine guard, and those below a cgroup are selected from that
//! list by the same rules.

use super::{
    context::Context,
    kernel::Kernel,
    kill::{
        Kill,
        company::{announce, end_together},
        ledger::Entry,
        pending::Owner,
    },
    request::Change,
    selection::{
        census::{Belonging, Census, Company, LOOKS_MAX},
        patience::Patience,
    },
};
use crate::facts::meter::{self, Look, Looked, Order};
use plimsoll_api::accounts::AccountView;
use plimsoll_policy::{
    account::Account,
    human::escaped,
    incident::Trigger,
    limits::{IN_FLIGHT_MAX, LimitAction, LimitState, Snapshot, apart, decide, effective},
    lines::{LineBook, Resolved, Target},
    reading::Reading,
    reason::Reason,
    recorder::AccountNow,
    selection::{Candidate, Decision, Standing, rank_without},
    units::{Bytes, Nanos, PageSize, Pages, Pid, Uid},
    victim::{Signal, SignalOutcome, Stage, VictimId},
};
use plimsoll_sys::{bpf::Awaited, cgroup::Programs};
use std::collections::{BTreeMap, BTreeSet};

/// Decisions in a row for one look: each either ends something or is the last.
const STEPS_MAX: usize = IN_FLIGHT_MAX;

/// A list of processes is good for a look that began so soon after it. Usage is read after the list is made: who has gone since
/// is in neither, and nobody dies for what has come back.
const LIST_HOLDS: Nanos = Nanos(50_000_000);

/// Several are ended for one look where they hold less than a quarter of what is missing, as a shift.
const FALLS_SHORT_SHIFT: u32 = 2;

/// A sixteenth of what one on its way out was seen to hold, as a shift.
const NOT_KNOWN_SHIFT: u32 = 4;

/// The next look is no sooner, whatever is due: 10 ms.
const AGAIN: Nanos = Nanos(10_000_000);

/// From one look to the next while a victim is on its way out: its end is told.
const DYING_AGAIN: Nanos = Nanos(100_000_000);

/// The same where the last could not decide, and all CPUs idle.
const UNSETTLED_AGAIN: Nanos = Nanos(1_000_000_000);

/// A look that takes longer is told of.
const LATE: Nanos = Nanos(5_000_000_000);

/// The number of what has no line any more.
const NOBODY: u32 = u32::MAX;

/// What stands in the place of a line in force before the first look.
const OPEN: Pages = Pages(u64::MAX);

/// One line.
#[derive(Debug)]
struct Watch {
    account: Account,
    line: Resolved,
    /// The line in force.
    effective: Pages,
    usage: Reading<Pages>,
    /// By how much usage rose since the look before.
    rose: Pages,
    /// Of the usage, what no process counts as its own.
    mapped: Pages,
    peak: Pages,
    state: LimitState,
    /// When to look next, as soon as a CPU works.
    due: Nanos,
    /// When to, though none does.
    timer: Option<Nanos>,
    /// When a victim went last.
    gone: Nanos,
    /// Who is in the cgroup, as it was last told.
    members: Option<BTreeSet<Pid>>,
    patience: Patience,
    /// Usage when nobody was on the way out yet, or when one was found to be: so much of what is dying makes room at most.
    most: Pages,
    /// Who was asked to end, and where it belonged then.
    asked: Option<(VictimId, Belonging)>,
    /// A cgroup went whole with the last victim: nobody else goes before all of it is gone.
    ending: bool,
    /// It was found crossed, processes were listed, and the next look decides.
    confirms: bool,
    /// It is crossed, and the last look could not decide.
    unsettled: bool,
}

impl Watch {
    fn new(account: Account, line: Resolved, now: Nanos) -> Self {
        Self {
            account,
            line,
            effective: OPEN,
            usage: Reading::Stale { value: Pages(0), age_ns: 0 },
            rose: Pages(0),
            mapped: Pages(0),
            peak: Pages(0),
            state: LimitState::default(),
            due: now,
            timer: Some(now),
            gone: Nanos(0),
            members: None,
            patience: Patience::default(),
            most: Pages(0),
            asked: None,
            ending: false,
            confirms: false,
            unsettled: false,
        }
    }

    /// Has it looked at by then, whatever else happens.
    const fn look_at(&mut self, moment: Nanos) {
        (self.due, self.timer) = (moment, Some(moment));
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.due <= now || self.timer.is_some_and(|timer| timer <= now)
    }

    fn is_over(&self) -> bool {
        self.usage.known().is_some_and(|usage| usage > self.effective)
    }

    /// Whether it is one of those that may be selected: who was signalled still is when it leaves the cgroup.
    fn concerns(&self, id: VictimId) -> bool {
        self.account == Account::System
            || self.members.as_ref().is_some_and(|members| members.contains(&id.pid))
            || self.state.in_flight().iter().any(|flight| flight.victim == id)
    }

    /// Takes in what was seen.
    fn see(&mut self, look: Look, page_size: PageSize) {
        let before = self.usage.latest().unwrap_or_default();
        let nothing = Programs { usage: Bytes(0), settled: Bytes(0), mapped: Bytes(0) };
        let seen = match look.usage {
            // Nobody is in a cgroup that is not there.
            Reading::Absent => Reading::Known(nothing),
            seen @ (Reading::Known(_) | Reading::Stale { .. } | Reading::Unreadable) => seen,
        };
        self.usage = seen.map(|programs| page_size.to_pages(programs.usage));
        if let (OPEN, Some(line)) = (self.effective, look.inherited) {
            self.effective = page_size.to_pages(line).max(self.line.hard);
        }
        self.members = look.members;
        if let Some(Programs { usage, settled, mapped }) = seen.known() {
            let usage = page_size.to_pages(usage);
            // The line in force falls with what is sure to have gone.
            let most = page_size.to_pages(settled).max(usage);
            self.effective = effective(self.effective, self.line.hard, most);
            self.rose = usage.saturating_sub(before);
            self.mapped = page_size.to_pages(mapped);
            self.peak = self.peak.max(usage);
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Measured {
    watched: BTreeMap<u32, Watch>,
    next_key: u32,
    /// Where there is a line.
    census: Option<Census>,
    /// Drawn when the daemon began, and not looked at yet: an earlier one may have had them in force. `None`: it has not begun.
    inheriting: Option<BTreeSet<u32>>,
    /// Their lines are drawn no more, which has not been told yet.
    dropped: Vec<Account>,
    /// When all processes were listed last.
    listed: Option<Nanos>,
    /// Programs tell when the next look is due.
    told_by_programs: bool,
    /// A look is under way, since then.
    asked: Option<Nanos>,
}

impl Measured {
    /// Brings the lines to what the book says. One that stands already, unchanged, keeps the line in force that it has.
    pub(super) fn draw(&mut self, book: &LineBook, change: &Change, of: (Bytes, PageSize), now: Nanos) {
        let (mem_total, page_size) = of;
        let wanted: BTreeMap<Target, Resolved> = book
            .measured()
            .into_iter()
            .filter_map(|target| {
                let line = book.resolve_target(&target, mem_total, page_size)?;
                Some((target, line))
            })
            .collect();
        let dropped = &mut self.dropped;
        self.watched.retain(|_, watch| {
            let stays = wanted.contains_key(&watch.line.set_as.target());
            dropped.extend((!stays).then(|| watch.account.clone()));
            stays
        });
        for (target, line) in wanted {
            let at_once = matches!(change, Change::One { place, now: true } if place.target() == target);
            let Some(account) = target.measured() else { continue };
            let known = self.watched.iter().find(|(_, watch)| watch.account == account).map(|(key, _)| *key);
            let key = known.unwrap_or(self.next_key);
            if known.is_none() {
                self.next_key = self.next_key.saturating_add(1);
            }
            let watch = self.watched.entry(key).or_insert_with(|| Watch::new(account, line.clone(), now));
            if watch.line != line || at_once {
                watch.line = line;
                watch.look_at(now);
            }
            if at_once {
                watch.effective = watch.line.hard;
            }
        }
        self.inheriting.get_or_insert_with(|| self.watched.keys().copied().collect());
        if self.watched.is_empty() {
            self.census = None;
        } else {
            self.census.get_or_insert_with(Census::new);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Whether one of them is at its soft limit.
    pub(super) fn any_near(&self) -> bool {
        self.watched.values().any(|watch| watch.state.is_near())
    }

    /// When to look next though nothing happens, or to see that a look is late.
    pub(super) fn due(&self) -> Option<Nanos> {
        match self.asked {
            Some(since) => (!self.watched.is_empty()).then(|| since.saturating_add(LATE)),
            None => {
                let told = self.told_by_programs;
                let next = |watch: &Watch| watch.timer.into_iter().chain((!told).then_some(watch.due)).min();
                self.watched.values().filter_map(next).min()
            }
        }
    }

    /// Has programs wake it for the next look.
    pub(super) fn plan<K: Kernel>(&mut self, context: &mut Context<K>) {
        let next = self.watched.values().map(|watch| watch.due).min().filter(|_| self.asked.is_none());
        if let Some(next) = next {
            self.told_by_programs = context.kernel.ask_look(Awaited::Usage, next);
        }
    }

    /// Has everything looked at whose time has come.
    pub(super) fn tend<K: Kernel>(&mut self, context: &mut Context<K>) {
        let now = context.now();
        for (owner, victim, since) in context.pending.asked() {
            if let Owner::Measured(key) = owner
                && let Some(watch) = self.watched.get_mut(&key)
            {
                watch.state.still_asked(victim, since);
            }
        }
        if let Some(since) = self.asked {
            if now >= since.saturating_add(LATE) && !self.watched.is_empty() {
                let late = "no answer for 5 s: lines of cgroups and of the system wait for it";
                context.notices.once("usage", &late);
                self.asked = Some(now);
            }
            return;
        }
        let page_size = context.ledger.page_size();
        let inheriting = &mut self.inheriting;
        let acts = !context.config.dry_run && context.config.triggers.daemon;
        let due = self.watched.iter_mut().filter(|(_, watch)| watch.is_due(now));
        let mut orders: Vec<Order> = due
            .map(|(key, watch)| {
                watch.look_at(now.saturating_add(LATE));
                let line = page_size.to_bytes(watch.effective);
                let hard = acts.then(|| page_size.to_bytes(watch.line.hard));
                let inherits = inheriting.as_mut().is_some_and(|keys| keys.remove(key));
                Order { key: *key, account: watch.account.clone(), line, hard, inherits }
            })
            .collect();
        let dropped = self.dropped.drain(..);
        orders.extend(dropped.map(|account| Order {
            key: NOBODY,
            account,
            line: meter::OPEN,
            hard: None,
            inherits: false,
        }));
        if !orders.is_empty() {
            self.asked = context.workers.meter.ask(orders).then_some(now);
        }
    }

    /// Decides about what was seen, and acts.
    pub(super) fn take<K: Kernel>(&mut self, looked: Looked, context: &mut Context<K>) {
        let began = context.now();
        self.asked = None;
        context.kernel.begin_decision();
        let page_size = context.ledger.page_size();
        let mut keys = Vec::with_capacity(looked.looks.len());
        for look in looked.looks {
            let key = look.key;
            // Who has gone since it began would be counted still, and another would go for that.
            if let Some(watch) = self.watched.get_mut(&key).filter(|watch| watch.gone <= looked.began) {
                keys.push(key);
                watch.see(look, page_size);
                let is_ready = self.is_ready(key, (looked.began, began), context);
                let settled = is_ready && self.judge(key, looked.began, context);
                if let Some(watch) = self.watched.get_mut(&key) {
                    watch.unsettled = !settled && watch.is_over();
                }
            }
        }
        let now = context.now();
        let took = looked.took.saturating_add(now.saturating_sub(began));
        for (_, watch) in self.watched.iter_mut().filter(|(key, _)| keys.contains(*key)) {
            plan_look(watch, looked.cpus, (now, took), context);
        }
    }

    /// Whether it can be decided about a line. Where it is crossed, processes are listed first, and another look decides.
    fn is_ready<K: Kernel>(
        &mut self,
        key: u32,
        (looked, began): (Nanos, Nanos),
        context: &mut Context<K>,
    ) -> bool {
        let (Some(watch), Some(census)) = (self.watched.get_mut(&key), self.census.as_mut()) else {
            return false;
        };
        if !watch.is_over() {
            watch.confirms = false;
            return true;
        }
        let holds = |at: &Nanos| watch.confirms || looked.saturating_sub(*at) <= LIST_HOLDS;
        if self.listed.filter(|at| looked >= *at).is_some_and(|at| holds(&at)) {
            watch.confirms = false;
            return true;
        }
        watch.confirms = self.listed.is_some_and(|at| at >= began) || {
            self.listed = None;
            let shared = context.kernel.read_meminfo().ok().and_then(|info| info.shared);
            let shared = shared.map(|bytes| context.ledger.page_size().to_pages(bytes));
            let shared = shared.map_or(Reading::Absent, Reading::Known);
            match census.take(&mut context.kernel, shared) {
                Ok(()) => self.listed = Some(context.now()),
                Err(error) => context.notices.once("lines", &error),
            }
            self.listed.is_some()
        };
        false
    }

    /// A victim is gone: whether one more has to go is seen at once.
    pub(super) fn freed(&mut self, key: u32, victim: VictimId, now: Nanos) {
        if let Some(watch) = self.watched.get_mut(&key) {
            watch.state.outcome(victim, SignalOutcome::Freed, now);
            watch.gone = now;
            watch.look_at(now);
        }
    }

    /// Decides about one line, and acts, until there is nothing to do; false where that is not known yet.
    fn judge<K: Kernel>(&mut self, key: u32, seen: Nanos, context: &mut Context<K>) -> bool {
        if !context.config.triggers.daemon {
            return true;
        }
        let mut looks_left = LOOKS_MAX;
        for _ in 0..STEPS_MAX {
            let found = self.candidates(key, &mut looks_left, context);
            let Some((candidates, usage)) = found else { return false };
            let Some(watch) = self.watched.get_mut(&key) else { return true };
            let known =
                |one: &Candidate| watch.state.in_flight().iter().any(|flight| flight.victim == one.id());
            let dying = || candidates.iter().filter(|one| one.standing == Standing::Dying);
            let now = usage.known().unwrap_or_default();
            if watch.state.in_flight().is_empty() {
                watch.most = now;
            } else if dying().any(|one| !known(one)) {
                // Another is found on its way out: what it holds came after the first.
                watch.most = watch.most.max(now);
            }
            let snapshot = Snapshot {
                usage,
                effective_hard: watch.effective,
                hard: watch.line.hard,
                soft: watch.line.soft,
                dying: Pages(0),
                may_leave: dying().map(not_known_of).sum(),
                dying_most: watch.effective.max(watch.most),
                action: watch.line.action,
                candidates: &candidates,
                kernel_asked_at: Some(seen),
            };
            let state = core::mem::take(&mut watch.state);
            let (state, next) = decide(&snapshot, &context.config, state, context.now());
            watch.state = state;
            if !self.carry_out(key, next, context) {
                return true;
            }
        }
        false
    }

    /// Those that the decision is about, nobody where the line is not crossed; and the usage that it goes by. `None`: it cannot
    /// be decided now.
    fn candidates<K: Kernel>(
        &mut self,
        key: u32,
        looks_left: &mut usize,
        context: &mut Context<K>,
    ) -> Option<(Vec<Candidate>, Reading<Pages>)> {
        let (watch, census) = (self.watched.get_mut(&key)?, self.census.as_mut()?);
        if !watch.is_over() {
            return Some((Vec::new(), watch.usage));
        }
        if watch.ending && context.workers.groups.busy() {
            return None;
        }
        watch.ending = false;
        // It was told of a line that has fallen since.
        if watch.members.is_none() && watch.account != Account::System {
            return None;
        }
        let skip = |id| !watch.concerns(id) || watch.state.skipped(id);
        let effort = census.resolve(&mut context.kernel, &context.eligibility, *looks_left, skip);
        *looks_left = looks_left.saturating_sub(effort.looks);
        let candidates: Vec<Candidate> =
            census.candidates().iter().filter(|one| watch.concerns(one.id())).copied().collect();
        // Nobody goes for what none of them has.
        let held = |one: &Candidate| one.usage.latest().unwrap_or_default().saturating_add(one.doubt.error);
        let held = candidates.iter().map(held).sum::<Pages>().saturating_add(watch.mapped);
        let usage = watch.usage.map(|usage| usage.min(held));
        let first = rank_without(&candidates, skip).first().copied();
        // Whoever could not be looked at may come first, or be all there is.
        let passed_over =
            |id: VictimId| !candidates.iter().any(|one| one.id() == id) || watch.state.skipped(id);
        let waits = watch.patience.waits_for_looks(census, first.as_ref(), passed_over, context.kernel.now());
        (!waits).then_some((candidates, usage))
    }

    /// Carries one action out; whether to decide again.
    fn carry_out<K: Kernel>(&mut self, key: u32, action: LimitAction, context: &mut Context<K>) -> bool {
        match action {
            LimitAction::None => false,
            LimitAction::Near { .. } | LimitAction::Far { .. } => true,
            LimitAction::UsageUnknown => {
                if let Some(watch) = self.watched.get(&key) {
                    let account = escaped(&watch.account.to_string());
                    context
                        .notices
                        .say(format_args!("{account}: what it uses cannot be read; its line waits for that"));
                }
                true
            }
            LimitAction::Kill(decision) if !decision.dry_run => {
                self.send(key, &decision, Signal::Kill, context)
            }
            LimitAction::Term(decision) if !decision.dry_run => {
                self.send(key, &decision, Signal::Term, context)
            }
            LimitAction::Kill(decision)
            | LimitAction::Term(decision)
            | LimitAction::Notify(decision)
            | LimitAction::NothingKillable(decision) => {
                if let Some(watch) = self.watched.get(&key) {
                    let victims = decision.together().map(|one| context.ledger.victim(one)).collect();
                    let peers = context.ledger.peers(&decision);
                    let entry = Entry::of_decision(watch.account.clone(), &decision);
                    context.ledger.record(Entry { victims, peers, ..entry });
                }
                false
            }
            LimitAction::Escalate { victim, reason, .. } => self.escalate(key, victim, reason, context),
        }
    }

    /// Signals the first victim, and those that share its memory; with SIGKILL also those that go with it. Whether to decide
    /// again.
    fn send<K: Kernel>(
        &mut self,
        key: u32,
        decision: &Decision,
        signal: Signal,
        context: &mut Context<K>,
    ) -> bool {
        let (Some(watch), Some(census)) = (self.watched.get_mut(&key), self.census.as_mut()) else {
            return false;
        };
        let Some(first) = decision.victims.first().map(Candidate::id) else { return false };
        if !census.stands(first, &mut context.kernel, &context.eligibility) {
            return true;
        }
        let belonging = census.belonging(first, &mut context.kernel, &context.eligibility);
        let belonging = within(belonging, &watch.account);
        let entry = Entry::of_decision(watch.account.clone(), decision);
        let mut kill = Kill::new(Owner::Measured(key), signal, entry);
        if signal == Signal::Kill {
            announce(&belonging, context);
        }
        for candidate in decision.together() {
            let note = kill.intend(candidate, context);
            let (outcome, moment) = kill.send(candidate, note, None, context);
            watch.state.outcome(candidate.id(), outcome, moment);
            if matches!(outcome, SignalOutcome::Sent(Signal::Kill) | SignalOutcome::Vanished) {
                census.strike(candidate.id());
            }
        }
        // What it held has grown since it was listed: only another look tells whether that is enough, where it may be.
        // For what one holds that does not end nobody else goes but one at a time.
        let none_is_stuck = !watch.state.in_flight().iter().any(|flight| flight.stage == Stage::Overdue);
        let again = kill.is_empty() || signal == Signal::Kill && none_is_stuck && falls_short(decision);
        if !kill.is_empty() && signal == Signal::Kill {
            watch.ending = matches!(belonging.company, Company::Cgroup(_));
            let skip = |id| watch.state.skipped(id);
            end_together(census, skip, &belonging, &mut kill, context);
        } else if !kill.is_empty() {
            watch.asked = Some((first, belonging));
        }
        kill.conclude(context.ledger.peers(decision), context);
        again
    }

    fn escalate<K: Kernel>(
        &mut self,
        key: u32,
        victim: VictimId,
        reason: Reason,
        context: &mut Context<K>,
    ) -> bool {
        let (Some(watch), Some(census)) = (self.watched.get_mut(&key), self.census.as_mut()) else {
            return false;
        };
        let asked = watch.asked.take().filter(|(asked, _)| *asked == victim);
        let belonging = asked.map(|(_, belonging)| belonging).unwrap_or_else(|| {
            let belonging = census.belonging(victim, &mut context.kernel, &context.eligibility);
            within(belonging, &watch.account)
        });
        announce(&belonging, context);
        let listed = census.candidates().iter().find(|one| one.id() == victim).copied();
        let candidate = listed.or_else(|| {
            let flight = context.pending.find(victim)?;
            Some(Candidate { usage: Reading::Known(flight.pages), ..Candidate::of(victim, Uid(u32::MAX)) })
        });
        let usage = watch.usage.known().unwrap_or_default();
        let entry = Entry {
            usage,
            hard: Some(watch.effective),
            ..Entry::of_line(watch.account.clone(), Trigger::Daemon, reason)
        };
        let mut kill = Kill::new(Owner::Measured(key), Signal::Kill, entry);
        let (outcome, moment) = kill.escalate(victim, candidate, context);
        watch.state.outcome(victim, outcome, moment);
        let again = !matches!(outcome, SignalOutcome::Sent(_));
        if !again {
            context.pending.escalated(victim, moment);
            census.strike(victim);
            watch.ending = matches!(belonging.company, Company::Cgroup(_));
            let skip = |id| id == victim || watch.state.skipped(id);
            end_together(census, skip, &belonging, &mut kill, context);
        }
        kill.conclude(Vec::new(), context);
        again
    }

    /// As the last look found them.
    pub(super) fn views(&self, page_size: PageSize) -> impl Iterator<Item = AccountView> {
        self.watched.values().map(move |watch| {
            let bytes = |pages| page_size.to_bytes(pages).0;
            let members = watch.members.as_ref().map_or(0, BTreeSet::len);
            AccountView {
                account: watch.account.clone(),
                name: None,
                usage_bytes: bytes(watch.usage.latest().unwrap_or_default()),
                reserved_bytes: 0,
                shared_bytes: None,
                shared_files: Vec::new(),
                peak_bytes: Some(bytes(watch.peak)),
                soft_bytes: Some(bytes(watch.line.soft)),
                hard_bytes: Some(bytes(watch.line.hard)),
                effective_bytes: Some(watch.effective).filter(|line| *line != OPEN).map(bytes),
                action: watch.line.action,
                near: watch.state.is_near(),
                processes: u64::try_from(members).unwrap_or(u64::MAX),
                source: watch.line.source,
                target: Some(watch.line.set_as.target()),
                set_by: Some(watch.line.set_as.set_by()),
                note: None,
                job: None,
                strict: None,
                process_list: None,
                process_list_more: None,
            }
        })
    }

    /// For the minutes before an incident.
    pub(super) fn accounts_now(&self, page_size: PageSize) -> impl Iterator<Item = AccountNow> {
        self.watched.values().map(move |watch| AccountNow {
            account: watch.account.clone(),
            usage: page_size.to_bytes(watch.usage.latest().unwrap_or_default()),
            line: Some(watch.effective).filter(|line| *line != OPEN).map(|line| page_size.to_bytes(line)),
            near: watch.state.is_near(),
            followed: watch.state.is_near() || !watch.state.in_flight().is_empty(),
        })
    }
}

/// When a line is looked at again: after a look and a decision that ended at this moment and took so long.
fn plan_look<K: Kernel>(
    watch: &mut Watch,
    cpus: Option<u32>,
    (now, took): (Nanos, Nanos),
    context: &Context<K>,
) {
    if watch.confirms {
        watch.look_at(now);
        return;
    }
    let page_size = context.ledger.page_size();
    let room = watch.effective.saturating_sub(watch.usage.known().unwrap_or_default());
    // What could not be decided is not put off because the look took long.
    let cost = if watch.unsettled { Nanos(0) } else { took };
    let mut apart = apart(page_size.to_bytes(room), page_size.to_bytes(watch.rose), cost, cpus);
    if !watch.state.in_flight().is_empty() {
        apart = apart.max(DYING_AGAIN);
    }
    let due = now.saturating_add(apart);
    let deadline = watch.state.next_deadline(&context.config);
    let soonest = now.saturating_add(AGAIN);
    watch.due = due.min(deadline.unwrap_or(due)).max(soonest);
    // What was begun goes on though all CPUs idle.
    let again = watch.unsettled.then(|| now.saturating_add(UNSETTLED_AGAIN));
    watch.timer = deadline.into_iter().chain(again).min().map(|timer| timer.max(soonest));
}

/// How much more one on its way out may hold than was found: where that decides, it is waited for. What a cgroup is charged
/// for a process is not to the page what the process was seen to hold a moment before.
fn not_known_of(one: &Candidate) -> Pages {
    Pages(one.usage.latest().unwrap_or_default().0 >> NOT_KNOWN_SHIFT)
}

/// Whether what is missing is far more than those hold who are ended now.
fn falls_short(decision: &Decision) -> bool {
    let held = decision.together().filter_map(|one| one.usage.latest()).sum::<Pages>();
    let missing = decision.usage.saturating_sub(decision.dying).saturating_sub(decision.hard);
    missing.0 >> FALLS_SHORT_SHIFT > held.0
}

/// A cgroup goes whole for the line of one only where it is that one or below it.
fn within(belonging: Belonging, account: &Account) -> Belonging {
    let outside = match (&belonging.company, account) {
        (Company::Cgroup(group), Account::Cgroup(path)) => !path.covers(&group.path),
        (Company::Cgroup(_) | Company::Tree(_) | Company::Nobody, _) => false,
    };
    if outside { Belonging { company: Company::Nobody, ..belonging } } else { belonging }
}

#[cfg(test)]
mod tests;
