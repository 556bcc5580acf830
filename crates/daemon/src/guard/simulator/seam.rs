//! The simulated machine as the guard's [`Kernel`], and as the place where its programs and their maps are.

use super::{
    entries::{Entry, Maps},
    world::{DAEMON, World},
};
use crate::{
    facts::cgroups::{Group, NotKnown},
    guard::{
        kernel::{Held, Kernel, Programs, Reaps, Records},
        selection::population::{Growth, Population, Seen, Source},
    },
};
use plimsoll_policy::{
    account::Counted,
    preference::{Mark, Scope},
    reading::Reading,
    reap::Rates,
    units::{Bytes, Gid, JobId, Nanos, Pages, Pid, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::{
    bpf::{
        AccountFacts, AddressSpace, BpfError, Call, CopiesPart, Counts, Coverage, DefaultLine, FamilyFacts,
        Grants, Holder, Limits, LineSet, MapFacts, Meta, Pins, ProtectedExe, Selector, SharedPages, Site,
        VictimMark, Weighing,
    },
    process::{Memory, Portrait, Process, ProcessError, ScanCounts, Subject},
};
use plimsoll_testkit::{Cpus, Driver, FakeKernel, Map};
use plimsoll_wire::{
    abi,
    record::{self, Record},
    text::{Comm, Meminfo, ProcessState},
};
use std::{
    cell::{RefCell, RefMut},
    collections::BTreeSet,
    io,
    os::fd::BorrowedFd,
    rc::Rc,
};

const RECORD_BYTES: usize = size_of::<abi::plimsoll_record>();
/// With the header that each has in the ring.
pub(super) const RECORD_BYTES_IN_RING: usize = RECORD_BYTES.next_multiple_of(8) + 8;

/// The way to the simulated machine.
#[derive(Debug, Clone)]
pub(super) struct Machine(pub(super) Rc<Parts>);

/// What it is made of.
#[derive(Debug)]
pub(super) struct Parts {
    world: RefCell<World>,
    pub(super) kernel: Rc<FakeKernel>,
    pub(super) cpus: Cpus,
}

/// The way there of the daemon's thread that grants: it runs on any CPU, and nobody waits for it.
#[derive(Debug)]
pub(super) struct Granting(pub(super) Machine);

pub(super) type SimGrants = Grants<Granting>;

impl Machine {
    pub(super) fn new(world: World) -> Self {
        let kernel = Rc::clone(&world.kernel);
        let cpus = Cpus::new(Rc::clone(&kernel), world.faults.other_cpus + 1);
        let machine = Self(Rc::new(Parts { world: RefCell::new(world), kernel: Rc::clone(&kernel), cpus }));
        kernel.driven_by(Some(Rc::new(machine.clone())));
        let daemon = machine.world().processes[&DAEMON].task;
        kernel.enter(0, daemon);
        machine
    }

    pub(super) fn world(&self) -> RefMut<'_, World> {
        self.0.world.borrow_mut()
    }

    /// Where a panic came from inside, it is borrowed.
    pub(super) fn world_if_free(&self) -> Option<RefMut<'_, World>> {
        self.0.world.try_borrow_mut().ok()
    }

    /// What the daemon asks takes time, in which others run.
    fn asked(&self) -> RefMut<'_, World> {
        self.interleave();
        self.world()
    }

    /// The daemon's program runs, and may be come between.
    fn calls<T>(&self, does: impl FnOnce() -> T) -> T {
        self.interleave();
        self.come_between(does)
    }

    /// Others may run in the middle of it.
    fn come_between<T>(&self, does: impl FnOnce() -> T) -> T {
        self.world().daemon_calls += 1;
        self.arm();
        let result = does();
        self.0.kernel.yield_after(0);
        let mut world = self.world();
        world.daemon_calls -= 1;
        world.settle_down();
        result
    }
}

impl Driver for Machine {
    fn yields(&self) {
        let mut world = self.world();
        world.disturbed = true;
        world.trace("the daemon is come between".into());
        world.note_usage();
        drop(world);
        self.others_come_between();
        self.world().note_usage();
    }

    fn signal(&self, task: u64, signal: u32) -> i32 {
        self.world().send_from_kernel(task, signal)
    }

    fn now(&self) -> u64 {
        self.world().now
    }
}

/// A program that the daemon calls.
#[derive(Debug)]
pub(super) struct Program {
    /// Of the thread that guards: others run before each call, and in the middle of it.
    machine: Option<Machine>,
    inner: plimsoll_testkit::Program,
}

