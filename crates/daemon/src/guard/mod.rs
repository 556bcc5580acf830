//! The guard thread: one loop over signals, kernel records, requests, dying processes and deadlines.
//!
//! Nothing here waits on a client, a disk or a log: requests arrive on a bounded queue already checked and saved,
//! incidents leave on another, journal lines on a third. With no line set and the machine guard off, the loop sleeps
//! without a timer.

mod acting;
mod attached;
mod flights;
mod hands;
mod ledger;
mod limits;
mod lines;
mod machine;
mod report;
mod request;
mod shield;
mod views;

pub(crate) use ledger::Ledger;
pub(crate) use report::{Journal, Notices};
pub(crate) use request::{Caller, Change, Mailbox, Request, mailbox};
pub(crate) use shield::Shield;

use crate::biography::Biographer;
use attached::Attached;
use flights::{Flights, Owner};
use hands::{Hands, now};
use machine::MachineGuard;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        signal::Signal as PosixSignal,
        signalfd::SignalFd,
        time::{TimeSpec, TimeValLike as _},
    },
};
use plimsoll_policy::{
    limits::LimitConfig,
    lines::LineBook,
    machine::MachineConfig,
    units::{Bytes, Nanos},
    victim::SignalOutcome,
};
use plimsoll_sys::{
    bpf::{BpfError, Pins},
    process::{ProcRoot, Reaper},
};
use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
};

/// What the guard starts with.
pub(crate) struct Setup {
    pub(crate) proc: ProcRoot,
    pub(crate) reaper: Reaper,
    pub(crate) ledger: Ledger,
    pub(crate) notices: Notices,
    pub(crate) pins: Pins,
    pub(crate) book: Arc<LineBook>,
    pub(crate) limit_config: LimitConfig,
    pub(crate) machine: Option<MachineConfig>,
    pub(crate) shield: Shield,
    pub(crate) mem_total: Bytes,
    pub(crate) mailbox: Mailbox,
    pub(crate) signals: SignalFd,
    /// Called on SIGHUP, must not wait.
    pub(crate) reload: Box<dyn Fn() + Send>,
    pub(crate) biographer: Biographer,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("pins", &self.pins)
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

/// The guard and everything it holds.
pub(crate) struct Guard {
    proc: ProcRoot,
    flights: Flights,
    ledger: Ledger,
    notices: Notices,
    pins: Pins,
    book: Arc<LineBook>,
    limit_config: LimitConfig,
    machine: Option<MachineGuard>,
    shield: Shield,
    mem_total: Bytes,
    attached: Option<Attached>,
    mailbox: Mailbox,
    signals: SignalFd,
    reload: Box<dyn Fn() + Send>,
    biographer: Biographer,
    wake_ups: u64,
    stopping: bool,
}

/// Before ordinary programs, also before those that it is to stop.
const URGENT_NICE: i32 = -20;

/// What of [`Guard`] the two guards work with; a macro, so that the rest stays free to borrow.
macro_rules! hands {
    ($guard:expr) => {
        Hands {
            proc: &mut $guard.proc,
            flights: &mut $guard.flights,
            ledger: &mut $guard.ledger,
            notices: &mut $guard.notices,
            biographer: &$guard.biographer,
            shield: &$guard.shield,
            config: $guard.limit_config,
        }
    };
}

impl Guard {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { proc, reaper, ledger, notices, pins, book, limit_config, machine, shield, .. } = setup;
        Self {
            proc,
            flights: Flights::new(reaper),
            ledger,
            notices,
            pins,
            book,
            limit_config,
            machine: machine.map(MachineGuard::new),
            shield,
            mem_total: setup.mem_total,
            attached: None,
            mailbox: setup.mailbox,
            signals: setup.signals,
            reload: setup.reload,
            biographer: setup.biographer,
            wake_ups: 0,
            stopping: false,
        }
    }

