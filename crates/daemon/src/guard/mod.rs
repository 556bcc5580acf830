//! The guard thread: one loop over signals, kernel records, requests, dying processes and deadlines.
//!
//! Nothing here waits on a client, a disk or a log: requests arrive on a bounded queue already checked and saved,
//! incidents leave on another, journal lines on a third. With no line set and the machine guard off, the loop sleeps
//! without a timer.

mod context;
mod foreign_kills;
mod fragmentation;
mod host;
mod kernel;
mod kill;
mod last_defence;
mod limits;
mod machine;
mod measured;
mod minutes;
mod request;
mod selection;
#[cfg(test)]
mod simulator;
mod tmalloc;
mod views;
mod workers;

pub(crate) use kill::ledger::Ledger;
pub(crate) use last_defence::{
    ArrangedKill, Arrangements, LastDefence, Originals, Setup as LastDefenceSetup, Systemd, undo_leftovers,
};
use limits::{strict::StrictJobs, undrawn::Undrawn};
pub(crate) use request::{BelowFloor, Caller, Change, Configured, Mailbox, OfJobs, Ranked, Request, mailbox};
pub(crate) use selection::{eligibility::Eligibility, shield::Shield};
pub(crate) use workers::{Workers, WorkersSetup};

use crate::{
    foreign_kills::ForeignKills, history::Inheritance, sampler::Sampler, supervisor::Supervisor,
    tmalloc::Message,
};
pub(crate) use context::Context;
use fragmentation::Fragmentation;
pub(crate) use host::Host;
use kernel::{Kernel, Programs as _};
use kill::pending::Owner;
pub(crate) use kill::pending::PendingKills;
use limits::attached::Attached;
#[cfg(test)]
pub(crate) use limits::shared::tests::account;
use machine::MachineGuard;
use measured::Measured;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        signal::Signal as PosixSignal,
        signalfd::SignalFd,
        time::{TimeSpec, TimeValLike as _},
    },
};
use plimsoll_policy::{
    account::Counted,
    lines::LineBook,
    machine::MachineConfig,
    reap::Rates,
    selection::Candidate,
    units::{Bytes, Nanos, Pid},
    victim::SignalOutcome,
};
use plimsoll_sys::{
    bpf::{BpfError, Looks, Pins, Selector},
    process::{Priority, raise_decider, thread_cpu_time},
};
use selection::population::Population as _;
use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// When what the pressure socket had no room for is told again.
const AGAIN: Nanos = Nanos(20_000_000);

/// What the guard starts with.
#[derive(Debug)]
pub(crate) struct Setup<K: Kernel = Host> {
    pub(crate) context: Context<K>,
    pub(crate) pins: Pins,
    pub(crate) book: Arc<LineBook>,
    pub(crate) machine: Option<MachineConfig>,
    /// Memory is compacted where large blocks run out.
    pub(crate) fragmentation: bool,
    pub(crate) foreign_kills: ForeignKills,
    pub(crate) mem_total: Bytes,
    pub(crate) mailbox: Mailbox,
    pub(crate) signals: SignalFd,
    /// On SIGHUP.
    pub(crate) reload: Errand,
    /// Where jobs have ended, or have their turn.
    pub(crate) tend_jobs: Errand,
    pub(crate) sampler: Sampler,
}

/// The guard and everything it holds.
#[derive(Debug)]
pub(crate) struct Guard<K: Kernel = Host> {
    context: Context<K>,
    pins: Pins,
    book: Arc<LineBook>,
    machine: Option<MachineGuard>,
    /// Who comes first, where the machine is not guarded and somebody wants to know.
    ranker: Option<MachineGuard>,
    /// Lines of cgroups and of the machine.
    measured: Measured,
    fragmentation: Fragmentation,
    foreign_kills: ForeignKills,
    mem_total: Bytes,
    attached: Option<Attached<K>>,
    undrawn: Undrawn,
    mailbox: Mailbox,
    signals: SignalFd,
    /// See [`Shield::watch`].
    upgrades: Option<OwnedFd>,
    reload: Errand,
    tend_jobs: Errand,
    /// When it is looked next whose turn it is; `None`: nobody waits.
    turns_due: Option<Nanos>,
    sampler: Sampler,
    strict: StrictJobs,
    /// Loaded, and not in use yet.
    selector: Option<Box<Selector>>,
    wake_ups: u64,
    stopping: bool,
    /// What is pinned stays at work when it stops.
    keep: bool,
}

/// What another thread is to do; it must not wait.
pub(crate) struct Errand(pub(crate) Box<dyn Fn() + Send>);

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Errand").finish_non_exhaustive()
    }
}

