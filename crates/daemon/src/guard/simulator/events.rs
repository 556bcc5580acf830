//! What happens to processes, each on a CPU of its own: the fake kernel's state changes, and the real programs run at its
//! events. Where there are several CPUs, any of them may be stopped in the middle of an event while others go on.

use super::{
    seam::{Granting, Machine, SimGrants},
    world::{Crash, DAEMON, INIT, Memory, PROCESSES_MAX, World},
};
use plimsoll_policy::{
    counter::kernel_batch,
    units::{Pages, Pid},
};
use plimsoll_sys::bpf::Reserved;
use plimsoll_wire::abi::{PLIMSOLL_MEMBER_ANON, PLIMSOLL_MEMBER_SWAP};

/// Longer than anybody is in the middle of an event.
const SOON_NS: u64 = 1_000_000;

/// Reads and writes of what is shared between two stops.
const STOPS_WITHIN: u64 = 200;

/// Address spaces that the programs have room for.
pub(super) const SPACES_MAX: u32 = 256;

/// What stays free below a line.
const HEADROOM: Pages = Pages(50);

/// A `struct folio` of anonymous memory: of its flags, its mapping and its index only the second is read.
static ANONYMOUS: [u64; 3] = [0, 1, 0];

/// `__GFP_HIGHMEM | __GFP_DIRECT_RECLAIM`, as a page for a copy is asked for.
const COPY: u64 = 0x402;

/// Of so many claims of the daemon's one is followed by a stall, of at most so long, in which so much happens.
const STALLS: u64 = 4;
const STALLED_NS_MAX: u64 = 300_000_000;
const STALLED_EVENTS: u64 = 10;