impl Call for Program {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn run<T: Copy>(&self, context: &mut T) -> Result<u32, BpfError> {
        match &self.machine {
            Some(machine) => machine.calls(|| self.inner.run(context)),
            None => self.inner.run(context),
        }
    }

    fn run_bare(&self) -> Result<u32, BpfError> {
        match &self.machine {
            Some(machine) => machine.calls(|| self.inner.run_bare()),
            None => self.inner.run_bare(),
        }
    }
}

/// A walk of all tasks, one at a time; others run meanwhile.
pub(super) struct Walk {
    machine: Machine,
    last: u32,
}

impl io::Read for Walk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let machine = self.machine.clone();
        loop {
            let world = machine.world();
            let next = world.processes.range(self.last + 1..).map(|(pid, one)| (*pid, one.task)).next();
            drop(world);
            let Some((pid, task)) = next else { return Ok(0) };
            self.last = pid;
            let written = machine.come_between(|| machine.0.kernel.walk_one(task, into));
            machine.advance(600);
            let mut world = machine.world();
            let between = world.faults.between * 4;
            let happens = world.random.one_in(between);
            drop(world);
            if happens {
                machine.happen();
            }
            if written > 0 {
                return Ok(written);
            }
        }
    }
}

impl Site for Machine {
    type Program = Program;
    type Map = Map;
    type Walk = Walk;

    fn program(&self, name: &'static str) -> Result<Program, BpfError> {
        Ok(Program { machine: Some(self.clone()), inner: self.0.kernel.program(name)? })
    }

    fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        self.0.kernel.map(name)
    }

    fn walk(&self) -> Result<Walk, BpfError> {
        let mut world = self.world();
        world.trace("scan".into());
        world.oracle.walk_began = world.now;
        drop(world);
        Ok(Walk { machine: self.clone(), last: 0 })
    }
}

impl Site for Granting {
    type Program = Program;
    type Map = Map;
    type Walk = io::Empty;

    fn program(&self, name: &'static str) -> Result<Program, BpfError> {
        Ok(Program { machine: None, inner: self.0.0.kernel.program(name)? })
    }

    fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        self.0.0.kernel.map(name)
    }

    fn walk(&self) -> Result<io::Empty, BpfError> {
        Ok(io::empty())
    }
}

/// One process of it, held.
#[derive(Debug)]
pub(super) struct Hold {
    machine: Machine,
    pid: u32,
    start_ns: u64,
}

impl World {
    /// As `/proc` shows it.
    fn seen(&self, pid: u32) -> Option<Process> {
        let process = self.processes.get(&pid)?;
        let pages = process.mm.map(|mm| Pages(self.memories[&mm].pages.cast_unsigned()));
        let memory = pages.map(|anonymous| Memory { anonymous, swapped: Pages(0), shared: Pages(0) });
        Some(Process {
            pid: Pid(pid),
            start_ns: process.start_ns,
            parent: Pid(0),
            uid: Uid(process.uid),
            memory: memory.map_or(Reading::Absent, Reading::Known),
            state: if process.mm.is_some() { ProcessState::Running } else { ProcessState::Zombie },
            kernel_thread: false,
            dying: process.killed || process.mm.is_none(),
            comm: Comm::from_bytes(b"simulated"),
            threads: 1,
            cpu_ticks: 0,
        })
    }
}

impl Population for Machine {
    fn now(&self) -> Nanos {
        Nanos(self.world().now)
    }

    fn begin_decision(&mut self) {}

    fn own_pid(&self) -> Pid {
        Pid(DAEMON)
    }

    fn census(&mut self, mut visit: impl FnMut(&Seen)) -> Result<Source, ProcessError> {
        self.processes(|process| visit(&Seen::from(process))).map(|_| Source::Proc)
    }

    fn look_closely(&mut self, id: VictimId) -> Option<Seen> {
        Seen::again(&self.process(id.pid).ok()?, id)
    }

    fn portray(&mut self, id: VictimId, _: Option<u64>, into: &mut Portrait) -> Result<bool, ProcessError> {
        *into = Portrait::default();
        self.process(id.pid).map(|_| false)
    }

    fn mark_of(&mut self, _: &[u8], _: Option<u64>) -> Result<Option<Mark>, NotKnown> {
        Ok(None)
    }

    fn group_of(&mut self, _: &[u8], _: Option<u64>, _: Scope) -> Result<Option<Group>, NotKnown> {
        Ok(None)
    }

    fn watch(&mut self, _: Pages) -> bool {
        false
    }

    fn grown(&mut self, _: impl FnMut(Growth)) -> Option<bool> {
        None
    }

