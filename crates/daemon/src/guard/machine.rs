//! The machine guard: reads `/proc/meminfo`, lists processes when memory is short, signals.

pub(super) mod reclaimer;

mod floor;
mod hidden;
mod recording;

use super::{
    context::Context,
    kernel::Kernel,
    kill::{
        Kill,
        company::{announce, end_together, rehearse},
        ledger::Entry,
        pending::Owner,
    },
    selection::{
        census::{Belonging, Census, Effort, LOOKS_MAX},
        patience::Patience,
        population::Source,
    },
};
use crate::facts::{cmdlines::Found, pressure::PressureReading};
use plimsoll_api::status::SelectionEffort;
use plimsoll_policy::{
    human,
    incident::{Guard, Trigger},
    machine::{
        LOOK_AT_REST, LOOK_MIN, MachineAction, MachineConfig, MachineReading, MachineStage, MachineState,
        Margin, Measured, Shortage, decide, is_near, notice, select,
        trace::{Decided, Line},
    },
    reading::Reading,
    reap::RATED_BYTES_MIN,
    reason::Reason,
    selection::{Candidate, Decision, decisive, select as select_victims},
    units::{Bytes, Nanos, Pages},
    victim::{Signal, SignalOutcome, VictimId},
};
use plimsoll_sys::{
    bpf::Awaited,
    process::{ProcessError, page_size, unhurried},
};
use recording::{Present, Recording};
use std::borrow::Cow;

/// The guard of the whole machine.
#[derive(Debug)]
pub(crate) struct MachineGuard {
    config: MachineConfig,
    state: MachineState,
    recording: Recording,
    hidden: hidden::Hidden,
    /// As last measured.
    reap_per_second: Option<u64>,
    census: Census,
    last: Option<MachineReading>,
    due: Nanos,
    /// When to look though no CPU does anything and nobody takes pages back; `None`: then there is nothing to see.
    timer: Option<Nanos>,
    told_by_programs: bool,
    /// From when on pages that are taken back are news, and how far that is from a look.
    pressed: Nanos,
    apart: Nanos,
    pressure: PressureReading,
    /// It was asked for and did not come.
    unread_since: Option<Nanos>,
    /// When the list of processes is made again at the earliest.
    refresh: Nanos,
    /// What the last decision took.
    effort: Option<SelectionEffort>,
    /// Who was asked to end, and where it belonged then.
    asked: Option<(VictimId, Belonging)>,
    /// The followed victim, gone while a cgroup was being ended with it, and when to look whether that is done.
    others: Option<(VictimId, Nanos)>,
    /// For its own line, and at the floor of the working set.
    patience: Patience,
    floor_patience: Patience,
    /// Until then somebody else wants to know who comes first.
    wanted_until: Nanos,
    /// So often in a row the one selected had gone by the moment of the signal.
    gone_in_a_row: u32,
    /// From when on a notice has a trace again.
    notice_traced_from: Nanos,
}

/// How often somebody else is chosen when the one selected turns out to be another program by now; and how often in a row
/// memory is read again because that one has gone.
const CONFIRM_TRIES: u32 = 4;

/// Traces of notices are this far apart, 10 minutes: whoever has many told is not to have those of kills forgotten for them.
const NOTICE_TRACES_APART: Nanos = Nanos(600_000_000_000);

/// So soon it is looked again, where somebody is waited for.
const LOOK_AGAIN: Nanos = Nanos(20_000_000);

/// Older ones are of another machine: it may have given up its cache meanwhile.
const PRESSURE_AGE_MAX: Nanos = Nanos(2_500_000_000);

/// It is told of when they cannot be read for so long.
const PRESSURE_LATE: Nanos = Nanos(5_000_000_000);

/// A CPU that works has a timer interrupt this often or more often (`CONFIG_HZ` is 250 or more; 100 on few).
const TICK: Nanos = Nanos(4_000_000);

/// A look that came later says more about the daemon, which was stopped, than about what is to come.
const LATE_MAX: Nanos = Nanos(100_000_000);

