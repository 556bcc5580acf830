//! A machine made of numbers, for the guard that is real: its wiring and policy run against simulated processes, limits
//! programs and a clock, with everything that can go wrong at any moment, all from one seed.
//!
//! What is proven here is about orders of events that a real machine shows once in a thousand runs. That the programs in
//! the kernel do what [`accounting`] does is proven by the integration tests.

mod accounting;
mod grants;
mod oracle;
mod programs;
mod random;
mod seam;
mod world;

use super::{
    Change, Examiner, Groups, Guard, Journal, LastDefence, Ledger, Notices, Originals, Reclaimer, Request,
    Setup, Shield,
    examiner::{Docket, Findings},
    kernel::Held as _,
    mailbox,
};
use crate::{
    biography::Biographer,
    cmdlines::CommandLines,
    history::{Inheritance, Recorded},
    obituary::Obituary,
    sampler::Sampler,
    survey::Surveyor,
};
use nix::sys::{
    signal::SigSet,
    signalfd::{SfdFlags, SignalFd},
};
use plimsoll_policy::{
    account::Action,
    incident::Outcome,
    limits::LimitConfig,
    lines::{Line, LineBook, Place, Target, UidRange},
    preference::Rules,
    size::Size,
    units::{Bytes, PageSize, Uid},
    victim::Signal,
};
use plimsoll_sys::bpf::Pins;
use random::Random;
use seam::Machine;
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    rc::Rc,
    sync::{Arc, mpsc::Receiver},
};
use world::{Crash, DAEMON, Faults, USERS, World};

const PAGE_BYTES: u64 = 4096;
const MEM_TOTAL: Bytes = Bytes(1 << 30);

/// Turns in a row without time going by: more is a daemon that spins.
const TURNS_MAX: u32 = 64;

/// One daemon on one machine.
struct Simulation {
    machine: Machine,
    guard: Option<Guard<Machine>>,
    recorded: Recorded,
    book: Arc<LineBook>,
    next_incident: u64,
    /// What the daemon wants judged.
    dockets: Option<Receiver<Docket>>,
    /// The driver's own numbers: the machine's are drawn as the daemon calls.
    random: Random,
    stalled_until: u64,
    crashes: u32,
}

fn line(pages: u64, action: Action) -> Line {
    Line { hard: Size::Bytes(Bytes(pages * PAGE_BYTES)), soft: None, action }
}