    fn unwatch(&mut self) {}

    fn equip(&mut self, _: Selector) {}
}

impl Kernel for Machine {
    type Held = Hold;
    type Reaper = Self;
    type Programs = SimPrograms;
    type Records = SimRecords;

    fn adopt(&self, _: &Pins) -> Result<(SimPrograms, SimRecords), BpfError> {
        assert!(self.asked().loaded, "adopted where nothing is pinned");
        let limits = Limits::at(self.clone(), META)?;
        Ok((SimPrograms { limits, machine: self.clone() }, SimRecords::of(self)))
    }

    fn adopt_replaced(&self, _: &Pins) -> Option<(SimPrograms, SimRecords)> {
        None
    }

    fn remove(&self, _: &Pins) -> Result<bool, BpfError> {
        self.interleave();
        // Who is in the middle of a program comes out of it before its maps go.
        self.finish_all();
        let mut rest = SimRecords::of(self);
        while let Some(record) = rest.read() {
            self.world().oracle.unheard(&record);
        }
        let mut world = self.world();
        let untold = world.untold_actions();
        world.oracle.dropped += untold;
        world.oracle.all_forgotten();
        Ok(std::mem::take(&mut world.loaded))
    }

    fn hold(&self, pid: Pid, start_ns: u64) -> Result<Hold, ProcessError> {
        let (pid, start_ns) = self.asked().find(pid, start_ns).ok_or(ProcessError::Vanished(pid))?;
        Ok(Hold { machine: self.clone(), pid, start_ns })
    }

    fn process(&mut self, pid: Pid) -> Result<Process, ProcessError> {
        self.asked().seen(pid.0).ok_or(ProcessError::Vanished(pid))
    }

    fn processes(&mut self, mut visit: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError> {
        let world = self.asked();
        world.processes.keys().filter_map(|pid| world.seen(*pid)).for_each(|process| visit(&process));
        Ok(ScanCounts::default())
    }

    fn cgroup(&mut self, _: Pid) -> Result<Option<String>, ProcessError> {
        Ok(None)
    }

    fn waiting_pages(&mut self) -> Reading<Pages> {
        Reading::Absent
    }

    fn read_meminfo(&mut self) -> Result<Meminfo, ProcessError> {
        Ok(Meminfo { mem_total: Some(Bytes(1 << 30)), ..Meminfo::default() })
    }
}

impl Held for Hold {
    fn try_clone(&self) -> Result<Self, ProcessError> {
        Ok(Self { machine: self.machine.clone(), pid: self.pid, start_ns: self.start_ns })
    }

    fn send_signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let pid = Pid(self.pid);
        match self.machine.asked().send(self.pid, self.start_ns, signal) {
            Some(true) => Ok(()),
            Some(false) => {
                Err(ProcessError::Denied { operation: "send a signal", subject: Subject::Process(pid) })
            }
            None => Err(ProcessError::Vanished(pid)),
        }
    }

    fn has_exited(&self) -> Result<bool, ProcessError> {
        Ok(self.machine.world().has_exited(self.pid, self.start_ns))
    }
}

impl Reaps for Machine {
    type Held = Hold;

    // A reaper that is awake earlier changes nothing that is told here.
    fn expect(&self, _: &Hold) {}

    fn submit(&self, victim: Hold, _: u64) -> Result<(), Hold> {
        let mut world = self.asked();
        let listings = world.listings;
        world.handed_over.push(listings);
        let full = world.faults.reaper_full;
        if world.random.one_in(full) {
            drop(world);
            return Err(victim);
        }
        drop(world);
        self.reap(victim.pid, victim.start_ns);
        Ok(())
    }

    fn rates(&self) -> Rates {
        Rates::new()
    }

    fn stop(self) -> io::Result<()> {
        Ok(())
    }
}

/// What they were loaded for; but for the room for address spaces nothing here goes by it.
const META: Meta = Meta {
    schema: abi::PLIMSOLL_SCHEMA,
    cpus: 1,
    charged_members: 0,
    processes_max: super::events::SPACES_MAX,
    accounts_max: 0,
    signals_others: false,
    task_caches: false,
    refuses_forks: false,
    build: 0,
    layout: 0,
};

/// The real programs, called as the daemon calls them, and what the oracle makes of each call.
#[derive(Debug)]
pub(super) struct SimPrograms {
    limits: Limits<Machine>,
    machine: Machine,
}

impl Programs for SimPrograms {
    fn meta(&self) -> Meta {
        self.limits.meta()
    }