/// Time, and who runs when.
impl Machine {
    /// Every call of the daemon takes time, in which other things happen; and it may be its last.
    pub(super) fn interleave(&self) {
        let took = self.world().random.within(500, 20_000);
        self.advance(took);
        let dies = match &mut self.world().crash_in {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if dies {
            let mut world = self.world();
            world.crash_in = None;
            world.trace("the daemon dies".into());
            drop(world);
            std::panic::resume_unwind(Box::new(Crash));
        }
        self.others_run();
        self.world().watch_those_asked_for();
    }

    /// The daemon gets no CPU for a while, and others do.
    pub(super) fn may_stall(&self) {
        if !self.world().random.one_in(STALLS) {
            return;
        }
        let span = self.world().random.within(1_000_000, STALLED_NS_MAX);
        self.world().trace(format!("the daemon stalls for {span} ns"));
        self.advance(span);
        for _ in 0..STALLED_EVENTS {
            self.happen();
        }
    }

    fn others_run(&self) {
        let between = self.world().faults.between;
        if self.world().random.one_in(between) {
            let times = self.world().random.within(1, 3);
            for _ in 0..times {
                self.happen();
            }
        }
    }

    /// A program of the daemon's is in the middle of what it does.
    pub(super) fn others_come_between(&self) {
        if self.0.cpus.which(true).is_empty() || self.world().random.one_in(2) {
            self.happen();
        } else {
            self.go_on();
        }
    }

    /// After so many reads and writes the daemon's own program is come between.
    pub(super) fn arm(&self) {
        let mut world = self.world();
        let several = world.faults.stops && !world.calm && world.random.one_in(2);
        let after = if several { world.random.within(1, STOPS_WITHIN) } else { 0 };
        world.kernel.yield_after(u32::try_from(after).unwrap());
    }

    /// Time goes by; whoever was to die by then does.
    pub(super) fn advance(&self, span: u64) {
        if span > SOON_NS {
            self.finish_all();
        }
        let until = self.world().now + span;
        loop {
            let world = self.world();
            let due = world.processes.iter().filter_map(|(pid, one)| Some((one.dies_at?, *pid))).min();
            let now = world.now;
            drop(world);
            let Some((at, pid)) = due.filter(|(at, _)| *at <= until) else { break };
            self.world().now = now.max(at);
            self.exit(pid);
        }
        let mut world = self.world();
        world.now = world.now.max(until);
    }

    /// Whatever is in the middle of something comes to its end.
    pub(super) fn finish_all(&self) {
        for cpu in self.0.cpus.which(true) {
            self.world().trace(format!("CPU {cpu} goes on to the end"));
            self.0.cpus.go_on(cpu, 0);
        }
    }

    /// One CPU that was stopped goes on for a while.
    fn go_on(&self) {
        let stopped = self.0.cpus.which(true);
        let mut world = self.world();
        let after = if world.random.one_in(3) { 0 } else { world.random.within(1, STOPS_WITHIN) };
        let Some(cpu) = world.random.pick(&stopped) else { return };
        world.trace(format!("CPU {cpu} goes on"));
        world.note_usage();
        drop(world);
        self.0.cpus.go_on(cpu, u32::try_from(after).unwrap());
    }

    /// A process does something; nobody else does anything as it meanwhile, but a signal may come.
    fn runs(&self, pid: u32, does: impl FnOnce(&Self) + 'static) {
        let Some(task) = self.world().processes.get(&pid).filter(|one| !one.busy).map(|one| one.task) else {
            return;
        };
        if pid != DAEMON {
            self.world().processes.get_mut(&pid).unwrap().busy = true;
        }
        let machine = self.clone();
        self.world().running += 1;
        self.on_a_cpu(task, move || {
            does(&machine);
            let mut world = machine.world();
            world.rests(pid);
            world.running -= 1;
            world.settle_down();
        });
    }

    fn on_a_cpu(&self, task: u64, does: impl FnOnce() + 'static) {
        let idle: Vec<u32> = self.0.cpus.which(false).into_iter().filter(|cpu| *cpu > 0).collect();
        let mut world = self.world();
        let others = world.faults.other_cpus > 0;
        let Some(cpu) = (if others { world.random.pick(&idle) } else { Some(0) }) else {
            drop(world);
            // None is free.
            self.finish_all();
            return self.on_a_cpu(task, does);
        };
        let stops = world.faults.stops && !world.calm && world.random.one_in(2);
        let after = if stops { world.random.within(1, STOPS_WITHIN) } else { 0 };
        drop(world);
        if !self.0.cpus.begin(cpu, task, u32::try_from(after).unwrap(), does) {
            let mut world = self.world();
            world.disturbed = true;
            world.trace(format!("CPU {cpu} is stopped in the middle"));
            world.note_usage();
        }
    }

    /// Something, at random.
    pub(super) fn happen(&self) {
        let stopped = !self.0.cpus.which(true).is_empty();
        if stopped && self.world().random.one_in(2) {
            return self.go_on();
        }
        let mut world = self.world();
        let living: Vec<u32> = world
            .processes
            .iter()
            .filter(|(_, one)| one.mm.is_some() && !one.busy && !one.exiting)
            .map(|(pid, _)| *pid)
            .collect();
        let others: Vec<u32> = living.iter().copied().filter(|pid| *pid > DAEMON).collect();
        let Some(pid) = world.random.pick(&others) else {
            let ending = world.ending;
            drop(world);
            if !ending {
                self.login();
            }
            return;
        };
        // Who was killed does no more than end what it has begun.
        let killed = world.processes[&pid].killed;
        let choice = if killed { world.random.below(55) } else { world.random.below(100) };
        let starts = !world.ending;
        let room = world.processes.values().filter(|one| one.mm.is_some()).count() < PROCESSES_MAX;
        drop(world);
        match choice {
            0..50 => self.allocate(pid),
            50..65 => self.release(pid),
            65..69 if room && starts => self.fork(pid),
            69..73 if room && starts => self.login(),
            73..76 if starts => self.runs(pid, move |machine| machine.exec(pid)),
            76..78 => self.world().set_user(pid),
            78..79 if room && starts => self.share(pid),
            79..81 => self.write_into(pid, &others),
            97..99 => self.copy(pid),
            81..85 => self.exit(pid),
            85..88 => self.world().wait_for_one(),
            88..91 if starts => self.succeed(pid),
            91..94 if starts => self.ask_for_memory(pid),
            94..97 => self.settle_grant(pid),
            _ => {
                let idle = self.world().random.within(1_000, 3_000_000);
                self.advance(idle);
            }
        }
    }
}

/// Pages.
impl Machine {
    fn allocate(&self, pid: u32) {
        let mut world = self.world();
        let process = &world.processes[&pid];
        let (killed, stuck, mm) = (process.killed, process.stuck, process.mm.unwrap());
        if killed && (stuck || !world.random.one_in(4)) {
            return;
        }
        let pages = if world.random.one_in(12) { 512 } else { world.random.within(1, 64) };
        drop(world);
        self.runs(pid, move |machine| machine.change(mm, PLIMSOLL_MEMBER_ANON, pages.cast_signed()));
    }

