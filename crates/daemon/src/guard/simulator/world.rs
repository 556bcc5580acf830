//! The simulated machine: processes, their memory, a clock, and what goes wrong with them.

use super::{accounting::Accounting, oracle::Oracle, random::Random};
use crate::guard::examiner::{Case, Verdict};
use plimsoll_policy::{
    preference::{Judge, Judgement, Scope},
    selection::{Protection, Weight},
    units::{Pid, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::Holder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const INIT: u32 = 1;
pub(super) const DAEMON: u32 = 2;

/// Users: of the first three each has a line of its own, those after them have the default line.
pub(super) const USERS: [u32; 5] = [1001, 1002, 1003, 1004, 1005];

/// Process numbers are few, so that they come back soon: but not to one that started in the same clock tick, which is as
/// well as `/proc` can tell two processes apart.
const PIDS: std::ops::Range<u32> = 10..60;
pub(super) const TICK_NS: u64 = 10_000_000;

const PROCESSES_MAX: usize = 16;
/// How many lines of a run's end are shown when it fails; all, where one seed was asked for.
const TRACE_LINES: usize = 120;

/// How often what goes wrong: once in so many times, 0 never.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    /// The programs may signal by themselves.
    pub(super) kernel_takes: bool,
    pub(super) kernel_signal_fails: u64,
    /// An exit event.
    pub(super) exit_lost: u64,
    /// A victim that is never seen to end, or not for long.
    pub(super) stuck: u64,
    /// A process that no signal may be sent to.
    pub(super) refuses: u64,
    pub(super) ignores_term: u64,
    pub(super) reaper_full: u64,
    /// Events between two calls of the daemon.
    pub(super) between: u64,
    pub(super) ring_max: usize,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that may be so of a process")]
pub(super) struct Process {
    pub(super) start_ns: u64,
    pub(super) uid: u32,
    pub(super) uid_since: u64,
    /// `None`: exited, and not waited for yet.
    pub(super) mm: Option<u64>,
    pub(super) mm_since: u64,
    /// Has not called exec since it was forked.
    pub(super) forked: bool,
    pub(super) refuses: bool,
    ignores_term: bool,
    stuck: bool,
    pub(super) killed: bool,
    dies_at: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Memory {
    /// Tells it from others at the same address, before and after.
    pub(super) life: u64,
    pub(super) pages: i64,
    pub(super) users: BTreeSet<u32>,
    /// Two processes ran in it at once.
    pub(super) shared: bool,
    /// Its executable is.
    pub(super) protected: bool,
    /// What rules say of the program that runs in it.
    pub(super) judgement: Judgement,
    unfolded: i64,
}

/// The daemon dies here.
pub(super) struct Crash;

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) memories: BTreeMap<u64, Memory>,
    pub(super) accounting: Accounting,
    pub(super) oracle: Oracle,
    /// Every signal that the daemon sent: what the notes that outlive a daemon tell the next one.
    pub(super) sent: Vec<(VictimId, Signal)>,
    /// After so many calls of the daemon it dies.
    pub(super) crash_in: Option<u64>,
    /// Nobody starts anything any more.
    pub(super) ending: bool,
    pub(super) lines: VecDeque<String>,
    /// How often the daemon has listed all address spaces, and how often it had when it handed each victim to the reaper.
    pub(super) listings: u32,
    pub(super) handed_over: Vec<u32>,
    keeps_all: bool,
    addresses: Vec<u64>,
    addresses_made: u64,
    lives: u64,
    next_pid: u32,
    freed_pids: BTreeMap<u32, u64>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut world = Self {
            now: 1_000_000_000_000,
            random: Random::new(seed),
            faults,
            listings: 0,
            handed_over: Vec::new(),
            processes: BTreeMap::new(),
            memories: BTreeMap::new(),
            accounting: Accounting::default(),
            oracle: Oracle::default(),
            sent: Vec::new(),
            crash_in: None,
            ending: false,
            lines: VecDeque::new(),
            keeps_all: std::env::var_os("PLIMSOLL_SIM_SEED").is_some(),
            addresses: Vec::new(),
            addresses_made: 0,
            lives: 0,
            next_pid: PIDS.start,
            freed_pids: BTreeMap::new(),
        };
        for pid in [INIT, DAEMON] {
            let mm = world.new_memory(pid, 100);
            world.processes.insert(pid, Process::new(1_000, 0, mm));
            // The daemon's executable is on the list of those protected.
            world.memories.get_mut(&mm).unwrap().protected = pid == DAEMON;
        }
        world
    }

    pub(super) fn trace(&mut self, line: String) {
        if self.lines.len() >= TRACE_LINES && !self.keeps_all {
            self.lines.pop_front();
        }
        let now = self.now - 1_000_000_000_000;
        self.lines
            .push_back(format!("{:>12.6} ms {line}", u32::try_from(now / 1000).map_or(0.0, f64::from) / 1e3));
    }

    /// Every call of the daemon takes time, in which other things happen; and it may be its last.
    pub(super) fn interleave(&mut self) {
        let took = self.random.within(500, 20_000);
        self.advance(took);
        if let Some(left) = &mut self.crash_in {
            if *left == 0 {
                self.crash_in = None;
                self.trace("the daemon dies".into());
                std::panic::resume_unwind(Box::new(Crash));
            }
            *left -= 1;
        }
        if self.random.one_in(self.faults.between) {
            for _ in 0..self.random.within(1, 3) {
                self.happen();
            }
        }
        self.watch_those_asked_for();
    }

    /// Time goes by; whoever was to die by then does.
    pub(super) fn advance(&mut self, span: u64) {
        let until = self.now + span;
        loop {
            let due = self.processes.iter().filter_map(|(pid, one)| Some((one.dies_at?, *pid))).min();
            match due.filter(|(at, _)| *at <= until) {
                Some((at, pid)) => {
                    self.now = self.now.max(at);
                    self.exit(pid);
                }
                None => break,
            }
        }
        self.now = until;
    }

    /// Something, at random.
    pub(super) fn happen(&mut self) {
        let living: Vec<u32> =
            self.processes.iter().filter(|(_, one)| one.mm.is_some()).map(|(pid, _)| *pid).collect();
        let others: Vec<u32> = living.iter().copied().filter(|pid| *pid > DAEMON).collect();
        let Some(pid) = self.random.pick(&others) else {
            if !self.ending {
                self.login();
            }
            return;
        };
        // Who was killed does no more than end what it has begun.
        let choice = if self.processes[&pid].killed { self.random.below(55) } else { self.random.below(100) };
        match choice {
            0..50 => self.allocate(pid),
            50..65 => self.release(pid),
            65..69 if living.len() < PROCESSES_MAX && !self.ending => drop(self.fork(pid)),
            69..73 if living.len() < PROCESSES_MAX && !self.ending => self.login(),
            73..76 if !self.ending => self.exec(pid),
            76..78 => self.set_user(pid),
            78..79 if living.len() < PROCESSES_MAX && !self.ending => self.share(pid),
            79..81 => self.write_into(pid, &living),
            81..85 => self.exit(pid),
            85..88 => self.wait_for_one(),
            88..91 if !self.ending => self.succeed(pid),
            91..94 if !self.ending => self.ask_for_memory(pid),
            94..97 => self.settle_grant(pid),
            _ => {
                let idle = self.random.within(1_000, 3_000_000);
                self.advance(idle);
            }
        }
    }

    fn allocate(&mut self, pid: u32) {
        let process = &self.processes[&pid];
        if process.killed && (process.stuck || !self.random.one_in(4)) {
            return;
        }
        let mm = process.mm.unwrap();
        let pages = if self.random.one_in(12) { 512 } else { self.random.within(1, 64) };
        self.change(pid, mm, pages.cast_signed());
    }

    fn release(&mut self, pid: u32) {
        let mm = self.processes[&pid].mm.unwrap();
        let pages = self.random.below(self.memories[&mm].pages.cast_unsigned() / 2 + 1).cast_signed();
        self.change(pid, mm, -pages);
    }

    /// Process 1 and the daemon, whose own account may have a line.
    pub(super) fn those_who_stay_release_all(&mut self) {
        for pid in [INIT, DAEMON] {
            let mm = self.processes[&pid].mm.unwrap();
            let pages = self.memories[&mm].pages;
            self.change(pid, mm, -pages);
        }
    }

    /// `task` changes a counter of an address space, its own or another's.
    fn change(&mut self, task: u32, mm: u64, delta: i64) {
        let Some(memory) = self.memories.get_mut(&mm) else { return };
        memory.pages += delta;
        memory.unfolded += delta.abs();
        let folded = memory.unfolded >= 32;
        if folded {
            memory.unfolded = 0;
        }
        self.on_rss_stat(task, mm, folded);
    }

    /// `process_vm_writev`, or reclaim, done by one to another.
    fn write_into(&mut self, task: u32, living: &[u32]) {
        let Some(mm) = self.random.pick(living).and_then(|pid| self.processes[&pid].mm) else { return };
        let pages = self.random.within(1, 200).cast_signed();
        self.change(task, mm, pages);
    }

    /// What rules say of a program.
    fn some_judgement(&mut self) -> Judgement {
        let permille = self.random.pick(&[1000, 1000, 1000, 250, 500, 1300, 4000]).unwrap();
        Judgement {
            weight: Weight::from_permille(permille).unwrap(),
            protection: self.random.one_in(12).then_some(Protection::Unit),
            scope: Scope::default(),
            by: Judge::OomScoreAdj,
        }
    }

    /// What comes of a case, as `/proc` shows the process now.
    pub(super) fn verdict(&self, case: Case) -> Option<Verdict> {
        let process = self.processes.get(&case.id.pid.0).filter(|one| one.start_ns == case.id.start_ns)?;
        let judgement = self.memories[&process.mm?].judgement;
        Some(Verdict { case, uid: Uid(process.uid), judgement })
    }

    fn new_memory(&mut self, user: u32, pages: i64) -> u64 {
        // The slab hands out what was freed last.
        let reused = if self.random.one_in(4) { None } else { self.addresses.pop() };
        let mm = reused.unwrap_or_else(|| {
            self.addresses_made += 1;
            0xffff_8880_0000_0000 + self.addresses_made * 1024
        });
        self.lives += 1;
        let memory = Memory {
            life: self.lives,
            pages,
            users: BTreeSet::from([user]),
            shared: false,
            protected: false,
            judgement: self.some_judgement(),
            unfolded: 0,
        };
        self.memories.insert(mm, memory);
        mm
    }

    fn new_pid(&mut self) -> Option<u32> {
        for _ in PIDS {
            let pid = self.next_pid;
            self.next_pid = if self.next_pid + 1 < PIDS.end { self.next_pid + 1 } else { PIDS.start };
            let fresh =
                self.freed_pids.get(&pid).is_none_or(|started| self.now / TICK_NS != started / TICK_NS);
            if fresh && !self.processes.contains_key(&pid) {
                return Some(pid);
            }
        }
        None
    }

    fn fork(&mut self, parent: u32) -> Option<u32> {
        let pid = self.new_pid()?;
        let parent_mm = self.processes[&parent].mm?;
        let Memory { pages, protected, judgement, .. } = self.memories[&parent_mm];
        let mm = self.new_memory(pid, pages);
        let memory = self.memories.get_mut(&mm).unwrap();
        (memory.protected, memory.judgement) = (protected, judgement);
        let mut child = Process::new(self.now, self.processes[&parent].uid, mm);
        child.refuses = self.random.one_in(self.faults.refuses);
        child.ignores_term = self.random.one_in(self.faults.ignores_term);
        child.stuck = self.random.one_in(self.faults.stuck);
        self.processes.insert(pid, child);
        self.trace(format!("fork of {parent}: {pid} with {pages} pages, mm {:x}", mm & 0xffffff));
        self.on_fork(parent, pid);
        Some(pid)
    }

    /// A process ends, is waited for, and its number is another's at once.
    fn succeed(&mut self, pid: u32) {
        self.exit(pid);
        self.wait_for(pid);
        self.next_pid = pid;
        self.login();
    }

    fn login(&mut self) {
        let Some(pid) = self.fork(INIT) else { return };
        self.set_user(pid);
        if !self.random.one_in(3) {
            self.exec(pid);
        }
    }

    /// Another process in the same address space.
    fn share(&mut self, parent: u32) {
        let (Some(pid), Some(mm)) = (self.new_pid(), self.processes[&parent].mm) else { return };
        let memory = self.memories.get_mut(&mm).unwrap();
        memory.shared = true;
        memory.users.insert(pid);
        let child = Process::new(self.now, self.processes[&parent].uid, mm);
        self.processes.insert(pid, child);
        self.trace(format!("clone of {parent}: {pid} shares its memory"));
    }

    fn exec(&mut self, pid: u32) {
        if self.processes[&pid].killed {
            return;
        }
        self.oracle.became_another(pid, self.processes[&pid].start_ns);
        let mm = self.new_memory(pid, 0);
        self.memories.get_mut(&mm).unwrap().protected = self.random.one_in(15);
        let process = self.processes.get_mut(&pid).unwrap();
        process.forked = false;
        process.mm_since = self.now;
        let old = process.mm.replace(mm);
        self.trace(format!("exec of {pid}, mm {:x}", mm & 0xffffff));
        self.leave(pid, old);
        if self.random.one_in(2) {
            self.change(pid, mm, 5);
        }
        self.on_exec(pid);
    }

    fn set_user(&mut self, pid: u32) {
        let uid = self.random.pick(&USERS).unwrap();
        self.trace(format!("{pid} becomes {uid}'s"));
        let now = self.now;
        let process = self.processes.get_mut(&pid).unwrap();
        (process.uid, process.uid_since) = (uid, now);
    }

    pub(super) fn exit(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.dies_at = None;
        let Some(mm) = process.mm.take() else { return };
        self.trace(format!("exit of {pid}"));
        self.leave(pid, Some(mm));
        if self.random.one_in(2) {
            self.wait_for(pid);
        }
    }

    /// A process leaves an address space; the last one ends it.
    fn leave(&mut self, pid: u32, mm: Option<u64>) {
        let Some(mm) = mm else { return };
        let memory = self.memories.get_mut(&mm).unwrap();
        memory.users.remove(&pid);
        if !memory.users.is_empty() {
            return;
        }
        let half = memory.pages / 2;
        self.change(pid, mm, -half);
        let memory = self.memories.get_mut(&mm).unwrap();
        memory.pages = 0;
        let life = memory.life;
        if self.accounting.entries.contains_key(&mm) {
            if self.random.one_in(self.faults.exit_lost) {
                self.trace(format!("the end of mm {:x} is lost", mm & 0xffffff));
                self.oracle.phantom(life, self.now);
            } else {
                self.on_exit_mmap(mm);
            }
        }
        self.oracle.ended(life);
        self.memories.remove(&mm);
        self.addresses.push(mm);
    }

    fn wait_for_one(&mut self) {
        let zombies: Vec<u32> =
            self.processes.iter().filter(|(_, one)| one.mm.is_none()).map(|(pid, _)| *pid).collect();
        if let Some(pid) = self.random.pick(&zombies) {
            self.wait_for(pid);
        }
    }

    fn wait_for(&mut self, pid: u32) {
        if let Some(gone) = self.processes.remove(&pid) {
            self.freed_pids.insert(pid, gone.start_ns);
        }
    }

    /// The signal has its effect in its own time, or never.
    fn deliver(&mut self, pid: u32, signal: Signal) {
        let (soon, late) = (self.random.below(20_000_000), self.random.within(1_000_000, 3_000_000_000));
        let stuck_for = self.random.within(6, 40) * 1_000_000_000;
        let now = self.now;
        let Some(process) = self.processes.get_mut(&pid).filter(|one| one.mm.is_some()) else { return };
        match signal {
            Signal::Kill if process.killed => {}
            Signal::Kill => {
                process.killed = true;
                process.dies_at = Some(now + if process.stuck { stuck_for } else { soon });
            }
            Signal::Term if process.ignores_term || process.dies_at.is_some() => {}
            Signal::Term => process.dies_at = Some(now + late),
        }
    }

    /// From the programs: nothing can come between selection and signal.
    pub(super) fn send_from_kernel(&mut self, pid: u32, signal: u32) {
        let signal = if signal == 15 { Signal::Term } else { Signal::Kill };
        self.trace(format!("{} to {pid} from the event", signal.name()));
        let start_ns = self.processes[&pid].start_ns;
        self.signalled(pid, start_ns, signal, false);
        self.deliver(pid, signal);
    }

    /// From the daemon, to a process that it holds. `None`: it was waited for.
    pub(super) fn send(&mut self, pid: u32, start_ns: u64, signal: Signal) -> Option<bool> {
        let process = self.processes.get(&pid).filter(|one| one.start_ns == start_ns)?;
        if process.refuses {
            self.trace(format!("{} to {pid} refused", signal.name()));
            return Some(false);
        }
        self.trace(format!("{} to {pid} from the daemon", signal.name()));
        self.signalled(pid, start_ns, signal, true);
        self.sent.push((VictimId { pid: Pid(pid), start_ns }, signal));
        self.deliver(pid, signal);
        Some(true)
    }

    /// A dying process's memory is freed from outside, when all who use it are dying.
    pub(super) fn reap(&mut self, pid: u32, start_ns: u64) {
        let Some(mm) = self.processes.get(&pid).filter(|one| one.start_ns == start_ns).and_then(|one| one.mm)
        else {
            return;
        };
        let memory = &self.memories[&mm];
        if memory.users.iter().all(|user| self.processes[user].killed) {
            let pages = memory.pages;
            self.trace(format!("{pages} pages of {pid} reaped"));
            self.change(DAEMON, mm, -pages);
        }
    }

    /// Walks all tasks; others run meanwhile.
    pub(super) fn walk(&mut self) -> Vec<Holder> {
        self.trace("scan".into());
        self.oracle.walk_began = self.now;
        self.accounting.begin_scan();
        let mut holders = Vec::new();
        let mut last = 0;
        while let Some(pid) = self.processes.range(last + 1..).map(|(pid, _)| *pid).next() {
            last = pid;
            holders.extend(self.scan_task(pid));
            self.advance(600);
            if self.random.one_in(self.faults.between * 4) {
                self.happen();
            }
        }
        holders
    }

    /// The process behind a number, if it started in that clock tick.
    pub(super) fn find(&self, pid: Pid, start_ns: u64) -> Option<(u32, u64)> {
        let process = self.processes.get(&pid.0)?;
        (process.start_ns / TICK_NS == start_ns / TICK_NS).then_some((pid.0, process.start_ns))
    }

    pub(super) fn has_exited(&self, pid: u32, start_ns: u64) -> bool {
        self.processes.get(&pid).is_none_or(|one| one.start_ns != start_ns || one.mm.is_none())
    }
}

impl Process {
    const fn new(start_ns: u64, uid: u32, mm: u64) -> Self {
        Self {
            start_ns,
            uid,
            uid_since: start_ns,
            mm: Some(mm),
            mm_since: start_ns,
            forked: true,
            refuses: false,
            ignores_term: false,
            stuck: false,
            killed: false,
            dies_at: None,
        }
    }
}