    fn counters(&self) -> Result<abi::plimsoll_counters, BpfError> {
        self.limits.counters()
    }

    fn maps(&self) -> Vec<MapFacts> {
        Vec::new()
    }

    fn account(&mut self, whose: Counted) -> Result<Option<AccountFacts>, BpfError> {
        self.machine.interleave();
        self.limits.account(whose)
    }

    fn accounts(&mut self) -> Result<Vec<AccountFacts>, BpfError> {
        self.machine.interleave();
        self.limits.accounts()
    }

    fn address_spaces(&mut self, visit: impl FnMut(&AddressSpace)) -> Result<(), BpfError> {
        self.machine.asked().listings += 1;
        self.limits.address_spaces(visit)
    }

    fn walk(&mut self, holding: impl FnMut(Holder)) -> Result<u32, BpfError> {
        self.limits.walk(holding)
    }

    fn sweep(&self) -> Result<u32, BpfError> {
        self.limits.sweep()
    }

    fn job_of(&self, _: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError> {
        unreachable!("no API starts jobs here")
    }

    fn enter_job(&self, _: BorrowedFd<'_>, _: JobId) -> Result<(), BpfError> {
        unreachable!("no API starts jobs here")
    }

    fn mark(&self, mm: u64, pid: Pid, mark: VictimMark) -> Result<bool, BpfError> {
        self.machine.interleave();
        let before = self.machine.world().entry(mm);
        // What others do in the middle of it counts until the oracle has looked.
        self.machine.world().daemon_calls += 1;
        // Of before, for a program that is come between when who it marks is dying already.
        self.machine.world().note_usage();
        self.machine.world().marking = Some((mm, None));
        let marked = self.limits.mark(mm, pid, mark);
        let mut world = self.machine.world();
        let ended = world.marking.take().and_then(|(_, ended)| ended);
        if !world.disturbed {
            world.oracle.forget_usage();
        }
        if let Some(entry) = before.filter(|_| matches!(marked, Ok(true))) {
            match mark {
                VictimMark::Dying { account } => {
                    world.claimed(account, mm, &entry, None);
                    if ended.is_some() {
                        world.finished(entry.life);
                    }
                }
                VictimMark::Expired | VictimMark::Spared => world.unclaimed(mm, &entry, mark),
                VictimMark::Condemned => {}
            }
        } else if let Some((entry, pid)) = ended.and_then(|pid| Some((world.entry(mm)?, pid))) {
            world.claimed(entry.account, mm, &entry, Some(pid));
        }
        world.daemon_calls -= 1;
        world.settle_down();
        drop(world);
        if matches!((mark, &marked), (VictimMark::Dying { .. }, Ok(true))) {
            self.machine.may_stall();
        }
        marked
    }

    fn weigh(&self, weighing: &Weighing) -> Result<bool, BpfError> {
        self.limits.weigh(weighing)
    }

    fn answer(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        self.limits.answer(account, hold_until_ns)
    }

    fn hold_shared(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        self.limits.hold_shared(account, hold_until_ns)
    }

    fn actions_told(&self, count: u64) -> Result<(), BpfError> {
        self.limits.actions_told(count)?;
        self.machine.world().oracle.dropped += count;
        Ok(())
    }

    fn folded_told(&self, account: u32, count: u32) -> Result<(), BpfError> {
        self.limits.folded_told(account, count)?;
        self.machine.world().oracle.dropped += u64::from(count);
        Ok(())
    }

    fn take_place(&mut self) -> Result<(), BpfError> {
        Ok(())
    }

    fn set_line(&self, line: &LineSet) -> Result<u32, BpfError> {
        let grouped = self.machine.world().faults.grouped;
        if grouped {
            // Open: what is charged while an account comes to be below another may be missed there, until that is corrected.
            self.machine.finish_all();
            self.machine.world().calm = true;
        }
        let set = self.limits.set_line(line);
        if grouped {
            self.machine.world().calm = false;
        }
        self.machine.world().watch_own_line();
        set
    }

    fn clear_line(&self, whose: Counted) -> Result<bool, BpfError> {
        self.machine.interleave();
        // Open: an event that is under way while a line goes may charge whoever has its account, or its entry, next.
        self.machine.finish_all();
        let maps = Maps::read(&self.machine.0.kernel);
        let index = match whose {
            Counted::User(uid) => maps.by_uid.get(&uid.0).copied().unwrap_or(0),
            // It is charged for nobody by itself.
            Counted::Group(_) | Counted::Job(_) => 0,
        };
        let its: BTreeSet<u64> =
            maps.entries.values().filter(|e| e.account == index).map(|e| e.life).collect();
        self.machine.world().calm = true;
        let cleared = self.limits.clear_line(whose);
        self.machine.world().calm = false;
        let cleared = cleared?;
        self.machine.world().watch_own_line();
        if cleared {
            let mut world = self.machine.world();
            // One that became another user's just before that is tracked still.
            let stays: BTreeSet<u64> = Entry::all(&world.kernel).values().map(|e| e.life).collect();
            its.difference(&stays).for_each(|life| world.oracle.forgotten(*life));
        }
        Ok(cleared)
    }

    fn set_default(&self, line: Option<&DefaultLine>) -> Result<(), BpfError> {
        self.limits.set_default(line)
    }

    fn protect_cgroups(&self, ids: &[u64]) -> Result<(), BpfError> {
        self.limits.protect_cgroups(ids)
    }

    /// Those of the fake kernel are at no path.
    fn protect_exes(&self, _: &[ProtectedExe]) -> Result<(), BpfError> {
        Ok(())
    }

    fn attend(&self, kernel_trigger: bool) -> Result<(), BpfError> {
        let (takes, watches) = {
            let faults = &self.machine.world().faults;
            (faults.kernel_takes, faults.watches_copies)
        };
        self.limits.attend(kernel_trigger && takes)?;
        self.limits.copies_are_watched(watches)?;
        self.machine.world().attended = true;
        Ok(())
    }

    fn verify(&self, account: u32) -> Result<(), BpfError> {
        self.limits.verify(account)
    }

    fn set_shared(&self, account: u32, whose: Counted, owned: Option<SharedPages>) -> Result<bool, BpfError> {
        self.limits.set_shared(account, whose, owned)
    }

    fn correct(&self, account: u32, group: Gid, more: &Counts) -> Result<bool, BpfError> {
        self.limits.correct(account, group, more)
    }

    fn family(&mut self, family: u64) -> Result<Option<FamilyFacts>, BpfError> {
        self.limits.family(family)
    }

    // Copies are no event: nothing about them is an order of events.
    fn watch_copies(&mut self, _: bool) -> Result<bool, BpfError> {
        Ok(false)
    }

    fn watch_events(&self, _: bool) -> Result<(), BpfError> {
        Ok(())
    }

    /// Each event is looked at here; and where CPUs take ticks, what they do when nobody has looked in time comes besides.
    fn set_look(&self, _: Option<Nanos>) -> Result<(), BpfError> {
        let ticks = self.machine.world().faults.ticks;
        if ticks { self.limits.set_look(Some(Nanos(1))) } else { Ok(()) }
    }

    fn set_copies(&self, _: u64, _: Pages, _: &[CopiesPart]) -> Result<bool, BpfError> {
        Ok(false)
    }

    fn measure_again(&self, _: u32, _: Coverage) -> Result<bool, BpfError> {
        Ok(false)
    }
}

/// The reading end of the ring: a record is given back when the next one is asked for.
#[derive(Debug)]
pub(super) struct SimRecords {
    machine: Machine,
    at: u64,
}

impl SimRecords {
    fn of(machine: &Machine) -> Self {
        Self { machine: machine.clone(), at: machine.0.kernel.given_back() }
    }