/// The loop of the machine's own daemon.
impl Guard {
    /// Guards until told to stop; whether what is pinned is to stay at work then.
    pub(crate) fn run(&mut self, supervisor: &Supervisor) -> io::Result<bool> {
        // Of this thread alone. A fork storm has dozens of others waiting for a CPU before it: without this, overshoot
        // was 3 times what it is with it (48 processes on 2 CPUs).
        // Above the reapers, which would otherwise push it off the CPU that it wakes them on.
        if raise_decider() == Priority::Unchanged {
            self.context
                .notices
                .say(format_args!("it competes for the CPU like any program: CAP_SYS_NICE is missing"));
        }
        let mut pulse = supervisor.pulse(self.context.kernel.now());
        while !self.stopping {
            self.wait(pulse.due())?;
            self.turn();
            self.take_signals()?;
            self.take_upgrades();
            pulse.beat(self.context.kernel.now());
        }
        Ok(self.keep)
    }

    /// Sleeps until something happens or a deadline comes: its own, or this one.
    fn wait(&mut self, pulse: Option<Nanos>) -> io::Result<()> {
        let looks = || self.context.kernel.tells_when_to_look();
        let looks_count = looks().count();
        let others = self.waited_on().map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        let mut descriptors: Vec<PollFd<'_>> = looks().chain(others).collect();
        let timeout = self.next_deadline().into_iter().chain(pulse).min().map(|due| {
            let nanoseconds = due.0.saturating_sub(self.context.kernel.now().0);
            TimeSpec::nanoseconds(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
        });
        match ppoll(&mut descriptors, timeout, None) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(io::Error::from(errno)),
        }
        // The file of stalls tells it once; the ring of looks is read in turn.
        let stalls = |one: &PollFd<'_>| one.revents().is_some_and(|told| told.contains(PollFlags::POLLPRI));
        let told = descriptors.iter().take(looks_count).any(stalls);
        if told && let Some(machine) = &mut self.machine {
            machine.look_at_once();
        }
        Ok(())
    }

    fn waited_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.signals.as_fd(), self.mailbox.as_fd()]
            .into_iter()
            .chain(self.attached.as_ref().map(|attached| attached.events.fd()))
            .chain(self.strict.fd())
            .chain(self.context.pending.descriptors())
            .chain(self.upgrades.as_ref().map(AsFd::as_fd))
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal().map_err(io::Error::from)? {
            match i32::try_from(info.ssi_signo).ok().and_then(|number| PosixSignal::try_from(number).ok()) {
                Some(PosixSignal::SIGHUP) => (self.reload.0)(),
                Some(PosixSignal::SIGUSR1) => (self.stopping, self.keep) = (true, true),
                Some(_) | None => (self.stopping, self.keep) = (true, false),
            }
        }
        Ok(())
    }

    /// Has it looked at what is protected when something was put beside it. What that was is not told: it may be gone again.
    fn take_upgrades(&mut self) {
        let Some(upgrades) = &self.upgrades else { return };
        let mut any = false;
        while rustix::io::read(upgrades, &mut [0; 4096]).is_ok() {
            any = true;
        }
        if any {
            self.context.renew_shield();
        }
    }
}

impl<K: Kernel> Guard<K> {
    pub(crate) fn new(setup: Setup<K>) -> Self {
        let Setup {
            context,
            pins,
            book,
            machine,
            fragmentation,
            foreign_kills,
            mem_total,
            mailbox,
            signals,
            reload,
            tend_jobs,
            sampler,
        } = setup;
        Self {
            upgrades: context.eligibility.shield.watch(),
            context,
            pins,
            book,
            machine: machine.map(MachineGuard::new),
            ranker: None,
            measured: Measured::default(),
            fragmentation: Fragmentation::new(fragmentation),
            foreign_kills,
            mem_total,
            attached: None,
            undrawn: Undrawn::default(),
            mailbox,
            signals,
            reload,
            tend_jobs,
            turns_due: None,
            sampler,
            strict: StrictJobs::default(),
            selector: None,
            wake_ups: 0,
            stopping: false,
            keep: false,
        }
    }

    /// Takes in what the programs have told before they go: whom they killed has to be written down.
    fn take_records(&mut self) {
        if let Some(attached) = &mut self.attached {
            attached.take_records(&mut self.context);
        }
    }

    /// Likewise, and there is no next look at what they only counted.
    fn take_last_records(&mut self) {
        self.take_records();
        self.tell_folded_of(|_| true);
    }