    fn release(&self, pid: u32) {
        let mut world = self.world();
        let mm = world.processes[&pid].mm.unwrap();
        let most = world.memories[&mm].pages.cast_unsigned() / 2 + 1;
        let pages = world.random.below(most).cast_signed();
        // The others have what it shared; what a list of another CPU holds goes later, in the name of whoever runs there.
        let mut freed = if world.random.one_in(2) { pages.cast_unsigned() } else { world.random.below(most) };
        if !(world.attended && world.faults.watches_copies) {
            freed = 0;
        }
        drop(world);
        self.runs(pid, move |machine| {
            machine.change(mm, PLIMSOLL_MEMBER_ANON, -pages);
            let page = std::ptr::from_ref(&ANONYMOUS).addr() as u64;
            while let Some(order) = freed.checked_ilog2() {
                machine.event("on_page_free", &[page, u64::from(order.min(9))]);
                freed -= 1 << order.min(9);
            }
        });
    }

    /// Process 1 and the daemon, whose own account may have a line.
    pub(super) fn those_who_stay_release_all(&self) {
        for pid in [INIT, DAEMON] {
            let mm = self.world().processes[&pid].mm.unwrap();
            let pages = self.world().memories[&mm].pages;
            self.runs(pid, move |machine| machine.change(mm, PLIMSOLL_MEMBER_ANON, -pages));
        }
        self.finish_all();
    }

    /// Writes to pages that it shares since a fork, among those that it takes for something else.
    fn copy(&self, pid: u32) {
        let mut world = self.world();
        let mm = world.processes[&pid].mm.unwrap();
        let (pages, grows) = (world.random.within(1, 64), world.random.one_in(4));
        drop(world);
        self.runs(pid, move |machine| {
            let page = std::ptr::from_ref(&ANONYMOUS).addr() as u64;
            for _ in 0..pages {
                machine.event("on_page_alloc", &[page, 0, COPY]);
                if grows {
                    machine.change(mm, PLIMSOLL_MEMBER_ANON, 1);
                }
            }
            // What became of the last is seen when the next is taken.
            machine.event("on_page_alloc", &[0, 0, COPY]);
        });
    }

    /// Whoever runs here changes a counter of an address space, its own or another's.
    pub(super) fn change(&self, mm: u64, member: u32, delta: i64) {
        let mut world = self.world();
        let Some(memory) = world.memories.get_mut(&mm) else { return };
        memory.pages += delta;
        world.oracle.moved(delta);
        drop(world);
        self.count(mm, member, delta);
        self.event("on_rss_stat", &[mm, u64::from(member)]);
        let mut world = self.world();
        let ticks = world.faults.ticks && world.random.one_in(8);
        drop(world);
        if ticks {
            self.event("on_tick", &[]);
        }
    }

    /// Whoever runs here changes a counter; no event tells of it.
    fn count(&self, mm: u64, member: u32, delta: i64) {
        let kernel = &self.0.kernel;
        kernel.count(mm, kernel.here().0, member, delta);
    }

    /// The program runs that is attached there; what it returns.
    fn event(&self, program: &str, arguments: &[u64]) -> i32 {
        let kernel = &self.0.kernel;
        let mut world = self.world();
        if !world.loaded {
            return 0;
        }
        if !["on_rss_stat", "on_tick", "on_page_alloc", "on_page_free"].contains(&program) {
            world.trace(format!("CPU {}: {program}", kernel.here().0));
        }
        drop(world);
        kernel.event(program, arguments)
    }

    /// `process_vm_writev`, or reclaim, done by one to another.
    fn write_into(&self, task: u32, others: &[u32]) {
        let mut world = self.world();
        let Some(mm) = world.random.pick(others).and_then(|pid| world.processes[&pid].mm) else { return };
        let pages = world.random.within(1, 200).cast_signed();
        let swaps = world.random.one_in(3);
        drop(world);
        self.hold(mm);
        self.runs(task, move |machine| {
            if swaps {
                // Page by page, as reclaim does it.
                let pages = pages.min(machine.world().memories[&mm].pages.max(0));
                machine.change(mm, PLIMSOLL_MEMBER_ANON, -pages);
                machine.change(mm, PLIMSOLL_MEMBER_SWAP, pages);
            } else {
                machine.change(mm, PLIMSOLL_MEMBER_ANON, pages);
            }
            machine.let_go(mm);
        });
    }