    /// Guards until told to stop.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        // Of this thread alone. A fork storm has dozens of others waiting for a CPU before it: without this, overshoot
        // was 3 times what it is with it (48 processes on 2 CPUs).
        if let Err(errno) = rustix::process::setpriority_process(None, URGENT_NICE) {
            self.notices.say(format_args!("it competes for the CPU like any program: setpriority: {errno}"));
        }
        while !self.stopping {
            self.wait()?;
            self.wake_ups = self.wake_ups.saturating_add(1);
            if let Some(attached) = &mut self.attached {
                attached.take_records(&mut hands!(self));
            }
            self.settle_flights();
            self.tend();
            self.take_signals()?;
            self.take_requests();
        }
        Ok(())
    }

    /// Sleeps until something happens or a deadline comes.
    fn wait(&self) -> io::Result<()> {
        let mut descriptors: Vec<PollFd<'_>> =
            self.waited_on().map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        let timeout = self.next_deadline().map(|due| {
            let nanoseconds = due.0.saturating_sub(now().0);
            TimeSpec::nanoseconds(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
        });
        match ppoll(&mut descriptors, timeout, None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(io::Error::from(errno)),
        }
    }

    fn waited_on(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.signals.as_fd(), self.mailbox.as_fd()]
            .into_iter()
            .chain(self.attached.as_ref().map(|attached| attached.events.fd()))
            .chain(self.flights.descriptors())
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let machine = self.machine.as_ref().map(MachineGuard::due);
        let flights = if self.flights.is_empty() { None } else { self.flights.next_deadline() };
        let limits = self.attached.as_ref().and_then(|attached| {
            let ladders =
                attached.watched.values().filter_map(|watch| watch.state.next_deadline(&self.limit_config));
            let at_once = (!attached.unfinished.is_empty()).then_some(Nanos(0));
            ladders.chain(attached.next_scan()).chain(at_once).min()
        });
        [machine, flights, limits].into_iter().flatten().min()
    }

    fn tend(&mut self) {
        if let Some(attached) = &mut self.attached
            && let Err(error) = attached.tend(&mut hands!(self))
        {
            self.notices.once("limits", &error);
        }
        if let Some(machine) = &mut self.machine {
            machine.tend(&mut hands!(self));
        }
    }

    /// Tells the guards which of their victims are gone.
    fn settle_flights(&mut self) {
        let mut gone = Vec::new();
        self.flights.settle(&self.ledger, now(), |flight| gone.push((flight.owner, flight.victim)));
        for (owner, victim) in gone {
            match (owner, &mut self.attached, &mut self.machine) {
                (Owner::User(uid), Some(attached), _) => {
                    if let Some(watch) = attached.watched.get_mut(&uid) {
                        watch.state.outcome(victim, SignalOutcome::Freed, now());
                        // Those left may all be asleep: no event of theirs would tell that one more has to go.
                        attached.unfinished.insert(uid);
                    }
                }
                (Owner::Machine, _, Some(machine)) => machine.freed(victim),
                (Owner::User(_), None, _) | (Owner::Machine, _, None) => {}
            }
        }
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal().map_err(io::Error::from)? {
            match i32::try_from(info.ssi_signo).ok().and_then(|number| PosixSignal::try_from(number).ok()) {
                Some(PosixSignal::SIGHUP) => (self.reload)(),
                Some(_) | None => self.stopping = true,
            }
        }
        Ok(())
    }

    fn take_requests(&mut self) {
        while let Some(request) = self.mailbox.next() {
            self.answer(request);
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
            attached.judge(account.uid, None, &mut hands!(self))?;
        }
        attached.plan_scan(now());
        Ok(())
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::Lines { book, change, reply } => reply.send(self.draw(&book, change)),
            Request::Configure { limits, machine, reply } => {
                self.limit_config = limits;
                self.configure_machine(machine);
                reply.send(Ok(()));
            }
            Request::Accounts { user, asker, reply } => reply.send(self.account_views(user, asker)),
            Request::Status { asker, reply } => reply.send(self.status(asker)),
        }
    }

    fn configure_machine(&mut self, config: Option<MachineConfig>) {
        match (config, &mut self.machine) {
            (Some(config), Some(machine)) => machine.configure(config),
            (Some(config), None) => self.machine = Some(MachineGuard::new(config)),
            (None, _) => self.machine = None,
        }
    }

    /// Says something in the journal.
    pub(crate) fn say(&mut self, text: &str) {
        self.notices.say(text);
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
        self.attached = None;
        drop(self.mailbox);
        settle();
        if let Err(error) = self.flights.stop() {
            self.notices.say(format_args!("the reaper did not end well: {error}"));
        }
        if !keep {
            self.pins.remove()?;
        }
        Ok(())
    }
}