    /// Whether any waits.
    pub(super) fn any(machine: &Machine) -> bool {
        let world = machine.world();
        !world.forged.is_empty()
            || (world.loaded && machine.0.kernel.has_record(machine.0.kernel.given_back(), RECORD_BYTES))
    }

    fn read(&mut self) -> Option<Record> {
        let kernel = &self.machine.0.kernel;
        kernel.give_back(self.at);
        let mut bytes = [0; RECORD_BYTES];
        if kernel.next_record(&mut self.at, &mut bytes) {
            return Some(record::decode(&bytes).unwrap());
        }
        None
    }
}

impl Records for SimRecords {
    fn next_record(&mut self) -> Result<Option<Record>, BpfError> {
        self.machine.interleave();
        let forged = self.machine.world().forged.pop_front();
        let record = forged.or_else(|| self.read());
        let mut world = self.machine.world();
        match &record {
            Some(record) => {
                world.trace(format!(
                    "record {:?} of {} pid {} usage {}",
                    record.kind, record.whose, record.process.pid, record.usage
                ));
                world.asked_for(record);
                world.oracle.taken_out(record);
            }
            None => world.oracle.heard_all_at = world.now,
        }
        Ok(record)
    }

    fn undecodable(&self) -> u64 {
        0
    }
}