    fn hold(&self, mm: u64) {
        let mut world = self.world();
        world.memories.get_mut(&mm).unwrap().held += 1;
        world.tell_users(mm);
    }

    /// `mmput`: the last one to let go tears it down.
    fn let_go(&self, mm: u64) {
        let mut world = self.world();
        world.memories.get_mut(&mm).unwrap().held -= 1;
        world.tell_users(mm);
        drop(world);
        self.end_if_unused(mm);
    }

    /// A dying process's memory is freed from outside, when all who use it are dying.
    pub(super) fn reap(&self, pid: u32, start_ns: u64) {
        let mut world = self.world();
        let Some(mm) =
            world.processes.get(&pid).filter(|one| one.start_ns == start_ns).and_then(|one| one.mm)
        else {
            return;
        };
        let memory = &world.memories[&mm];
        if !memory.users.iter().all(|user| world.processes[user].killed) {
            return;
        }
        let pages = memory.pages;
        world.trace(format!("{pages} pages of {pid} reaped"));
        drop(world);
        self.hold(mm);
        self.runs(DAEMON, move |machine| {
            machine.change(mm, PLIMSOLL_MEMBER_ANON, -pages);
            machine.let_go(mm);
        });
    }
}

/// Beginning and ending.
impl Machine {
    fn fork(&self, parent: u32) {
        self.runs(parent, move |machine| {
            if let Some(child) = machine.fork_of(parent) {
                machine.world().rests(child);
            }
        });
    }

    /// In the parent. The child is busy being born until somebody says that it may run.
    fn fork_of(&self, parent: u32) -> Option<u32> {
        let mut world = self.world();
        let pid = world.new_pid()?;
        let (parent_mm, uid) = (world.processes[&parent].mm?, world.processes[&parent].uid);
        let Memory { pages, protected, judgement, doubtful, .. } = world.memories[&parent_mm];
        let mm = world.new_memory(pid, protected);
        world.kernel.mm_executed(mm);
        let memory = world.memories.get_mut(&mm).unwrap();
        (memory.judgement, memory.doubtful, memory.pages) = (judgement, doubtful, pages);
        world.oracle.moved(pages);
        let mut child = world.new_process(uid, mm);
        let faults = world.faults.clone();
        child.refuses = world.random.one_in(faults.refuses);
        child.ignores_term = world.random.one_in(faults.ignores_term);
        child.stuck = world.random.one_in(faults.stuck);
        child.busy = true;
        world.processes.insert(pid, child);
        world.tell(pid);
        world.tell_users(mm);
        world.trace(format!("fork of {parent}: {pid} with {pages} pages, mm {:x}", mm & 0xffffff));
        let tasks = [world.processes[&parent].task, world.processes[&pid].task];
        drop(world);
        self.count(mm, PLIMSOLL_MEMBER_ANON, pages);
        self.event("on_fork", &tasks);
        self.world().forked(mm);
        Some(pid)
    }

    /// A process ends, is waited for, and its number is another's at once.
    fn succeed(&self, pid: u32) {
        self.exit(pid);
        self.finish_all();
        let mut world = self.world();
        if world.processes.get(&pid).is_some_and(|one| one.mm.is_some()) {
            return;
        }
        world.wait_for(pid);
        world.next_pid = pid;
        drop(world);
        self.login();
    }

    pub(super) fn login(&self) {
        self.runs(INIT, move |machine| {
            let Some(pid) = machine.fork_of(INIT) else { return };
            machine.world().set_user(pid);
            if !machine.world().random.one_in(3) {
                machine.runs_first(pid);
            }
            machine.world().rests(pid);
        });
    }

    /// A process that was forked just now calls exec, on this CPU.
    fn runs_first(&self, pid: u32) {
        let kernel = &self.0.kernel;
        let (cpu, task) = kernel.here();
        let Some(own) = self.world().processes.get(&pid).map(|one| one.task) else { return };
        kernel.enter(cpu, own);
        self.exec(pid);
        kernel.enter(cpu, task);
    }

    /// Another process in the same address space.
    fn share(&self, parent: u32) {
        self.runs(parent, move |machine| machine.clone_of(parent));
    }