    /// Writes down what the programs only counted, of lines that go.
    fn tell_folded_of(&mut self, goes: impl Fn(Counted) -> bool) {
        if let Some(attached) = &mut self.attached {
            attached.tell_folded_of(goes, &mut self.context);
        }
    }

    /// One turn of the loop: what happened, who is gone, what is due, what is asked.
    fn turn(&mut self) {
        self.wake_ups = self.wake_ups.saturating_add(1);
        self.take_records();
        // Those who can give memory back hear of it first.
        self.tell_listeners();
        self.settle_pending();
        self.tend();
        self.take_request();
        self.equip();
        self.measured.plan(&mut self.context);
        self.fragmentation.plan(&mut self.context);
        if let Some(attached) = &mut self.attached {
            attached.shared_memory.plan(&mut self.context.kernel);
        }
        self.context.last_defence.settle(self.attached.as_ref().map(|attached| &attached.near));
        self.tell_listeners();
        self.sample();
    }

    /// Tells the pressure socket whose account came near, or left, and in which jobs something was done.
    fn tell_listeners(&mut self) {
        let attached = self.attached.as_ref();
        self.context.listeners.done_in(self.context.ledger.take_done_in());
        self.context.listeners.settle(|| {
            attached.map(|attached| attached.groups.topics_of(&attached.near)).unwrap_or_default()
        });
    }

