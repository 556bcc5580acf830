//! The simulated machine: processes, their memory, a clock, and what goes wrong with them. What happens to them is in
//! [`super::events`].

use super::{
    entries::{Entry, Maps},
    oracle::Oracle,
    random::Random,
};
use crate::guard::selection::judge::{Judged, Unjudged};
use plimsoll_policy::{
    preference::{JudgedBy, Judgement, Scope},
    selection::{Protection, Weight},
    units::{Pid, Uid},
    victim::{KILL_DEADLINE, Signal, VictimId},
};
use plimsoll_testkit::{FakeKernel, Task};
use plimsoll_wire::record::Record;
use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash as _},
    rc::Rc,
};

pub(super) const INIT: u32 = 1;
pub(super) const DAEMON: u32 = 2;

/// Users: of the first three each has a line of its own, those after them have the default line.
pub(super) const USERS: [u32; 5] = [1001, 1002, 1003, 1004, 1005];

/// Process numbers are few, so that they come back soon: but not to one that started in the same clock tick, which is as
/// well as `/proc` can tell two processes apart.
const PIDS: std::ops::Range<u32> = 10..60;
pub(super) const TICK_NS: u64 = 10_000_000;

pub(super) const PROCESSES_MAX: usize = 16;
/// How many lines of a run's end are shown when it fails; all, where one seed was asked for.
const TRACE_LINES: usize = 120;

/// Addresses of address spaces; as many as the fake kernel has, but one.
const ADDRESSES_MAX: u32 = 511;

const PF_EXITING: u32 = 0x4;
const PF_FORKNOEXEC: u32 = 0x40;
const SIGNAL_GROUP_EXIT: u32 = 0x4;

/// How often what goes wrong: once in so many times, 0 never.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that a kernel may have")]
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
    /// CPUs that run events, beside the one that the daemon runs on; 0: all is done on that one, one thing after another.
    pub(super) other_cpus: u32,
    /// Those may be stopped in the middle of an event, and the daemon's programs be come between.
    pub(super) stops: bool,
    /// `bpf_send_signal_task`, and `bpf_task_from_pid`.
    pub(super) signals_others: bool,
    pub(super) finds_tasks: bool,
    /// A fork may be refused, where a child cannot be signalled.
    pub(super) refuses_forks: bool,
    /// File and shared pages are charged as well.
    pub(super) charges_all: bool,
    pub(super) families_max: u32,
    pub(super) accounts_max: u32,
    /// Pages that are freed are looked at.
    pub(super) watches_copies: bool,
    /// CPUs take ticks, and nobody looks in time: what comes of that comes between events.
    pub(super) ticks: bool,
    /// All users are members of a group with a line, whose action is to tell.
    pub(super) grouped: bool,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that may be so of a process")]
pub(super) struct Process {
    /// Of the fake kernel.
    pub(super) task: u64,
    place: u32,
    pub(super) start_ns: u64,
    pub(super) uid: u32,
    pub(super) uid_since: u64,
    /// `None`: exited, and not waited for yet.
    pub(super) mm: Option<u64>,
    pub(super) mm_since: u64,
    /// Has not called exec since it was forked.
    pub(super) forked: bool,
    pub(super) refuses: bool,
    /// A signal failed: until then the daemon sends it none.
    pub(super) spared_until: u64,
    pub(super) ignores_term: bool,
    pub(super) stuck: bool,
    pub(super) killed: bool,
    pub(super) exiting: bool,
    /// In the middle of something on a CPU, or not born yet.
    pub(super) busy: bool,
    pub(super) dies_at: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Memory {
    /// Tells it from others at the same address, before and after.
    pub(super) life: u64,
    pub(super) pages: i64,
    /// In the order in which they came: the first is its owner.
    pub(super) users: Vec<u32>,
    /// Those who do something to it and run elsewhere: it is not torn down before they have done.
    pub(super) held: u32,
    /// Two processes ran in it at once.
    pub(super) shared: bool,
    /// Or in what it was forked from: which of them was judged is not known everywhere.
    pub(super) doubtful: bool,
    /// Its executable is.
    pub(super) protected: bool,
    /// What rules say of the program that runs in it.
    pub(super) judgement: Judgement,
}

/// A user changes their own line.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnLine {
    uid: u32,
    /// There was an account, which stays.
    known: bool,
    /// No more than that may be in force for them meanwhile.
    most_pages: i64,
}