    /// In the parent.
    fn clone_of(&self, parent: u32) {
        const CLONE_VM: u64 = 0x100;
        let refuses = self.world().faults.refuses_forks;
        if refuses && self.event("on_task_alloc", &[0, CLONE_VM, 0]) != 0 {
            self.world().trace(format!("clone of {parent}: refused"));
            return;
        }
        let mut world = self.world();
        let (Some(pid), Some(mm)) = (world.new_pid(), world.processes[&parent].mm) else { return };
        let memory = world.memories.get_mut(&mm).unwrap();
        (memory.shared, memory.doubtful) = (true, true);
        memory.users.push(pid);
        let uid = world.processes[&parent].uid;
        let child = world.new_process(uid, mm);
        world.processes.insert(pid, child);
        world.tell(pid);
        world.tell_users(mm);
        world.trace(format!("clone of {parent}: {pid} shares its memory"));
        let tasks = [world.processes[&parent].task, world.processes[&pid].task];
        drop(world);
        self.event("on_fork", &tasks);
    }

    /// In the process.
    fn exec(&self, pid: u32) {
        let mut world = self.world();
        let Some((start_ns, old)) =
            world.processes.get(&pid).filter(|one| !one.killed).map(|one| (one.start_ns, one.mm))
        else {
            return;
        };
        world.oracle.became_another(pid, start_ns);
        let protected = world.random.one_in(15);
        let mm = world.new_memory(pid, protected);
        let now = world.now;
        let process = world.processes.get_mut(&pid).unwrap();
        (process.forked, process.mm_since, process.mm) = (false, now, Some(mm));
        let task = process.task;
        world.tell(pid);
        world.tell_users(mm);
        world.trace(format!("exec of {pid}, mm {:x}", mm & 0xffffff));
        let faults_first = world.random.one_in(2);
        drop(world);
        if let Some(old) = old {
            self.leave(pid, old);
        }
        if faults_first {
            self.change(mm, PLIMSOLL_MEMBER_ANON, 5);
        }
        self.0.kernel.mm_executed(mm);
        self.event("on_exec", &[task]);
    }

    /// Whatever it is in the middle of comes to its end first.
    pub(super) fn exit(&self, pid: u32) {
        if self.world().processes.get(&pid).is_some_and(|one| one.busy) {
            self.finish_all();
        }
        let mut world = self.world();
        let Some(process) = world.processes.get_mut(&pid) else { return };
        process.dies_at = None;
        if process.exiting || process.mm.is_none() {
            return;
        }
        process.exiting = true;
        world.trace(format!("exit of {pid}"));
        world.tell(pid);
        drop(world);
        self.runs(pid, move |machine| {
            let mut world = machine.world();
            let Some(mm) = world.processes.get_mut(&pid).and_then(|one| one.mm.take()) else { return };
            world.tell(pid);
            drop(world);
            machine.leave(pid, mm);
        });
        let mut world = self.world();
        let waits = world.random.one_in(2);
        if waits && world.processes.get(&pid).is_some_and(|one| !one.busy && one.mm.is_none()) {
            world.wait_for(pid);
        }
    }

    /// A process leaves an address space; the last one ends it.
    fn leave(&self, pid: u32, mm: u64) {
        let mut world = self.world();
        world.memories.get_mut(&mm).unwrap().users.retain(|user| *user != pid);
        world.tell_users(mm);
        drop(world);
        self.end_if_unused(mm);
    }

    /// `exit_mmap`, done by whoever runs here.
    fn end_if_unused(&self, mm: u64) {
        let mut world = self.world();
        let Some(memory) =
            world.memories.get_mut(&mm).filter(|memory| memory.users.is_empty() && memory.held == 0)
        else {
            return;
        };
        // Nobody else may come to this now.
        memory.held = 1;
        let (half, life) = (memory.pages / 2, memory.life);
        drop(world);
        self.change(mm, PLIMSOLL_MEMBER_ANON, -half);
        let mut world = self.world();
        let rest = world.memories[&mm].pages;
        world.memories.get_mut(&mm).unwrap().pages = 0;
        let entry = world.entry(mm);
        world.oracle.moved(rest + entry.as_ref().map_or(0, |entry| entry.reserved));
        let exit_lost = world.faults.exit_lost;
        let lost = entry.is_some() && world.random.one_in(exit_lost);
        if lost {
            world.trace(format!("the end of mm {:x} is lost", mm & 0xffffff));
            let now = world.now;
            world.oracle.phantom(life, now);
        }
        drop(world);
        self.count(mm, PLIMSOLL_MEMBER_ANON, -rest);
        if !lost {
            self.event("on_exit_mmap", &[mm]);
        }
        self.world().free_memory(mm);
    }