/// How soon it is looked again whether a victim's cgroup has ended: no descriptor tells that.
const OTHERS_AGAIN: Nanos = Nanos(10_000_000);

/// How old the list gets while memory is about to run short.
const REFRESH: Nanos = Nanos(1_000_000_000);

/// An incident of the guard's own.
fn entry(reason: Reason) -> Entry {
    Entry::new(Guard::Pressure, Trigger::Daemon, reason.text())
}

fn reading(value: Option<Bytes>) -> Reading<Bytes> {
    value.map_or(Reading::Absent, Reading::Known)
}

impl MachineGuard {
    pub(crate) fn new(config: MachineConfig) -> Self {
        Self {
            config,
            state: MachineState::default(),
            recording: Recording::new(),
            hidden: hidden::Hidden::default(),
            reap_per_second: None,
            census: Census::new(),
            last: None,
            due: Nanos(0),
            timer: Some(Nanos(0)),
            told_by_programs: false,
            pressed: Nanos(0),
            apart: LOOK_MIN,
            pressure: PressureReading::NONE,
            unread_since: None,
            refresh: Nanos(0),
            effort: None,
            asked: None,
            others: None,
            patience: Patience::default(),
            floor_patience: Patience::default(),
            wanted_until: Nanos(0),
            gone_in_a_row: 0,
            notice_traced_from: Nanos(0),
        }
    }

    pub(crate) fn configure(&mut self, config: MachineConfig) {
        self.config = config;
        self.recording.begin_anew();
        self.look_at_once();
    }

    /// Looks in the next turn.
    pub(crate) const fn look_at_once(&mut self) {
        self.look_at(Nanos(0));
    }

    /// Looks at this moment, whatever else happens.
    const fn look_at(&mut self, moment: Nanos) {
        self.due = moment;
        self.timer = Some(moment);
    }

    /// Other rules are in force: what the list says of processes is of those before.
    pub(crate) const fn judge_anew(&mut self) {
        self.census.spoil();
    }

    pub(crate) const fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// The reading that was decided on last.
    pub(crate) const fn last(&self) -> Option<&MachineReading> {
        self.last.as_ref()
    }

    /// When the list was made that is ready now.
    pub(crate) fn ready_since(&self, now: Nanos) -> Option<Nanos> {
        self.census.ready_since(now)
    }