/// The daemon dies here.
pub(super) struct Crash;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that may be so of the machine")]
pub(super) struct World {
    pub(super) kernel: Rc<FakeKernel>,
    /// Programs are in the kernel.
    pub(super) loaded: bool,
    /// What they may not know of an address space far from its line.
    pub(super) loose_pages: i64,
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) memories: BTreeMap<u64, Memory>,
    pub(super) oracle: Oracle,
    /// Every signal that the daemon sent: what the notes that outlive a daemon tell the next one.
    pub(super) sent: Vec<(VictimId, Signal)>,
    /// Records that no program wrote, read before all others.
    pub(super) forged: VecDeque<Record>,
    pub(super) own_line: Option<OwnLine>,
    /// After so many calls of the daemon it dies.
    pub(super) crash_in: Option<u64>,
    /// The daemon marks this address space, in the middle of which an event may end who runs in it.
    pub(super) marking: Option<(u64, Option<u32>)>,
    /// So many programs that the daemon's guard called are under way; events and other calls, each on a CPU.
    pub(super) daemon_calls: u32,
    pub(super) running: u32,
    /// The programs were told that a daemon is there.
    pub(super) attended: bool,
    /// Nothing is stopped in the middle.
    pub(super) calm: bool,
    /// Since nothing was under way, one of them was stopped in the middle.
    pub(super) disturbed: bool,
    /// Nobody starts anything any more.
    pub(super) ending: bool,
    pub(super) lines: VecDeque<String>,
    /// How often the daemon has listed all address spaces, and how often it had when it handed each victim to the reaper.
    pub(super) listings: u32,
    pub(super) handed_over: Vec<u32>,
    keeps_all: bool,
    /// Of all lines, kept or not: what two trees must agree on.
    pub(super) fingerprint: DefaultHasher,
    /// Of address spaces that have ended: the slab hands out what was freed last.
    addresses: Vec<u64>,
    addresses_made: u32,
    /// Of tasks that were waited for; those that a CPU may still look at come last.
    task_places: VecDeque<u32>,
    lives: u64,
    pub(super) next_pid: u32,
    freed_pids: BTreeMap<u32, u64>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, kernel: Rc<FakeKernel>) -> Self {
        let mut world = Self {
            kernel,
            loaded: false,
            loose_pages: 0,
            now: 1_000_000_000_000,
            random: Random::new(seed),
            faults,
            listings: 0,
            handed_over: Vec::new(),
            processes: BTreeMap::new(),
            memories: BTreeMap::new(),
            oracle: Oracle::default(),
            sent: Vec::new(),
            forged: VecDeque::new(),
            own_line: None,
            crash_in: None,
            marking: None,
            daemon_calls: 0,
            running: 0,
            attended: false,
            calm: false,
            disturbed: false,
            ending: false,
            lines: VecDeque::new(),
            fingerprint: DefaultHasher::new(),
            keeps_all: std::env::var_os("PLIMSOLL_SIM_SEED").is_some(),
            addresses: Vec::new(),
            addresses_made: 0,
            task_places: (0..200).collect(),
            lives: 0,
            next_pid: PIDS.start,
            freed_pids: BTreeMap::new(),
        };
        for pid in [INIT, DAEMON] {
            world.begin_process(pid);
        }
        world
    }

    /// Process 1, or the daemon: no event tells of it.
    pub(super) fn begin_process(&mut self, pid: u32) {
        // The daemon's executable is on the list of those protected.
        let mm = self.new_memory(pid, pid == DAEMON);
        let (kernel, now) = (Rc::clone(&self.kernel), self.now);
        kernel.mm_executed(mm);
        kernel.count(mm, 0, plimsoll_wire::abi::PLIMSOLL_MEMBER_ANON, 100);
        self.memories.get_mut(&mm).unwrap().pages = 100;
        self.wait_for(pid);
        let start_ns = if pid == INIT { 1_000 } else { now };
        let mut process = self.new_process(0, mm);
        (process.start_ns, process.forked) = (start_ns, false);
        self.processes.insert(pid, process);
        self.tell(pid);
        self.tell_users(mm);
    }

    pub(super) fn trace(&mut self, line: String) {
        if self.lines.len() >= TRACE_LINES && !self.keeps_all {
            self.lines.pop_front();
        }
        let now = self.now - 1_000_000_000_000;
        (now, &line).hash(&mut self.fingerprint);
        self.lines
            .push_back(format!("{:>12.6} ms {line}", u32::try_from(now / 1000).map_or(0.0, f64::from) / 1e3));
    }

    /// From here on `uid` changes the own line, under an administrator's of `hard` pages.
    pub(super) fn begin_own_line(&mut self, uid: u32, hard: u64) {
        let in_force = self.loaded.then(|| Maps::read(&self.kernel).in_force(uid)).flatten();
        self.own_line = Some(OwnLine {
            uid,
            known: in_force.is_some(),
            most_pages: in_force.unwrap_or(0).max(hard.cast_signed()),
        });
    }

    /// Whoever changes the own line opens nothing and raises nothing above the administrator's. The account of who runs nothing
    /// may be given to another meanwhile.
    pub(super) fn watch_own_line(&mut self) {
        let Some(own) = self.own_line else { return };
        let in_force = Maps::read(&self.kernel).in_force(own.uid);
        let runs = || self.processes.values().any(|one| one.uid == own.uid);
        if in_force.map_or(own.known && runs(), |pages| pages > own.most_pages) {
            self.oracle.breaks(format!("{own:?} brought it to {in_force:?}"));
        }
    }

    /// The kernel learns what has become of a process.
    pub(super) fn tell(&self, pid: u32) {
        let Some(one) = self.processes.get(&pid) else { return };
        let flags = if one.forked { PF_FORKNOEXEC } else { 0 } | if one.exiting { PF_EXITING } else { 0 };
        let task = Task {
            mm: one.mm.unwrap_or(0),
            start_ns: one.start_ns,
            pid,
            uid: one.uid,
            flags,
            leader: one.place,
            threads: u32::from(!one.exiting),
            signal_flags: if one.killed || one.exiting { SIGNAL_GROUP_EXIT } else { 0 },
            unhashed: 0,
        };
        self.kernel.task_set(one.task, &task);
    }

    /// The kernel learns who uses an address space.
    pub(super) fn tell_users(&self, mm: u64) {
        let Some(memory) = self.memories.get(&mm) else { return };
        let owner = memory.users.first().and_then(|pid| self.processes.get(pid)).map_or(0, |one| one.task);
        let users = u32::try_from(memory.users.len()).unwrap() + memory.held;
        self.kernel.mm_used_by(mm, users, owner);
    }

    /// What rules say of a program.
    fn some_judgement(&mut self) -> Judgement {
        let permille = self.random.pick(&[1000, 1000, 1000, 250, 500, 1300, 4000]).unwrap();
        Judgement {
            weight: Weight::from_permille(permille).unwrap(),
            protection: self.random.one_in(12).then_some(Protection::Unit),
            scope: Scope::default(),
            by: JudgedBy::OomScoreAdj,
            session: matches!(permille, 500 | 1300),
        }
    }

    /// What comes of a case, as `/proc` shows the process now.
    pub(super) fn verdict(&self, case: Unjudged) -> Option<Judged> {
        let process = self.processes.get(&case.id.pid.0).filter(|one| one.start_ns == case.id.start_ns)?;
        let judgement = self.memories[&process.mm?].judgement;
        Some(Judged { unjudged: case, uid: Uid(process.uid), judgement })
    }

    /// Used by a process that is not told of it yet.
    pub(super) fn new_memory(&mut self, user: u32, protected: bool) -> u64 {
        let is_new = self.random.one_in(4) && self.addresses_made < ADDRESSES_MAX;
        let reused = if is_new { None } else { self.addresses.pop() };
        let mm = reused.unwrap_or_else(|| {
            self.addresses_made += 1;
            self.kernel.mm(self.addresses_made)
        });
        self.lives += 1;
        let memory = Memory {
            life: self.lives,
            pages: 0,
            users: vec![user],
            held: 0,
            shared: false,
            doubtful: false,
            protected,
            judgement: self.some_judgement(),
        };
        self.memories.insert(mm, memory);
        self.kernel.mm_new(mm, self.lives, protected);
        mm
    }

    /// Nobody uses it any more.
    pub(super) fn free_memory(&mut self, mm: u64) {
        let gone = self.memories.remove(&mm).unwrap();
        self.oracle.ended(gone.life);
        self.kernel.mm_used_by(mm, 0, 0);
        self.addresses.push(mm);
    }

    pub(super) fn new_pid(&mut self) -> Option<u32> {
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

    pub(super) fn new_process(&mut self, uid: u32, mm: u64) -> Process {
        let place = self.task_places.pop_front().unwrap();
        Process {
            task: self.kernel.task(place),
            place,
            start_ns: self.now,
            uid,
            uid_since: self.now,
            mm: Some(mm),
            mm_since: self.now,
            forked: true,
            refuses: false,
            spared_until: 0,
            ignores_term: false,
            stuck: false,
            killed: false,
            exiting: false,
            busy: false,
            dies_at: None,
        }
    }

    /// A process is in the middle of nothing any more.
    pub(super) fn rests(&mut self, pid: u32) {
        if let Some(one) = self.processes.get_mut(&pid) {
            one.busy = false;
        }
    }

    pub(super) fn set_user(&mut self, pid: u32) {
        let uid = self.random.pick(&USERS).unwrap();
        self.trace(format!("{pid} becomes {uid}'s"));
        let now = self.now;
        let process = self.processes.get_mut(&pid).unwrap();
        (process.uid, process.uid_since) = (uid, now);
        // Its pages go with it.
        let pages = process.mm.map_or(0, |mm| self.memories[&mm].pages);
        self.oracle.moved(pages);
        self.tell(pid);
    }

    pub(super) fn wait_for_one(&mut self) {
        let is_zombie = |one: &Process| one.mm.is_none() && !one.busy;
        let zombies: Vec<u32> = self
            .processes
            .iter()
            .filter(|(pid, one)| **pid > DAEMON && is_zombie(one))
            .map(|(pid, _)| *pid)
            .collect();
        if let Some(pid) = self.random.pick(&zombies) {
            self.wait_for(pid);
        }
    }

    pub(super) fn wait_for(&mut self, pid: u32) {
        if let Some(gone) = self.processes.remove(&pid) {
            let task =
                Task { pid, start_ns: gone.start_ns, unhashed: 1, leader: gone.place, ..Task::default() };
            self.kernel.task_set(gone.task, &task);
            self.freed_pids.insert(pid, gone.start_ns);
            self.task_places.push_back(gone.place);
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
        self.tell(pid);
    }

    /// From the programs; 0, or a negative errno.
    pub(super) fn send_from_kernel(&mut self, task: u64, signal: u32) -> i32 {
        let signal = if signal == 15 { Signal::Term } else { Signal::Kill };
        let found =
            self.processes.iter().find(|(_, one)| one.task == task).map(|(pid, one)| (*pid, one.start_ns));
        let Some((pid, start_ns)) = found else {
            // It may have been while the program looked at it.
            if !self.disturbed {
                self.oracle.breaks(format!("{} to a process that was waited for", signal.name()));
            }
            return -3;
        };
        if self.random.one_in(self.faults.kernel_signal_fails) {
            self.trace(format!("{} to {pid} from the event fails", signal.name()));
            self.processes.get_mut(&pid).unwrap().spared_until = self.now + KILL_DEADLINE.0;
            return -11;
        }
        self.taken_by_event(pid);
        self.trace(format!("{} to {pid} from the event", signal.name()));
        self.signalled(pid, start_ns, signal, false);
        self.deliver(pid, signal);
        0
    }

    /// From the daemon, to a process that it holds. `None`: it was waited for.
    pub(super) fn send(&mut self, pid: u32, start_ns: u64, signal: Signal) -> Option<bool> {
        let process = self.processes.get(&pid).filter(|one| one.start_ns == start_ns)?;
        if process.refuses {
            self.trace(format!("{} to {pid} refused", signal.name()));
            return Some(false);
        }
        self.trace(format!("{} to {pid} from the daemon", signal.name()));
        self.check_claim_holds(pid, start_ns);
        self.signalled(pid, start_ns, signal, true);
        self.sent.push((VictimId { pid: Pid(pid), start_ns }, signal));
        self.deliver(pid, signal);
        Some(true)
    }

    /// The process behind a number, if it started in that clock tick.
    pub(super) fn find(&self, pid: Pid, start_ns: u64) -> Option<(u32, u64)> {
        let process = self.processes.get(&pid.0)?;
        (process.start_ns / TICK_NS == start_ns / TICK_NS).then_some((pid.0, process.start_ns))
    }

    pub(super) fn has_exited(&self, pid: u32, start_ns: u64) -> bool {
        self.processes.get(&pid).is_none_or(|one| one.start_ns != start_ns || one.mm.is_none())
    }

    /// No CPU is in the middle of anything.
    pub(super) const fn is_quiet(&self) -> bool {
        self.running == 0 && self.daemon_calls == 0
    }

    /// Something came to its end.
    pub(super) fn settle_down(&mut self) {
        if self.is_quiet() {
            self.disturbed = false;
            self.oracle.come_to_rest();
        }
    }

    /// An address space as the programs know it.
    pub(super) fn entry(&self, mm: u64) -> Option<Entry> {
        self.loaded.then(|| Entry::all(&self.kernel).remove(&mm)).flatten()
    }
}