    /// The daemon's process, where the one before has ended.
    pub(super) fn daemon_begins(&self) {
        let mut world = self.world();
        let begins = world.processes.get(&DAEMON).is_none_or(|one| one.mm.is_none());
        if begins {
            world.begin_process(DAEMON);
        }
        world.trace("a daemon starts".into());
        world.oracle.daemon_since = world.now;
        let task = world.processes[&DAEMON].task;
        drop(world);
        self.0.kernel.enter(0, task);
        if begins {
            self.event("on_exec", &[task]);
        }
    }

    /// The daemon's process ends with it.
    pub(super) fn daemon_ends(&self) {
        self.finish_all();
        {
            let mut world = self.world();
            world.calm = false;
            world.attended = false;
            let Some(process) = world.processes.get_mut(&DAEMON) else { return };
            (process.killed, process.exiting) = (true, true);
            world.tell(DAEMON);
        }
        let Some(mm) = self.world().processes.get_mut(&DAEMON).and_then(|one| one.mm.take()) else { return };
        self.world().tell(DAEMON);
        self.runs(DAEMON, move |machine| machine.leave(DAEMON, mm));
        self.finish_all();
    }
}

/// Memory granted before it is touched: what the thread of the daemon that grants does.
impl Machine {
    /// A process asks for memory. Whether it will touch it, in part or at all, is another matter.
    fn ask_for_memory(&self, pid: u32) {
        let pages = self.world().random.within(1, 600);
        self.grants(pid, move |machine, grants, space| {
            machine.world().oracle.moved(pages.cast_signed());
            if let Ok(grant) = grants.reserve(space, Pages(pages), HEADROOM) {
                let mut world = machine.world();
                world.trace(format!("{pid} asks for {pages} pages: {grant:?}"));
                if let Reserved::Granted { usage } = grant {
                    world.granted(space.mm, usage.0, HEADROOM.0);
                }
            }
        });
    }

    fn settle_grant(&self, pid: u32) {
        let mut world = self.world();
        let gives_up = if world.random.one_in(3) { world.random.below(600) } else { 0 };
        drop(world);
        self.grants(pid, move |machine, grants, space| {
            // One that has ended meanwhile has nothing left.
            let settled = grants.settle(space);
            machine.world().oracle.moved(settled.as_ref().map_or(0, |pages| pages.0.cast_signed()));
            let given = if gives_up > 0 { grants.give_up(space, Pages(gives_up)) } else { Ok(()) };
            drop((settled, given));
        });
    }

    fn grants(&self, pid: u32, does: impl FnOnce(&Self, &SimGrants, &plimsoll_sys::bpf::Space) + 'static) {
        let alive = {
            let world = self.world();
            world.loaded && world.processes.get(&DAEMON).is_some_and(|one| one.mm.is_some())
        };
        if !alive {
            return;
        }
        self.runs(DAEMON, move |machine| {
            let mut grants = SimGrants::at(&Granting(machine.clone())).unwrap();
            if let Ok(Some(space)) = grants.find(Pid(pid)) {
                does(machine, &grants, &space);
            }
        });
    }
}

impl World {
    /// The programs, with empty maps, where there are none yet.
    pub(super) fn load_if_absent(&mut self) {
        if self.loaded {
            return;
        }
        let faults = &self.faults;
        let cpus = faults.other_cpus + 1;
        let batch = kernel_batch(cpus);
        let (members, slots) = if faults.charges_all { (0b1111, 4) } else { (0b110, 2) };
        self.loose_pages = (cpus * slots * batch).into();
        let settings = plimsoll_testkit::Settings {
            cpus,
            batch,
            charged_members: members,
            loose_pages_per_mm: cpus * slots * batch,
            has_task_from_pid: u32::from(faults.finds_tasks),
            has_send_signal_task: u32::from(faults.signals_others),
            mms: SPACES_MAX,
            families: faults.families_max,
            accounts: faults.accounts_max,
            ring_bytes: u32::try_from(faults.ring_max * super::seam::RECORD_BYTES_IN_RING).unwrap(),
            allowance_pages: super::ALLOWANCE_PAGES,
        };
        self.kernel.load(&settings);
        self.loaded = true;
    }
}