    /// What the last look at all processes came from, as `status` says it.
    pub(crate) const fn source(&self) -> Option<&'static str> {
        match self.census.source() {
            Some(Source::Programs) => Some("programs"),
            Some(Source::Proc) => Some("proc"),
            None => None,
        }
    }

    /// What the last decision took.
    pub(crate) const fn effort(&self) -> Option<SelectionEffort> {
        self.effort
    }

    /// Whether the machine is about to run short, by the last reading.
    pub(crate) fn is_pressed(&self) -> bool {
        self.last.is_some_and(|reading| is_near(&reading, &self.config))
    }

    /// When to look next, though nothing happens.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.timer.into_iter().chain(self.others.map(|(_, due)| due)).min()
    }

    /// What tells it to look, as `status` says it.
    pub(crate) const fn told_by(&self) -> &'static str {
        if self.told_by_programs { "programs" } else { "timer" }
    }

    /// What the last decision was made of.
    pub(crate) const fn margin(&self) -> &Margin {
        self.state.margin()
    }

    /// Looks and acts, if it is time, or it was told to then.
    pub(crate) fn tend<K: Kernel>(&mut self, told: Option<Nanos>, context: &mut Context<K>) {
        let moment = context.now();
        self.look_for_others(moment, context);
        let is_time = moment >= self.due || self.timer.is_some_and(|timer| moment >= timer);
        if !is_time && told.is_none() {
            return;
        }
        self.measure(told, moment, context);
        self.space_out(told, moment);
        context.kernel.begin_decision();
        let reading = self.read(moment, context);
        self.last = Some(reading);
        self.seek_hidden(&reading, moment, context);
        self.record(&Line::Look { at: moment, reading }, moment);
        let state = core::mem::take(&mut self.state);
        let (state, action, sleep) = decide(&reading, &self.config, state, moment);
        self.state = state;
        self.due = moment.saturating_add(sleep);
        self.timer = None;
        self.act(action, &reading, moment, context);
        // From here on the programs tell when it is time. Without them it takes a timer.
        // While a victim's end is awaited it is no news that pages are taken back, and its exit needs the CPU.
        let awaits_end = matches!(self.state.stage(), MachineStage::Killed { .. });
        let pressed = if awaits_end { self.due } else { moment.saturating_add(self.apart).min(self.due) };
        self.pressed = pressed;
        self.told_by_programs = context.kernel.ask_look(Awaited::Reclaim, pressed)
            && context.kernel.ask_look(Awaited::Memory, self.due);
        let looks = (!self.told_by_programs).then_some(self.due);
        self.timer = [self.timer, self.state.next_deadline(&self.config), looks].into_iter().flatten().min();
    }

    fn act<K: Kernel>(
        &mut self,
        action: MachineAction,
        reading: &MachineReading,
        moment: Nanos,
        context: &mut Context<K>,
    ) {
        let asks = |shortage: &Shortage| shortage.signal == Signal::Term;
        let can_wait = match &action {
            MachineAction::Notice { .. } => true,
            MachineAction::Select(shortage) => asks(shortage),
            MachineAction::Rest
            | MachineAction::Reclaim { .. }
            | MachineAction::Escalate { .. }
            | MachineAction::Report(_) => false,
        };
        if can_wait {
            self.beside_others(context, |guard, context| guard.carry_out(action, reading, moment, context));
        } else {
            self.carry_out(action, reading, moment, context);
        }
    }

    /// Real time is for what is over before others notice: here they run too, unless they are many or there would be no memory
    /// before. In a crowd of 36 hogs on two CPUs a notice took four seconds, and the kernel was first.
    fn beside_others<K: Kernel>(
        &mut self,
        context: &mut Context<K>,
        work: impl FnOnce(&mut Self, &mut Context<K>),
    ) {
        let available = self.last.and_then(|last| last.mem_available.known());
        let leaves_time = available.is_some_and(|available| self.state.leaves_time(available));
        if leaves_time && context.kernel.has_room() {
            unhurried(|| work(self, context));
        } else {
            work(self, context);
        }
    }

    fn carry_out<K: Kernel>(
        &mut self,
        action: MachineAction,
        reading: &MachineReading,
        moment: Nanos,
        context: &mut Context<K>,
    ) {
        match action {
            MachineAction::Rest => {
                if self.state.stage() == MachineStage::Idle {
                    self.recording.make_ready();
                }
                self.prepare(reading, moment, context);
            }
            MachineAction::Notice { in_use, line } => self.announce((in_use, line), moment, context),
            MachineAction::Reclaim { bytes } if self.config.dry_run => {
                let amount = human::bytes(bytes);
                context.notices.once("dry run", &format_args!("would reclaim {amount}, and more every 2 s"));
            }
            MachineAction::Reclaim { bytes } => {
                // One that is still at it will be asked again.
                context.workers.reclaimer.ask(bytes);
            }
            MachineAction::Select(shortage) => self.relieve(&shortage, moment, context),
            MachineAction::Escalate { victim, reason } => self.escalate(victim, reason, context),
            MachineAction::Report(fault) => {
                context
                    .notices
                    .once("machine guard", &format_args!("cannot decide: {fault:?} in /proc/meminfo"));
            }
        }
    }

    /// Whoever takes pages back may do so for long: that is news less and less often, as long as it is nothing else.
    fn space_out(&mut self, told: Option<Nanos>, moment: Nanos) {
        if told.is_some() && moment < self.due {
            self.apart = Nanos(self.apart.0.saturating_mul(2)).min(LOOK_AT_REST);
        } else if self.pressed < self.due {
            self.apart = LOOK_MIN;
        }
    }

    /// How late it is, which costs memory only while memory is being used up; and how fast memory came back until now.
    fn measure<K: Kernel>(&mut self, told: Option<Nanos>, moment: Nanos, context: &Context<K>) {
        if self.last.is_none() {
            self.measure_reaping(moment, context);
        }
        // What else wakes it while CPUs idle says nothing about that.
        let due = told.map(|told| (told, TICK)).or((!self.told_by_programs).then_some((self.due, Nanos(0))));
        if let Some((due, before)) = due.filter(|(due, _)| *due > Nanos(0) && *due <= moment)
            && self.state.margin().fill_per_second > 0
        {
            let late = moment.saturating_sub(due).saturating_add(before);
            self.take_in(&Line::Measured(Measured::Late(late.min(LATE_MAX))), moment);
        }
    }

    fn measure_reaping<K: Kernel>(&mut self, moment: Nanos, context: &Context<K>) {
        let lowest = context.pending.rates().lowest_lately();
        if lowest != self.reap_per_second {
            self.reap_per_second = lowest;
            self.take_in(&Line::Measured(Measured::Reap(lowest)), moment);
        }
    }

    /// How long a victim took to end that held so much.
    pub(crate) fn measure_end(&mut self, took: Option<(Pages, Nanos)>, now: Nanos) {
        if let Some((pages, span)) = took
            && page_size().to_bytes(pages).0 < RATED_BYTES_MIN
        {
            self.take_in(&Line::Measured(Measured::End(span)), now);
        }
    }

    /// Takes in what is no look, and records it before.
    fn take_in(&mut self, line: &Line<'_>, at: Nanos) {
        self.record(line, at);
        self.state.learn(line, &self.config);
    }

    fn record(&mut self, line: &Line<'_>, at: Nanos) {
        self.recording.write(line, Present { at, config: &self.config, state: &self.state });
    }

    /// What those on their way out give back: what they still hold, as the rest is available already. Whoever has let go of its
    /// address space frees it, and nobody sees how far that is. Of a cgroup that ends whole nobody knows it at all.
    fn ending<K: Kernel>(&self, context: &mut Context<K>) -> Reading<Bytes> {
        if self.others.is_some() || context.workers.groups.busy() {
            return Reading::Absent;
        }
        let left = context.pending.ending().map(|(victim, held)| {
            let seen = context.kernel.look_closely(victim);
            seen.and_then(|seen| seen.private.known()).map_or(held, |private| private.min(held))
        });
        Reading::Known(context.ledger.page_size().to_bytes(left.sum()))
    }

    /// By whom it was selected.
    fn record_list(&mut self, found: impl Iterator<Item = Candidate>, at: Nanos) {
        let list = decisive(self.census.candidates(), found, |victim| self.state.skipped(victim));
        self.record(&Line::List(Cow::Borrowed(&list)), at);
    }

    fn record_decision(&mut self, decision: &Decision, signal: Option<Signal>, at: Nanos) {
        self.record_list(decision.victims.iter().chain(&decision.peers).copied(), at);
        let victim = decision.victims.first().map(Candidate::id);
        let signal = signal.filter(|_| victim.is_some());
        self.record(&Line::Decided(Decided { signal, victim, reason: decision.reason }), at);
    }

    fn read<K: Kernel>(&mut self, moment: Nanos, context: &mut Context<K>) -> MachineReading {
        let waiting = if self.state.counts_waiting(moment) {
            let pages = context.kernel.waiting_pages();
            pages.map(|pages| context.ledger.page_size().to_bytes(pages))
        } else {
            Reading::Absent
        };
        if let Some(last) = context.workers.pressure.last() {
            self.pressure = last;
        }
        let is_old = moment.saturating_sub(self.pressure.at) > PRESSURE_AGE_MAX;
        let PressureReading { stall, arc, .. } = if is_old { PressureReading::NONE } else { self.pressure };
        let is_due = moment.saturating_sub(self.pressure.at) >= LOOK_AT_REST;
        if (is_due && self.state.watches_stall()) || self.pressure.arc.known().is_some() {
            // For the next look.
            self.ask_for_pressure(moment, context);
        }
        match context.kernel.read_meminfo() {
            Ok(info) => {
                self.recording.has(info.mem_total);
                self.hidden.measure(&info);
                MachineReading {
                    mem_available: reading(info.mem_available),
                    anon: reading(info.anonymous),
                    swap_total: reading(info.swap_total),
                    swap_free: reading(info.swap_free),
                    shared: reading(info.shared),
                    waiting,
                    arc,
                    file: reading(info.active_file.zip(info.inactive_file).map(|(a, b)| a.saturating_add(b))),
                    stall,
                    ending: self.ending(context),
                }
            }
            Err(error) => {
                context.notices.once("machine guard", &error);
                MachineReading::UNREADABLE
            }
        }
    }

    /// Says so where the one asked for does not come: any user who reads the same may hold its lock, and be kept from going on.
    fn ask_for_pressure<K: Kernel>(&mut self, moment: Nanos, context: &mut Context<K>) {
        if context.workers.pressure.ask() {
            self.unread_since = None;
        } else if moment.saturating_sub(*self.unread_since.get_or_insert(moment)) > PRESSURE_LATE {
            let late =
                "no answer from /proc/pressure/memory for 5 s: thrashing is not seen until there is one";
            context.notices.once("machine guard", &late);
        }
    }

    /// Has the list of processes ready while memory is about to run short, so that a victim is named at once.
    fn prepare<K: Kernel>(&mut self, reading: &MachineReading, moment: Nanos, context: &mut Context<K>) {
        if is_near(reading, &self.config) || moment < self.wanted_until {
            self.keep_ready(moment, context);
        } else {
            self.census.cool(&mut context.kernel);
        }
    }

    /// Makes the list anew once it is old.
    fn keep_ready<K: Kernel>(&mut self, moment: Nanos, context: &mut Context<K>) {
        if moment >= self.refresh {
            self.beside_others(context, |guard, context| guard.make_ready(moment, context));
        }
    }

    fn make_ready<K: Kernel>(&mut self, moment: Nanos, context: &mut Context<K>) {
        context.renew_shield();
        self.census.begin_warm(&mut context.kernel);
        let listed = self.look_at_all(context);
        // At most a fiftieth of the time goes into it.
        let cost = context.now().0.saturating_sub(moment.0);
        self.refresh = moment.saturating_add(Nanos(cost.saturating_mul(50)).max(REFRESH));
        self.measure_reaping(moment, context);
        match listed {
            Ok(_) => {
                let found = select_victims(self.census.candidates(), |victim| self.state.skipped(victim));
                let found = found.victims.iter().chain(&found.peers).copied();
                self.record_list(found, moment);
                let state = &self.state;
                self.census
                    .keep_warm(&mut context.kernel, &context.eligibility, |victim| state.skipped(victim));
                if context.eligibility.rules.ask_for_command_lines() {
                    // While it is still at others, these are asked for the next time.
                    context.workers.cmdlines.ask(self.census.wanted_command_lines());
                }
            }
            Err(error) => context.notices.once("machine guard", &error),
        }
    }

    /// Says that memory runs short, and who would be next.
    fn announce<K: Kernel>(&mut self, amounts: (Bytes, Bytes), noticed: Nanos, context: &mut Context<K>) {
        if let Err(error) = self.look(context) {
            self.record(&Line::Waited, noticed);
            context.notices.once("machine guard", &error);
            return;
        }
        let decision = notice(self.census.candidates(), amounts, &self.state, context.ledger.page_size());
        self.record_decision(&decision, None, noticed);
        let is_traced = noticed >= self.notice_traced_from;
        if is_traced {
            self.notice_traced_from = noticed.saturating_add(NOTICE_TRACES_APART);
        }
        context.ledger.record(Entry {
            trace: is_traced.then(|| self.recording.text()).flatten(),
            crossed: Some(noticed),
            usage: decision.usage,
            hard: Some(decision.hard),
            peers: context.ledger.peers(&decision),
            ..entry(decision.reason)
        });
    }

    fn relieve<K: Kernel>(&mut self, shortage: &Shortage, noticed: Nanos, context: &mut Context<K>) {
        if let Err(error) = self.look(context) {
            self.record(&Line::Waited, noticed);
            context.notices.once("machine guard", &error);
            return;
        }
        let Some(decision) = self.decide_surely(shortage, context) else {
            self.record(&Line::Waited, noticed);
            self.look_at(context.now());
            return;
        };
        let selected = context.now();
        if self.waits(decision.victims.first(), shortage.signal, noticed, context) {
            self.record(&Line::Waited, noticed);
            self.look_at(noticed.saturating_add(LOOK_AGAIN));
            return;
        }
        self.record_decision(&decision, Some(shortage.signal), noticed);
        let belonging = self.belonging(&decision, context);
        let entry = Entry {
            crossed: Some(noticed),
            usage: decision.usage,
            hard: Some(decision.hard),
            ..entry(decision.reason)
        };
        if decision.dry_run || decision.victims.is_empty() {
            self.take_in(&Line::Hold { at: noticed, signal: shortage.signal }, noticed);
            // How long it took to come to where a signal would have been sent.
            let signalled = Some(context.now());
            let victims = rehearse(&mut self.census, &decision, shortage.signal, &belonging, context);
            let peers = context.ledger.peers(&decision);
            let trace = self.recording.text();
            context.ledger.record(Entry { signalled, victims, peers, trace, ..entry });
            return;
        }
        let mut kill = Kill::new(Owner::Machine, shortage.signal, entry);
        self.send(&decision, belonging, &mut kill, context);
        let signalled = context.now().saturating_sub(selected);
        for measured in [Measured::Select(selected.saturating_sub(noticed)), Measured::Signal(signalled)] {
            self.take_in(&Line::Measured(measured), noticed);
        }
        if kill.is_empty() || shortage.signal == Signal::Kill {
            // Decide again at once: the next one is selected, or what this one holds is too little.
            self.look_at(context.now());
        }
        kill.traced(self.recording.text());
        kill.conclude(context.ledger.peers(&decision), context);
    }

    /// Whether somebody is waited for before this one is sent that.
    fn waits<K: Kernel>(
        &mut self,
        first: Option<&Candidate>,
        signal: Signal,
        noticed: Nanos,
        context: &mut Context<K>,
    ) -> bool {
        let state = &self.state;
        let skip = |victim| state.skipped(victim);
        // That only the protected are left is not known yet, or whether the largest is one of them: whoever grows in a
        // cgroup that is being made is not to have somebody else die in its place.
        if self.patience.waits_for_looks(&self.census, first, skip, noticed) {
            return true;
        }
        // What our own victims give back was reckoned with where there are some.
        let ours: Vec<VictimId> = match state.stage() {
            MachineStage::Killed { .. } => context.pending.killed_with(Pages(0), Nanos(0)).collect(),
            MachineStage::Idle | MachineStage::Termed { .. } => Vec::new(),
        };
        let skip = |victim| state.skipped(victim) || ours.contains(&victim);
        let waits =
            first.is_some_and(|first| self.patience.waits_for_dying(first, &self.census, context, skip));
        let to_be_had = self.last.and_then(|reading| {
            let swap_free = reading.swap_free.known().unwrap_or_default();
            Some(reading.mem_available.known()?.saturating_add(swap_free))
        });
        let is_in_vain = |to_be_had| self.patience.is_in_vain(to_be_had, noticed);
        waits && !(signal == Signal::Kill && to_be_had.is_some_and(is_in_vain))
    }

    /// Who is selected, looked at once more: what was known of them is of another moment, and by exec a process becomes
    /// another program in the same instant. `None`: that one has gone since memory was read, and the next may not have to.
    fn decide_surely<K: Kernel>(
        &mut self,
        shortage: &Shortage,
        context: &mut Context<K>,
    ) -> Option<Decision> {
        let page_size = context.ledger.page_size();
        for _ in 0..CONFIRM_TRIES {
            let decision = select(self.census.candidates(), shortage, &self.state, &self.config, page_size);
            let Some(first) = decision.victims.first().map(Candidate::id) else {
                return Some(decision);
            };
            if self.stands(first, context) {
                break;
            }
            if self.census.is_struck(first) && self.gone_in_a_row < CONFIRM_TRIES {
                self.gone_in_a_row = self.gone_in_a_row.saturating_add(1);
                return None;
            }
            self.resolve(context);
        }
        self.gone_in_a_row = 0;
        Some(select(self.census.candidates(), shortage, &self.state, &self.config, page_size))
    }

    /// Whether one who is selected still is, looked at once more.
    fn stands<K: Kernel>(&mut self, first: VictimId, context: &mut Context<K>) -> bool {
        self.census.stands(first, &mut context.kernel, &context.eligibility)
    }

    /// Where the first victim belongs, and who goes with it.
    fn belonging<K: Kernel>(&mut self, decision: &Decision, context: &mut Context<K>) -> Option<Belonging> {
        let victim = decision.victims.first()?.id();
        Some(self.census.belonging(victim, &mut context.kernel, &context.eligibility))
    }

    /// Signals the first victim, and those that share its memory: it comes back when the last of them has gone. With
    /// SIGKILL also those that go with it. The guard's state follows the first.
    fn send<K: Kernel>(
        &mut self,
        decision: &Decision,
        belonging: Option<Belonging>,
        kill: &mut Kill<K>,
        context: &mut Context<K>,
    ) {
        let kills = belonging.as_ref().filter(|_| kill.signal == Signal::Kill);
        if let Some(belonging) = kills {
            announce(belonging, context);
        }
        for candidate in decision.together() {
            let note = kill.intend(candidate, context);
            let (outcome, moment) = kill.send(candidate, note, None, context);
            self.note(candidate.id(), outcome);
            if kill.victims().count() <= 1 || !matches!(outcome, SignalOutcome::Sent(_)) {
                self.take_in(&Line::Outcome { at: moment, victim: candidate.id(), outcome }, moment);
            }
        }
        if kill.is_empty() {
            return;
        }
        match kills {
            Some(belonging) => {
                end_together(&mut self.census, |id| self.state.skipped(id), belonging, kill, context);
            }
            None => self.asked = decision.victims.first().map(Candidate::id).zip(belonging),
        }
    }

    /// Who was killed or has gone is not selected from the same list again.
    fn note(&mut self, victim: VictimId, outcome: SignalOutcome) {
        match outcome {
            SignalOutcome::Sent(Signal::Kill) | SignalOutcome::Vanished | SignalOutcome::Freed => {
                self.census.strike(victim);
            }
            SignalOutcome::Sent(Signal::Term) | SignalOutcome::Failed(_) => {}
        }
    }

    fn escalate<K: Kernel>(&mut self, victim: VictimId, reason: Reason, context: &mut Context<K>) {
        let decided = Decided { signal: Some(Signal::Kill), victim: Some(victim), reason };
        self.record(&Line::Decided(decided), context.now());
        // As it was when it was asked to end: since then it may have become small, and the list another.
        let asked = self.asked.take().filter(|(asked, _)| *asked == victim);
        let belonging = asked
            .map(|(_, belonging)| belonging)
            .unwrap_or_else(|| self.census.belonging(victim, &mut context.kernel, &context.eligibility));
        announce(&belonging, context);
        let pages = context.pending.find(victim).map_or(Pages(0), |flight| flight.pages);
        let candidate = self.census.candidates().iter().find(|one| one.id() == victim).copied();
        let mut kill = Kill::new(Owner::Machine, Signal::Kill, Entry { usage: pages, ..entry(reason) });
        let (outcome, moment) = kill.escalate(victim, candidate, context);
        self.take_in(&Line::Outcome { at: moment, victim, outcome }, moment);
        if matches!(outcome, SignalOutcome::Sent(_)) {
            context.pending.escalated(victim, moment);
            self.note(victim, outcome);
            end_together(&mut self.census, |id| self.state.skipped(id), &belonging, &mut kill, context);
            self.census.strike(victim);
        }
        kill.traced(self.recording.text());
        kill.conclude(Vec::new(), context);
    }

    /// Command lines were read.
    pub(crate) fn learn(&mut self, found: Found) {
        self.census.learn(found);
    }

    /// A victim of ours is gone. The next is selected when all are that were killed with it: `others` signalled by the guard
    /// itself, of which each end is told here, and a cgroup that is `ending`, of which none is.
    pub(crate) fn freed(&mut self, victim: VictimId, others: bool, ending: bool, now: Nanos) {
        self.census.strike(victim);
        self.others = (ending && !others).then(|| (victim, now.saturating_add(OTHERS_AGAIN)));
        if !others && !ending {
            self.all_freed(victim, now);
        } else if self.due > now.saturating_add(LOOK_MIN) {
            // Those who are left may hold too little.
            self.look_at(now.saturating_add(LOOK_MIN));
        }
    }

    fn look_for_others<K: Kernel>(&mut self, moment: Nanos, context: &Context<K>) {
        let Some((victim, _)) = self.others.filter(|(_, due)| *due <= moment) else {
            return;
        };
        self.others = None;
        if context.pending.count_of(|owner| owner == Owner::Machine) > 0 {
            // Another was killed since; its end is told.
        } else if context.workers.groups.busy() {
            self.others = Some((victim, moment.saturating_add(OTHERS_AGAIN)));
        } else {
            self.all_freed(victim, moment);
        }
    }

    fn all_freed(&mut self, victim: VictimId, now: Nanos) {
        // The guard follows the first of them, which may have gone before.
        let followed = match self.state.stage() {
            MachineStage::Termed { victim, .. } | MachineStage::Killed { victim, .. } => victim,
            MachineStage::Idle => victim,
        };
        self.take_in(&Line::Outcome { at: now, victim: followed, outcome: SignalOutcome::Freed }, now);
        self.look_at(now);
    }

    /// Nothing is prepared any more.
    pub(crate) fn cool<K: Kernel>(&mut self, kernel: &mut K) {
        self.census.cool(kernel);
    }

    /// Who comes first now: by the list that is ready, or by another look at all.
    fn look<K: Kernel>(&mut self, context: &mut Context<K>) -> Result<(), ProcessError> {
        let mut effort = if self.census.catch_up(&mut context.kernel) {
            self.resolve(context)
        } else {
            self.look_at_all(context)?
        };
        if effort.looks >= LOOKS_MAX && self.census.ready_since(context.now()).is_some() {
            // So many have grown that a list of this moment says more.
            effort = self.look_at_all(context)?;
        }
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let taken = self.census.taken().unwrap_or_default();
        self.effort = Some(SelectionEffort {
            processes: count(effort.processes),
            looks: count(effort.looks),
            age_ns: context.now().0.saturating_sub(taken.0),
        });
        Ok(())
    }

    fn look_at_all<K: Kernel>(&mut self, context: &mut Context<K>) -> Result<Effort, ProcessError> {
        self.list(context)?;
        Ok(self.resolve(context))
    }

    /// Makes the list anew.
    fn list<K: Kernel>(&mut self, context: &mut Context<K>) -> Result<(), ProcessError> {
        let shared = self.last.map_or(Reading::Absent, |reading| reading.shared);
        self.census.take(&mut context.kernel, shared.map(|bytes| context.ledger.page_size().to_pages(bytes)))
    }

    fn resolve<K: Kernel>(&mut self, context: &mut Context<K>) -> Effort {
        let state = &self.state;
        let skip = |victim| state.skipped(victim);
        self.census.resolve(&mut context.kernel, &context.eligibility, LOOKS_MAX, skip)
    }
}

#[cfg(test)]
pub(super) mod tests;
