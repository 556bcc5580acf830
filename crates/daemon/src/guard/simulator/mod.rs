//! A machine made of numbers, for the guard and the limits programs, which are real: the guard's wiring and policy, and the
//! programs' C compiled for this machine, run against simulated processes, CPUs and a clock, with everything that can go
//! wrong at any moment, all from one seed.
//!
//! What is proven here is about orders of events that a real machine shows once in a thousand runs. What the verifier takes,
//! where a real kernel's types have their members and in which order a real kernel's events come is proven by the
//! integration tests.

mod entries;
mod events;
mod mistakes;
mod oracle;
mod random;
mod seam;
mod world;

use super::{
    Change, Context, Errand, Guard, Ledger, Request, Setup, Workers,
    kernel::Held as _,
    mailbox,
    selection::judge::{Judge, JudgeAnswer, JudgeRequest},
};
use crate::{
    api::control::Refusal,
    foreign_kills::ForeignKills,
    history::{Inheritance, Recorded},
    journal::{Journal, Notices},
    sampler::Sampler,
};
use entries::Maps;
use nix::sys::{
    signal::SigSet,
    signalfd::{SfdFlags, SignalFd},
};
use plimsoll_policy::{
    account::Action,
    incident::Outcome,
    lines::{Line, LineBook, Membership, Place, Target, UidRange},
    size::Size,
    units::{Bytes, Gid, PageSize, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::Pins;
use plimsoll_testkit::FakeKernel;
use random::Random;
use seam::{Machine, SimRecords};
use std::{
    cell::RefMut,
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    rc::Rc,
    sync::{Arc, mpsc::Receiver},
};
use world::{Crash, DAEMON, Faults, USERS, World};

const PAGE_BYTES: u64 = 4096;
const MEM_TOTAL: Bytes = Bytes(1 << 30);

const ACCOUNTS_MAX: u32 = 8;

/// What a process may have beyond its grants and be in the lower tier.
const ALLOWANCE_PAGES: i64 = 100;

/// So many records the ring holds.
const RECORDS_MAX: usize = 963;

/// The group of a third of all seeds, which everybody is in.
const GROUP: Gid = Gid(50);

/// Turns in a row without time going by: more is a daemon that spins.
const TURNS_MAX: u32 = 64;

/// One daemon on one machine.
struct Simulation {
    machine: Machine,
    guard: Option<Guard<Machine>>,
    recorded: Recorded,
    book: Arc<LineBook>,
    next_incident: u64,
    /// What was recorded: the notes that outlive a daemon tell the next one.
    deeds: Vec<(VictimId, Outcome, u64)>,
    /// What the daemon wants judged.
    judge_requests: Option<Receiver<JudgeRequest>>,
    /// The driver's own numbers: the machine's are drawn as the daemon calls.
    random: Random,
    stalled_until: u64,
    crashes: u32,
    /// Whoever looks for failures does not want to read of each.
    quiet: bool,
}

fn line(pages: u64, action: Action) -> Line {
    Line { hard: Size::Bytes(Bytes(pages * PAGE_BYTES)), soft: None, action }
}

/// What this seed's machine is like.
fn faults(random: &mut Random) -> Faults {
    let mut often = |most| if random.one_in(2) { 0 } else { random.within(most, most * 4) };
    let (kernel_signal_fails, exit_lost, stuck) = (often(10), often(3), often(4));
    let (refuses, ignores_term, reaper_full) = (often(5), often(2), often(3));
    let other_cpus = if random.one_in(3) { 0 } else { u32::try_from(random.within(1, 4)).unwrap() };
    let stops = other_cpus > 0 && !random.one_in(3);
    // An event of a process is not pinned: its own address space does not end. Where another's end was lost, its entry may
    // go in the middle of that event; both at once, to the instruction, are not looked for.
    let exit_lost = if stops { 0 } else { exit_lost };
    let signals_others = random.one_in(2);
    Faults {
        kernel_takes: !random.one_in(3),
        kernel_signal_fails,
        exit_lost,
        stuck,
        refuses,
        ignores_term,
        reaper_full,
        between: random.within(1, 6),
        ring_max: if random.one_in(2) { RECORDS_MAX } else { usize::try_from(random.within(1, 12)).unwrap() },
        other_cpus,
        stops,
        signals_others,
        finds_tasks: !random.one_in(3),
        refuses_forks: !signals_others && random.one_in(2),
        charges_all: random.one_in(4),
        families_max: if random.one_in(4) { 2 } else { 32 },
        // Nobody's among them: then there are fewer than users.
        accounts_max: if random.one_in(4) { 4 } else { ACCOUNTS_MAX },
        watches_copies: random.one_in(2),
        ticks: false,
        grouped: false,
    }
}

impl Simulation {
    fn new(seed: u64, kernel: &Rc<FakeKernel>) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let faults = faults(&mut random);
        let grouped = seed.is_multiple_of(3);
        let faults = Faults { ticks: seed.is_multiple_of(4), grouped, ..faults };
        let world = World::new(seed, faults, Rc::clone(kernel));
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
        if grouped {
            let uids = USERS.into_iter().chain([0]).map(Uid).collect();
            book.replace_members([(GROUP, Membership { uids, doubt: None })].into());
            book.set(Place::Administrator(Target::Group(GROUP)), line(3000, Action::Notify));
        }
        Self {
            machine: Machine::new(world),
            guard: None,
            recorded: Recorded::by_a_writer(1).1,
            book: Arc::new(book),
            next_incident: 1,
            deeds: Vec::new(),
            judge_requests: None,
            random,
            stalled_until: 0,
            crashes: 0,
            quiet: false,
        }
    }

    fn world(&self) -> RefMut<'_, World> {
        self.machine.world()
    }

    fn now(&self) -> u64 {
        self.world().now
    }

    /// A daemon starts: on what an earlier one left, or on nothing.
    fn start_daemon(&mut self) {
        let (writer, recorded) = Recorded::by_a_writer(100_000);
        self.recorded = recorded;
        let (mailbox, _) = mailbox().unwrap();
        let (judge, judge_requests) = Judge::by_another();
        self.judge_requests = Some(judge_requests);
        let page_size = PageSize::from_bytes(PAGE_BYTES).unwrap();
        let ledger = Ledger::new(writer, self.next_incident, page_size);
        let (kernel, reaper) = (self.machine.clone(), self.machine.clone());
        let mut guard = Guard::new(Setup {
            context: Context {
                workers: Workers { judge, ..Workers::mute() },
                ..Context::mute(kernel, reaper, ledger, Notices::new(Journal::mute()))
            },
            pins: Pins::new(Path::new("/nonexistent")),
            book: Arc::new(LineBook::new(UidRange::default())),
            machine: None,
            fragmentation: false,
            mem_total: MEM_TOTAL,
            mailbox,
            signals: SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
                .unwrap(),
            reload: Errand(Box::new(|| {})),
            tend_jobs: Errand(Box::new(|| {})),
            // What it does is at most one more wake-up, of which there are enough.
            sampler: Sampler::absent(),
            foreign_kills: ForeignKills::absent(),
        });
        self.machine.daemon_begins();
        self.world().load_if_absent();
        let outcome = |signal| if signal == Signal::Term { Outcome::Term } else { Outcome::Kill };
        let sent = self.world().sent.clone();
        let sent = sent.into_iter().map(|(victim, signal)| (victim, outcome(signal), 0));
        let deeds = self.deeds.iter().copied().chain(sent).collect();
        guard.inherit(Inheritance::told(deeds));
        let book = Arc::clone(&self.book);
        if self.guarded(&mut guard, |guard| guard.draw(&book, &Change::All).unwrap()) {
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
            let victims =
                incident.victims.iter().map(|one| VictimId { pid: one.pid, start_ns: one.start_ns });
            self.deeds.extend(victims.map(|victim| (victim, incident.action, incident.id)));
            let mut world = self.world();
            world.trace(format!("incident {}: {}", incident.id, incident.reason));
            world.oracle.tell(&incident);
        }
        if lives {
            let finished = guard.attached.as_ref().is_none_or(|attached| attached.unfinished.is_empty());
            self.world().turn_is_over(finished);
        } else {
            self.world().oracle.daemon_died();
            self.machine.daemon_ends();
        }
        lives
    }

    /// Whether the daemon's `ppoll` would return.
    fn is_ready(&self, guard: &Guard<Machine>) -> bool {
        let due = guard.next_deadline().is_some_and(|due| due.0 <= self.now());
        let gone = guard.context.pending.awaited().any(|held| held.has_exited().unwrap());
        due || gone || SimRecords::any(&self.machine)
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
                let why = (guard.next_deadline(), &guard.attached, SimRecords::any(&self.machine));
                panic!("{}", self.fail(&format!("the daemon spins: {why:?}")));
            }
        }
        self.guard = Some(guard);
    }

    /// Somebody judges what the daemon wants judged, later or never.
    fn judge(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        let request = self.judge_requests.as_ref().and_then(|judge_requests| judge_requests.try_recv().ok());
        let lives = request.is_none_or(|JudgeRequest { whose, unjudged, eligibility }| {
            let judged = unjudged.into_iter().filter_map(|case| self.world().verdict(case));
            let judged = judged.collect();
            self.guarded(&mut guard, |guard| {
                guard.answer(Request::Judged(JudgeAnswer {
                    whose,
                    judged,
                    rules: eligibility.rules,
                    renewed: None,
                    took: std::time::Duration::ZERO,
                    asked: BTreeMap::new(),
                }));
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
        let own = self.random.one_in(2).then(|| self.may_draw(&target)).flatten();
        let place = own.as_ref().map_or(Place::Administrator(target), |(place, _)| place.clone());
        let action = self.random.pick(&[Action::Kill, Action::Kill, Action::Term, Action::Notify]).unwrap();
        if self.random.one_in(3) {
            book.clear(place.clone());
        } else {
            let most = own.as_ref().map_or(4000, |(_, hard)| *hard);
            book.set(place.clone(), line(self.random.within(most.min(500), most), action));
        }
        let now = self.random.one_in(4);
        self.world().trace(format!("the line of {place:?} changes, now: {now}"));
        if let Some((place, hard)) = own {
            self.world().begin_own_line(place.set_by().0, hard);
        }
        let before = mem::replace(&mut self.book, Arc::new(book));
        let book = Arc::clone(&self.book);
        self.world().load_if_absent();
        let mut refused = false;
        let change = Change::One { place, now };
        let draws = |guard: &mut Guard<Machine>| match guard.draw(&book, &change) {
            // No account is left for them.
            Err(Refusal::Unavailable(_)) => refused = true,
            drawn => drawn.unwrap(),
        };
        if self.guarded(&mut guard, draws) {
            self.guard = Some(guard);
        } else {
            self.crashes += 1;
        }
        if refused {
            self.book = before;
        }
        self.world().own_line = None;
    }

    /// A user's own line, where one may be drawn for this target, and how far up.
    fn may_draw(&self, target: &Target) -> Option<(Place, u64)> {
        let Target::User(uid) = *target else { return None };
        let page_size = PageSize::from_bytes(PAGE_BYTES).unwrap();
        let administrators = self.book.resolve_administrators(uid, MEM_TOTAL, page_size)?;
        Some((Place::Own(uid), administrators.hard.0))
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
                    self.machine.happen();
                }
                self.pass(4_000_000_000);
            }
            _ => self.machine.happen(),
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
            self.machine.advance(next - now);
            self.turn();
            self.check();
            if self.guard.is_none() {
                self.start_daemon();
            }
        }
    }

    fn check(&mut self) {
        let watched = self.guard.is_some();
        let unheard = SimRecords::any(&self.machine);
        let mut world = self.world();
        let mut near = false;
        // In the middle of something they need not agree.
        if world.loaded && world.is_quiet() {
            let maps = Maps::read(&world.kernel);
            world.maps_agree(&maps);
            if watched {
                world.watch_lines(&maps);
            }
            near = maps.by_uid.values().any(|index| maps.accounts[index].near != 0);
        }
        let mut broken = world.oracle.broken.take();
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
        if let Some(world) = self.machine.world_if_free().filter(|_| !self.quiet) {
            eprintln!("{:?}", world.faults);
            world.lines.iter().for_each(|line| eprintln!("{line}"));
            if world.loaded {
                eprintln!("{:?}", world.kernel.counters());
                let maps = Maps::read(&world.kernel);
                maps.accounts.values().for_each(|a| eprintln!("{a:?}"));
                maps.entries.iter().for_each(|(mm, e)| eprintln!("{mm:x} {e:?}"));
                maps.families.values().for_each(|family| eprintln!("{family:?}"));
            }
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
        // Twice: who was in the middle of a clone has a child by then.
        let mut ended = BTreeSet::new();
        for _ in 0..2 {
            let pids: Vec<u32> = self.world().processes.keys().copied().filter(|pid| *pid > DAEMON).collect();
            for pid in pids.into_iter().filter(|pid| ended.insert(*pid)) {
                self.machine.exit(pid);
                self.turn();
                self.check();
            }
            self.machine.finish_all();
        }
        self.machine.those_who_stay_release_all();
        self.stalled_until = 0;
        self.pass(45_000_000_000);
        let Some(guard) = &self.guard else { return };
        let due = guard.next_deadline();
        let waiting = guard.attached.as_ref().map(|attached| {
            (
                attached.near.clone(),
                attached.watched.values().any(crate::guard::limits::attached::Watch::is_waiting),
            )
        });
        let idle = due.is_none()
            && guard.context.pending.is_empty()
            && waiting.is_none_or(|(near, any)| near.is_empty() && !any);
        assert!(idle, "{}", self.fail("the daemon waits for something when everybody has gone"));
        // Far from every line a lost exit stays charged, because nothing is done for nobody; a look at it puts it right.
        let mut guard = self.guard.take().unwrap();
        for _ in 0..3 {
            self.guarded(&mut guard, |guard| drop(guard.account_views(None, Uid(0)).unwrap()));
            // Two walks within half a second are one to the programs.
            self.machine.advance(600_000_000);
        }
        let mut world = self.world();
        world.nothing_is_left();
        let untold = world.untold_actions();
        world.oracle.all_told(untold);
        drop(world);
        self.check();
    }
}

/// What one seed did.
#[derive(Debug, Default)]
struct Told {
    signals: usize,
    crashes: u32,
    /// Of all that happened, seeds in their order: two trees that decide alike print the same.
    fingerprint: u64,
}

/// What went wrong, if anything did.
fn simulate_quietly(seed: u64, steps: u64, kernel: &Rc<FakeKernel>) -> std::thread::Result<Told> {
    let mut simulation = Simulation::new(seed, kernel);
    simulation.quiet = true;
    catch_unwind(AssertUnwindSafe(|| run(simulation, steps)))
}

fn simulate(seed: u64, steps: u64, kernel: &Rc<FakeKernel>) -> Told {
    run(Simulation::new(seed, kernel), steps)
}

fn run(mut simulation: Simulation, steps: u64) -> Told {
    simulation.start_daemon();
    for _ in 0..steps {
        simulation.step();
    }
    simulation.end();
    let (signals, fingerprint) = {
        let world = simulation.world();
        (world.oracle.signals(), world.fingerprint.finish())
    };
    Told { signals, crashes: simulation.crashes, fingerprint }
}

mod tests;