    /// Lists processes by the programs from here on. They tell starts more exactly than `/proc`: a victim on its way out
    /// would be taken for another process.
    fn equip(&mut self) {
        if self.context.pending.is_empty()
            && let Some(selector) = self.selector.take()
        {
            self.context.kernel.equip(*selector);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let machine = self.machine.as_ref().and_then(MachineGuard::due);
        let pending =
            if self.context.pending.is_empty() { None } else { self.context.pending.next_deadline() };
        let limits = self.attached.as_ref().and_then(|attached| {
            let ladders =
                attached.watched.values().filter_map(|watch| watch.state.next_deadline(&self.context.config));
            let at_once = (!attached.unfinished.is_empty() || attached.near_is_old).then_some(Nanos(0));
            ladders
                .chain(attached.next_scan())
                .chain(attached.surveys.due())
                .chain(attached.weights.due())
                .chain(attached.shared_memory.timer())
                .chain(at_once)
                .min()
        });
        let samples = self.sampler.due(self.context.ledger.trails());
        let words =
            self.context.listeners.is_behind().then(|| self.context.kernel.now().saturating_add(AGAIN));
        [
            machine,
            pending,
            limits,
            self.measured.due(),
            self.fragmentation.due(),
            samples,
            words,
            self.strict.due(),
            self.turns_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn tend(&mut self) {
        if let Some(attached) = &mut self.attached
            && let Err(error) = attached.tend(&mut self.context)
        {
            self.context.notices.once("limits", &error);
        }
        self.have_jobs_ended();
        self.tend_strict();
        self.look_for_turns();
        let told = self.context.kernel.told_to_look();
        if let Some(machine) = &mut self.machine {
            machine.tend(told.machine, &mut self.context);
        }
        self.measured.tend(&mut self.context);
        self.fragmentation.tend(told.missed, &mut self.context);
    }

    /// Tells the guards which of their victims are gone.
    fn settle_pending(&mut self) {
        let mut gone = Vec::new();
        let now = self.context.kernel.now();
        self.context.pending.settle(&self.context.ledger, now, |flight| {
            gone.push((flight.owner, flight.victim, flight.took()))
        });
        for (owner, victim, took) in gone {
            match (owner, &mut self.attached, &mut self.machine) {
                (Owner::Line(whose), Some(attached), _) => {
                    if let Some(watch) = attached.watched.get_mut(&whose) {
                        watch.state.outcome(victim, SignalOutcome::Freed, now);
                        // Those left may all be asleep: no event of theirs would tell that one more has to go.
                        attached.unfinished.insert(whose);
                        if self.context.config.charges_shared {
                            attached.shared_memory.doubt_of(&attached.groups.beside(whose), now);
                        }
                    }
                }
                (Owner::Measured(key), _, _) => self.measured.freed(key, victim, now),
                (Owner::Machine, _, Some(machine)) => {
                    let others = self.context.pending.count_of(|owner| owner == Owner::Machine) > 0;
                    machine.measure_end(took, now);
                    machine.freed(victim, others, self.context.workers.groups.busy(), now);
                }
                (Owner::Line(_), None, _) | (Owner::Machine, _, None) | (Owner::WorkingSet, _, _) => {}
            }
        }
    }

    /// One a turn: whoever asks without end does not keep the guard from what the programs report.
    fn take_request(&mut self) {
        if let Ok(request) = self.mailbox.next() {
            let began = thread_cpu_time();
            self.answer(request);
            self.mailbox.worked(thread_cpu_time().saturating_sub(began));
        }
    }

    /// Records what programs that are being replaced have done.
    fn hear_out(&mut self, replaced: Option<&mut Attached<K>>) {
        if let Some(replaced) = replaced {
            replaced.take_records(&mut self.context);
            replaced.tell_folded_of(|_| true, &mut self.context);
        }
    }

    /// A line that was drawn below usage to hold at once waits for no event: those who use the memory may all be asleep.
    fn enforce_now(&mut self) -> Result<(), BpfError> {
        let Some(attached) = &mut self.attached else {
            return Ok(());
        };
        let accounts = attached.limits.accounts()?;
        let over = accounts.iter().filter(|one| one.effective.is_some_and(|effective| one.usage > effective));
        for account in over {
            attached.judge(account.whose, None, &mut self.context)?;
        }
        attached.plan_scan(self.context.kernel.now());
        Ok(())
    }

    /// From here on programs tell when to look: whoever is far from every line can be looked at in time.
    fn equip_looks(&mut self, looks: Looks) {
        self.context.kernel.equip_looks(looks);
        if let Some(attached) = &mut self.attached {
            attached.want_scan();
        }
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::Lines { reply, .. } | Request::Configure { reply, .. } if !reply.begin() => {}
            Request::Lines { book, change, reply } => reply.send(self.draw(&book, &change)),
            Request::Looked(looked) => self.measured.take(looked, &mut self.context),
            Request::Compacted(told) => self.fragmentation.take(told, &mut self.context),
            Request::Surveyed(survey) => {
                if let Some(attached) = &mut self.attached
                    && let Err(error) = attached.take_survey(&survey, &mut self.context)
                {
                    self.context.notices.once("copies", &error);
                }
            }
            Request::SharedWalked(walked) => {
                if let Some(machine) = &mut self.machine {
                    machine.take_hidden(&walked, &mut self.context);
                }
                if let Some(attached) = &mut self.attached
                    && let Err(error) = attached.take_shared(walked, &mut self.context)
                {
                    self.context.notices.once("shared memory", &error);
                }
            }
            Request::Configure { configured, reply } => {
                self.configure(configured);
                reply.send(Ok(()));
            }
            Request::Jobs(asked) => self.answer_of_jobs(asked),
            Request::Judged(answer) => {
                if let Some(renewed) = &answer.renewed {
                    self.context.eligibility.shield = Arc::clone(renewed);
                    self.protect_anew();
                }
                if let Some(attached) = &mut self.attached
                    && let Err(error) = attached.take_judged(answer, &mut self.context)
                {
                    self.context.notices.once("limits", &error);
                }
            }
            Request::CommandLines(found) => {
                if let Some(attached) = &mut self.attached {
                    attached.weights.learn(&found);
                }
                if let Some(machine) = &mut self.machine {
                    machine.learn(found);
                }
            }
            Request::Equip(selector) => self.selector = Some(selector),
            Request::Looks(looks) => self.equip_looks(*looks),
            Request::LastDefence(deed) => {
                if let Some(deed) = self.foreign_kills.hear(deed) {
                    self.record_last_defence(&deed);
                }
            }
            Request::ForeignKills { kill, written, reply } => {
                self.record_once(kill, &written);
                reply.send(Ok(()));
            }
            Request::Refused(refused) => self.record_refusal(&refused, None),
            Request::Walk => self.walk_for_grants(),
            Request::Foremost { among, told } => self.tell_foremost(among.as_ref(), told),
            Request::BelowFloor(below) => {
                self.ranker_mut(|ranker, context| ranker.act_below_floor(&below, context));
            }
            Request::FloorFar => self.rest_ranker(),
            Request::Accounts { only, asker, reply } => {
                reply.send(self.account_views(only.as_ref(), asker));
            }
            Request::Status { asker, reply } => reply.send(self.status(asker)),
        }
    }

    /// The configuration changed.
    fn configure(&mut self, configured: Configured) {
        let Configured { limits, machine, last_defence, rules, headroom, fragmentation } = configured;
        self.fragmentation.switch(fragmentation, &self.context);
        self.context.tmalloc.tell(Message::Headroom(headroom));
        let charges_now = limits.charges_shared && !self.context.config.charges_shared;
        self.context.config = limits;
        if let Some(machine) = self.machine.as_mut().filter(|_| *self.context.eligibility.rules != rules) {
            machine.judge_anew();
        }
        self.context.eligibility.rules = Arc::new(rules);
        if let Some(attached) = &mut self.attached {
            attached.weights.doubt_all(&attached.near);
            attached.shared_memory.doubt(self.context.kernel.now());
            // What is there then is no reason to end anybody.
            if charges_now && let Err(error) = attached.charge_no_shared() {
                self.context.notices.once("limits", &error);
            }
        }
        self.context.last_defence.configure(last_defence);
        if let Some(attached) = &self.attached
            && let Err(error) = attached.limits.attend(limits.triggers.kernel)
        {
            self.context.notices.once("limits", &error);
        }
        self.configure_machine(machine);
        self.context.renew_shield();
    }

    /// Other files are in the place of protected ones: both sides go by them, of what runs already too.
    fn protect_anew(&mut self) {
        if let Some(machine) = &mut self.machine {
            machine.judge_anew();
        }
        if let Some(attached) = &mut self.attached {
            match attached.limits.protect_exes(self.context.eligibility.shield.executables()) {
                Ok(()) => attached.hasten_scan(),
                Err(error) => self.context.notices.once("protected executables", &error),
            }
        }
    }

    /// Whoever selects for the machine; where the machine is not guarded, one that does nothing else.
    fn ranker_mut<T>(&mut self, with: impl FnOnce(&mut MachineGuard, &mut Context<K>) -> T) -> T {
        match &mut self.machine {
            Some(machine) => with(machine, &mut self.context),
            None => {
                let ranker = self.ranker.get_or_insert_with(|| MachineGuard::new(MachineConfig::default()));
                with(ranker, &mut self.context)
            }
        }
    }

    fn tell_foremost(&mut self, among: Option<&BTreeSet<Pid>>, told: Ranked) {
        match self.ranker_mut(|ranker, context| ranker.foremost(among, context)) {
            Ok(order) => told.tell(order.iter().map(Candidate::id).collect()),
            Err(error) => {
                self.context.notices.once("working set", &error);
                told.tell(Vec::new());
            }
        }
    }

    /// Nobody wants to know any more who comes first.
    fn rest_ranker(&mut self) {
        if let Some(mut ranker) = self.ranker.take() {
            ranker.cool(&mut self.context.kernel);
        }
    }

    fn configure_machine(&mut self, config: Option<MachineConfig>) {
        match (config, &mut self.machine) {
            (Some(config), Some(machine)) => machine.configure(config),
            (Some(config), None) => {
                self.rest_ranker();
                self.machine = Some(MachineGuard::new(config));
            }
            (None, _) => {
                if let Some(mut machine) = self.machine.take() {
                    machine.cool(&mut self.context.kernel);
                }
            }
        }
    }

    /// Records what an earlier daemon did and did not come to write.
    pub(crate) fn inherit(&mut self, inheritance: Inheritance) {
        self.context.ledger.inherit(inheritance);
    }

    /// How fast memory came back from killed processes.
    pub(crate) fn rates(&self) -> Rates {
        self.context.pending.rates()
    }

    /// Says something in the journal.
    pub(crate) fn say(&mut self, text: &str) {
        self.context.notices.say(text);
    }

    /// Ends guarding: everything that is pinned goes, unless it is to be kept for the next daemon.
    ///
    /// `settle` is called when no request is answered any more, and must not return before those under way have ended:
    /// what they load would be left behind.
    pub(crate) fn finish(
        mut self,
        keep: bool,
        settle: impl FnOnce(),
    ) -> Result<(), plimsoll_sys::bpf::BpfError> {
        if !keep {
            self.take_last_records();
        } else if let Some(attached) = &mut self.attached
            && attached.coarse.is_used()
        {
            // What is kept holds the lines to the page; where that fails, ticks do, and the stop goes on.
            attached.come_close(&mut self.context);
            if let Err(error) = attached.scan(&self.context.kernel) {
                self.context.notices.once("events", &error);
            }
        }
        self.attached = None;
        // Whoever waits for an answer learns that there is none.
        self.mailbox.close();
        settle();
        for kill in self.foreign_kills.stop() {
            self.record_deceased(kill);
        }
        if let Err(error) = self.context.pending.stop() {
            self.context.notices.say(format_args!("the reaper did not end well: {error}"));
        }
        if let Err(error) = self.context.last_defence.stop(!keep) {
            self.context.notices.say(error);
        }
        if !keep {
            self.context.kernel.remove(&self.pins)?;
        }
        Ok(())
    }
}