/// What this seed's machine is like.
fn faults(random: &mut Random) -> Faults {
    let mut often = |most| if random.one_in(2) { 0 } else { random.within(most, most * 4) };
    let (kernel_signal_fails, exit_lost, stuck) = (often(10), often(3), often(4));
    let (refuses, ignores_term, reaper_full) = (often(5), often(2), often(3));
    Faults {
        kernel_takes: !random.one_in(3),
        kernel_signal_fails,
        exit_lost,
        stuck,
        refuses,
        ignores_term,
        reaper_full,
        between: random.within(1, 6),
        ring_max: usize::try_from(if random.one_in(2) { 963 } else { random.within(1, 12) }).unwrap(),
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let world = World::new(seed, faults(&mut random));
        let mut book = LineBook::new(UidRange { min: Uid(1000), max: Uid(1999) });
        let actions = [Action::Kill, Action::Term, Action::Notify];
        // Sometimes one line is all there is, so that nothing is left when it goes.
        let lines = if random.one_in(4) { 1 } else { actions.len() };
        for (uid, action) in USERS.into_iter().zip(actions).take(lines) {
            let pages = random.within(800, 4000);
            book.set(Place::Administrator(Target::User(Uid(uid))), line(pages, action));
        }
        if lines > 1 && random.one_in(2) {
            book.set(Place::Administrator(Target::Default), line(random.within(800, 3000), Action::Kill));
        }
        if lines > 1 && random.one_in(3) {
            book.set(Place::Administrator(Target::User(Uid(0))), line(300, Action::Kill));
        }
        Self {
            machine: Machine(Rc::new(RefCell::new(world))),
            guard: None,
            recorded: Recorded::by_a_writer(1).1,
            book: Arc::new(book),
            next_incident: 1,
            dockets: None,
            random,
            stalled_until: 0,
            crashes: 0,
        }
    }

    fn world(&self) -> std::cell::RefMut<'_, World> {
        self.machine.0.borrow_mut()
    }

    fn now(&self) -> u64 {
        self.world().now
    }

    /// A daemon starts: on what an earlier one left, or on nothing.
    fn start_daemon(&mut self) {
        let (writer, recorded) = Recorded::by_a_writer(100_000);
        self.recorded = recorded;
        let (mailbox, _) = mailbox().unwrap();
        let (examiner, dockets) = Examiner::by_another();
        self.dockets = Some(dockets);
        let mut guard = Guard::new(Setup {
            kernel: self.machine.clone(),
            reaper: self.machine.clone(),
            ledger: Ledger::new(writer, self.next_incident, PageSize::from_bytes(PAGE_BYTES).unwrap()),
            notices: Notices::new(Journal::mute()),
            pins: Pins::new(Path::new("/nonexistent")),
            book: Arc::new(LineBook::new(UidRange::default())),
            limit_config: LimitConfig::default(),
            machine: None,
            shield: Shield::default(),
            rules: Rules::default(),
            mem_total: MEM_TOTAL,
            mailbox,
            signals: SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
                .unwrap(),
            reload: Box::new(|| {}),
            biographer: Biographer::mute(),
            surveyor: Surveyor::mute(),
            reclaimer: Reclaimer::mute(),
            groups: Groups::mute(),
            cmdlines: CommandLines::mute(),
            // What it does is at most one more wake-up, of which there are enough.
            sampler: Sampler::absent(),
            examiner,
            originals: Originals::default(),
            last_defence: LastDefence::absent(),
            obituary: Obituary::absent(),
            coordinator: crate::coordinator::Teller::mute(),
        });
        {
            let mut world = self.world();
            if !world.accounting.loaded {
                let ring_max = world.faults.ring_max;
                world.accounting.load(ring_max);
            }
            world.trace("a daemon starts".into());
        }
        let outcome = |signal| if signal == Signal::Term { Outcome::Term } else { Outcome::Kill };
        let deeds = self.world().sent.iter().map(|(victim, signal)| (*victim, outcome(*signal), 0)).collect();
        guard.inherit(Inheritance::told(deeds));
        let book = Arc::clone(&self.book);
        if self.guarded(&mut guard, |guard| guard.draw(&book, Change::All).unwrap()) {
            self.guard = Some(guard);
        } else {
            self.crashes += 1;
        }
    }

    /// Lets the daemon do something, in which it may die. Whether it lives.
    fn guarded(&mut self, guard: &mut Guard<Machine>, does: impl FnOnce(&mut Guard<Machine>)) -> bool {
        self.world().oracle.turn += 1;
        let lives = match catch_unwind(AssertUnwindSafe(|| does(guard))) {
            Ok(()) => true,
            Err(cause) if cause.is::<Crash>() => false,
            Err(cause) => {
                self.report();
                resume_unwind(cause)
            }
        };
        while let Some(incident) = self.recorded.next_incident() {
            self.next_incident = self.next_incident.max(incident.id + 1);
            let mut world = self.world();
            world.trace(format!("incident {}: {}", incident.id, incident.reason));
            world.oracle.tell(&incident);
        }
        if lives {
            let finished = guard.attached.as_ref().is_none_or(|attached| attached.unfinished.is_empty());
            self.world().turn_is_over(finished);
        } else {
            self.world().oracle.daemon_died();
        }
        lives
    }

    /// Whether the daemon's `ppoll` would return.
    fn is_ready(&self, guard: &Guard<Machine>) -> bool {
        let due = guard.next_deadline().is_some_and(|due| due.0 <= self.now());
        let gone = guard.flights.awaited().any(|held| held.has_exited().unwrap());
        due || gone || !self.world().accounting.ring.is_empty()
    }

    /// The daemon does what there is to do.
    fn turn(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        let began = self.now();
        let mut turns = 0;
        while began >= self.stalled_until && self.is_ready(&guard) {
            if !self.guarded(&mut guard, Guard::turn) {
                self.crashes += 1;
                return;
            }
            turns += 1;
            // Others run between two turns, too.
            if self.now() - began > 50_000_000 {
                break;
            }
            if turns > TURNS_MAX && self.now() - began < u64::from(turns) * 1_000 {
                let why = (guard.next_deadline(), &guard.attached, self.world().accounting.ring.len());
                panic!("{}", self.fail(&format!("the daemon spins: {why:?}")));
            }
        }
        self.guard = Some(guard);
    }

    /// Somebody judges what the daemon wants judged, later or never.
    fn judge(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        let docket = self.dockets.as_ref().and_then(|dockets| dockets.try_recv().ok());
        let lives = docket.is_none_or(|Docket { user, cases, rules, .. }| {
            let judged = cases.into_iter().filter_map(|case| self.world().verdict(case));
            let verdicts = judged.collect();
            self.guarded(&mut guard, |guard| {
                guard.answer(Request::Examined(Findings { user, verdicts, rules }));
            })
        });
        if lives {
            self.guard = Some(guard);
        } else {
            self.crashes += 1;
        }
    }

    fn change_a_line(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        let mut book = (*self.book).clone();
        let user = Target::User(Uid(self.random.pick(&USERS).unwrap()));
        let target = if self.random.one_in(4) { Target::Default } else { user };
        let action = self.random.pick(&[Action::Kill, Action::Kill, Action::Term, Action::Notify]).unwrap();
        if self.random.one_in(3) {
            book.clear(Place::Administrator(target));
        } else {
            book.set(Place::Administrator(target), line(self.random.within(500, 4000), action));
        }
        let now = self.random.one_in(4);
        self.world().trace(format!("the line of {target} changes, now: {now}"));
        self.book = Arc::new(book);
        let book = Arc::clone(&self.book);
        if !self.world().accounting.loaded {
            let ring_max = self.world().faults.ring_max;
            self.world().accounting.load(ring_max);
        }
        if self.guarded(&mut guard, |guard| guard.draw(&book, Change::One { target, now }).unwrap()) {
            self.guard = Some(guard);
        } else {
            self.crashes += 1;
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..2 if self.world().crash_in.is_none() => {
                let calls = self.random.below(60);
                self.world().crash_in = Some(calls);
            }
            2..5 => {
                let now = self.now();
                self.stalled_until = now + self.random.within(1_000_000, 400_000_000);
            }
            5..9 => self.change_a_line(),
            19..80 => self.judge(),
            9..13 => {
                let span = self.random.within(1_000_000, 4_000_000_000);
                self.pass(span);
            }
            13..15 => self.pass(14_000_000_000),
            15..19 => {
                // Much happens while nobody listens, and then nothing.
                self.stalled_until = self.now() + 30_000_000;
                for _ in 0..40 {
                    self.world().happen();
                }
                self.pass(4_000_000_000);
            }
            _ => self.world().happen(),
        }
        if self.guard.is_none() && self.random.one_in(20) {
            self.start_daemon();
        }
        self.turn();
        self.check();
    }

    /// Time goes by; the daemon wakes whenever it asked to.
    fn pass(&mut self, span: u64) {
        let until = self.now() + span;
        while self.now() < until {
            let now = self.now();
            let deadline = self.guard.as_ref().and_then(Guard::next_deadline).map_or(until, |due| due.0);
            let next = deadline
                .max(self.stalled_until)
                .clamp(now + 100_000, now + 50_000_000)
                .min(until.max(now + 1));
            self.world().advance(next - now);
            self.turn();
            self.check();
            if self.guard.is_none() {
                self.start_daemon();
            }
        }
    }

    fn check(&mut self) {
        let watched = self.guard.is_some();
        let mut world = self.world();
        world.weigh_the_dying();
        world.compare_weights();
        if watched {
            world.watch_lines();
        }
        let mut broken = world.oracle.broken.take();
        let unheard = !world.accounting.ring.is_empty();
        let near = world.accounting.accounts.iter().any(|account| account.near);
        let stalled = world.now < self.stalled_until;
        drop(world);
        let idle = self.guard.as_ref().is_some_and(|guard| guard.next_deadline().is_none());
        if near && idle && !unheard && !stalled {
            broken.get_or_insert("an account is near and the daemon sleeps".into());
        }
        if let Some(broken) = broken {
            panic!("{}", self.fail(&broken));
        }
    }

    fn fail(&self, what: &str) -> String {
        self.report();
        what.to_owned()
    }

    fn report(&self) {
        // Borrowed where a panic came from inside.
        if let Ok(world) = self.machine.0.try_borrow() {
            eprintln!("{:?}", world.faults);
            world.lines.iter().for_each(|line| eprintln!("{line}"));
            world.accounting.accounts.iter().filter(|a| a.in_use).for_each(|a| eprintln!("{a:?}"));
            world.accounting.entries.iter().for_each(|(mm, e)| eprintln!("{mm:x} {e:?}"));
            world.processes.iter().for_each(|(pid, one)| eprintln!("{pid} {one:?}"));
        }
    }

    /// Everybody ends: nothing may be left, and nothing be waited for.
    fn end(&mut self) {
        self.world().ending = true;
        self.world().crash_in = None;
        while self.guard.is_none() {
            self.start_daemon();
        }
        let pids: Vec<u32> = self.world().processes.keys().copied().filter(|pid| *pid > DAEMON).collect();
        for pid in pids {
            self.world().exit(pid);
            self.turn();
            self.check();
        }
        self.world().those_who_stay_release_all();
        self.stalled_until = 0;
        self.pass(45_000_000_000);
        let Some(guard) = &self.guard else { return };
        let due = guard.next_deadline();
        let waiting = guard.attached.as_ref().map(|attached| {
            (attached.near.clone(), attached.watched.values().any(super::attached::Watch::is_waiting))
        });
        let idle = due.is_none()
            && guard.flights.is_empty()
            && waiting.is_none_or(|(near, any)| near.is_empty() && !any);
        assert!(idle, "{}", self.fail("the daemon waits for something when everybody has gone"));
        // Far from every line a lost exit stays charged, because nothing is done for nobody; a look at it puts it right.
        let mut guard = self.guard.take().unwrap();
        for _ in 0..3 {
            self.guarded(&mut guard, |guard| drop(guard.account_views(None, Uid(0)).unwrap()));
        }
        let mut world = self.world();
        world.nothing_is_left();
        world.oracle.all_told();
        drop(world);
        self.check();
    }
}

/// What one seed did.
#[derive(Debug, Default)]
struct Told {
    signals: usize,
    crashes: u32,
}

fn simulate(seed: u64, steps: u64) -> Told {
    let mut simulation = Simulation::new(seed);
    simulation.start_daemon();
    for _ in 0..steps {
        simulation.step();
    }
    simulation.end();
    let signals = simulation.world().oracle.signals();
    Told { signals, crashes: simulation.crashes }
}

mod tests;
