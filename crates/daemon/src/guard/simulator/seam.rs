//! The simulated machine as the guard's [`Kernel`].

use super::world::{DAEMON, World};
use crate::guard::{
    groups::Group,
    kernel::{Held, Kernel, Programs, Reaps, Records},
    population::{Growth, NotKnown, Population, Seen, Source},
};
use plimsoll_policy::{
    preference::{Mark, Scope},
    reading::Reading,
    reap::Rates,
    units::{Bytes, Nanos, Pages, Pid, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::{
    bpf::{
        AccountFacts, AddressSpace, BpfError, CopiesPart, DefaultLine, FamilyFacts, Holder, LineSet,
        MapFacts, Meta, Pins, Selector, VictimMark, Weighing,
    },
    process::{Memory, Portrait, Process, ProcessError, ScanCounts, Subject},
};
use plimsoll_wire::{
    abi,
    record::Record,
    text::{Comm, Meminfo, ProcessState},
};
use std::{
    cell::{RefCell, RefMut},
    io,
    rc::Rc,
};

/// The way to the simulated machine.
#[derive(Debug, Clone)]
pub(super) struct Machine(pub(super) Rc<RefCell<World>>);

impl Machine {
    /// What the daemon asks takes time, in which others run.
    fn asked(&self) -> RefMut<'_, World> {
        let mut world = self.0.borrow_mut();
        world.interleave();
        world
    }
}

/// One process of it, held.
#[derive(Debug)]
pub(super) struct Hold {
    machine: Machine,
    pid: u32,
    start_ns: u64,
}

fn refused(program: &'static str, errno: i32) -> BpfError {
    BpfError::Run { program, source: io::Error::from_raw_os_error(errno) }
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
        Nanos(self.0.borrow().now)
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
    type Programs = Self;
    type Records = Self;

    fn adopt(&self, _: &Pins) -> Result<(Self, Self), BpfError> {
        assert!(self.asked().accounting.loaded, "adopted where nothing is pinned");
        Ok((self.clone(), self.clone()))
    }

    fn adopt_replaced(&self, _: &Pins) -> Option<(Self, Self)> {
        None
    }

    fn remove(&self, _: &Pins) -> Result<bool, BpfError> {
        let mut world = self.asked();
        let removed = std::mem::take(&mut world.accounting);
        removed.ring.iter().for_each(|record| world.oracle.unheard(record));
        Ok(removed.loaded)
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
        Ok(self.machine.0.borrow().has_exited(self.pid, self.start_ns))
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
        world.reap(victim.pid, victim.start_ns);
        Ok(())
    }

    fn rates(&self) -> Rates {
        Rates::new()
    }

    fn stop(self) -> io::Result<()> {
        Ok(())
    }
}

impl Programs for Machine {
    fn meta(&self) -> Meta {
        Meta {
            schema: abi::PLIMSOLL_SCHEMA,
            cpus: 1,
            charged_members: 0,
            processes_max: 0,
            accounts_max: 0,
            signals_others: false,
            task_caches: false,
            build: 0,
            layout: 0,
        }
    }

    fn counters(&self) -> Result<abi::plimsoll_counters, BpfError> {
        Ok(self.asked().accounting.counters)
    }

    fn maps(&self) -> Vec<MapFacts> {
        Vec::new()
    }

    fn account(&mut self, uid: Uid) -> Result<Option<AccountFacts>, BpfError> {
        let world = self.asked();
        let index = world.accounting.by_uid.get(&uid.0);
        Ok(index.map(|index| world.accounting.facts(*index)))
    }

    fn accounts(&mut self) -> Result<Vec<AccountFacts>, BpfError> {
        let world = self.asked();
        Ok(world.accounting.by_uid.values().map(|index| world.accounting.facts(*index)).collect())
    }

    fn address_spaces(&mut self, mut visit: impl FnMut(&AddressSpace)) -> Result<(), BpfError> {
        let mut world = self.asked();
        world.listings += 1;
        let spaces = world.accounting.spaces();
        drop(world);
        spaces.iter().for_each(&mut visit);
        Ok(())
    }

    fn walk(&mut self, mut holding: impl FnMut(Holder)) -> Result<u32, BpfError> {
        let mut world = self.asked();
        world.walk().into_iter().for_each(&mut holding);
        Ok(world.accounting.scan_id)
    }

    fn sweep(&self) -> Result<u32, BpfError> {
        Ok(self.asked().accounting.sweep())
    }

    fn mark(&self, mm: u64, pid: Pid, mark: VictimMark) -> Result<bool, BpfError> {
        Ok(self.asked().mark_victim(mm, pid, mark))
    }

    fn weigh(&self, weighing: &Weighing) -> Result<bool, BpfError> {
        let mut world = self.asked();
        // `runs_elsewhere`
        let runs = world.memories.get(&weighing.mm).is_some_and(|one| one.users.contains(&weighing.pid.0));
        Ok(runs && world.accounting.weigh(weighing))
    }

    fn answer(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        self.asked().accounting.answer(account, hold_until_ns);
        Ok(())
    }

    fn set_line(&self, line: &LineSet) -> Result<(), BpfError> {
        if self.asked().accounting.line_set(line) { Ok(()) } else { Err(refused("line_set", 28)) }
    }

    fn clear_line(&self, uid: Uid) -> Result<bool, BpfError> {
        Ok(self.asked().line_clear(uid))
    }

    fn set_default(&self, line: Option<&DefaultLine>) -> Result<(), BpfError> {
        self.asked().accounting.default_set(line);
        Ok(())
    }

    fn protect_cgroups(&self, _: &[u64]) -> Result<(), BpfError> {
        Ok(())
    }

    fn actions_told(&self, _: u64) -> Result<(), BpfError> {
        Ok(())
    }

    fn take_place(&mut self) -> Result<(), BpfError> {
        Ok(())
    }

    fn attend(&self, _: bool) -> Result<(), BpfError> {
        Ok(())
    }

    fn verify(&self, account: u32) -> Result<(), BpfError> {
        self.asked().verify(account);
        Ok(())
    }

    // Copies are no event: nothing about them is an order of events.
    fn family(&mut self, _: u64) -> Result<Option<FamilyFacts>, BpfError> {
        Ok(None)
    }

    fn set_copies(&self, _: u64, _: Pages, _: &[CopiesPart]) -> Result<bool, BpfError> {
        Ok(false)
    }

    fn measure_again(&self, _: u32) -> Result<bool, BpfError> {
        Ok(false)
    }
}

impl Records for Machine {
    fn next_record(&mut self) -> Result<Option<Record>, BpfError> {
        let mut world = self.asked();
        let record = world.accounting.ring.pop_front();
        match &record {
            Some(record) => {
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
